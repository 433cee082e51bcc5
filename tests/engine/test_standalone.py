"""The same views on a Spark cluster: executors of their own, with the shipped environment, killed while they work.

`make engine` runs a small version; `make executors` sends 1,000,000 events, kills an executor ten times, then a worker.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

import leftfold
from leftfold.errors import LeftfoldError
from leftfold.local import ports, process
from leftfold.local.endpoints import HOST, Endpoints, state_dir
from leftfold.local.process import Identity
from tests.engine import oracle, projects
from tests.engine.conftest import Cluster
from tests.engine.test_kills import SEED, payments
from tests.engine.test_local import LOOPBACK, listening

FULL = os.environ.get("LEFTFOLD_EXECUTORS") == "full"
EVENTS, KILLS = (1_000_000, 10) if FULL else (40_000, 2)
WORKERS = 2
BARE = os.path.realpath(sys.executable)  # the interpreter behind this environment, with none of its packages

# Asks executors where they have our code and a library from. A process of its own: one JVM holds one session.
PROBE = """\
import json, sys
from pathlib import Path

import leftfold
from leftfold.spark.session import build_session


def where(batches):
    import sys

    import leftfold.spark.sinks.online
    import pyarrow as pa
    import redis

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"x": [leftfold.__file__, redis.__file__, sys.executable]})


app = leftfold.open()
session = build_session(app.spark, application="probe", log_file=Path("probe.log"))
rows = session.range(100).repartition(4).mapInArrow(where, "x string").collect()
print(json.dumps([row["x"] for row in rows]))
session.stop()
"""


@pytest.fixture(scope="module")
def workers(cluster: Cluster) -> Iterator[Cluster]:
    cluster.cluster.up(cluster.root, spark_workers=WORKERS)
    yield cluster
    cluster.cluster.up(cluster.root, spark_workers=0)


def project(root: Path, cluster: Cluster, namespace: str, page: int | None = None) -> leftfold.App:
    """A project whose own local cluster is the shared one, and whose workers have a Python without our packages.

    With `page`, the driver tells there what its executors do.
    """
    conf = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}  # they live too short for the second compiler
    if page:
        conf |= {"spark.ui.enabled": "true", "spark.ui.port": str(page)}
    pairs = ", ".join(f'"{name}" = "{value}"' for name, value in conf.items())
    (root / ".leftfold").mkdir(parents=True)
    (root / ".leftfold" / "local").symlink_to(state_dir(cluster.root))
    (root / "streams.py").write_text(projects.PAYMENTS)
    (root / "leftfold.toml").write_text(
        f'''[project]
name = "standalone"
declarations = ["streams.py"]

[profile.cluster]
namespace = "{namespace}"
spark = {{ master = "standalone", python = "{BARE}", conf = {{ {pairs} }} }}
'''
    )
    (root / ".env").write_text("LEFTFOLD_PROFILE=cluster\n")  # a profile of its own keeps its checkpoints to itself
    return leftfold.open(root)


def executors(endpoints: Endpoints) -> list[Identity]:
    """The JVMs that workers started, by what they run and whose session they are in."""
    leaders = {endpoints.processes[f"spark-worker-{number}"].pid for number in range(1, WORKERS + 1)}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            runs = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        identity = process.identify(int(entry.name))
        if b"CoarseGrainedExecutorBackend" in runs and process.session(identity) in leaders:
            found.append(identity)
    return found


def send(app: leftfold.App, records: Iterator[dict[str, Any]]) -> None:
    with app.producer("payments") as producer:
        for record in records:
            producer.send_dict(record)


def check_against_the_log(app: leftfold.App, endpoints: Endpoints, events: int, build: str) -> str:
    name = app.profile.topic_name("payments")
    log = oracle.read_log(endpoints.bootstrap, name, app.log[1].versions(f"{name}-value"))
    assert set(log.ids) == set(range(events))
    prefix = f"lf:{app.profile.namespace}:row:account_activity:{build}:"
    tiles = oracle.check_tiles(log, endpoints.redis_url, prefix)
    ledger = app.reader.ledger("account_activity")
    assert ledger is not None
    oracle.check_ledger(log, ((row.outcome, row.records) for row in ledger[2]))
    return f"0 of {tiles:,} tiles differ; {dict(log.outcomes)}"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_view_on_the_cluster_equals_the_log(workers: Cluster, tmp_path: Path) -> None:
    """50,000 events in few batches: far more rows than the driver takes, so executors write them."""
    app = project(tmp_path / "shop", workers, f"cluster{SEED}")
    projects.apply(app)
    send(app, payments(50_000, random.Random(SEED)))
    with projects.running(app.root, "--until-caught-up") as run:
        projects.await_true(
            lambda: len(executors(workers.endpoints)) == WORKERS or not run.alive, timeout=240, what="executors"
        )
        heard = {address for one in executors(workers.endpoints) for address in listening(one.pid)}
        assert heard <= LOOPBACK, f"executors listen on {heard}"
        before = workers.endpoints
        assert workers.cluster.up(workers.root) == before  # a repair leaves the executors of living workers alone
        assert run.wait(600) == 0, run.explain()
        final = run.lines()[-1]["views"][0]
    print(check_against_the_log(app, workers.endpoints, 50_000, final["build"]))


@pytest.mark.timeout(600)
def test_executors_have_the_shipped_environment(workers: Cluster, tmp_path: Path) -> None:
    app = project(tmp_path / "origins", workers, f"origins{SEED}")
    ran = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=app.root, capture_output=True, text=True, timeout=500, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: list[str] = json.loads(ran.stdout)
    works = str(state_dir(workers.root))
    assert len(found) == 12
    for ours, library, interpreter in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert ours.startswith(works), ours
        assert "/leftfold_src/leftfold/" in ours, ours
        assert library.startswith(works), library
        assert "/leftfold_env/redis/" in library, library
        assert interpreter == BARE


def ask(page: int, path: str) -> Any:
    url = f"http://{HOST}:{page}/api/v1/applications{path}"
    with build_opener(ProxyHandler({})).open(url, timeout=60) as answer:  # the first one waits for the page's own start
        return json.load(answer)


def busy(page: int, endpoints: Endpoints) -> Identity | None:
    """An executor that runs a task now, by what the driver says of it."""
    (application,) = ask(page, "")
    running = {one["id"] for one in ask(page, f"/{application['id']}/executors") if one["activeTasks"]}
    return next((one for one in executors(endpoints) if executor_id(one) in running), None)


def executor_id(executor: Identity) -> str | None:
    try:
        words = Path(f"/proc/{executor.pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return words[words.index("--executor-id") + 1] if "--executor-id" in words else None


def await_busy(page: int, endpoints: Endpoints) -> Identity:
    found: list[Identity] = []

    def seen() -> bool:
        found.extend(one for one in [busy(page, endpoints)] if one)
        return bool(found)

    projects.await_true(seen, timeout=300, what="an executor with a task at work")
    return found[0]


@pytest.mark.nightly
@pytest.mark.timeout(3_600 if FULL else 1_200)
def test_view_equals_log_after_executors_are_killed(workers: Cluster, tmp_path: Path) -> None:
    print(f"seed {SEED}, {EVENTS:,} events, {KILLS} kills of executors{', 1 of a worker' if FULL else ''}")
    chance = random.Random(SEED)
    (page,) = ports.choose(1)
    app = project(tmp_path / "kills", workers, f"executors{SEED}", page)
    projects.apply(app)
    records = payments(EVENTS, random.Random(SEED))
    rounds = [*(["executor"] * KILLS), *(["worker"] if FULL else [])]
    share = EVENTS // (len(rounds) + 2)  # one before the first kill, one after the last
    with app.producer("payments") as producer, ThreadPoolExecutor(1) as sender:

        def send_share(count: int) -> None:
            for record in islice(records, count):
                producer.send_dict(record)
            producer.flush()

        send_share(share)
        with projects.running(app.root) as run:
            run.await_batches(1, timeout=400)
            for number, kind in enumerate(rounds, start=1):
                sending = sender.submit(send_share, share)  # records keep coming while it is killed
                victim = await_busy(page, workers.endpoints)
                time.sleep(chance.uniform(0.0, 0.3))  # a random moment of its task
                if kind == "worker":
                    victim = process.identify(process.session(victim) or 0)
                    os.killpg(victim.pid, signal.SIGKILL)  # with its executors
                else:
                    os.kill(victim.pid, signal.SIGKILL)
                print(f"kill {number}: {kind} {victim.pid}, after {len(run.lines())} batches")
                sending.result()
                run.await_batches(len(run.lines()) + 1, timeout=300)
            send_share(EVENTS)  # the rest
            assert run.terminate(signal.SIGTERM, timeout=300) == 0, run.explain()
    with projects.running(app.root, "--until-caught-up") as run:
        assert run.wait(900) == 0, run.explain()
        final = run.lines()[-1]["views"][0]
    spoke = (app.log_directory / "spark.log").read_text()
    lost, tasks = spoke.count("Lost executor"), spoke.count("Lost task")
    print(f"Spark lost {lost} executors and {tasks} tasks in {len(rounds)} kills")
    assert lost >= len(rounds), "a kill that nobody noticed did not happen"
    assert tasks, "no kill met a task at work: this run shows nothing"
    print(check_against_the_log(app, workers.endpoints, EVENTS, final["build"]))


@pytest.mark.timeout(600)
def test_the_end_of_workers_leaves_no_executor(cluster: Cluster, tmp_path: Path) -> None:
    """Last in this file: it ends the workers in mid-run, and forgets them."""
    cluster.cluster.up(cluster.root, spark_workers=WORKERS)
    app = project(tmp_path / "ended", cluster, f"ended{SEED}")
    projects.apply(app)
    before = cluster.endpoints
    for name in ("spark-master", "spark-worker-1", "spark-worker-2"):
        assert listening(before.processes[name].pid) <= LOOPBACK
    with projects.running(app.root) as run:
        projects.await_true(lambda: len(executors(before)) == WORKERS or not run.alive, timeout=240, what="executors")
        living = executors(before)
        assert len(living) == WORKERS, run.explain()
        after = cluster.cluster.up(cluster.root, spark_workers=0)
    assert after.spark_url is None
    assert not [name for name in after.processes if name.startswith("spark")]
    assert not any(map(process.alive, living))
    ours = process.marked(f"{state_dir(cluster.root).resolve()}:")
    assert not [name for name in ours.values() if name.startswith("spark")]
    rows = cluster.cluster.status(cluster.root)["processes"]
    assert not [row for row in rows if row["name"].startswith("spark")]
    with pytest.raises(LeftfoldError, match="no Spark cluster"):
        leftfold.open(app.root).supervisor()
