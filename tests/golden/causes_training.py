"""How to provoke errors of training sets: of labels, of what they ask for, of the history and of what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from leftfold.settings import Profile
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, project, stand_in

ALL = HEAD + EVENT + TOPIC + VIEW
FREE = '\n\n@lf.view(clicks, by="item_id", latest="at")\ndef trending(clicks):\n    return clicks\n'
VECTOR = '\n\nclass RankerInput(lf.Vector):\n    n = trending.column("n", int)\n'


def _frame(**kinds: Any) -> Any:
    """A DataFrame as far as its columns go."""
    fields = {f"l{i}": stand_in(dataType=kind) for i, kind in enumerate(kinds.values())}
    plain = stand_in(schema=fields)
    return stand_in(sparkSession=None, columns=list(kinds), schema=stand_in(fields=[]), toDF=lambda *_: plain)


def labels(time: str = "ts", made: tuple[str, ...] = (), **kinds: str) -> Cause:
    def cause(_: Path) -> None:
        from pyspark.sql import types

        from leftfold.spark.training.labels import labels_of

        found = {name: getattr(types, kind)() for name, kind in kinds.items()}
        labels_of(_frame(**found), stand_in(), time=time, keys={}, made=made)

    return cause


def given(what: Any) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.spark.training.labels import labels_of

        labels_of(what, stand_in(), time="ts", keys={})

    return cause


def labels_unreadable(_: Path) -> None:
    from pyspark.errors import PySparkException

    from leftfold.spark.training.labels import labels_of

    def load(path: str) -> Any:
        raise PySparkException(f"[PATH_NOT_FOUND] Path does not exist: {path}")

    reader = stand_in(options=lambda: stand_in(load=load))
    session = stand_in(read=stand_in(format=lambda _: reader))
    labels_of("labels.parquet", session, time="ts", keys={})


def asked(tmp: Path, streams: str = ALL, **options: Any) -> Any:
    from leftfold.training.sets import TrainingOptions, TrainingSet, vector_of

    app = project(tmp, streams)
    engines = stand_in(online=stand_in(address="redis://127.0.0.1:1"), kafka=None)
    catalog = app.catalog
    vector = vector_of(options.pop("vector", "user_activity"), catalog)
    deployed = stand_in(
        catalog=catalog,
        profile=Profile(name="local"),
        engines=engines,
        lake="lake",
        receipts=None,
        session=lambda _: stand_in(),
    )
    return TrainingSet(None, vector, TrainingOptions("ts", **options), deployed)


def option(**options: Any) -> Cause:
    def cause(tmp: Path) -> None:
        asked(tmp, **options)

    return cause


def a_vector(of: Any) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.training.sets import vector_of

        vector_of(of, project(tmp, ALL + FREE).catalog)

    return cause


def nothing_served(tmp: Path) -> None:
    made = asked(tmp, as_of="served")
    made.__dict__["_builds"] = {}
    _ = made._served


def no_receipts(tmp: Path) -> None:
    from leftfold.training import sets as training

    made = asked(tmp, as_of="served")
    made.__dict__["_builds"] = {"user_activity": ("0123456789ab-01234567", None)}
    with mock.patch.object(training, "ReceiptStore", return_value=stand_in(every=list)):
        _ = made._served


def served_not_known(tmp: Path) -> None:
    from leftfold.spark.training.served import Unknown
    from leftfold.training.sets import check_known

    declared = project(tmp, ALL).catalog.view("user_activity")
    check_known(declared, "0123456789ab-01234567", [Unknown(0, 1_767_614_400_000_000, 0, 86_400)], 41)


def view_without_history(tmp: Path) -> None:
    made = asked(tmp, ALL + FREE + VECTOR, vector="ranker_input")
    made.__dict__["_builds"] = {"trending": ("0123456789ab-01234567", None)}
    made._pasts({})


def directory_taken(tmp: Path) -> None:
    from leftfold.spark.training import assemble

    with mock.patch.object(assemble, "exists", return_value=True):
        asked(tmp).write("sets/monday")


def again(manifest: dict[str, Any] | None) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.training import sets as training

        known = stand_in(session=lambda _: None, catalog=project(tmp, ALL).catalog)
        with mock.patch.object(training, "read_manifest", return_value=manifest):
            training.again("sets/monday", known)

    return cause


def differs(_: Path) -> None:
    from contextlib import nullcontext

    from leftfold.cli.training_verb import _again

    made = stand_in(digest=lambda: "41-b19c6e0b2d6f9a11", expected="41-0a3b51f5c27d8e46")
    _again(stand_in(training_set_again=lambda _: nullcontext(made)), "sets/monday", as_json=True)


def frozen(**what: Any) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.training.topics import FrozenPosition, PastReader

        registry = stand_in(schema=lambda _: None)
        admin = stand_in(
            start_offsets=lambda topic, partitions: {0: 150, 1: 0},
            topic_ids=lambda names: {"clicks": what.get("id", "yXo1pGmJQyK3xkqfXSjWvA")},
        )
        past = PastReader(stand_in(engines=stand_in(registry=registry, admin=admin)), stand_in())
        position = FrozenPosition(
            "clicks", "yXo1pGmJQyK3xkqfXSjWvA", {0: 120, 1: 0}, {0: 900, 1: 700}, 0, what.get("schemas", ()), ()
        )
        source = stand_in(writer_schemas={}, archives=(), partitions=(2,))
        if position.schemas:
            past._as_before(source, position)
        past._refuse_gone(source, position)

    return cause


def unreadable(_: Path) -> None:
    from pyspark.errors import PySparkException

    from leftfold.spark.training.assemble import cached

    def count() -> int:
        raise PySparkException("[KAFKA_DATA_LOSS] some data may have been lost")

    stored = stand_in(count=count, unpersist=lambda: None)
    cached(stand_in(persist=lambda _: stored))


CAUSES: dict[str, Cause] = {
    "label-column-missing": labels(user_id="StringType", at="TimestampType"),
    "label-column-kind": labels(user_id="StringType", ts="DoubleType"),
    "label-column-taken": labels(made=("clicks_1h",), ts="TimestampType", clicks_1h="LongType"),
    "naive-datetime/labels": labels(ts="TimestampNTZType"),
    "labels-format": given("labels.xlsx"),
    "labels-kind": given(42),
    "labels-unreadable": labels_unreadable,
    "not-a-vector": a_vector(42),
    "not-a-vector/function": a_vector("trending"),
    "bad-as-of": option(as_of="now"),
    "logged-not-served": option(logged=True),
    "unknown-view/batch": option(batch={"user_item": "batch"}),
    "nothing-served": nothing_served,
    "nothing-served/receipts": no_receipts,
    "served-not-known": served_not_known,
    "view-without-history": view_without_history,
    "directory-taken": directory_taken,
    "no-training-set": again(None),
    "no-training-set/version": again({"version": 7}),
    "definition-changed": again(
        {
            "version": 1,
            "vector": {"vector": "user_activity", "parts": [], "inputs": [], "order": []},
            "views": {"user_activity": {"fingerprint": "0123456789ab"}},
        }
    ),
    "training-set-differs": differs,
    "schema-gone": frozen(schemas=(7,)),
    "history-gone": frozen(),
    "history-gone/topic": frozen(id="q2m9Zy0PT5mYBm0UqGxYzg"),
    "history-unreadable": unreadable,
}
