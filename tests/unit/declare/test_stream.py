from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.errors import DeclarationError
from tests.unit.declare.declared import Click, Purchase, clicks


class Tag(lf.Event):
    user_id: str
    tag: str
    at: datetime


class Timeless(lf.Event):
    user_id: str


class Mistimed(lf.Event):
    user_id: str
    at: int


newest = lf.Topic("newest", Click, key=Click.user_id, compacted=True)
purchases = lf.Topic("purchases", Purchase, key=Purchase.user_id, time=Purchase.at)


@lf.stream(clicks, event=Tag)
def tags(records: Any) -> Any:
    return records.explode("tags")


def declare(of: Any = clicks, event: Any = Tag) -> Any:
    @lf.stream(of, event=event)
    def made(records: Any) -> Any:
        return records

    return made


def test_a_stream() -> None:
    assert (tags.name, tags.topics, tags.event, tags.time) == ("tags", (clicks,), Tag, "at")
    assert tags.source.file == __file__


def test_it_stays_callable() -> None:
    class Records:
        def explode(self, name: str) -> str:
            return name

    assert tags(Records()) == "tags"


def test_a_view_of_a_stream_is_over_its_rows() -> None:
    class Tags(lf.Features, of=tags, by=Tag.tag):
        users = lf.distinct(Tag.user_id, "1h")

    definition = Tags.__leftfold_definition__
    assert definition.stream == tags.fingerprint
    assert [o.topic for o in definition.origins] == ["clicks"]
    assert definition.fields() == {"at", "tag", "user_id"}


def test_a_view_of_a_stream_cannot_name_the_topics_fields() -> None:
    with pytest.raises(DeclarationError) as caught:
        type("Made", (lf.Features,), {"n": lf.count("1h")}, of=tags, by=Click.user_id)
    assert caught.value.code == "field-of-other-event"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: declare(of="clicks"), "not-a-topic"),
        (lambda: declare(of=()), "not-a-topic"),
        (lambda: declare(of=(clicks, purchases)), "topics-differ"),
        (lambda: declare(event=Timeless), "stream-time"),
        (lambda: declare(event=Mistimed), "stream-time"),
        (lambda: declare(of=newest), "stream-time"),
        (lambda: lf.stream(clicks, event=Tag)(len), "no-source"),
    ],
)
def test_refused(make: Callable[[], object], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.file == __file__
