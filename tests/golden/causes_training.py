"""How to provoke errors of training sets: of labels, of what they ask for, of the history and of what was written."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from leftfold.arrow.types import MOMENT
from leftfold.settings import Profile
from tests.golden.causes import EVENT, HEAD, TOPIC, VIEW, Cause, project, stand_in

ALL = HEAD + EVENT + TOPIC + VIEW
FREE = '\n\n@lf.view(clicks, by="item_id", latest="at")\ndef trending(clicks):\n    return clicks\n'
VECTOR = '\n\nclass RankerInput(lf.Vector):\n    n = trending.column("n", int)\n'


def labels(time: str = "ts", made: tuple[str, ...] = (), **kinds: pa.DataType) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.arrow.labels import labels_of

        columns = {name: pa.array([], kind) for name, kind in kinds.items()}
        labels_of(pa.table(columns), time=time, keys={}, made=made, only=())

    return cause


def given(what: Any) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.arrow.labels import labels_of

        labels_of(what, time="ts", keys={}, made=(), only=())

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
    from leftfold.training.options import TrainingOptions, vector_of
    from leftfold.training.sets import TrainingSet

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
    engine = options.pop("engine", None)
    return TrainingSet(None, vector, TrainingOptions("ts", **options), deployed, engine=engine)


def option(**options: Any) -> Cause:
    def cause(tmp: Path) -> None:
        asked(tmp, **options)

    return cause


def a_vector(of: Any) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.training.options import vector_of

        vector_of(of, project(tmp, ALL + FREE).catalog)

    return cause


def served(tmp: Path) -> Any:
    from leftfold.training.served import ServedBuilds

    views = {"user_activity": project(tmp, ALL).catalog.view("user_activity")}
    return ServedBuilds(stand_in(receipts=None, lake="lake"), views, {}, stand_in(), None)


def nothing_served(tmp: Path) -> None:
    made = served(tmp)
    made.__dict__["_builds"] = {}
    made.served(needed=True)


def no_receipts(tmp: Path) -> None:
    from leftfold.training import served as training

    made = served(tmp)
    made.__dict__["_builds"] = {"user_activity": ("0123456789ab-01234567", None)}
    with mock.patch.object(training, "ReceiptStore", return_value=stand_in(every=list)):
        made.served(needed=True)


def served_not_known(tmp: Path) -> None:
    from leftfold.fold.known import Unknown
    from leftfold.training.served import check_known

    declared = project(tmp, ALL).catalog.view("user_activity")
    check_known(declared, "0123456789ab-01234567", [Unknown(0, 1_767_614_400_000_000, 0, 86_400)], 41)


def view_without_history(tmp: Path) -> None:
    asked(tmp, ALL + FREE + VECTOR, vector="ranker_input")._by_spark._pasts({})


def directory_taken(tmp: Path) -> None:
    with chdir(tmp):
        Path("sets/monday").mkdir(parents=True)
        asked(tmp)._arrow_set.write("sets/monday", stand_in())


def needs_spark(tmp: Path) -> None:
    _ = asked(tmp, ALL + FREE + VECTOR, vector="ranker_input", engine="arrow").choice


def again(manifest: dict[str, Any] | None) -> Cause:
    def cause(tmp: Path) -> None:
        from leftfold.training.manifest import FILE
        from leftfold.training.sets import again

        known = stand_in(profile=Profile(name="local"), catalog=project(tmp, ALL).catalog)
        with chdir(tmp):
            if manifest is not None:
                Path("sets/monday").mkdir(parents=True)
                Path("sets/monday", FILE).write_text(json.dumps(manifest))
            again("sets/monday", known)

    return cause


def differs(_: Path) -> None:
    from contextlib import nullcontext

    from leftfold.cli.training_verb import _verify

    made = stand_in(choice=None, digest=lambda: "41-b19c6e0b2d6f9a11", expected="41-0a3b51f5c27d8e46")
    _verify(
        stand_in(training_set_again=lambda _, engine: nullcontext(made)),
        "sets/monday",
        None,
        explain=False,
        as_json=True,
    )


def frozen(**what: Any) -> Cause:
    def cause(_: Path) -> None:
        from leftfold.training.position import FrozenPosition, gone_from_log, refuse_another, schemas_of

        registry = stand_in(schema=lambda _: None)
        admin = stand_in(
            start_offsets=lambda topic, partitions: {0: 150, 1: 0},
            topic_ids=lambda names: {"clicks": what.get("id", "yXo1pGmJQyK3xkqfXSjWvA")},
        )
        deployed = stand_in(engines=stand_in(registry=registry, admin=admin))
        position = FrozenPosition(
            "clicks", "yXo1pGmJQyK3xkqfXSjWvA", {0: 120, 1: 0}, {0: 900, 1: 700}, 0, what.get("schemas", ()), ()
        )
        schemas_of(deployed, position, {})
        refuse_another(deployed, position)
        gone = gone_from_log(deployed, position, 2)
        assert gone is not None
        raise gone

    return cause


def unreadable(_: Path) -> None:
    from pyspark.errors import PySparkException

    from leftfold.spark.training.assemble import cached

    def count() -> int:
        raise PySparkException("[KAFKA_DATA_LOSS] some data may have been lost")

    stored = stand_in(count=count, unpersist=lambda: None)
    cached(stand_in(persist=lambda _: stored))


CAUSES: dict[str, Cause] = {
    "label-column-missing": labels(user_id=pa.string(), at=MOMENT),
    "label-column-kind": labels(user_id=pa.string(), ts=pa.float64()),
    "label-column-taken": labels(made=("clicks_1h",), ts=MOMENT, clicks_1h=pa.int64()),
    "naive-datetime/labels": labels(ts=pa.timestamp("us")),
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
    "needs-spark": needs_spark,
    "no-training-set": again(None),
    "no-training-set/version": again({"version": 7}),
    "definition-changed": again(
        {
            "version": 1,
            "vector": {
                "vector": "user_activity",
                "parts": [["clicks_1h", "user_activity", "clicks_1h", None]],
                "inputs": [],
                "order": ["clicks_1h"],
            },
            "views": {"user_activity": {"fingerprint": "0123456789ab"}},
        }
    ),
    "training-set-differs": differs,
    "schema-gone": frozen(schemas=(7,)),
    "history-gone": frozen(),
    "history-gone/topic": frozen(id="q2m9Zy0PT5mYBm0UqGxYzg"),
    "history-unreadable": unreadable,
}
