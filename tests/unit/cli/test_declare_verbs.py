from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leftfold.cli.main import cli
from leftfold.errors import LeftfoldError
from tests.unit.conftest import STREAMS, MakeProject

LEFTFOLD = (sys.executable, "-c", "from leftfold.cli.main import main; main()")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def leftfold(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LEFTFOLD, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def document(result: Result) -> dict[str, Any]:
    (line,) = result.stdout.splitlines()
    read = json.loads(line)
    assert read["version"] == 1
    assert isinstance(read, dict)
    return read


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# init ---------------------------------------------------------------------------------------------------------------


def test_init_makes_a_project_that_checks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = invoke("init", "shop")
    assert made.exit_code == 0
    assert "next: cd shop && leftfold up" in made.stderr
    assert sorted(p.name for p in (here / "shop").iterdir()) == [
        ".gitignore",
        "leftfold.toml",
        "streams.py",
        "test_streams.py",
    ]
    assert 'name = "shop"' in (here / "shop" / "leftfold.toml").read_text()
    monkeypatch.chdir(here / "shop")
    checked = invoke("check")
    assert checked.exit_code == 0
    assert "✓ shop: 3 topics, 2 views, 1 vector, 1 scorer, nothing wrong" in checked.stderr


def test_the_template_passes_its_own_test(here: Path) -> None:
    invoke("init", "shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", "/dev/null"]
    done = subprocess.run(command, cwd=here / "shop", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_init_json(here: Path) -> None:
    read = document(invoke("init", "shop", "--json"))
    assert (read["verb"], read["project"], read["directory"]) == ("init", "shop", str(here / "shop"))
    assert sorted(read["files"]) == [".gitignore", "leftfold.toml", "streams.py", "test_streams.py"]


def test_init_into_an_empty_directory_and_by_path(here: Path) -> None:
    (here / "empty").mkdir()
    assert invoke("init", "empty").exit_code == 0
    assert invoke("init", str(here / "deep" / "shop")).exit_code == 0
    assert 'name = "shop"' in (here / "deep" / "shop" / "leftfold.toml").read_text()


def test_init_never_overwrites(here: Path) -> None:
    (here / "shop").mkdir()
    (here / "shop" / "mine.txt").write_text("mine")
    error = invoke("init", "shop").exception
    assert isinstance(error, LeftfoldError)
    assert error.code == "directory-not-empty"
    assert [p.name for p in (here / "shop").iterdir()] == ["mine.txt"]


def test_init_over_a_file_is_refused_too(here: Path) -> None:
    (here / "shop").write_text("mine")
    error = invoke("init", "shop").exception
    assert isinstance(error, LeftfoldError), repr(error)
    assert (here / "shop").read_text() == "mine"


@pytest.mark.parametrize("name", ["1shop", "my shop", "shöp", ".", "-"])
def test_names_of_projects(here: Path, name: str) -> None:
    error = invoke("init", "--", name).exception
    assert isinstance(error, LeftfoldError)
    assert error.code == "project-name"
    assert list(here.iterdir()) == []


# check --------------------------------------------------------------------------------------------------------------


def test_check(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_project())
    result = invoke("check")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "user_activity   2 features of clicks by user_id" in result.stderr
    assert "next: leftfold plan" in result.stderr


def test_check_json(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_project())
    read = document(invoke("check", "--json"))
    assert (read["verb"], read["topics"], read["problems"]) == ("check", ["clicks"], [])
    assert list(read["views"]) == ["user_activity"]
    assert len(read["views"]["user_activity"]) == 12


EVERY_KIND = (
    STREAMS
    + """

class ItemUpdate(lf.Event):
    item_id: str
    category: str


items = lf.Topic("items", ItemUpdate, key=ItemUpdate.item_id, compacted=True)


class Item(lf.Table, of=items, by=ItemUpdate.item_id):
    category = ItemUpdate.category


@lf.stream(clicks, event=Click)
def dear(clicks):
    return clicks.where("price > 100")


class Dear(lf.Features, of=dear, by=Click.item_id):
    clicks_1h = lf.count("1h")


@lf.view(clicks, by=("user_id", "item_id"))
def pairs(clicks):
    return clicks


class RankerInput(lf.Vector):
    clicks_1h = UserActivity.clicks_1h
    category = Item.category
    cart_value = lf.request(float)
"""
)


def test_check_of_every_kind_of_view(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_project(files={"streams.py": EVERY_KIND}))
    said = invoke("check").stderr
    assert "✓ shop: 2 topics, 4 views, 1 vector, nothing wrong" in said
    assert "item   1 column of items by item_id   " in said
    assert "dear   1 feature of dear by item_id   " in said
    assert "pairs   function of clicks by user_id, item_id   " in said
    assert "ranker_input   3 values of user_activity, item\n" in said
    read = document(invoke("check", "--json"))
    assert (sorted(read["views"]), read["vectors"]) == (["dear", "item", "pairs", "user_activity"], ["ranker_input"])
    assert {len(fingerprint) for fingerprint in read["views"].values()} == {12}


TWICE = STREAMS + '\nlf.Topic("clicks", Click, key=Click.user_id, time=Click.at)\n' * 2


def test_check_shows_every_problem(make_project: MakeProject) -> None:
    done = leftfold("check", cwd=make_project(files={"streams.py": TWICE}))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("error[duplicate-topic]") == 2


def test_check_json_shows_every_problem(make_project: MakeProject) -> None:
    done = leftfold("check", "--json", cwd=make_project(files={"streams.py": TWICE}))
    assert (done.returncode, done.stderr) == (1, "")
    read = json.loads(done.stdout)
    assert [p["code"] for p in read["problems"]] == ["duplicate-topic"] * 2
    assert set(read["problems"][0]) == {"code", "what", "why", "state", "fix", "source", "retriable", "details"}


def test_a_declaration_that_fails(make_project: MakeProject) -> None:
    root = make_project(files={"streams.py": STREAMS.replace("key=Click.user_id", "key=Click.userid")})
    done = leftfold("check", cwd=root)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error[unknown-field]: Click has no field 'userid'   (streams.py:13)\n  why:   ")
    assert "Traceback" not in done.stderr
    assert "Traceback" in (root / ".leftfold" / "logs" / "errors.log").read_text()  # for whoever digs


def test_a_declaration_that_fails_as_json(make_project: MakeProject) -> None:
    root = make_project(files={"streams.py": STREAMS.replace("key=Click.user_id", "key=Click.userid")})
    done = leftfold("check", "--json", cwd=root)
    assert (done.returncode, done.stderr) == (1, "")
    read = json.loads(done.stdout)
    assert (read["version"], read["verb"], read["error"]["code"]) == (1, "check", "unknown-field")
    assert read["error"]["source"] == "streams.py:13"


def test_exit_codes(tmp_path: Path) -> None:
    assert leftfold("--version", cwd=tmp_path).returncode == 0
    assert leftfold("chekc", cwd=tmp_path).returncode == 2
    assert leftfold("check", "--colour", cwd=tmp_path).returncode == 2
    nowhere = leftfold("check", cwd=tmp_path)
    assert nowhere.returncode == 1
    assert "error[no-project]" in nowhere.stderr
    assert list(tmp_path.iterdir()) == []  # no project, so no log either


def test_check_of_another_profile(make_project: MakeProject) -> None:
    done = leftfold("check", "--profile", "prod", cwd=make_project())
    assert done.returncode == 1
    assert "error[unknown-profile]" in done.stderr


def test_no_colour_where_there_is_no_terminal(make_project: MakeProject) -> None:
    assert "\x1b" not in leftfold("check", cwd=make_project()).stderr


def test_send_needs_one_source_of_events(make_project: MakeProject) -> None:
    root = make_project()
    for arguments in (["send", "clicks"], ["send", "clicks", "-", "--synthetic", "3"]):
        done = leftfold(*arguments, cwd=root)
        assert done.returncode == 2
        assert "--synthetic COUNT" in done.stderr
