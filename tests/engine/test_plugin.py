"""A person's own suite with the plugin, run as they would run it: by pytest, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leftfold.local import cluster as local
from tests.engine.projects import await_true

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


class ItemUpdate(lf.Event):
    item_id: str
    category: str


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, external=True)
items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_24h = lf.sum(Click.price, "24h")


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category


class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    category = Item.category
    cart_value = lf.request(float)
"""

SUITE = """\
from datetime import UTC, datetime
from pathlib import Path

import pytest

import leftfold as lf
from streams import Click, Item, ItemUpdate, RankerInput, UserActivity

HERE = Path(__file__).parent


def click(price):
    return Click(user_id="u1", item_id="i7", price=price, at=datetime.now(UTC))


def test_project(leftfold_app, leftfold_cluster):
    (HERE / "cluster.txt").write_text(str(leftfold_cluster.root))
    app = leftfold_app(HERE)
    with app.producer("clicks") as clicks:
        clicks.send(click(2.5))
    with app.producer("items") as items:
        items.send(ItemUpdate(item_id="i7", category="books"))
    leftfold_app.run(app)
    assert app.get(UserActivity, user_id="u1").spend_24h == 2.5
    row = app.get(RankerInput, user_id="u1", item_id="i7", cart_value=31)
    assert (row.clicks_1h, row.category, row.cart_value) == (1, "books", 31.0)
    with app.producer("clicks") as clicks:
        clicks.send(click(4.0))
    (ended,) = leftfold_app.run(app, "user_activity")
    assert ended.records()["accepted"] == 1
    assert app.get(UserActivity, user_id="u1").spend_24h == 6.5
    assert app.get("ranker_input", user_id="u1", item_id="i7", cart_value=31.0).clicks_1h == 2


def test_another_app_starts_from_nothing(leftfold_app):
    app = leftfold_app(HERE)
    leftfold_app.run(app, "user_activity")
    assert app.get(UserActivity, user_id="u1").found is False


DECLARATIONS = '''
from datetime import datetime

import leftfold as lf


class Tick(lf.Event):
    user_id: str
    at: datetime


ticks = lf.Topic("ticks", Tick, key=Tick.user_id, time=Tick.at)


@lf.view(ticks, by="user_id", {options})
def newest(ticks):
    return ticks{function}
'''


def test_declarations_as_text(leftfold_app):
    app = leftfold_app(DECLARATIONS.format(options="latest='at'", function=""))
    now = datetime.now(UTC)
    with app.producer("ticks") as ticks:
        ticks.send_dict({"user_id": "u1", "at": now})
    leftfold_app.run(app)
    assert app.get("newest", user_id="u1").at == now


def test_a_view_that_is_refused(leftfold_app):
    app = leftfold_app(DECLARATIONS.format(options="latest='at'", function=".orderBy('at')"))
    with pytest.raises(lf.DeclarationError) as caught:
        leftfold_app.run(app)
    assert caught.value.code == "view-refused"


def test_a_view_that_stops(leftfold_app):
    app = leftfold_app(DECLARATIONS.format(options="keep_forever=True", function=""))
    with app.producer("ticks") as ticks:
        for _ in range(2):
            ticks.send_dict({"user_id": "u1", "at": datetime.now(UTC)})
    with pytest.raises(lf.RunError) as caught:
        leftfold_app.run(app)
    assert caught.value.code == "view-rows-not-unique"
    assert "'u1'" in caught.value.what
"""


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]


@pytest.mark.nightly
def test_a_suite_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "leftfold.toml").write_text('[project]\nname = "shop"\ndeclarations = ["streams.py"]\n')
    (tmp_path / "streams.py").write_text(STREAMS)
    (tmp_path / "test_shop.py").write_text(SUITE)
    done = subprocess.run(
        [*PYTEST, "--basetemp", str(tmp_path / "tmp")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    assert not (tmp_path / ".leftfold").exists()  # the project is left as it was
    root = Path((tmp_path / "cluster.txt").read_text())
    assert local.status(root)["state"] == "down"


WAITS = """\
import time
from pathlib import Path


def test_that_takes_too_long(leftfold_cluster):
    Path("cluster.txt").write_text(str(leftfold_cluster.root))
    time.sleep(600)
"""


def test_a_run_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text(WAITS)
    told = tmp_path / "cluster.txt"
    with subprocess.Popen([*PYTEST, "--basetemp", str(tmp_path / "tmp")], cwd=tmp_path) as run:
        try:
            await_true(lambda: told.exists() or run.poll() is not None, timeout=300, what="the cluster")
            run.terminate()
            run.wait(300)
        finally:
            run.kill()
    assert local.status(Path(told.read_text()))["state"] == "down"
