from __future__ import annotations

import json

import pytest

from leftfold.errors import RunError
from leftfold.offsets import Range, Ranges
from leftfold.replay.manifest import Manifest

MADE = Manifest(
    topic="clicks",
    name="prod.clicks",
    topic_id="hYd",
    ranges=Ranges.of([Range("prod.clicks", 0, 3, 9), Range("prod.clicks", 2, 0, 4)]),
    schema_ids=(1, 4),
    rejected_ids=(9_999,),
    columns={"_offset": "bigint", "price": "double"},
    format="jsonl",
    records=10,
    outcomes={"accepted": 9, "rejected": 1},
    digest="00ff",
    made_at="2026-01-05T12:00:00+00:00",
)


def test_round_trip() -> None:
    assert Manifest.parse(MADE.as_text(), "here") == MADE


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", MADE.as_text().replace('"version": 1', '"version": 2')])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(RunError, match="here is not a finished replay"):
        Manifest.parse(text, "here")


def test_a_manifest_with_more_or_less_is_refused() -> None:
    document = MADE.as_json()
    for changed in ({**document, "more": 1}, {k: v for k, v in document.items() if k != "digest"}):
        with pytest.raises(RunError):
            Manifest.parse(json.dumps(changed), "here")
