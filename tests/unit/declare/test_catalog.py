from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.declare.collector import collecting
from leftfold.errors import DeclarationError
from tests.unit.conftest import MakeProject
from tests.unit.declare.declared import Click, clicks

TOPICS = 1_000
PARTITIONS = 100
# What design.md asks of catalog work; this machine has two cores and other work to do.
ALLOWED_S = 5.0  # of processor time: what else the machine does is not the catalog's doing


def _other(name: str = "clicks") -> lf.Topic[Click]:
    return lf.Topic(name, Click, key=Click.user_id, time=Click.at)


def _view(name: str) -> type[lf.Features]:
    class Made(lf.Features, of=clicks, by=Click.user_id, name=name):
        n = lf.count("1h")

    return Made


def _table(name: str) -> type[lf.Table]:
    latest = lf.Topic("latest_clicks", Click, key=Click.user_id, compacted=True)

    class Made(lf.Table, of=latest, by=Click.user_id, name=name):
        item = Click.item_id

    return Made


@lf.view(clicks, by=("item_id", "user_id"))
def trending(records: Any) -> Any:
    return records


@lf.stream(clicks, event=Click)
def cleaned(records: Any) -> Any:
    return records


def cleaned_view() -> type[lf.Features]:
    class Made(lf.Features, of=cleaned, by=Click.user_id, name="cleaned_activity"):
        n = lf.count("1h")

    return Made


class Seen(lf.Vector):
    trend = trending.column("n", int)


def test_a_catalog() -> None:
    activity = _view("activity")
    catalog, problems = Catalog.of([clicks, activity])
    assert problems == []
    assert catalog.topic("clicks") is clicks
    view = catalog.view("activity")
    assert view.definition is activity.__leftfold_definition__
    assert (view.name, view.source, view.fingerprint) == (
        *("activity", activity.__leftfold_source__),
        activity.__leftfold_definition__.fingerprint,
    )
    assert view.summary == "1 feature of clicks by user_id"


def test_views_of_every_kind_and_vectors() -> None:
    declared = [_view("activity"), _table("newest"), trending, cleaned_view(), Seen]
    catalog, problems = Catalog.of(declared)
    assert problems == []
    assert {name: view.summary for name, view in catalog.views.items()} == {
        "activity": "1 feature of clicks by user_id",
        "newest": "1 column of latest_clicks by user_id",
        "trending": "function of clicks by item_id, user_id",
        "cleaned_activity": "1 feature of cleaned by user_id",
    }
    assert catalog.vectors == {"seen": Seen}
    assert list(catalog.topics) == ["clicks", "latest_clicks"]  # each belongs to who reads it
    assert len({view.fingerprint for view in catalog.views.values()}) == 4


def test_a_vector_and_a_view_share_their_names() -> None:
    _, problems = Catalog.of([_view("seen"), Seen])
    assert [p.code for p in problems] == ["duplicate-view"]


def test_every_duplicate_is_reported_with_both_places() -> None:
    declared = [clicks, _other(), _other(), _view("a"), _view("a"), _other("b"), _view("b")]
    catalog, problems = Catalog.of(declared)
    assert Counter(p.code for p in problems) == {"duplicate-topic": 2, "duplicate-view": 1}
    for problem in problems:
        assert problem.source is not None
        assert problem.source.file == __file__
    assert "declared.py" in problems[0].why
    assert (list(catalog.topics), list(catalog.views)) == (["clicks", "b"], ["a", "b"])


def test_the_same_declaration_twice_is_no_duplicate() -> None:
    """Two files of a project may import one module."""
    assert Catalog.of([clicks, clicks])[1] == []


def test_unknown_names_say_what_there_is() -> None:
    catalog, _ = Catalog.of([clicks])
    with pytest.raises(DeclarationError) as caught:
        catalog.topic("clics")
    assert (caught.value.code, caught.value.why) == ("unknown-topic", "it declares clicks")
    with pytest.raises(DeclarationError) as caught:
        catalog.view("clicks")
    assert (caught.value.code, caught.value.why) == ("unknown-view", "it declares no view at all")


def test_declarations_outside_of_a_load_belong_to_nobody() -> None:
    _other("before")
    with collecting() as declared:
        inside = _other("inside")
    _other("after")
    assert declared == [inside] and len(declared) == 1  # noqa: PT018 # one statement about one list


def test_collections_nest() -> None:
    with collecting() as outer:
        first = _other("first")
        with collecting() as inner:
            second = _other("second")
        third = _other("third")
    assert [d.name for d in outer] == [first.name, third.name]
    assert [d.name for d in inner] == [second.name]


def _large_project(*, last: str = "") -> str:
    lines = ["from datetime import datetime", "import leftfold as lf", ""]
    for i in range(TOPICS):
        lines += [
            f"class Event{i}(lf.Event):",
            "    user_id: str",
            "    item_id: str",
            "    price: float",
            "    at: datetime",
            f't{i} = lf.Topic("topic.{i}", Event{i}, key=Event{i}.user_id, time=Event{i}.at, partitions={PARTITIONS})',
            f"class View{i}(lf.Features, of=t{i}, by=Event{i}.user_id):",
            '    clicks_1h = lf.count("1h")',
            f'    spend_24h = lf.sum(Event{i}.price, "24h", where=Event{i}.price > 1)',
        ]
    return "\n".join([*lines, last, ""])


def test_a_thousand_topics_of_a_hundred_partitions(
    make_project: MakeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    duplicates = (
        f'again = lf.Topic("topic.{TOPICS - 1}", Event0, key=Event0.user_id, time=Event0.at)\n'
        'class View0Again(lf.Features, of=t0, by=Event0.user_id, name="view0"):\n    n = lf.count("1h")'
    )
    root = make_project(files={"streams.py": _large_project(last=duplicates)})
    started = time.process_time()
    app = lf.open(root)
    problems = app.problems
    took = time.process_time() - started
    with capsys.disabled():
        print(
            f"\n    {TOPICS:,} topics × {PARTITIONS} partitions, with a view each, loaded and checked in {took:.2f} s"
        )
    assert [p.code for p in problems] == ["duplicate-topic", "duplicate-view"]
    topics = app._loaded[0].topics.values()
    assert sum(t.partitions for t in topics) == TOPICS * PARTITIONS
    assert took < ALLOWED_S


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ('lf.Topic("x", Event7, key="userid", time=Event7.at)', "unknown-field"),
        ('class X(lf.Features, of=t7, by="userid"):\n    n = lf.count("1h")', "unknown-field"),
        ('class X(lf.Features, of=t7, by=Event7.user_id):\n    n = lf.sum(Event7.prise, "1h")', "unknown-field"),
        ('class X(lf.Features, of=t7, by=Event8.user_id):\n    n = lf.count("1h")', "field-of-other-event"),
    ],
)
def test_unknown_keys_and_fields_among_a_thousand(make_project: MakeProject, last: str, code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        _ = lf.open(make_project(files={"streams.py": _large_project(last=last)})).catalog
    assert caught.value.code == code
    assert caught.value.source is not None
    assert caught.value.source.line >= TOPICS * 9
