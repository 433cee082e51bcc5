"""What a changelog's record looks like, and what may travel to executors."""

from __future__ import annotations

import pickle

import pytest

from leftfold.kafka.changelog import ChangelogTopic, StaleWriterError, record, writer_of
from leftfold.settings import Kafka


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("u1", "3600:17", "[17,9,1]"), (b"b/3600:17/u1", b"[17,9,1]", [("batch", "9")])),
        (("a/b", "row", '[5,9,"x,y"]'), (b"b/row/a/b", b'[5,9,"x,y"]', [("batch", "9")])),
        (("é", "row", "[5,9]"), ("b/row/é".encode(), None, [("batch", "9"), ("index", "5")])),
        (("", "life", "[5,9,null]"), (b"b/life/", b"[5,9,null]", [("batch", "9")])),
    ],
)
def test_record(row: tuple[str, str, str], expected: object) -> None:
    assert record("b", 9, row) == expected


def test_writers_share_the_entities() -> None:
    assert {writer_of(f"u{n}", 4) for n in range(100)} == {0, 1, 2, 3}
    assert {writer_of(f"u{n}", 1) for n in range(100)} == {0}


def test_both_survive_the_way_to_another_process() -> None:
    changelog = ChangelogTopic(Kafka(bootstrap="b:1"), "t", "s", "b")
    assert pickle.loads(pickle.dumps(changelog)) == changelog
    error = pickle.loads(pickle.dumps(StaleWriterError(7, 5)))
    assert (error.found, error.batch) == (7, 5)
    assert str(error) == "the changelog holds batch 7, and 5 was to be written"
