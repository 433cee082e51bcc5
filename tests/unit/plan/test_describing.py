"""What a declared name is, in words: each kind of declaration, and who reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

import leftfold as lf
from leftfold.declare.catalog import Catalog
from leftfold.errors import DeclarationError
from leftfold.plan.describing import Description, describe
from leftfold.settings import Profile

PROFILE = Profile(name="prod", namespace="prod")
TEMPLATE = Path(lf.__file__).parent / "template" / "clickstream" / "streams.py"
MORE = '''

class Bought(lf.Outcome, of=ranker_scores, by=clicks, within="1h", on={"user_id": Click.user_id}):
    clicks = lf.count()


@lf.consumer(clicks, start="now")
def notify(click: Click) -> None:
    """Send a letter."""


@lf.view(of=clicks, by="item_id", ttl="7d")
def popular(records):
    """What is clicked."""
    return records
'''


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    root = tmp_path_factory.mktemp("shop")
    (root / "leftfold.toml").write_text('[project]\nname = "shop"\ndeclarations = ["streams.py"]\n')
    (root / "streams.py").write_text(TEMPLATE.read_text() + MORE)
    return lf.open(root).catalog


def one(catalog: Catalog, name: str) -> Description:
    (described,) = describe(catalog, PROFILE, name)
    assert described.as_json()["name"] == name
    return described


def test_features(catalog: Catalog) -> None:
    view = one(catalog, "user_activity")
    assert (view.kind, view.doc, view.views) == ("features", "What a person did lately.", ("user_activity",))
    assert (view.facts["of"], view.facts["key"], view.facts["event time"]) == ("clicks", "user_id (string)", "at")
    assert view.facts["longest window"] == "7d"
    meanings = {value.name: (value.type, value.meaning) for value in view.values}
    assert meanings["clicks_1h"] == ("int", "count(1h)")
    assert meanings["big_1h"] == ("int", "count(1h, where price > 100.0)")
    assert meanings["last_item"] == ("string", "last(item_id (string), 7d)")
    assert meanings["per_click"] == ("float", "(spend_24h / clicks_24h)")
    assert view.used_by == {"vectors": ("ranker_input",), "scorers": ("ranker",)}
    assert view.source is not None


def test_a_table(catalog: Catalog) -> None:
    table = one(catalog, "item")
    assert (table.kind, [(v.name, v.type) for v in table.values]) == ("table", [("category", "string")])


def test_a_function(catalog: Catalog) -> None:
    view = one(catalog, "popular")
    assert (view.kind, view.doc, view.facts["key"], view.facts["kept"]) == (
        *("function", "What is clicked."),
        *("item_id", "7d"),
    )


def test_a_topic(catalog: Catalog) -> None:
    topic = one(catalog, "clicks")
    assert (topic.kind, topic.facts["in the cluster"], topic.facts["kept"]) == ("topic", "prod.clicks", "14d")
    assert topic.used_by == {
        "views": ("user_activity", "popular"),
        "consumers": ("notify",),
        "scorers": ("ranker",),
        "outcomes": ("bought",),
    }
    assert one(catalog, "ranker_scores").used_by == {"outcomes": ("bought",), "writers": ("ranker",)}
    assert one(catalog, "items").facts["event time"] == "none"


def test_a_vector(catalog: Catalog) -> None:
    vector = one(catalog, "ranker_input")
    assert (vector.kind, vector.views) == ("vector", ("user_activity", "item"))
    meanings = {value.name: value.meaning for value in vector.values}
    assert meanings["per_click"] == "per_click of user_activity, else 0.0"
    assert meanings["cart_value"] == "given by the caller"


def test_a_scorer_and_a_consumer(catalog: Catalog) -> None:
    scorer = one(catalog, "ranker")
    assert (scorer.kind, scorer.facts["predictions"]) == ("scorer", "RankerScore into ranker_scores")
    consumer = one(catalog, "notify")
    assert (consumer.kind, consumer.facts["delivery"], consumer.doc) == ("consumer", "at least once", "Send a letter.")


def test_an_outcome(catalog: Catalog) -> None:
    outcome = one(catalog, "bought")
    assert (outcome.kind, outcome.facts["predictions"], outcome.facts["within"]) == ("outcome", "ranker_scores", "1h")
    assert [(v.name, v.type, v.meaning) for v in outcome.values] == [("clicks", "int", "count")]
    assert one(catalog, "ranker").used_by == {"outcomes": ("bought",)}


def test_an_event(catalog: Catalog) -> None:
    event = one(catalog, "Click")
    assert (event.kind, event.used_by) == ("event", {"topics": ("clicks",)})
    assert [(v.name, v.type) for v in event.values][-1] == ("at", "datetime")


def test_a_name_of_several_things(catalog: Catalog) -> None:
    view = catalog.views["item"]
    both = Catalog({**catalog.topics, "item": catalog.topics["items"]}, {"item": view}, {})
    assert [each.kind for each in describe(both, PROFILE, "item")] == ["topic", "table"]


def test_a_name_that_is_not_declared(catalog: Catalog) -> None:
    with pytest.raises(DeclarationError, match="nothing that is called 'clics'") as raised:
        describe(catalog, PROFILE, "clics")
    assert raised.value.code == "unknown-name"
    assert "clicks" in raised.value.why
