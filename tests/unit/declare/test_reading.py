from __future__ import annotations

from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.reading import reading
from leftfold.errors import DeclarationError, SourceLine
from tests.unit.declare.declared import Click, Purchase, clicks

HERE = SourceLine(__file__, 1)
older = lf.Topic("older", Click, key=Click.user_id, time=Click.at, lateness="1h", log_time="producer")
purchases = lf.Topic("purchases", Purchase, key=Purchase.user_id, time=Purchase.at)
as_json = lf.Topic("as_json", Click, key=Click.user_id, time=Click.at, format="json")
newest = lf.Topic("newest", Click, key=Click.user_id, compacted=True)


@lf.stream((clicks, older), event=Purchase)
def bought(records: Any) -> Any:
    return records


def refused(of: Any, *, compacted: bool = False) -> str:
    with pytest.raises(DeclarationError) as caught:
        reading("view", of, HERE, compacted=compacted)
    return caught.value.code


def test_one_topic_or_several() -> None:
    assert reading("view", clicks, HERE).topics == (clicks,)
    both = reading("view", (clicks, older), HERE)
    assert (both.topics, both.event, both.stream) == ((clicks, older), Click, None)
    assert [(o.topic, o.log_time) for o in both.origins] == [("clicks", "broker"), ("older", "producer")]


def test_a_stream_is_read_as_its_rows() -> None:
    read = reading("view", bought, HERE)
    assert (read.topics, read.event, read.stream) == ((clicks, older), Purchase, bought)


@pytest.mark.parametrize("of", [(), "clicks", Click, None, ("clicks", clicks)])
def test_what_is_no_topic(of: Any) -> None:
    assert refused(of) == "not-a-topic"


@pytest.mark.parametrize("other", [purchases, as_json])
def test_several_topics_are_alike(other: Any) -> None:
    assert refused((clicks, other)) == "topics-differ"


def test_compaction_is_a_tables_and_nothing_elses() -> None:
    assert refused(newest) == "topic-compacted"
    assert refused(clicks, compacted=True) == "topic-not-compacted"
    assert reading("view", newest, HERE, compacted=True).topics == (newest,)
