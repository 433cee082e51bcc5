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
from pathlib import Path
from typing import Any

import pytest

import leftfold
from leftfold.local.ports import choose
from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.test_tutorial import Shell

README = guides.EXAMPLES / "recommender" / "README.md"
NAMESPACE = f"r{uuid.uuid4().hex[:8]}"
MODULES = ("train", "shop", "learn")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.example("recommender", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.long
def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    guides.check_read(README)


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
        projects.await_true(ready, timeout=60, what="the server")
        yield url
        server.terminate()
        assert server.wait(60) == 0, (root / "serve.log").read_text()
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
        recommended, bought = shop.visit(app, url, seed=1)
    learn.await_closed(app)
    learn.learn(app, "sets/1")
    assert Path(learn.MODEL).read_bytes() != first
    rows = spark.read.parquet("sets/1")
    assert (rows.count(), rows.where("bought").count()) == (recommended, bought)
    served = {p.fields["prediction_id"]: p.fields for p in app.read("ranker_scores", most=recommended) if p.fields}
    assert len(served) == recommended
    for row in rows.collect():  # as of the log, no click came after these predictions: what was served is the same
        logged = served[row["prediction_id"]]
        assert [row[name] for name in learn.SEEN] == [logged[name] for name in learn.SEEN]
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
