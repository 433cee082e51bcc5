"""The verb explain: every code has a text, and a misspelt code is answered with its neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leftfold.cli.explained import ErrorText, HazardText, explanation, headings
from leftfold.cli.main import cli
from leftfold.errors import ProjectError
from leftfold.hazards.rules import CODES


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *arguments], catch_exceptions=False)


def test_every_hazard_has_a_text() -> None:
    """That every error has one, the golden errors show."""
    assert headings()["Hazards"] == list(CODES)


def test_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no project is needed
    told = explain("kafka-login")
    assert told.exit_code == 0
    for part in ("error kafka-login", "LogError", "for example: ", "why: ", "fix: "):
        assert part in told.stdout
    assert "state: " not in told.stdout  # nothing was changed
    assert "state:  its last batch" in explain("view-failed").stdout
    assert "fails again" in told.stdout
    assert "may work later" in explain("kafka-unreachable").stdout


def test_an_error_of_several_places_has_several_messages() -> None:
    text = explanation("kafka-denied")
    assert isinstance(text, ErrorText)
    assert len(text.examples) > 1
    assert explain("kafka-denied").stdout.count("fix: ") == len(text.examples)


def test_a_hazard() -> None:
    text = explanation("auto-create")
    assert isinstance(text, HazardText)
    assert text.text.startswith("Warning.")
    assert "auto.create.topics.enable" in explain("auto-create").stdout


def test_no_link_is_left_in_a_text() -> None:
    hazards = [text for code in CODES if isinstance(text := explanation(code), HazardText)]
    assert [text.code for text in hazards if "](" in text.text] == []


@pytest.mark.parametrize("printed", ["error[no-project]", "error[no-project]:", "no-project"])
def test_a_code_as_it_is_printed(printed: str) -> None:
    assert explanation(printed).code == "no-project"


@pytest.mark.parametrize(("misspelt", "nearest"), [("no-projct", "no-project"), ("kafka", "kafka-tls")])
def test_a_code_that_is_not_there(misspelt: str, nearest: str) -> None:
    with pytest.raises(ProjectError) as raised:
        explanation(misspelt)
    assert raised.value.code == "unknown-code"
    assert nearest in raised.value.why


def test_json() -> None:
    error = json.loads(explain("no-project", "--json").stdout)
    assert (error["verb"], error["type"], error["code"], error["kind"]) == (
        *("explain", "error", "no-project"),
        "ProjectError",
    )
    assert set(error["examples"][0]) == {"what", "why", "state", "fix"}
    assert json.loads(explain("auto-create", "--json").stdout)["type"] == "hazard"
    assert "no-project" in json.loads(explain("--json").stdout)["codes"]["The project (ProjectError)"]


def test_the_list_of_codes() -> None:
    listed = explain().stdout.splitlines()
    assert "The project (ProjectError):" in listed
    assert "  no-project" in listed
    assert "Hazards:" in listed
