"""How to provoke errors of the online store and of running views."""

from __future__ import annotations

import fcntl
import ssl
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import redis

from leftfold.declare.companions import companions_of
from leftfold.declare.free import View
from leftfold.errors import start_or_check
from leftfold.fold.definition import LAYOUT, Definition
from leftfold.fold.expressions import to_micros
from leftfold.settings import Kafka, Profile
from leftfold.store.engine import STORE, Moved, StorePosition
from leftfold.store.layout import Build, manifest
from leftfold.store.packed import HEAD as HEAD_OF_TILES
from leftfold.store.packed import unpack
from leftfold.store.reader import Reader
from leftfold.store.redis.client import connect, reaching
from leftfold.store.redis.names import Names
from leftfold.store.serving import rows_of, target_of
from leftfold.store.writer import BuildWriter
from tests.golden.causes import DEAD, EVENT, HEAD, NOON, PROJECT, TOPIC, VIEW, Cause, project, stand_in
from tests.golden.causes_views import FREE, ITEMS, TABLE

GENERATION = "0123456789"
LIFETIME = "    ever = lf.count(None)\n"
VECTOR = (
    "\n\nclass RankerInput(lf.Vector):\n    clicks_1h = UserActivity.clicks_1h\n    category = Item.category\n"
    "    cart_value = lf.request(float)\n"
)


def built(tmp: Path, view: str = "user_activity", streams: str = VIEW) -> Build:
    definition = project(tmp, HEAD + EVENT + TOPIC + streams).catalog.view(view).definition
    assert not isinstance(definition, View)
    return Build(definition, GENERATION)


def store(*builds: Build, layout: int = LAYOUT) -> Reader:
    """A reader of a store that holds these builds, no row, and events up to noon."""
    held: dict[str, bytes] = {}
    for build in builds:
        names = Names("", build.definition.view)
        text = manifest(build).replace(f'"layout": {LAYOUT}', f'"layout": {layout}')
        held |= {names.active: build.id.encode(), names.manifest(build.id): text.encode()}

    def answer(verb: str, key: str, *fields: str) -> bytes | list[bytes | None] | None:
        if verb == "GET":
            return held.get(key)
        return [b"7", str(to_micros(NOON)).encode()] if ":mark:" in key else [None] * len(fields)

    def execute(commands: Sequence[bytes]) -> list[Any]:
        return [answer(*command.decode().split("\r\n")[2::2]) for command in commands]  # between are their lengths

    reader = Reader(f"redis://{DEAD}/0", "")
    reader._client = stand_in(execute=execute)
    return reader


def store_unreachable(tmp: Path) -> None:
    Reader(f"redis://:hunter2@{DEAD}/0", "").read("user_activity", [{"user_id": "u1"}], None)


def _redis_says(error: redis.RedisError) -> None:
    client = connect(f"redis://shop:hunter2@{DEAD}/0")
    with reaching(client):
        raise error


def store_denied(tmp: Path) -> None:
    _redis_says(redis.AuthenticationError("invalid username-password pair or user is disabled."))


def store_full(tmp: Path) -> None:
    _redis_says(redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."))


def store_refused(tmp: Path) -> None:
    _redis_says(redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but is unable to persist"))


def store_tls(tmp: Path) -> None:
    wrapped = redis.ConnectionError("Error 1 connecting to 127.0.0.1:1. [SSL: CERTIFICATE_VERIFY_FAILED]")
    wrapped.__cause__ = ssl.SSLCertVerificationError("certificate verify failed")
    _redis_says(wrapped)


def view_not_built(tmp: Path) -> None:
    reader = Reader(f"redis://{DEAD}/0", "prod")
    reader._client = stand_in(execute=lambda commands: [None] * len(commands))
    reader.read("user_activity", [{"user_id": "u1"}], None)


def unknown_layout(tmp: Path) -> None:
    store(built(tmp), layout=7).read("user_activity", [{"user_id": "u1"}], None)


def packed_row_unreadable(tmp: Path) -> None:
    definition = built(tmp).definition
    assert isinstance(definition, Definition)
    unpack(definition, HEAD_OF_TILES.pack(9, 0, 0, 0, -1))


def feature_not_built(tmp: Path) -> None:
    """The store's build is of the declaration before a second feature was added to it."""
    before = built(tmp)
    built(tmp, streams=VIEW + '    clicks_24h = lf.count("24h")\n')
    view = sys.modules["streams"].UserActivity
    rows_of(view, store(before).read(target_of(view), [{"user_id": "u1"}], None))


def vector_read(**given: Any) -> Cause:
    def cause(tmp: Path) -> None:
        streams = f"{ITEMS}{TABLE}{VIEW}{VECTOR}"
        builds = [built(tmp, view, streams) for view in ("user_activity", "item")]
        store(*builds).read(target_of(sys.modules["streams"].RankerInput), [given], None)

    return cause


def read_at(at: datetime, *, view: str = "user_activity", streams: str = VIEW) -> Cause:
    def cause(tmp: Path) -> None:
        key = "item_id" if view == "item" else "user_id"
        with mock.patch("leftfold.clock.now_us", return_value=to_micros(NOON) + 60_000_000):
            store(built(tmp, view, streams)).read(view, [{key: "x"}], to_micros(at))

    return cause


def naive_read(tmp: Path) -> None:
    engines = 'kafka = { bootstrap = "b" }\nregistry = { url = "http://r" }\nonline = { url = "redis://o" }\n'
    app = project(tmp, toml=f"{PROJECT}[profile.local]\n{engines}")
    app.get("user_activity", user_id="u1", at=datetime(2026, 1, 5, 12))


def store_holds(batch: int) -> Cause:
    def cause(tmp: Path) -> None:
        writer = BuildWriter(f"redis://{DEAD}/0", "", built(tmp))
        writer._store = stand_in(claim=lambda *_: StorePosition(batch, 0))
        writer.check(42)

    return cause


def store_lacks(what: str) -> Cause:
    """Found when the mark of batch 42 was to move."""

    def cause(tmp: Path) -> None:
        writer = BuildWriter(f"redis://{DEAD}/0", "", built(tmp))
        writer._store = stand_in(move=lambda *_: Moved(41, what))
        writer.mark(42, [])

    return cause


# Running ------------------------------------------------------------------------------------------------------------


def deployment(tmp: Path, *, topics: dict[str, int], streams: str = VIEW) -> Any:
    from leftfold.run.deployment import Deployment, Engines

    catalog = project(tmp, HEAD + EVENT + TOPIC + streams).catalog
    engines = Engines(
        Kafka(bootstrap=DEAD),
        stand_in(address=f"redis://{DEAD}"),
        stand_in(
            partitions=lambda names: {**topics, **dict.fromkeys(companions_of(catalog) if topics else (), 6)},
            width=lambda *_: 0.0,
        ),
        stand_in(versions=lambda subject: {1: "{}"}),
    )
    return Deployment(
        catalog,
        Profile(name="local"),
        engines,
        checkpoints=str(tmp / "checkpoints"),
        lake=str(tmp / "lake"),
        locks=tmp / "locks",
        log_file=tmp / "spark.log",
        application="leftfold shop",
    )


def supervisor(tmp: Path, *, topics: dict[str, int], streams: str = VIEW) -> Any:
    from leftfold.run.supervisor import RunOptions, Supervisor

    deployed = deployment(tmp, topics=topics, streams=streams)
    return Supervisor(
        deployed, RunOptions(list(deployed.catalog.views), until_caught_up=True, fresh=frozenset(), take_over=True)
    )


def spark_missing(tmp: Path) -> None:
    app = project(tmp)
    with mock.patch("importlib.util.find_spec", return_value=None):
        app.supervisor()


def not_applied(tmp: Path) -> None:
    supervisor(tmp, topics={})


def companions_missing(tmp: Path) -> None:
    running = supervisor(tmp, topics={"clicks": 6})
    running._engines.admin.partitions = lambda names: {}
    running._check_companions()


def already_running(tmp: Path) -> None:
    running = supervisor(tmp, topics={"clicks": 6})
    (tmp / "locks").mkdir()
    with (tmp / "locks" / "user_activity.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running.run(lambda progress: None)


def view_ends(*, failure: str | None, swept: int = 0, streams: str = VIEW, careful: bool = False) -> Cause:
    """A view whose query has ended, or has lost rows, as its supervisor finds it. `careful`: it reads less already."""

    def cause(tmp: Path) -> None:
        from leftfold.spark.query import Snapshot

        (view,) = supervisor(tmp, topics={"clicks": 6}, streams=streams).views
        view.progress.state = "running"
        if careful:
            view.take_care()
        view._query = stand_in(
            active=False,
            failure=lambda: failure,
            snapshot=lambda partitions: Snapshot(batch=41, rate=0.0, behind=None, swept=swept),
            stop_if_idle=lambda: None,
        )
        view.poll()
        raise view.progress.error

    return cause


OUT_OF_MEMORY = "Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space"
SPARK_SAID = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure\n"
    "java.io.IOException: No space left on device\n    at org.apache.spark.Task.run(Task.scala:1)\n"
)

STORE_AWAY = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure\n"
    "redis.exceptions.ConnectionError: Error 111 connecting to 10.0.0.7:6379. Connection refused.\n"
    "leftfold.errors.StoreError: error[store-unreachable]: no Redis answered at 10.0.0.7:6379\n"
    "  why:   Error 111 connecting to 10.0.0.7:6379. Connection refused.\n"
    f"  fix:   {start_or_check(STORE)}\n"
)

BROKERS_AWAY = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
    "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listOffsets\n"
)

STATE_GONE = (
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error reading "
    "streaming state file of file:/state/0/1/51_9bef08cb.changelog does not exist. SQLSTATE: 58030"
)

NOT_UNIQUE = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure\n"
    "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] leftfold-rows-not-unique:i7 SQLSTATE: P0001\n"
)

CAUSES: dict[str, Cause] = {
    # The store
    "store-unreachable": store_unreachable,
    "store-denied": store_denied,
    "store-full": store_full,
    "store-refused": store_refused,
    "store-tls": store_tls,
    "view-not-built": view_not_built,
    "unknown-layout": unknown_layout,
    "packed-row-unreadable": packed_row_unreadable,
    "feature-not-built": feature_not_built,
    "moment-not-kept": read_at(datetime(2026, 1, 5, 11, 30, 1, tzinfo=UTC)),
    "moment-not-kept/old": read_at(datetime(2026, 1, 3, 12, tzinfo=UTC)),
    "moment-not-kept/lifetime": read_at(datetime(2026, 1, 5, 11, 30, tzinfo=UTC), streams=VIEW + LIFETIME),
    "moment-not-kept/table": read_at(datetime(2026, 1, 5, 11, 30, tzinfo=UTC), view="item", streams=ITEMS + TABLE),
    "naive-datetime/read": naive_read,
    "wrong-request": vector_read(user_id="u1", item_id="i7", cart_value="dear"),
    "wrong-request/missing": vector_read(user_id="u1", item_id="i7"),
    "wrong-key/vector": vector_read(user_id="u1", item_id="i7", cart_value=31.0, colour="red"),
    "wrong-key/part": vector_read(user_id="u1", cart_value=31.0),
    "store-behind": store_holds(7),
    "store-ahead": store_holds(99),
    "store-went-back": store_lacks("rows"),
    "store-went-back/history": store_lacks("scanned"),
    "store-went-back/redriven": store_lacks("redriven"),
    "store-went-back/manifest": store_lacks("manifest"),
    # Running
    "not-applied": not_applied,
    "spark-missing": spark_missing,
    "already-running": already_running,
    "accepted-records-swept": view_ends(failure=None, swept=12),
    "view-failed": view_ends(failure=SPARK_SAID),
    "view-failed/memory": view_ends(failure=OUT_OF_MEMORY, careful=True),
    "view-failed/other": view_ends(failure="java.lang.IllegalStateException: the batch cannot be planned"),
    "store-unreachable/batch": view_ends(failure=STORE_AWAY),
    "kafka-unreachable/batch": view_ends(failure=BROKERS_AWAY),
    "state-unreadable": view_ends(failure=STATE_GONE),
    "overtaken": view_ends(failure="[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000"),
    "not-applied/companions": companions_missing,
    "view-rows-not-unique": view_ends(failure=NOT_UNIQUE, streams=FREE),
}
