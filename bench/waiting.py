"""The verbs that a person waits for, each as a command, against a script that is written by hand for the same work.

200,000 events of 10,000 people are in the log: 30 % of them of a hundredth of the people, a twentieth of them out of
order. Each command and each script is a process of its own, and its time is what a person would see. What both say is
compared first. By hand means confluent-kafka, fastavro, redis-py, pandas and pyarrow.

In the case `archive` the other side is our own `run`, without the archive of Spark's classes.

None of our commands but `run` may start a JVM: their JAVA_HOME is a directory without Java, so a start would fail.

In the cases `spark_report` and `spark_second` Spark makes training sets in a session that is warm already: a set with
its report against the set alone; and a second set of two labels, against the release whose checkout is named by
LEFTFOLD_BENCH_BEFORE. Without that variable there is no case `spark_second`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import redis

import leftfold
from bench.engines import project
from bench.pairs import Case, interleave, note
from leftfold import jars
from leftfold.fold.definition import Definition
from leftfold.store.layout import Build, manifest
from leftfold.store.redis.names import Names

SCALE = float(os.environ.get("LEFTFOLD_BENCH_SCALE", "1"))  # scales events and labels, for a trial on less data
EVENTS, PEOPLE, LABELS, SENT = int(200_000 * SCALE), 10_000, int(1_000 * SCALE), int(200_000 * SCALE)
# The most that our command may take, as a multiple of the script.
GOALS: dict[str, float | None] = {"help": 2.5, "plan": None, "status": None, "send": None}
GOALS |= {
    "training": 2.0,
    "report": 3.0,
    "replay": 2.0,
    "get": 2.0,
    "why": None,
    "compare": 2.0,
    "run": 1.3,
    "archive": None,
    "spark_report": 1.5,
    "spark_second": 0.3,
}
LEFTFOLD = str(Path(sys.executable).with_name("leftfold"))
BY_HAND = str(Path(__file__).with_name("waiting_by_hand.py"))
IN_SESSION = str(Path(__file__).with_name("waiting_in_session.py"))
BEFORE = os.environ.get("LEFTFOLD_BENCH_BEFORE")
SPAN = timedelta(days=3)

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    person: str
    item: str
    price: int
    at: datetime


class Note(lf.Event):
    person: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.person, time=Click.at, partitions=6, lateness="7d")
notes = lf.Topic("notes", Note, key=Note.person, time=Note.at, partitions=6)


class Activity(lf.Features, of=clicks, by=Click.person):
    clicks_1h = lf.count("1h")
    clicks_24h = lf.count("24h")
    spend_24h = lf.sum(Click.price, "24h")
    average_24h = lf.mean(Click.price, "24h")
    spend_1h = lf.sum(Click.price, "1h")
"""


LEAST = 100
CHANGED = STREAMS.replace('sum(Click.price, "24h")', f'sum(Click.price, "24h", where=Click.price > {LEAST})')


class Waiting:
    """A project with events in its log, and the commands and scripts that are measured on it."""

    def __init__(self, app: leftfold.App, scratch: Path) -> None:
        self._app, self._scratch = app, scratch
        self._made = 0
        self._store = app.online.address
        self._without_java = {**os.environ, "JAVA_HOME": str(scratch)}
        self.settings = {
            "bootstrap": app.kafka.bootstrap,
            "registry": app.registry.url,
            "redis": self._store,
            "clicks": app.profile.topic_name("clicks"),
            "notes": app.profile.topic_name("notes"),
            "labels": str(scratch / "labels.parquet"),
            "sent": SENT,
            "least": LEAST,
            "spark_jars": ",".join(str(path) for path in jars.paths("spark")),
        }

    def fill(self) -> None:
        chance, now = random.Random(7), datetime.now(UTC)
        with self._app.producer("clicks") as producer:
            for number in range(EVENTS):
                hot = chance.random() < 0.3
                at = now - SPAN + SPAN * (number / EVENTS)
                if chance.random() < 0.05:
                    at -= timedelta(seconds=chance.uniform(0, 7_200))
                person = f"p{chance.randrange(PEOPLE // 100 if hot else PEOPLE)}"
                price = chance.randrange(1, 500)
                producer.send_dict({"person": person, "item": f"i{number % 97}", "price": price, "at": at})
        self.settings["at"] = round(now.timestamp() * 1_000_000)
        moments = [now - SPAN * chance.random() for _ in range(LABELS)]
        people = [f"p{chance.randrange(PEOPLE // 100 if n % 3 == 0 else PEOPLE)}" for n in range(LABELS)]
        columns = {"person": people, "ts": pa.array(moments, pa.timestamp("us", tz="UTC")), "n": list(range(LABELS))}
        pq.write_table(pa.table(columns), self._scratch / "labels.parquet")
        pq.write_table(pa.table(columns).slice(0, 2), self._scratch / "two.parquet")

    def run(self) -> None:
        """Run the view, and put a second build into the store: a changed definition, as a rebuild would leave it."""
        self.ours("run", "--until-caught-up", java=True)
        changed = self._scratch / "changed"
        changed.mkdir()
        (changed / "streams.py").write_text(CHANGED)
        (changed / "leftfold.toml").write_text((self._app.root / "leftfold.toml").read_text())
        definition = leftfold.open(changed).catalog.view("activity").definition
        assert isinstance(definition, Definition)
        build = Build(definition, uuid.uuid4().hex)
        names, store = Names(self._app.profile.namespace, "activity"), redis.Redis.from_url(self._store)
        store.set(names.manifest(build.id), manifest(build))
        store.set(names.staged, build.id)
        followed = self._app.standings.of("activity").followed
        assert followed is not None
        self.settings["row"] = f"{names.row_prefix(followed)}p1"

    def ours(self, *arguments: str, java: bool = False) -> tuple[float, str]:
        """Run a command of ours. Return its seconds and what it printed."""
        return self._timed([LEFTFOLD, *arguments], dict(os.environ) if java else self._without_java)

    def bare(self, name: str) -> tuple[float, str]:
        settings = json.dumps({**self.settings, "out": str(self.new())})
        return self._timed([sys.executable, BY_HAND, name, settings], dict(os.environ))

    def unarchived(self) -> tuple[float, str]:
        """Run the views with a cache that has the jars, but no archive of classes."""
        cache = self._scratch / "cache"
        if not cache.exists():
            cache.mkdir()
            (cache / "jars").symlink_to(jars.cache_home() / "jars")
        return self._timed([LEFTFOLD, "run", "--until-caught-up"], {**os.environ, "LEFTFOLD_CACHE": str(cache)})

    def in_session(self, pairs: int, before: str | None = None) -> dict[str, list[float]]:
        """Make sets in one session of Spark, with this release or with the checkout `before`. Return their seconds."""
        files = [str(self._scratch / name) for name in ("labels.parquet", "two.parquet")]
        path = {"PYTHONPATH": str(Path(before) / "src")} if before else {}
        command = [sys.executable, IN_SESSION, *files, str(self.new()), str(pairs)]
        with self._unbuilt():
            seconds: dict[str, list[float]] = json.loads(self._timed(command, os.environ | path)[1].splitlines()[-1])
        return seconds

    @contextmanager
    def _unbuilt(self) -> Iterator[None]:
        """Hide the build that readers follow: an earlier release may not read it, and these sets do not need it."""
        active, store = Names(self._app.profile.namespace, "activity").active, redis.Redis.from_url(self._store)
        followed = store.getdel(active)
        yield
        if followed is not None:
            store.set(active, followed)

    def new(self) -> Path:
        """A path at which nothing is yet."""
        self._made += 1
        return self._scratch / f"out{self._made}"

    def _timed(self, command: list[str], environment: Mapping[str, str]) -> tuple[float, str]:
        began = time.perf_counter()
        done = subprocess.run(command, cwd=self._app.root, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]} {done.stderr[-2_000:]}"
        return seconds, done.stdout


def training_of(waiting: Waiting, *more: str) -> tuple[float, str]:
    out = waiting.new()
    labels = str(waiting.settings["labels"])
    asked = [labels, "activity", "--time", "ts", "--as-of", "event", "--out", str(out), "--json", *more]
    seconds, said = waiting.ours("training-set", *asked)
    assert json.loads(said)["choice"]["engine"] == "arrow", said
    rows = pq.read_table(out).sort_by("n").select(["n", *_features()]).to_pylist()
    return seconds, json.dumps(rows)


def _features() -> list[str]:
    return ["clicks_1h", "clicks_24h", "spend_24h", "average_24h", "spend_1h"]


def replay_of(waiting: Waiting) -> tuple[float, str]:
    out = waiting.new()
    seconds, _ = waiting.ours("replay", "clicks", "--out", str(out))
    table = pq.read_table(out / "records", columns=["person", "price"])
    return seconds, json.dumps([table.num_rows, sum(table.column("price").to_pylist())])


def compare_of(waiting: Waiting) -> tuple[float, str]:
    at = datetime.fromtimestamp(int(str(waiting.settings["at"])) / 1_000_000, UTC).isoformat()
    seconds, said = waiting.ours("compare", "activity", "--at", at, "--json")
    found = json.loads(said)
    assert found["choice"]["engine"] == "arrow", said
    counts = {f["feature"]: [f["different"], f["only_left"], f["only_right"]] for f in found["features"]}
    return seconds, json.dumps([found["entities"], counts])


def commands(waiting: Waiting) -> dict[str, Callable[[], tuple[float, str]]]:
    """The commands, by case. What they say is compared where the script says something too."""
    return {
        "help": lambda: waiting.ours("--help"),
        "plan": lambda: waiting.ours("plan"),
        "status": lambda: waiting.ours("status"),
        "send": lambda: waiting.ours("send", "notes", "--synthetic", str(SENT)),
        "training": lambda: training_of(waiting),
        "report": lambda: training_of(waiting, "--report"),
        "replay": lambda: replay_of(waiting),
        "get": lambda: waiting.ours("get", "activity", "p1"),
        "why": lambda: waiting.ours("why", "activity", "p1"),
        "compare": lambda: compare_of(waiting),
        "run": lambda: waiting.ours("run", "--until-caught-up", java=True),
        "archive": lambda: waiting.ours("run", "--until-caught-up", java=True),
    }


COMPARED = ("training", "report", "replay", "compare")


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root, scratch = Path(directory) / "shop", Path(directory) / "scratch"
        root.mkdir()
        scratch.mkdir()
        with project(root, STREAMS) as app:
            waiting = Waiting(app, scratch)
            waiting.fill()
            waiting.run()
            wanted = os.environ.get("LEFTFOLD_BENCH_CASES", "").split(",")
            cases = {
                name: _case(name, pairs, ours, waiting)
                for name, ours in commands(waiting).items()
                if wanted == [""] or name in wanted
            }
            return cases | (_in_session(pairs, waiting) if wanted == [""] or "spark_report" in wanted else {})


def _in_session(pairs: int, waiting: Waiting) -> dict[str, Case]:
    """The cases of a warm session. Their outputs are those of one program, so there is nothing to compare."""
    ours = waiting.in_session(pairs)
    reports = tuple(both / alone for both, alone in zip(ours["reported"], ours["alone"], strict=True))
    cases = {"spark_report": _of_times("spark_report", reports, True, ours["reported"], ours["alone"])}
    if BEFORE is not None:
        before = waiting.in_session(0, BEFORE)["second"]
        seconds = tuple(now / then for now, then in zip(ours["second"], before, strict=True))
        cases["spark_second"] = _of_times("spark_second", seconds, True, ours["second"], before)
    return cases


def _of_times(name: str, ratios: tuple[float, ...], equal: bool, ours: list[float], bare: list[float]) -> Case:
    """The case of ratios of times, ours / bare."""
    sides = {"ours_s": ours, "bare_s": bare}
    figures = {side: round(sorted(took)[len(took) // 2], 2) for side, took in sides.items()}
    return Case(ratios, GOALS[name], equal, lower_is_better=True, figures=figures)


def _case(name: str, pairs: int, ours: Callable[[], tuple[float, str]], waiting: Waiting) -> Case:
    script = "training" if name == "report" else name
    equal = name not in COMPARED or ours()[1] == waiting.bare(script)[1].strip()
    note(f"{name}: outputs {'not compared' if name not in COMPARED else 'equal' if equal else 'differ'}")
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}

    def kept(side: str, run: Callable[[], tuple[float, str]]) -> Callable[[], float]:
        def once() -> float:
            seconds[side].append(run()[0])
            return seconds[side][-1]

        return once

    bare = waiting.unarchived if name == "archive" else partial(waiting.bare, script)
    ratios = interleave(name, pairs, kept("ours", ours), kept("bare", bare))
    return _of_times(name, tuple(1 / ratio for ratio in ratios), equal, seconds["ours"], seconds["bare"])
