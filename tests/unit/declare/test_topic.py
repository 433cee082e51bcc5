from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.topic_options import COMPATIBILITIES
from leftfold.errors import DeclarationError
from tests.unit.declare.declared import Click, Purchase, clicks

M, H, D = 60_000_000, 3_600_000_000, 86_400_000_000


class Odd(lf.Event):
    user: str
    shop: int
    maybe: str | None = None
    many: list[str] = []  # noqa: RUF012 # pydantic copies it
    price: float
    at: datetime
    seen: datetime | None = None


def topic(**options: Any) -> lf.Topic[Odd]:
    return lf.Topic(**{"name": "odd", "event": Odd, "key": Odd.user, "time": Odd.at, **options})


def refused(**options: Any) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        topic(**options)
    assert caught.value.source is not None
    assert caught.value.source.file == __file__
    return caught.value


def test_defaults() -> None:
    made = topic()
    assert (made.partitions, made.replication, made.compatibility) == (6, 3, "FULL_TRANSITIVE")
    assert (made.retention, made.lateness, made.external) == (7 * D, 10 * M, False)
    assert (made.format, made.log_time, made.compacted) == ("avro", "broker", False)
    assert made.source.file == __file__


def test_durations_are_read() -> None:
    made = topic(retention=timedelta(days=1), lateness="1h")
    assert (made.retention, made.lateness) == (D, H)
    assert refused(retention="soon").code == "bad-duration"
    assert refused(lateness="0s").code == "duration-not-positive"


@pytest.mark.parametrize("name", ["clicks", "shop.clicks-v2_b", "1", "a" * 200])
def test_names(name: str) -> None:
    assert topic(name=name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a b", "a/b", "clics_é", "a:b", "a" * 201, "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    assert refused(name=name).code == "topic-name"


@pytest.mark.parametrize("event", [lf.Event, dict, "Odd", None, Odd.user])
def test_it_holds_an_event(event: Any) -> None:
    assert refused(event=event).code == "not-an-event"


@pytest.mark.parametrize("key", [Odd.price, Odd.at, Odd.maybe, Odd.many, (Odd.user, Odd.maybe)])
def test_keys_are_required_strings_or_ints(key: Any) -> None:
    assert refused(key=key).code == "key-kind"


def test_keys() -> None:
    assert [k.name for k in topic(key="user").key] == ["user"]
    assert [k.name for k in topic(key=(Odd.user, Odd.shop)).key] == ["user", "shop"]
    assert refused(key="usr").code == "unknown-field"
    assert refused(key=Purchase.user_id).code == "field-of-other-event"


def test_a_key_has_a_part() -> None:
    with pytest.raises(DeclarationError):
        topic(key=())


@pytest.mark.parametrize("time", [Odd.price, Odd.user, Odd.seen])
def test_time_is_a_required_datetime(time: Any) -> None:
    assert refused(time=time).code == "time-kind"
    assert refused(time=time, compacted=True).code == "time-kind"


def test_only_a_compacted_topic_needs_no_time() -> None:
    assert refused(time=None).code == "time-missing"
    assert topic(time=None, compacted=True).time is None
    with_time = topic(compacted=True).time
    assert with_time is not None
    assert with_time.name == "at"


def test_a_compacted_topic_has_no_retention() -> None:
    assert topic(compacted=True).retention is None
    assert refused(compacted=True, retention="7d").code == "compacted-retention"


def test_json_has_no_compatibility() -> None:
    assert topic(format="json").compatibility == "NONE"
    assert refused(format="json", compatibility="FULL").code == "json-compatibility"


@pytest.mark.parametrize(
    ("rate", "partitions"),
    [("1/s", 6), ("20k/s", 6), ("300k/s", 6), ("301k/s", 7), ("1M/s", 20), (" 2.5 m/s ", 50)],
)
def test_a_rate_chooses_partitions(rate: str, partitions: int) -> None:
    assert topic(rate=rate).partitions == partitions


def test_a_rate_beside_partitions_chooses_nothing_and_is_no_part_of_what_a_topic_is() -> None:
    declared = topic(rate="2k/s", partitions=20)
    assert (declared.partitions, declared.rate) == (20, 2_000)
    assert declared == topic(partitions=20)


@pytest.mark.parametrize("rate", ["", "20k", "20k/m", "-1/s", "1g/s"])
def test_bad_rates(rate: str) -> None:
    assert refused(rate=rate).code == "bad-rate"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"partitions": 0}, "partitions-range"),
        ({"partitions": 4_001}, "partitions-range"),
        ({"rate": "900m/s"}, "partitions-range"),  # 18,000 partitions: no cluster of ours carries them
        ({"replication": 0}, "replication-range"),
        ({"compatibility": "full"}, "bad-compatibility"),
        ({"compatibility": ""}, "bad-compatibility"),
        ({"format": "JSON"}, "bad-topic-option"),
        ({"log_time": "mine"}, "bad-topic-option"),
    ],
)
def test_ranges(options: dict[str, Any], code: str) -> None:
    assert refused(**options).code == code


@pytest.mark.parametrize("level", COMPATIBILITIES)
def test_compatibilities(level: str) -> None:
    assert topic(compatibility=level).compatibility == level


def test_a_topic_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        clicks.name = "other"  # type: ignore[misc] # that is the mistake


@pytest.mark.parametrize("operation", [lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a in [b]])
def test_topics_can_be_compared(operation: Callable[[Any, Any], Any]) -> None:
    """Keys are references, whose == builds a condition; a topic's == must not ask that for a bool."""
    assert isinstance(operation(topic(), topic()), bool)


def test_equal_topics_are_equal() -> None:
    assert topic() == topic()
    assert len({topic(), topic()}) == 1
    assert topic(time=None, compacted=True) == topic(time=None, compacted=True)


@pytest.mark.parametrize(
    "options",
    [
        *({"lateness": "1h"}, {"retention": "1d"}, {"partitions": 7}, {"replication": 1}, {"external": True}),
        *({"format": "json"}, {"log_time": "producer"}, {"compacted": True}, {"time": None, "compacted": True}),
        *({"key": Odd.shop}, {"compatibility": "NONE"}),
    ],
)
def test_every_option_makes_another_topic(options: dict[str, Any]) -> None:
    assert topic() != topic(**options)


def test_another_event_keeps_its_own_fields() -> None:
    assert lf.Topic("p", Purchase, key=Purchase.user_id, time=Purchase.at).event is Purchase
    assert Click.user_id is not None
