"""examples/recommender: once around the loop, from clicks to a model that was trained on the outcomes of the first.

`make recommender` runs its README as it is written. There an outcome waits a minute for clocks that differ; here half a
second, because all brokers share one.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.local.ports import choose
from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.pages import Shell, check_read

README = guides.EXAMPLES / "recommender" / "README.md"
NAMESPACE = f"r{uuid.uuid4().hex[:8]}"
MODULES = ("train", "shop", "learn")
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.example("recommender", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.long
def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    check_read(README)


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """A server of the scorer, and its address. It is asked to stop, so that its predictions are acknowledged."""
    (port,) = choose(1)
    url = f"http://127.0.0.1:{port}"
    with (root / "serve.log").open("a") as log:
        server = subprocess.Popen([projects.LEFTFOLD, "serve", "--port", str(port)], cwd=root, stdout=log, stderr=log)

    def ready() -> bool:
        assert server.poll() is None, (root / "serve.log").read_text()
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        projects.await_true(ready, timeout=240, what="the server")
        yield url
        server.terminate()
        assert server.wait(240) == 0, (root / "serve.log").read_text()
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def loop(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[leftfold.App, Any]]:
    """An app on a copy of the example, in its directory, and its programs as modules."""
    root = guides.copied("recommender", tmp_path, cluster.endpoints, f"r{uuid.uuid4().hex[:8]}")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    app = leftfold.open(root)
    assert app.catalog.scorer("ranker")
    yield app, {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


def accepted(app: leftfold.App, topic: str) -> list[dict[str, Any]]:
    """Return the accepted records of a topic. On a busy machine a few may be late, and count nowhere."""
    return [
        one.fields for one in app.read(topic, start=LONG_AGO, most=None) if one.outcome == "accepted" and one.fields
    ]


def came_of(predictions: list[dict[str, Any]], purchases: list[dict[str, Any]]) -> dict[str, bool]:
    """Tell by id which predictions were followed by a purchase within 5 s. No person is shown an item twice."""
    moments = {(one["user_id"], one["item_id"]): one["at"] for one in purchases}

    def bought(one: dict[str, Any]) -> bool:
        at = moments.get((one["user_id"], one["item_id"]))
        return at is not None and timedelta(0) <= at - one["scored_at"] < timedelta(seconds=5)

    return {one["prediction_id"]: bought(one) for one in predictions}


@pytest.mark.usefixtures("near_clocks")
def test_the_next_model_is_better(
    loop: tuple[leftfold.App, Any], spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    app, programs = loop
    train, shop, learn = (programs[name] for name in MODULES)
    projects.apply(app)
    clicks = app.send("clicks", shop.browse())
    assert [one.records()["accepted"] for one in run_until_caught_up(app, spark)] == [clicks, clicks]
    train.save(train.BY_HAND)
    first = Path(learn.MODEL).read_bytes()
    with serving(app.root) as url:
        recommended, sold = shop.visit(app, url, seed=1)
    learn.await_closed(app)
    learn.learn(app, "sets/1")
    assert Path(learn.MODEL).read_bytes() != first
    assert (len(list(app.read("ranker_scores", start=LONG_AGO, most=None))), recommended) == (600, 600)
    served = {one["prediction_id"]: one for one in accepted(app, "ranker_scores")}
    purchases = accepted(app, "purchases")
    assert sold >= len(purchases) > 100
    rows = {row["prediction_id"]: row for row in spark.read.parquet(str(app.root / "sets" / "1")).collect()}
    assert {id_: row["bought"] for id_, row in rows.items()} == came_of(list(served.values()), purchases)
    for id_, row in rows.items():  # as of the log, no click came after these predictions: what was served is the same
        assert [row[name] for name in learn.SEEN] == [served[id_][name] for name in learn.SEEN]
    with serving(app.root) as url:
        shop.visit(app, url, seed=2)
    learn.await_closed(app)
    with capsys.disabled():
        print()
        judged = learn.judge(app)
    versions = [p.fields["version"] for p in app.read("ranker_scores", most=1) if p.fields]
    (before,) = (auc for version, auc in judged.items() if version not in versions)
    assert len(judged) == 2
    assert judged[versions[0]] > before + 0.1
