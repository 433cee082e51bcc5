"""The search of a key's records in the log: which partitions are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

import leftfold as lf
from leftfold.declare.catalog import DeclaredView
from leftfold.fold.definition import Definition
from leftfold.kafka.log_reader import Logged, LogReader
from leftfold.run.evidence import Place, Search

PARTITIONS = 4


class Sale(lf.Event):
    shop: str
    item: str
    at: datetime


by_shop = lf.Topic("by_shop", Sale, key=Sale.shop, time=Sale.at, partitions=PARTITIONS, format="json", lateness="10m")
by_item = lf.Topic("by_item", Sale, key=Sale.item, time=Sale.at, partitions=PARTITIONS, format="json", lateness="10m")


class Shops(lf.Features, of=by_shop, by=Sale.shop):
    sales_1h = lf.count("1h")


class EmptyLog:
    """Answers as a log does that holds no record."""

    def firsts(self, topic: str, partitions: Iterable[int], since_us: int | None = None) -> dict[int, int | None]:
        return dict.fromkeys(partitions, 0)

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]], *, first_log: bool) -> Iterator[Logged]:
        return iter(())


def search(*topics: lf.Topic[Any]) -> Search:
    definition = DeclaredView.of(Shops).definition
    assert isinstance(definition, Definition)
    applied = dict.fromkeys(range(PARTITIONS), 10)
    places = tuple(Place(t, definition.origins[0], t.name, PARTITIONS, applied, lambda _: None) for t in topics)
    return Search(definition, ("s1",), places, cast(LogReader, EmptyLog()))


def test_a_topic_with_the_views_key_is_read_where_the_key_belongs() -> None:
    found = search(by_shop).find(None, lambda _done, _total: None)
    assert (len(found.ranges), found.whole) == (1, False)


def test_a_topic_with_another_key_is_read_whole() -> None:
    found = search(by_item).find(None, lambda _done, _total: None)
    assert (len(found.ranges), found.whole) == (PARTITIONS, True)


def test_of_two_topics_one_with_the_views_key_is_not_all_that_there_is() -> None:
    """A producer with another partitioner may have put a record elsewhere, so a second search must read the rest."""
    both = search(by_shop, by_item)
    found = both.find(None, lambda _done, _total: None)
    assert (len(found.ranges), found.whole) == (1 + PARTITIONS, False)
    found = both.find(None, lambda _done, _total: None, whole=True)
    assert (len(found.ranges), found.whole) == (2 * PARTITIONS, True)
