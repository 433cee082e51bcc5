"""The files of docs/operate speak of metrics, alerts, error codes, commands and options that exist."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.website.markdown import headings
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from leftfold.cli import explained
from leftfold.consume.metrics import consumer_metrics
from leftfold.consume.progress import ConsumerProgress
from leftfold.declare.acceptance import OUTCOMES
from leftfold.infer.serving_metrics import exposition
from leftfold.render.spark import SparkOptions
from leftfold.run.metrics import view_metrics
from leftfold.run.progress import STATES, Progress

ROOT = Path(__file__).parents[2]
HERE = ROOT / "docs" / "operate"
PAGES = sorted(HERE.glob("*.md"))
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((HERE / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = json.loads((HERE / "dashboard.json").read_text())["panels"]
ASKED = [t["expr"] for panel in PANELS for t in panel.get("targets", ())] + [rule["expr"] for rule in ALERTS]
OF_CONSUMERS = {"handled", "skipped", "dead"}


class _Given(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def exposed() -> set[str]:
    """Every metric of `run`, `consume` and `serve`, under the name that a scrape gives it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given([*view_metrics([Progress("v")]), *consumer_metrics([ConsumerProgress("c")])]))
    return set(re.findall(r"^# TYPE (\S+)", generate_latest(registry).decode() + exposition({}, {}), re.MULTILINE))


def named(text: str) -> set[str]:
    return set(re.findall(r"\bleftfold_[a-z_]*[a-z]\b", text))


# Metrics ------------------------------------------------------------------------------------------------------------


def test_alerts_and_dashboard_ask_for_metrics_that_are_exposed() -> None:
    assert exposed() > {"leftfold_view_up", "leftfold_consumer_up", "leftfold_scorer_rows_total"}
    assert named(" ".join(ASKED)) - exposed() == set()
    assert len(named(" ".join(ASKED))) > 30


def test_every_metric_is_described_and_every_described_metric_is_exposed() -> None:
    pages = (HERE / "alerts.md").read_text() + (ROOT / "docs" / "guide" / "running.md").read_text()
    assert named(pages) == exposed()


def test_alerts_and_dashboard_ask_for_outcomes_and_states_that_exist() -> None:
    for expression in ASKED:
        known = OF_CONSUMERS if "leftfold_consumer_records_total" in expression else set(OUTCOMES)
        outcomes = re.findall(r'outcome(?:=|!=|=~)"([^"]*)"', expression)
        assert {one for text in outcomes for one in text.split("|")} <= known, expression
        assert set(re.findall(r'state="([^"]*)"', expression)) <= set(STATES), expression


def test_panels_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    cells = [(at["x"] + i, at["y"] + j) for at in places for i in range(at["w"]) for j in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} <= set(range(24))


# Alerts and codes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_its_reason_and_its_entry_in_the_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    found = {heading.anchor: heading for heading in headings((ROOT / page).read_text())}
    assert found[anchor].text == rule["alert"]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["reason"].endswith(".")


def test_every_entry_of_the_runbook_is_of_an_alert_and_complete() -> None:
    text = (HERE / "runbook.md").read_text()
    entries = [heading for heading in headings(text) if heading.level == 3]
    assert [entry.text for entry in entries] == [rule["alert"] for rule in ALERTS]
    for entry in entries:
        body = text[entry.end :].split("\n#", 1)[0]
        assert re.findall(r"^- \*\*(\w+)\*\*: ", body, re.MULTILINE) == ["Harmed", "First", "Fix"], entry.text


def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    stories = yaml.safe_load((ROOT / "tests" / "data" / "alerts.test.yml").read_text())["tests"]
    well, *ill = stories
    assert named(" ".join(s["series"] for s in well["input_series"])) == named(" ".join(r["expr"] for r in ALERTS))
    fired = {label for story in ill for case in story["promql_expr_test"] for label in _fired(case)}
    assert {rule["alert"] for rule in ALERTS} == fired


def _fired(case: dict[str, Any]) -> set[str]:
    return set(re.findall(r'alertname="(\w+)"', " ".join(sample["labels"] for sample in case["exp_samples"])))


def codes_of(page: Path) -> list[str]:
    return re.findall(r"\[`([a-z-]+)`\]\(\.\./reference/errors\.md#\1\)", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_codes_that_a_page_links_exist(page: Path) -> None:
    known = {code for codes in explained.headings().values() for code in codes}
    linked = re.findall(r"errors\.md#([a-z-]+)\)", page.read_text())
    sections = {heading.anchor for heading in headings((ROOT / "docs" / "reference" / "errors.md").read_text())}
    assert set(linked) - known - sections == set()


@pytest.mark.parametrize(
    "guide", ["effects.md#what-a-refusal-means", "delivery.md#where-it-begins", "secured.md#what-"]
)
def test_codes_that_guides_name_for_the_run_time_have_a_row(guide: str) -> None:
    page, _, anchor = guide.partition("#")
    text = (ROOT / "docs" / "guide" / page).read_text()
    start = next(heading for heading in headings(text) if heading.anchor.startswith(anchor))
    table = text[start.end :].split("\n## ", 1)[0]
    first_cells = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", table, re.MULTILINE)
    codes = {code for cell in first_cells for code in re.findall(r"`([a-z-]+)`", cell)}
    assert len(codes) >= 4
    assert codes - set(codes_of(HERE / "codes.md")) == set()


# The image ----------------------------------------------------------------------------------------------------------


def test_the_image_is_what_manifests_and_the_lock_expect() -> None:
    image = (HERE / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (spark,) = re.findall(r"^ARG SPARK=(\S+)$", image, re.MULTILINE)
    assert f"pyspark=={spark}" in extras["spark"]
    (python,) = re.findall(r"^ARG PYTHON=(\S+)$", image, re.MULTILINE)
    assert project["requires-python"] == f">={python}"
    installed = re.findall(r"^ARG EXTRAS=(\S+)$", image, re.MULTILINE)[0].split(",")
    assert set(installed) <= set(extras)
    assert re.findall(r"^WORKDIR (\S+)$", image, re.MULTILINE) == [SparkOptions("i", "n", "s").directory] * 2
    assert set(re.findall(r"^FROM \S+ AS (\w+)$", image, re.MULTILINE)) >= set(
        re.findall(r"--target (\w+)", image + (HERE / "image.md").read_text())
    )
    assert "python -m leftfold.jars fetch" in image
    assert "python -m leftfold.jars fetch" in (ROOT / "Makefile").read_text().replace("$(BIN)/", "")
