from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leftfold.cli.main import cli
from leftfold.hazards import cluster_review
from leftfold.kafka.observed import ObservedCluster, ObservedGroup
from leftfold.kafka.sample import Sample
from tests import clusters

HOUR = 3_600_000_000


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cluster with two topics and a group that stands still in one of them; and what was looked at, in order."""
    steps: list[str] = []
    group = ObservedGroup("billing", "STABLE", 1, {"clicks": 1}, {"clicks": {0: 40}, "views": {0: 10}})
    topics = (clusters.seen_topic("clicks", records=600), clusters.seen_topic("views", records=60))
    cluster = clusters.seen_cluster(*topics, groups=(group,))

    def observed(*_: Any) -> ObservedCluster:
        steps.append("observe")
        return cluster

    def samples(_admin: Any, _kafka: Any, topics: list[Any]) -> dict[str, Sample]:
        steps.append("sample")
        hot = (("hot", 900),)
        return {t.name: Sample(t.name, 1_000, 60, {}, 1.0, 1, 101, 0, 0, hot, by_producer=0, ahead=0) for t in topics}

    def watched(_admin: Any, _kafka: Any, seen: ObservedCluster) -> ObservedCluster:
        steps.append("watch")
        stuck = replace(group, watched_s=11, still={"clicks": {0: seen.seen_at - HOUR}})
        return replace(seen, groups={"billing": stuck})

    monkeypatch.setattr(cluster_review, "Admin", lambda _: None)
    monkeypatch.setattr(cluster_review, "observe_cluster", observed)
    monkeypatch.setattr(cluster_review, "watch_groups", watched)
    monkeypatch.setattr(cluster_review, "take_samples", samples)
    return steps


def look(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["inspect", "--bootstrap", "nowhere:1", *arguments])


def test_a_cluster_is_looked_at_its_records_are_and_its_groups_are_again(looked: list[str]) -> None:
    result = look()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "cluster c: 3 brokers, 2 topics with 12 partitions, 1 group"
    assert lines[1] == "looked at the newest records of 2 topics, and at 1 group again after 11 s"
    assert lines[-1] == "0 dangers, 3 warnings"
    assert looked == ["observe", "sample", "watch"]


def test_what_was_sampled_is_told_as_json(looked: list[str]) -> None:
    found = json.loads(look("--json").stdout)
    assert (found["verb"], found["brokers"], found["topics"], found["partitions"]) == ("inspect", 3, 2, 12)
    assert found["sampled"] == ["clicks", "views"]
    assert sorted(h["code"] for h in found["hazards"]) == ["group-stalled", "hot-key", "hot-key"]


def test_without_a_group_that_may_stand_still_none_is_told_of(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_review, "watch_groups", lambda _admin, _kafka, seen: seen)
    monkeypatch.setattr(cluster_review, "take_samples", lambda *_: {})
    assert look().output.splitlines()[1] == "looked at the newest records of 0 topics"


def test_a_cluster_is_named_once(looked: list[str]) -> None:
    refused = look("--profile", "prod")
    assert refused.exit_code == 2
    assert "give one of --bootstrap and --profile" in refused.stderr
    assert looked == []
