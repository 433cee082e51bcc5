"""Training sets of a project on real brokers: every part of a vector, every way to give labels, and made again."""

from __future__ import annotations

import json
import sys
import types
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import leftfold
from leftfold.cli.main import cli
from leftfold.errors import LeftfoldError
from leftfold.run.choice import Engine
from leftfold.training.sets import TrainingSet
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.log import delete_before

SHOP = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: int
    price: float
    at: datetime


class ItemUpdate(lf.Event):
    item_id: int
    category: str
    tags: list[str]
    since: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=3, lateness="6h")
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True, partitions=2)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_24h = lf.sum(Click.price, "24h")
    per_click = spend_24h / lf.count("24h")
    ever = lf.count(None)
    fading = lf.last(Click.price, None, ttl="2h")


class UserItem(lf.Features, of=clicks, by=(Click.user_id, Click.item_id)):
    clicks_7d = lf.count("7d")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category
    tags = ItemUpdate.tags
    since = ItemUpdate.since


@lf.view(clicks, by="item_id", keep_forever=True)
def popular(clicks):
    from pyspark.sql import functions as F

    return clicks.groupBy("item_id").agg(F.count("*").alias("n"))


class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    per_click = UserActivity.per_click.default(-1.0)
    ever = UserActivity.ever
    fading = UserActivity.fading
    affinity = UserItem.clicks_7d
    category = Item.category.default("none")
    tags = Item.tags
    since = Item.since
    cart_value = lf.request(float)


class WithFunction(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    n = popular.column("n", int)
"""
VIEWS = ("user_activity", "user_item", "item")
H = timedelta(hours=1)


@dataclass(frozen=True)
class Shop:
    app: leftfold.App
    now: datetime  # after all that was sent
    sent: list[dict[str, Any]]


@pytest.fixture(scope="module")
def shop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Shop:
    app = projects.make(tmp_path_factory.mktemp("training"), cluster.endpoints, f"t{uuid.uuid4().hex[:8]}", SHOP)
    projects.apply(app)
    started = datetime.now(UTC)
    sent = [
        {"user_id": f"u{n % 7}", "item_id": n % 3, "price": float(n), "at": started - timedelta(minutes=n)}
        for n in range(300)
    ]
    with app.producer("items") as producer:
        for item, category in ((0, "old"), (1, "books"), (0, "toys")):
            producer.send_dict({"item_id": item, "category": category, "tags": [category, "x"], "since": started})
    with app.producer("clicks") as producer:
        for record in sent:
            producer.send_dict(record)
    for progress in run_until_caught_up(app, spark, *VIEWS):
        assert progress.error is None, progress.error
    return Shop(app, datetime.now(UTC) + timedelta(seconds=2), sent)


def labels(shop: Shop) -> pd.DataFrame:
    rows = [
        {
            "uid": f"u{n % 9}",
            "item_id": n % 4,
            "cart_value": float(n),
            "ts": shop.now - n * H / 4,
            "clicked": n % 2 == 0,
        }
        for n in range(40)
    ]
    return pd.DataFrame([*rows, rows[0]])  # the same label twice


def made(shop: Shop, given: Any, **options: Any) -> TrainingSet:
    vector: Any = options.pop("vector", "ranker_input")
    return shop.app.training_set(given, vector, **{"time": "ts", "keys": {"user_id": "uid"}, **options})


def by_hand(shop: Shop, label: Any) -> dict[str, Any]:
    """As of event: all that happened before the label. Prices are whole, so floats add up exactly."""
    at = label.ts.to_pydatetime().replace(tzinfo=UTC)  # as Spark gives it: in the session's zone, and without it
    mine = sorted((c for c in shop.sent if c["user_id"] == label.uid and c["at"] < at), key=lambda c: c["at"])

    def within(window: timedelta, step: timedelta, events: list[Any]) -> list[Any]:
        past = (at - window) - datetime(1970, 1, 1, tzinfo=UTC)
        start = datetime(1970, 1, 1, tzinfo=UTC) + past // step * step
        return [c for c in events if c["at"] >= start]

    day = within(24 * H, H, mine)
    return {
        "clicks_1h": len(within(H, timedelta(minutes=5), mine)),
        "per_click": sum(c["price"] for c in day) / len(day) if day else -1.0,
        "ever": len(mine),
        "fading": mine[-1]["price"] if mine and mine[-1]["at"] >= at - 2 * H else None,
        "affinity": len(within(168 * H, H, [c for c in mine if c["item_id"] == label.item_id])),
    }


def plain(value: Any) -> Any:
    return None if value is None or value is pd.NaT or (isinstance(value, float) and pd.isna(value)) else value


def test_every_label_comes_back_once_with_its_features(shop: Shop) -> None:
    given = labels(shop)
    with made(shop, given, as_of="event") as train:
        found = train.to_pandas()
    assert list(found.columns) == [*given.columns, "clicks_1h", "per_click", "ever", "fading", "affinity", "category",
                                   "tags", "since"]  # fmt: skip
    assert sorted(found["cart_value"]) == sorted(given["cart_value"])
    for row in found.itertuples():
        assert {n: plain(getattr(row, n)) for n in by_hand(shop, row)} == by_hand(shop, row)
    assert found["ever"].sum() > 0
    assert (found["per_click"] == -1.0).any()
    assert found["fading"].isna().any()
    assert not found["fading"].isna().all()
    # Items were written before the newest labels and after all others.
    newest = found[(found["cart_value"] == 0) & (found["item_id"] == 0)].iloc[0]
    assert (newest["category"], list(newest["tags"])) == ("toys", ["toys", "x"])
    assert set(found[found["item_id"] == 3]["category"]) == {"none"}
    assert set(found[found["cart_value"] > 4]["category"]) == {"none"}


def test_what_was_not_yet_logged_does_not_leak(shop: Shop) -> None:
    """Everything was logged a moment ago, and happened hours before: at earlier moments nobody knew."""
    with made(shop, labels(shop), as_of="log") as train:
        found = train.to_pandas()
        report = train.report()
    assert set(found[found["cart_value"] > 0]["ever"]) == {0}
    assert found[found["cart_value"] == 0]["ever"].min() > 0
    assert (report.rows, report.without_time, report.outside, report.unknown) == (41, 0, 0, 0)
    assert report.missing["fading"] == int(found["fading"].isna().sum())
    assert report.differ["event", "log"]["ever"] > 10
    assert report.differ["log", "served"]["ever"] == 0  # the views had caught up before the newest label
    assert report.differ["event", "log"]["category"] == 0  # a table has no event time


@pytest.mark.nightly  # in CI test_both_ways compares all values of a generated project
@pytest.mark.parametrize("as_of", ["event", "log", "served"])
def test_arrow_and_spark_make_the_same(shop: Shop, tmp_path: Path, as_of: Any) -> None:
    sets: dict[str, Any] = {}
    engines: tuple[Engine, Engine] = ("arrow", "spark")
    for engine in engines:
        with made(shop, labels(shop), as_of=as_of, engine=engine) as train:
            assert train.choice.engine == engine
            manifest = train.write(str(tmp_path / engine))
            sets[engine] = manifest, train.report(), train.digest()
        for other in engines:
            with shop.app.training_set_again(tmp_path / engine, engine=other) as again:
                assert again.digest() == again.expected == sets[engine][2]
    assert sets["arrow"] == sets["spark"]


@pytest.mark.nightly
def test_labels_in_files_and_frames_give_the_same(shop: Shop, tmp_path: Path, spark: Any) -> None:
    given = labels(shop)
    given.to_csv(tmp_path / "labels.csv", index=False)
    given.to_json(tmp_path / "labels.jsonl", orient="records", lines=True, date_format="iso", date_unit="us")
    given.to_parquet(tmp_path / "labels.parquet", coerce_timestamps="us", allow_truncated_timestamps=True)
    digests = set()
    frame = spark.createDataFrame(given)
    for one in (given, frame, *(str(tmp_path / f"labels.{kind}") for kind in ("csv", "jsonl", "parquet"))):
        with made(shop, one, vector="user_item", as_of="event") as train:
            rows = train.frame.select("uid", "item_id", "cart_value", "clicks_7d").collect()
            digests.add(str(sorted(tuple(row) for row in rows)))
    assert len(digests) == 1


@pytest.mark.nightly
def test_written_and_made_again(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More is sent in between: the same offsets give the same set."""
    labels(shop).to_parquet(tmp_path / "labels.parquet", coerce_timestamps="us", allow_truncated_timestamps=True)
    monkeypatch.chdir(shop.app.root)
    tags: dict[str, str] = {}
    stub = types.ModuleType("mlflow")
    stub.__spec__ = types.SimpleNamespace(name="mlflow")  # type: ignore[assignment] # find_spec asks for no more
    stub.active_run = object  # type: ignore[attr-defined]
    stub.set_tags = tags.update  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", stub)
    out = str(tmp_path / "set")
    command = ["training-set", str(tmp_path / "labels.parquet"), "ranker_input", "--time", "ts"]
    done = CliRunner().invoke(
        cli, [*command, "--column", "user_id=uid", "--as-of", "served", "--out", out, "--report", "--json"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    told = json.loads(done.stdout)
    assert told["manifest"]["rows"] == told["report"]["rows"] == 41
    assert told["manifest"]["views"]["user_activity"]["build"] is not None
    assert tags["leftfold.digest"] == told["manifest"]["digest"]
    assert tags["leftfold.vector"] == "ranker_input"

    with shop.app.producer("clicks") as producer:
        for record in shop.sent[:50]:
            producer.send_dict(record)
    again = CliRunner().invoke(cli, ["training-set", "--verify", out, "--json"])
    assert again.exit_code == 0, (again.output, again.exception)
    assert json.loads(again.stdout)["same"] is True
    with made(shop, labels(shop), as_of="event") as train:
        assert train.digest() != told["manifest"]["digest"]

    assert refused(lambda: shop.app.training_set_again(tmp_path)) == "no-training-set"
    with made(shop, labels(shop)) as train:
        assert refused(lambda: train.write(out)) == "directory-taken"


def test_a_view_alone_and_what_is_refused(shop: Shop) -> None:
    given = labels(shop)
    view = shop.app.catalog.view("user_activity").declared
    with shop.app.training_set(given.rename(columns={"uid": "user_id"}), view, time="ts", as_of="event") as train:
        assert train.frame.columns[-5:] == ["clicks_1h", "spend_24h", "per_click", "ever", "fading"]
        assert train.frame.count() == 41
    assert refused(lambda: made(shop, given, vector="with_function").frame) == "view-without-history"
    assert refused(lambda: made(shop, given, keys={}).frame) == "label-column-missing"
    assert refused(lambda: made(shop, given.drop(columns="cart_value")).frame) == "label-column-missing"
    assert refused(lambda: made(shop, given.assign(uid=1)).frame) == "label-column-kind"
    assert refused(lambda: made(shop, given.assign(ever=1)).frame) == "label-column-taken"
    assert refused(lambda: made(shop, given.assign(ts=given["ts"].dt.tz_localize(None))).frame) == "naive-datetime"


@pytest.mark.nightly
def test_what_the_log_no_longer_has(shop: Shop, tmp_path: Path) -> None:
    """Last in this file: it deletes the head of the topic."""
    out = str(tmp_path / "set")
    given = labels(shop)
    with made(shop, given, vector="user_item", as_of="event") as train:
        train.write(out)
    topic = shop.app.profile.topic_name("clicks")
    ends = shop.app.log[0].end_offsets(topic, 3)
    delete_before(shop.app.kafka.bootstrap, topic, {p: end // 2 for p, end in ends.items()})
    assert refused(lambda: shop.app.training_set_again(out).frame) == "history-gone"
    with made(shop, given, vector="user_item", as_of="event") as train:
        report = train.report()
    assert (report.rows, report.outside) == (41, 41)  # no window of 7 days lies after what was deleted
    assert report.missing == {"clicks_7d": 0}


def refused(call: Any) -> str:
    with pytest.raises(LeftfoldError) as caught:
        call()
    return caught.value.code
