from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

import leftfold as lf
from leftfold.errors import DeclarationError
from tests.unit.declare.declared import Click, clicks

H = 3_600_000_000
ANY: Any = None  # a value that a checker would rightly object to


@lf.view(clicks, by=("item_id", "shop"), latest="window_end", ttl="1h")
def trending(records: Any) -> Any:
    return records * 2


@lf.stream(clicks, event=Click)
def same(records: Any) -> Any:
    return records


def declare(of: Any = clicks, **options: Any) -> lf.View:
    def made(records: Any) -> Any:
        return records

    return lf.view(of, **{"by": "item_id", **options})(made)


def test_a_view() -> None:
    assert (trending.name, trending.by, trending.latest, trending.ttl) == (
        *("trending", ("item_id", "shop")),
        *("window_end", H),
    )
    assert trending.reading.topics == (clicks,)
    assert trending.source.file == __file__
    assert declare(name="other").name == "other"


def test_it_stays_callable() -> None:
    assert trending(21) == 42
    assert trending.__name__ == "trending"


def test_a_column_is_a_feature_of_the_view() -> None:
    column: Any = trending.column("n", int)
    assert isinstance(column, lf.Feature)
    assert (column.name, column.owner) == ("n", trending)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: declare(of="clicks"), "not-a-topic"),
        (lambda: declare(of=lf.Topic("newest", Click, key=Click.user_id, compacted=True)), "topic-compacted"),
        (lambda: declare(of=same), "view-of-stream"),
        (lambda: declare(to=()), "no-sink"),
        (lambda: declare(to=["redis"]), "no-sink"),
        (lambda: declare(by=()), "by-kind"),
        (lambda: declare(by="at"), "by-kind"),
        (lambda: declare(by=("item_id", "n"), latest="n"), "by-kind"),
        (lambda: declare(ttl="soon"), "bad-duration"),
        (lambda: declare(name="a:b"), "view-name"),
        (lambda: trending.column("found", int), "reserved-name"),
        (lambda: trending.column("n", ANY), "column-kind"),
    ],
)
def test_refused(make: Callable[[], object], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.file == __file__


def test_a_moment_in_a_vector() -> None:
    class Seen(lf.Vector):
        ends = trending.column("window_end", datetime)

    assert Seen.__leftfold_definition__.parts[0].feature == "window_end"
