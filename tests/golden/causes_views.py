"""How to provoke errors of what stands beside plain windows: formulas, tables, streams, functions and vectors.

What Spark tells of a function's plan is told here by a stand-in; `tests/engine/test_refusals.py` refuses real plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import leftfold as lf
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, declares, feature, project, stand_in

ITEMS = (
    "class ItemUpdate(lf.Event):\n    item_id: str\n    category: str\n    picture: bytes = b''\n"
    "    tags: list[str] = []\n\n\n"
    'items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)\n\n\n'
)
TABLE = "class Item(lf.Table, of=items, by=ItemUpdate.item_id):\n    category = ItemUpdate.category\n\n\n"
FREE = '@lf.view(clicks, by="item_id", latest="at")\ndef trending(clicks):\n    return clicks\n\n\n'
FIRST_SEEN = (
    "class FirstSeen(lf.Features, of=clicks, by=Click.user_id):\n    first = lf.min(Click.at, window=None)\n\n\n"
)


def table(column: str, *, of: str = "items", by: str = "ItemUpdate.item_id") -> Cause:
    return declares(f"{ITEMS}class Item(lf.Table, of={of}, by={by}):\n    {column}")


def stream(of: str = "clicks", *, event: str = "Click", before: str = "") -> Cause:
    return declares(f"{before}@lf.stream({of}, event={event})\ndef dear(clicks):\n    return clicks")


def function(options: str, *, of: str = "clicks") -> Cause:
    made = FREE.replace('clicks, by="item_id", latest="at"', f"{of}, {options}")
    return declares(f"{ITEMS}{stream_text()}{made}")


def stream_text() -> str:
    return "@lf.stream(clicks, event=Click)\ndef dear(clicks):\n    return clicks\n\n\n"


def vector(*lines: str) -> Cause:
    body = "\n    ".join(lines)
    return declares(f"{ITEMS}{TABLE}{VIEW}\n\n{FREE}{FIRST_SEEN}class RankerInput(lf.Vector):\n    {body}")


# What Spark tells of a function -------------------------------------------------------------------------------------


class Sequence:
    """As Scala has it."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def size(self) -> int:
        return len(self._values)

    def apply(self, index: int) -> Any:
        return self._values[index]


@dataclass(frozen=True)
class Node:
    """A node of an analysed plan. Each is on the way of the stream."""

    name: str
    below: tuple[Node, ...] = ()
    uses: str | None = None  # the name of an expression in it
    by: str | None = None  # what Spark noted of the key of an aggregation

    def nodeName(self) -> str:  # noqa: N802 # as Spark names it
        return self.name

    def isStreaming(self) -> bool:  # noqa: N802 # as Spark names it
        return True

    def children(self) -> Sequence:
        return Sequence(*self.below)

    def expressions(self) -> Sequence:
        if self.uses is None:
            return Sequence()
        used = self.uses
        return Sequence(stand_in(prettyName=lambda: used, deterministic=lambda: True, children=Sequence))

    def groupingExpressions(self) -> Sequence:  # noqa: N802 # as Spark names it
        def marked(mark: str) -> bool:
            return mark == self.by

        key = stand_in(
            getClass=lambda: stand_in(getSimpleName=lambda: "AttributeReference"),
            metadata=lambda: stand_in(contains=marked),
        )
        return Sequence(key)


def frame(plan: Node, **types: str) -> Any:
    query = stand_in(analyzed=lambda: plan)
    return stand_in(_jdf=stand_in(queryExecution=lambda: query), dtypes=list(types.items()))


SOURCE = Node("StreamingRelationV2")


def declared_view(tmp: Path, *, body: str = "return clicks") -> lf.View:
    view = project(tmp, HEAD + EVENT + TOPIC + FREE.replace("return clicks", body)).catalog.view("trending").definition
    assert isinstance(view, lf.View)
    return view


def planned_view(plan: Node) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.spark.views.inspect import check_view

        check_view(declared_view(tmp), frame(plan))

    return cause


def called_view(body: str) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.spark.views.free import _called

        _called(declared_view(tmp, body=body), stand_in())

    return cause


def typed_view(**types: str) -> Cause:
    """A view whose function returns columns of these types."""

    def cause(tmp: Path) -> None:
        from leftfold.spark.views.free import _check_columns

        _check_columns(declared_view(tmp), types)

    return cause


def planned_stream(plan: Node, **types: str) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.spark.views.inspect import check_stream

        text = f"{stream_text()}{VIEW.replace('of=clicks', 'of=dear')}"
        stream = project(tmp, HEAD + EVENT + TOPIC + text).catalog.view("user_activity").reading.stream
        assert stream is not None
        check_stream(stream, frame(plan, **types), {"user_id": "string"})

    return cause


CAUSES: dict[str, Cause] = {
    # Windows and formulas
    "last-n": feature('lf.last_n(Click.item_id, "7d", n=5_000)'),
    "sketch-size": feature('lf.distinct(Click.item_id, "7d", lg_k=14)'),
    "step-without-window": feature('lf.count(None, step="1m")'),
    "ttl-with-window": feature('lf.count("1h", ttl="1d")'),
    "formula-kinds": feature('lf.count("1h") / "2"'),
    "formula-kinds/feature": feature('lf.last(Click.item_id, "1h")\n    m = n + 1'),
    "feature-of-other-view": declares(
        f"{VIEW}\n\nclass B(lf.Features, of=clicks, by=Click.item_id):\n"
        '    n = lf.count("1h")\n    m = n / UserActivity.clicks_1h'
    ),
    "default-kind": feature('lf.sum(Click.price, "1h").default("none")'),
    "default-kind/list": feature('lf.last_n(Click.item_id, "1h", n=5).default([])'),
    "column-of-a-table": feature("lf.latest(Click.item_id)"),
    "column-of-a-table/bare": feature("Click.item_id"),
    "by-kind/twice": feature('lf.count("1h")', by="(Click.user_id, Click.user_id)"),
    "reserved-name/at": declares(
        "class Tick(lf.Event):\n    at: str\n    time: datetime\n\n\n"
        'ticks = lf.Topic("ticks", Tick, key=Tick.at, time=Tick.time)\n\n\n'
        'class A(lf.Features, of=ticks, by=Tick.at):\n    n = lf.count("1h")'
    ),
    "naive-datetime/compute": declares(f"{VIEW}\n\nUserActivity.compute([], at=datetime(2026, 1, 5))"),
    "wrong-event/compute": declares(
        f"{ITEMS}{VIEW}\n\nnow = datetime.fromisoformat('2026-01-05T12:00:00Z')\n"
        "UserActivity.compute([ItemUpdate(item_id='i', category='c')], at=now)"
    ),
    # What views read
    "topic-compacted": declares(
        f"{ITEMS}class A(lf.Features, of=items, by=ItemUpdate.item_id):\n    n = lf.count('1h')"
    ),
    "topic-compacted/stream": declares(
        'latest = lf.Topic("latest", Click, key=Click.user_id, time=Click.at, compacted=True)\n\n\n'
        + stream_text().replace("clicks, event", "latest, event")
        + VIEW.replace("of=clicks", "of=dear")
    ),
    "topic-not-compacted": table("n = Click.item_id", of="clicks", by="Click.item_id"),
    "topics-differ": stream("(clicks, items)", before=ITEMS),
    "stream-time": stream(event="ItemUpdate", before=ITEMS),
    "stream-time/compacted": stream("items", event="ItemUpdate", before=ITEMS),
    "no-source": declares(
        'made = {}\nexec("def dear(c): return c", made)\nlf.stream(clicks, event=Click)(made["dear"])'
    ),
    # Tables
    "table-of-one-topic": declares(
        f'{ITEMS}more = lf.Topic("more", ItemUpdate, key=ItemUpdate.item_id, compacted=True)\n\n\n'
        + TABLE.replace("of=items", "of=(items, more)")
    ),
    "table-of-one-topic/stream": declares(f"{ITEMS}{stream_text()}{TABLE.replace('of=items', 'of=dear')}"),
    "table-key": table("n = ItemUpdate.category", by="ItemUpdate.category"),
    "aggregate-in-table": table('n = lf.count("1h")'),
    "column-kind": table("n = ItemUpdate.picture"),
    "no-features/table": table("pass"),
    "default-kind/table": table("category = lf.latest(ItemUpdate.category).default(0)"),
    # Functions
    "view-of-stream": function('by="item_id"', of="dear"),
    "no-sink": function('by="item_id", to=[]'),
    "by-kind/function": function('by="at"'),
    "column-kind/function": vector('n = trending.column("n", list)'),
    "view-function": called_view("return clicks if LIMIT else clicks"),
    "view-function/nothing": called_view("clicks"),
    "view-columns": typed_view(user_id="string", at="timestamp"),
    "view-columns/kind": typed_view(item_id="string", at="timestamp", window="struct<start:timestamp,end:timestamp>"),
    "view-columns/key": typed_view(item_id="double", at="timestamp"),
    "view-columns/latest": typed_view(item_id="string", at="string"),
    "view-refused": planned_view(Node("Sort", (SOURCE,))),
    "view-refused/join": planned_view(Node("Join", (SOURCE, SOURCE))),
    "view-refused/clock": planned_view(Node("Project", (SOURCE,), uses="current_timestamp")),
    "view-refused/session": planned_view(Node("Aggregate", (SOURCE,), by="spark.sessionWindow")),
    "view-refused/state": planned_view(Node("Aggregate", (SOURCE,))),
    "view-refused/twice": planned_view(Node("Aggregate", (Node("Aggregate", (SOURCE,)),))),
    "stream-has-state": planned_stream(Node("Aggregate", (SOURCE,))),
    "stream-not-repeatable": planned_stream(Node("Project", (SOURCE,), uses="now")),
    "stream-columns": planned_stream(SOURCE, user_id="string"),
    "stream-columns/field": planned_stream(SOURCE, _record="struct", item_id="string"),
    "stream-columns/kind": planned_stream(SOURCE, _record="struct", user_id="bigint"),
    # Vectors
    "request-kind": vector("n = UserActivity.clicks_1h", "m = lf.request(datetime)"),
    "request-is-key": vector("n = UserActivity.clicks_1h", "user_id = lf.request(str)"),
    "feature-of-no-view": vector('n = lf.count("1h")'),
    "feature-of-no-view/field": vector("n = UserActivity.clicks_1h", "m = ItemUpdate.category"),
    "no-features/vector": vector("n = lf.request(float)"),
    "default-kind/vector": vector('n = UserActivity.clicks_1h.default("none")'),
    "default-kind/moment": vector("n = FirstSeen.first.default(datetime.fromisoformat('2026-01-05T12:00:00Z'))"),
}
