"""How to provoke errors of sizing."""

from __future__ import annotations

from pathlib import Path

from leftfold.sizing import constants
from leftfold.sizing.constants import Constants
from leftfold.sizing.fit import Timed, fit
from leftfold.sizing.load import Load
from leftfold.sizing.log_size import log_lines
from tests.golden.causes import Cause


def asked(partitions: int, brokers: int | None) -> Cause:
    def cause(tmp: Path) -> None:
        log_lines(Load(rate=1_000, record_bytes=100, partitions=partitions, brokers=brokers), Constants())

    return cause


def spoilt(text: str) -> Cause:
    def cause(tmp: Path) -> None:
        file = constants.place(tmp, "local")
        file.parent.mkdir(parents=True)
        file.write_text(text)
        constants.read(file)

    return cause


def faster_with_more(tmp: Path) -> None:
    fit(
        small=Timed(300, 200, 0.5),
        large=Timed(3_000, 200, 0.9),
        records=Timed(120_000, 1_000, 0.4),
        tiles=Timed(18_000, 36_000, 2.0),
    )


CAUSES: dict[str, Cause] = {
    "too-many-partitions": asked(100_000, 3),
    "too-many-partitions/cluster": asked(250_000, None),
    "bad-constants": spoilt('{"version": 0}'),
    "bad-constants/text": spoilt("{"),
    "probe-unclear": faster_with_more,
}
