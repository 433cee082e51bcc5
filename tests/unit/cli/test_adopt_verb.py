from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import leftfold
from leftfold.cli.main import cli
from leftfold.errors import ProjectError
from tests.unit.adopt.topics import adopted, objects
from tests.unit.conftest import MakeProject

ROWS = [{"id": n, "at": "2026-01-05T12:00:00Z", "deep": {"x": 1}} for n in range(3)]
DECIDED = objects(*ROWS, keys=[b"0", b"1", b"2"])


@pytest.fixture
def here(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_project()
    monkeypatch.chdir(root)
    monkeypatch.setattr(leftfold.App, "adopt", lambda _app, _topic: adopted(records=DECIDED))
    return root


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["adopt", "orders", *arguments])


def document(result: Result) -> Any:
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def test_the_text_goes_to_stdout_and_the_rest_to_people(here: Path) -> None:
    result = invoke()
    assert result.exit_code == 0
    assert result.stdout == adopted(records=DECIDED).text
    assert "✓ orders: 2 fields of Orders, from a sample of its JSON records; 3 records seen" in result.stderr
    assert "left out: deep (an object), because" in result.stderr
    assert "next: leftfold adopt orders --out FILE.py" in result.stderr


def test_a_file_that_checks(here: Path) -> None:
    result = invoke("--out", "orders.py")
    assert (result.exit_code, result.stdout) == (0, "")
    assert 'put "orders.py" into declarations of leftfold.toml' in result.stderr
    assert "next: leftfold check" in result.stderr
    toml = here / "leftfold.toml"
    toml.write_text(toml.read_text().replace('["streams.py"]', '["streams.py", "orders.py"]'))
    checked = CliRunner().invoke(cli, ["check", "--json"])
    assert document(checked)["topics"] == ["clicks", "orders"]


def test_it_never_overwrites(here: Path) -> None:
    (here / "orders.py").write_text("mine")
    result = invoke("--out", "orders.py")
    assert isinstance(result.exception, ProjectError)
    assert result.exception.code == "adopt-file-exists"
    assert (here / "orders.py").read_text() == "mine"


def test_a_directory_that_is_not_there(here: Path) -> None:
    result = invoke("--out", "nowhere/orders.py")
    assert result.exit_code == 2
    assert "there is no directory nowhere" in result.stderr


def test_one_document(here: Path) -> None:
    read = document(invoke("--json", "--out", "orders.py"))
    assert {k: v for k, v in read.items() if k not in ("text", "left_out", "fields")} == {
        "version": 1,
        "verb": "adopt",
        "topic": "orders",
        "event": "Orders",
        "format": "json",
        "from": "sample",
        "debezium": False,
        "sampled": 3,
        "undecided": [],
        "file": "orders.py",
    }
    assert read["fields"] == [
        {"name": "id", "kind": "int", "repeated": False, "optional": False},
        {"name": "at", "kind": "datetime", "repeated": False, "optional": False},
    ]
    assert [field["name"] for field in read["left_out"]] == ["deep"]
    assert read["text"] == (here / "orders.py").read_text()


def test_what_a_person_must_decide(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftfold.App, "adopt", lambda _app, _topic: adopted(records=objects(*ROWS)))
    result = invoke("--out", "orders.py")
    assert result.exit_code == 0
    assert "? the key of orders is not decided: the sampled records have no key" in result.stderr
    assert "fix: write key=Orders.id here" in result.stderr
    assert "until you decide, orders.py does not load" in result.stderr
