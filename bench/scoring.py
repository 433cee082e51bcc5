"""A scorer against the same written by hand: a stream, requests over HTTP, and a frame of Spark.

All read 48 features of two entities from the same tiles and score with the same ONNX model, 200 trees of depth six; the
first two log the same Avro predictions. Outputs are compared first. By hand means confluent-kafka, redis-py and
onnxruntime for a stream, FastAPI with redis.asyncio for requests, and mapInPandas for a frame.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import io
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import onnx
import redis
from confluent_kafka import Consumer
from onnx import TensorProto, helper

import leftfold
from bench.engines import project
from bench.http_servers import CONNECTIONS, LEFTFOLD, load, server
from bench.online import ENTITIES, fill
from bench.pairs import Case, interleave, note
from bench.rows import BY_FIELDS, store_by_fields
from bench.scoring_by_hand import Scorer
from leftfold.declare.framing import HEADER_BYTES
from leftfold.declare.schema import avro_schema
from leftfold.declare.synthetic import synthetic
from leftfold.infer.frames import frame_scorer
from leftfold.spark.quality.scored import ProjectPlace, with_answers
from leftfold.spark.session import build_session

GOALS = {"stream": 0.80, "request": 1.3, "frame": 0.90}
ASKED = 8_000  # records of a stream
FEW = 400  # that are compared
BATCH = 256
ROWS = 200_000  # of a frame
LOAD_S = 12.0
TREES, DEPTH = 200, 6
HERE = Path(__file__).parent

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    pieces: int
    at: datetime


class Ask(lf.Event):
    user_id: str
    item_id: str
    cart: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="8d")
asked = lf.Topic("asked", Ask, key=Ask.user_id, time=Ask.at, partitions=6)
few = lf.Topic("few", Ask, key=Ask.user_id, time=Ask.at, partitions=6)


def eight():
    made = {}
    for window in ("1h", "24h", "7d"):
        made |= {
            f"n_{window}": lf.count(window),
            f"spend_{window}": lf.sum(Click.price, window),
            f"mean_{window}": lf.mean(Click.pieces, window),
            f"least_{window}": lf.min(Click.price, window),
            f"most_{window}": lf.max(Click.price, window),
            f"few_{window}": lf.min(Click.pieces, window),
            f"many_{window}": lf.max(Click.pieces, window),
            f"pieces_{window}": lf.sum(Click.pieces, window),
        }
    return made


Users = type("Users", (lf.Features,), eight(), of=clicks, by=Click.user_id)
Items = type("Items", (lf.Features,), eight(), of=clicks, by=Click.item_id)
Both = type(
    "Both",
    (lf.Vector,),
    {
        **{f"{v.__name__.lower()}_{n}": getattr(v, n) for v in (Users, Items) for n in v.__leftfold_names__},
        "cart": lf.request(float),
    },
)


class Score(lf.Prediction, of=Both):
    score: float


scores = lf.Predictions("scores", Score, partitions=6)
some_scores = lf.Predictions("some_scores", Score, partitions=6)
bare_scores = lf.Predictions("bare_scores", Score, partitions=6)
model = lf.Onnx("model.onnx")


def run(model, rows):
    return model.run(x=rows.matrix("float32"))["score"][:, 0]


ranker = lf.scorer(Both, to=scores, model=model, name="ranker", on=lf.each(asked, start="beginning"))(run)
some = lf.scorer(Both, to=some_scores, model=model, name="some", on=lf.each(few, start="beginning"))(run)
"""


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root = Path(directory)
        write_model(root / "model.onnx", 49)
        with project(root, STREAMS) as app:
            events = fill(app)
            bench = _Bench(app, events)
            for topic, records, seed in (("asked", ASKED, 1), ("few", FEW, 2)):
                app.send(topic, _asks(app, topic, records, seed))
            equal = _in_one_tick(bench.stream_equal)
            note(f"stream: outputs equal: {equal}")
            stream, request = bench.stream(pairs, equal=equal), bench.request(pairs)
        return {**stream, "request": request, "frame": _frame(root, pairs)}


def write_model(path: Path, inputs: int) -> None:
    """Write 200 trees of depth six, whose splits are near usual values of clicks."""
    chance = np.random.default_rng(1)
    inner = 2**DEPTH - 1
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(TREES):
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            nodes["treeids"].append(tree)
            nodes["nodeids"].append(node)
            nodes["featureids"].append(0 if is_leaf else int(chance.integers(inputs)))
            nodes["modes"].append("LEAF" if is_leaf else "BRANCH_LEQ")
            nodes["values"].append(0.0 if is_leaf else float(chance.exponential(20)))
            nodes["truenodeids"].append(0 if is_leaf else 2 * node + 1)
            nodes["falsenodeids"].append(0 if is_leaf else 2 * node + 2)
            if is_leaf:
                leaves["treeids"].append(tree)
                leaves["nodeids"].append(node)
                leaves["ids"].append(0)
                leaves["weights"].append(float(chance.normal(0, 0.05)))
    made: dict[str, Any] = {f"nodes_{name}": values for name, values in nodes.items()}
    made |= {f"target_{name}": values for name, values in leaves.items()}
    trees = helper.make_node("TreeEnsembleRegressor", ["x"], ["sum"], domain="ai.onnx.ml", n_targets=1, **made)
    graph = helper.make_graph(
        [trees, helper.make_node("Sigmoid", ["sum"], ["score"])],
        "ranker",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, inputs])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))


def _asks(app: leftfold.App, topic: str, records: int, seed: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(seed)
    for event in synthetic(app.catalog.topic(topic), records, seed=seed):
        numbers = chance.integers(ENTITIES, size=2)
        yield {**dict(event), "user_id": f"u{numbers[0]}", "item_id": f"i{numbers[1]}"}


def _in_one_tick(compare: Callable[[], bool]) -> bool:
    """Compare within five minutes that have the same tiles."""
    while True:
        tick = time.time() // 300
        equal = compare()
        if time.time() // 300 == tick:
            return equal
        note("the tiles changed meanwhile: compared again")


class _Bench:
    def __init__(self, app: leftfold.App, events: list[dict[str, Any]]) -> None:
        self._app = app
        self._vector = app.catalog.scorer("ranker").vector
        definitions = [app.catalog.view(v).definition for v in ("users", "items")]
        columns = [[(c.aggregate, c.field) for c in d.columns] for d in definitions]  # type: ignore[union-attr] # windowed
        wanted = [("count", None), ("sum", "price"), ("sum", "pieces"), ("min", "price"), ("max", "price")]
        note(f"partials: {columns[0]}")
        assert sorted(map(str, columns[0])) == sorted(map(str, [*wanted, ("min", "pieces"), ("max", "pieces")])), (
            "the bare side takes the partials from their places"
        )
        builds = [app.reader.ledger(v)[0] for v in ("users", "items")]  # type: ignore[index] # both are built
        prefixes = [f"lf:{app.profile.namespace}:row:{v}:{b}:" for v, b in zip(("users", "items"), builds, strict=True)]
        store = redis.Redis.from_url(app.online.url.get_secret_value())
        for view, key, prefix in zip(("users", "items"), ("user_id", "item_id"), prefixes, strict=True):
            rows: dict[str, list[dict[str, Any]]] = {}
            for event in events:
                rows.setdefault(prefix + event[key], []).append(event)
            store_by_fields(app, store, view, rows)
        topic = app.profile.topic_name("bare_scores")
        schema = avro_schema(app.catalog.topic("bare_scores").event)
        schema_id = app.log[1].id_of(f"{topic}-value", schema)
        assert schema_id is not None
        self._settings: dict[str, Any] = {
            "prefixes": [BY_FIELDS + prefix for prefix in prefixes],
            "rings": [-(-(3_600 + 300 + 60) // 300) + 2, -(-(7 * 86_400 + 300 + 60) // 3_600) + 2],
            "model": str(app.root / "model.onnx"),
            "names": list(self._vector.__leftfold_names__),
            "version": app.scoring("ranker").scoring.models.now.live.version,
            "schema": schema,
            "header": (b"\0" + schema_id.to_bytes(4, "big")).hex(),
            "topic": topic,
            "bootstrap": app.kafka.bootstrap,
            "redis": app.online.url.get_secret_value(),
        }

    # A stream ---------------------------------------------------------------------------------------------------------

    def stream_equal(self) -> bool:
        started = datetime.now(UTC)
        self._ours("some", FEW)
        self._bare("few", FEW)
        ours, bare = (self._logged(topic, started) for topic in ("some_scores", "bare_scores"))
        assert len(ours) == len(bare) == FEW, (len(ours), len(bare))
        names = ("score", "version", "user_id", "item_id", *self._vector.__leftfold_names__)
        wrong = [
            (name, ours[trigger][name], bare[trigger][name])
            for trigger in ours
            for name in names
            if ours[trigger][name] != bare[trigger][name]
        ]
        if wrong:
            note(f"{len(wrong):,} values differ: {wrong[:3]}")
        return not wrong

    def _logged(self, topic: str, since: datetime) -> dict[str, Any]:
        records = self._app.read(topic, start=since, most=None)
        return {record.fields["trigger"]: record.fields for record in records if record.fields}

    def stream(self, pairs: int, *, equal: bool) -> dict[str, Case]:
        cpu: dict[str, list[float]] = {"ours": [], "bare": []}
        wall: dict[str, list[float]] = {"ours": [], "bare": []}

        def timed(side: str, run: Callable[[], None]) -> float:
            gc.collect()
            began, clock = time.process_time(), time.monotonic()
            run()
            cpu[side].append(time.process_time() - began)
            wall[side].append(time.monotonic() - clock)
            return cpu[side][-1]

        self._ours("ranker", ASKED)
        ratios = interleave(
            "stream (CPU)",
            pairs,
            lambda: timed("ours", lambda: self._ours("ranker", ASKED)),
            lambda: timed("bare", lambda: self._bare("asked", ASKED)),
        )
        by_time = tuple(b / o for o, b in zip(wall["ours"], wall["bare"], strict=True))
        figures = {f"{s}_us_per_record": round(statistics.median(v) / ASKED * 1e6, 1) for s, v in cpu.items()}
        times = {f"{s}_records_per_s": round(ASKED / statistics.median(v)) for s, v in wall.items()}
        note(f"stream: {figures}, {times}, by time {by_time}")
        return {
            "stream": Case(ratios, GOALS["stream"], equal, figures=figures),
            "stream_by_time": Case(by_time, None, equal, figures=times),
        }

    def _ours(self, name: str, records: int) -> None:
        position = self._app.position(name)
        if any(p.position for p in position.show()):
            position.set(position.moves("beginning"))
        (ended,) = self._app.consume(name, until_caught_up=True)
        if ended.error is not None:
            raise ended.error
        assert ended.handled == records

    def _bare(self, topic: str, records: int) -> None:
        name = self._app.profile.topic_name(topic)
        schema = fastavro.parse_schema(json.loads(avro_schema(self._app.catalog.topic(topic).event)))
        scorer, store = Scorer(self._settings), redis.Redis.from_url(self._settings["redis"])
        consumer = Consumer(
            {
                "bootstrap.servers": self._settings["bootstrap"],
                "group.id": f"bare-{uuid.uuid4().hex}",
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.subscribe([name])
        read, committed, features = 0, time.monotonic(), scorer.features
        while read < records:
            messages = consumer.consume(BATCH, timeout=0.1)
            if not messages:
                continue
            asked: list[Any] = []
            for message in messages:
                value: Any = message.value()
                asked.append(fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), schema, None))
            features.prepare()
            places: dict[str, int] = {}
            pipeline = store.pipeline(transaction=False)
            for one in asked:
                for key in features.keys(one["user_id"], one["item_id"]):
                    if key not in places:
                        places[key] = len(places)
                        pipeline.hmget(key, features.fields)
            held: list[Any] = pipeline.execute()
            rows = []
            for one in asked:
                user, item = features.keys(one["user_id"], one["item_id"])
                rows.append(features.row(held[places[user]], held[places[item]], one["cart"]))
            for message, one, row, score in zip(messages, asked, rows, scorer.predict(rows), strict=True):
                place = f"{name}/{message.partition()}/{message.offset()}"
                scorer.log(f"{place}/ranker", one, row, score, place)
            scorer.producer.poll(0)
            read += len(messages)
            if time.monotonic() - committed > 1 or read >= records:
                assert scorer.producer.flush(30) == 0
                consumer.commit(asynchronous=False)
                committed = time.monotonic()
        consumer.close()

    # Requests ---------------------------------------------------------------------------------------------------------

    def request(self, pairs: int) -> Case:
        with self._served() as ours, self._by_hand() as bare:
            equal = _in_one_tick(lambda: self._answers(ours) == self._answers(bare))
            note(f"request: outputs equal: {equal}")
            most = {side: load("score", address, None, 6.0) for side, address in (("ours", ours), ("bare", bare))}
            note(
                f"request: most, with {CONNECTIONS} connections: { {s: round(m['per_s']) for s, m in most.items()} }/s"
            )
            rate = most["bare"]["per_s"] / 2
            p: dict[str, list[float]] = {"ours_p50": [], "bare_p50": [], "ours_p99": [], "bare_p99": []}
            ratios = []
            for number in range(pairs):
                for side, address in (("ours", ours), ("bare", bare))[:: 1 if number % 2 else -1]:
                    seen = load("score", address, rate, LOAD_S)
                    p[f"{side}_p50"].append(seen["p50"])
                    p[f"{side}_p99"].append(seen["p99"])
                ratios.append(p["ours_p99"][-1] / p["bare_p99"][-1])
                note(f"request pair {number + 1}: { {n: round(v[-1], 2) for n, v in p.items()} } ms, {ratios[-1]:.3f}")
        figures = {f"{name}_ms": round(statistics.median(values), 2) for name, values in p.items()}
        figures |= {f"{side}_most_per_s": round(seen["per_s"]) for side, seen in most.items()}
        return Case(
            tuple(ratios), GOALS["request"], equal, lower_is_better=True, figures={**figures, "rate": round(rate)}
        )

    def _answers(self, address: str) -> list[tuple[float, str]]:
        connection = http.client.HTTPConnection(address, timeout=20)
        answers = []
        for number in range(200):
            body = {"user_id": f"u{number}", "item_id": f"i{199 - number}", "cart": number / 7}
            connection.request("POST", "/score/ranker", json.dumps(body), {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            answers.append((answer["score"], answer["version"]))
        connection.close()
        return answers

    @contextlib.contextmanager
    def _served(self) -> Iterator[str]:
        command = [LEFTFOLD, "serve", "--scorers", "ranker", "--port", "0"]
        with server(command, self._app.root, self._app.root / "serve.log", r"serving at http://([\d.:]+)") as address:
            yield address

    @contextlib.contextmanager
    def _by_hand(self) -> Iterator[str]:
        command = [sys.executable, "-m", "uvicorn", "--factory", "bench.scoring_by_hand:service", "--port", "0"]
        os.environ["BENCH_SCORING"] = json.dumps(self._settings)
        said = r"running on http://([\d.:]+)"
        with server(command, HERE.parent, self._app.root / "bare.log", said, "--no-access-log") as address:
            yield address


# A frame --------------------------------------------------------------------------------------------------------------


def _frame(root: Path, pairs: int) -> Case:
    """Compare the scoring of a frame whose features are there already, in Spark's memory."""
    from pyspark.sql import functions as F

    app = leftfold.open(root)
    scorer = app.catalog.scorer("ranker")
    names = scorer.vector.__leftfold_names__
    session = build_session(app.spark, application="bench", log_file=root / "spark.log")
    made = [
        F.when(
            F.rand(n) > 0.05, F.floor(F.rand(100 + n) * 40) if name.endswith(("n_1h", "pieces_7d")) else F.rand(n) * 90
        )
        .cast("long" if name.endswith(("n_1h", "pieces_7d")) else "double")
        .alias(name)
        for n, name in enumerate(names)
    ]
    rows = session.range(ROWS, numPartitions=2).select(F.col("id"), *made).persist()
    assert rows.count() == ROWS
    asked = frame_scorer(scorer, root, ["streams.py"])
    ours = with_answers(
        rows.withColumn("at", F.lit(1_700_000_000_000_000)),
        asked,
        ProjectPlace(str(root)),
        names=names,
        answers=[("score", "float", False)],
        constants={"model": asked.model, "version": asked.version},
    )
    model, version = str(root / "model.onnx"), asked.version

    def by_hand(frames: Iterable[Any]) -> Iterable[Any]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        held = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for frame in frames:
            matrix = frame[list(names)].to_numpy(dtype="float32")
            yield frame.assign(
                score=held.run(["score"], {"x": matrix})[0][:, 0].astype("float64"), model="ranker", version=version
            )

    bare = rows.mapInPandas(by_hand, ours.schema)
    both = ours.join(bare.select("id", F.col("score").alias("by_hand"), F.col("version").alias("v")), "id")
    counts = both.agg(
        F.count("*"), F.sum(F.when((F.col("score") != F.col("by_hand")) | (F.col("v") != F.col("version")), 1))
    )
    ((found, differ),) = counts.collect()
    note(f"frame: {found:,} rows, {differ or 0:,} differ")

    def timed(frame: Any) -> float:
        began = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        return time.monotonic() - began

    timed(ours), timed(bare)
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}

    def side(name: str, frame: Any) -> Callable[[], float]:
        def run() -> float:
            seconds[name].append(timed(frame))
            return seconds[name][-1]

        return run

    try:
        ratios = interleave("frame", pairs, side("ours", ours), side("bare", bare))
    finally:
        session.stop()
    figures = {f"{name}_rows_per_s": round(ROWS / statistics.median(values)) for name, values in seconds.items()}
    return Case(ratios, GOALS["frame"], found == ROWS and not differ, figures=figures)
