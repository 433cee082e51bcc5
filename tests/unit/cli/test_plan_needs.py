"""Needs that a person states by options of `leftfold plan`, and what it then says. Only the cluster is made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from leftfold.app import App
from leftfold.cli.main import cli
from leftfold.observe.observation import Observed, ObservedSubject
from tests import clusters
from tests.unit.conftest import MakeProject

VIEW = "user_activity"


@pytest.fixture(autouse=True)
def _empty_cluster(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_project())
    subjects = {f"{topic}-value": ObservedSubject(None, registered=False) for topic in ("clicks", "more")}
    monkeypatch.setattr(App, "observe", lambda *_, **__: Observed(clusters.seen_cluster(), subjects))


def planned(*arguments: str) -> dict[str, dict[str, Any]]:
    """The hazards of a plan that speak of needs, by their code."""
    done = CliRunner().invoke(cli, ["plan", "--json", *arguments])
    assert done.exit_code == 0, done.output
    hazards = json.loads(done.stdout)["hazards"]
    return {h["code"]: h for h in hazards if h["code"].startswith("wrong-tool") or h["code"] == "view-not-fresh"}


def test_without_a_need_nothing_is_said_of_it() -> None:
    assert planned() == planned("--rate", "clicks=200") == {}


@pytest.mark.parametrize(
    ("arguments", "code", "subject", "words"),
    [
        (("--no-replay", "clicks", "--rate", "clicks=200"), "wrong-tool-small", "topic clicks", "200 records/s"),
        (("--queue", "clicks"), "wrong-tool-queue", "topic clicks", "an acknowledgement, a priority or a delay"),
        (("--answers", "clicks"), "wrong-tool-answers", "topic clicks", "waits for an answer"),
        (("--largest", "clicks=5m"), "wrong-tool-large", "topic clicks", "up to 5 MB"),
        (("--freshness", f"{VIEW}=50ms"), "wrong-tool-fresh", f"view {VIEW}", "within 0.05 s"),
        (
            ("--freshness", f"{VIEW}=1200ms", "--rate", "clicks=20k"),
            "view-not-fresh",
            f"view {VIEW}",
            "you need it within 1.2 s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value else "",
)
def test_a_need_that_another_tool_serves_better(
    arguments: tuple[str, ...], code: str, subject: str, words: str
) -> None:
    found = planned(*arguments)
    assert list(found) == [code]
    assert (found[code]["level"], found[code]["subject"]) == ("warning", subject)
    assert words in found[code]["what"]
    assert found[code]["source"].startswith("streams.py:")


def test_a_person_reads_the_reason_and_the_tool() -> None:
    text = CliRunner().invoke(cli, ["plan", "--queue", "clicks"]).output
    assert "warning[wrong-tool-queue] topic clicks: its records are tasks" in text
    assert "use a work queue (RabbitMQ, SQS, or a Postgres table" in " ".join(text.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-replay", "clicks"),  # the rate is not known
        ("--no-replay", "clicks", "--rate", "clicks=1000"),
        ("--largest", "clicks=900k"),
        ("--freshness", f"{VIEW}=1m", "--rate", "clicks=200"),
    ],
)
def test_a_need_that_the_log_serves(arguments: tuple[str, ...]) -> None:
    assert planned(*arguments) == {}


def test_few_records_with_a_second_reader_are_worth_a_log(make_project: MakeProject) -> None:
    streams = make_project() / "streams.py"
    second = '\n\nclass ItemActivity(lf.Features, of=clicks, by=Click.item_id):\n    clicks_1h = lf.count("1h")\n'
    streams.write_text(streams.read_text() + second)
    assert planned("--no-replay", "clicks", "--rate", "clicks=200") == {}


def test_freshness_is_of_the_view_that_is_named_also_if_it_reads_several_topics(make_project: MakeProject) -> None:
    streams = make_project() / "streams.py"
    text = streams.read_text().replace("of=clicks", "of=(clicks, more)")
    more = 'more = lf.Topic("more", Click, key=Click.user_id, time=Click.at)\n\n\nclass User'
    streams.write_text(text.replace("class User", more))
    load = ("--rate", "clicks=10k", "--rate", "more=10k")
    assert list(planned("--freshness", f"{VIEW}=1200ms", *load)) == ["view-not-fresh"]
