"""A process that appends outcomes to a table, as at a given moment: PROJECT TABLE MOMENT. A test kills it."""

from __future__ import annotations

import sys
from unittest import mock

import leftfold
from leftfold.run import watermark


def main(root: str, table: str, when: str) -> None:
    with (
        mock.patch("leftfold.clock.now_us", return_value=int(when)),
        mock.patch.object(watermark, "CLOCK_SLACK", 500_000),
    ):
        print(leftfold.open(root).append_outcomes("last", table=table), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
