"""Hazards of sizes: every advice that there is, provoked by a load; disks; and a modest load that has none."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold import sizing
from leftfold.declare.catalog import Catalog
from leftfold.hazards.hazard import Facts
from leftfold.hazards.rules import CODES as EVERY
from leftfold.hazards.sizes import CODES, RULES
from leftfold.kafka.observed import ObservedBroker, ObservedDisk
from leftfold.settings import Kafka, Profile
from leftfold.sizing.catalog_size import Known, size_catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.load import Given
from leftfold.sizing.wrong_tool import Needs
from tests import clusters
from tests.unit.hazards.judging import LOCAL, codes, facts, judged


class Click(lf.Event):
    user_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, partitions=6)


class Activity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spent_24h = lf.sum(Click.price, "24h")


TB = 10**12
PROD = Profile(name="prod", kafka=Kafka(bootstrap="kafka.example:9092"))


def sized(
    rate: float = 2_000,
    cores: int | None = None,
    profile: Profile = PROD,
    disks: tuple[int, ...] = (),
    needs: Needs | None = None,
    **given: Any,
) -> Facts:
    """A load of a few thousand people, unless said otherwise. `disks` are bytes of one disk of each broker."""
    catalog, _ = Catalog.of([clicks, Activity])
    asked = Given(**{"rate": rate, "keys": 5_000, "record_bytes": 200, **given})
    made = size_catalog(catalog, {"clicks": Known(given=asked)}, Constants(), cores=cores, needs=needs)
    known = facts(clicks, Activity, profile=profile, sizing=made)
    if not disks:
        return known
    brokers = tuple(
        ObservedBroker(number, None, {}, (ObservedDisk("/data", total, total),))
        for number, total in enumerate(disks, 1)
    )
    cluster = replace(clusters.seen_cluster(), brokers=brokers)
    return replace(known, observed=replace(known.observed, cluster=cluster))


def test_every_advice_that_there_is_has_its_code_here() -> None:
    given = {
        node.args[0].value
        for file in Path(sizing.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Advice"
        if isinstance(node.args[0], ast.Constant)
    }
    assert len(CODES) == len(set(CODES)) == 19
    assert given | {"disk-short"} == set(CODES)
    assert set(CODES) <= set(EVERY)


def test_a_modest_load_has_none() -> None:
    assert codes(RULES, sized(disks=(TB, TB, TB))) == []
    assert codes(RULES, sized(brokers=3, cores=2)) == []
    assert codes(RULES, facts(clicks, Activity)) == []  # nobody asked


# A load, and what is then said, of what.
PROVOKED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"rate": 400_000, "brokers": 9}, "partitions-few", "topic clicks", "warning"),
    ({"brokers": 2}, "brokers-few", "topic clicks", "warning"),
    ({"rate": 60_000, "cores": 1}, "view-falls-behind", "view activity", "danger"),
    ({"rate": 40_000, "cores": 1}, "view-busy", "view activity", "warning"),
    ({"rate": 20_000, "cores": 1, "catch_up_s": 600}, "view-slow-to-catch-up", "view activity", "warning"),
    ({"rate": 200_000, "keys": 10**8}, "batch-small", "view activity", "warning"),
    ({"rate": 10e6, "keys": 10**9}, "view-large", "view activity", "warning"),
    ({"keys": 10**9}, "store-large", "view activity", "warning"),
    ({"needs": Needs(freshness={"activity": 1.05})}, "view-not-fresh", "view activity", "warning"),
    ({"cores": 8}, "cores-idle", "view activity", "warning"),
    ({"rate": 300_000, "keys": 10**9, "cores": 64}, "store-busy", "view activity", "warning"),
    ({"rate": 9, "needs": Needs(no_replay=frozenset({"clicks"}))}, "wrong-tool-small", "topic clicks", "warning"),
    ({"needs": Needs(largest={"clicks": 2e6})}, "wrong-tool-large", "topic clicks", "warning"),
    ({"needs": Needs(answers=frozenset({"clicks"}))}, "wrong-tool-answers", "topic clicks", "warning"),
    ({"needs": Needs(queues=frozenset({"clicks"}))}, "wrong-tool-queue", "topic clicks", "warning"),
    ({"needs": Needs(freshness={"activity": 0.05})}, "wrong-tool-fresh", "view activity", "warning"),
    ({"brokers": 3, "disks": (TB, 10**11, TB)}, "disk-short", "broker 2", "danger"),
]


@pytest.mark.parametrize(
    ("load", "code", "subject", "level"),
    PROVOKED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_is_provoked(load: dict[str, Any], code: str, subject: str, level: str) -> None:
    found = [hazard for rule in RULES for hazard in rule(sized(**load)) if hazard.code == code]
    assert [(hazard.subject, hazard.level) for hazard in found] == [(subject, level)]
    assert (found[0].source is None) == (code == "disk-short")


def test_what_a_person_is_told() -> None:
    assert judged(RULES, sized(brokers=2, profile=Profile(name="p", namespace="prod"))) == [
        "· warning[brokers-few] topic prod.clicks: the load asks for 3 brokers, and there are 2\n"
        "    why: Brokers that are written to faster than they can write make producers wait, and then fail.\n"
        "    fix: add brokers, or probe what these can do: the model takes 100 MB/s each"
    ]


def test_batches_that_are_too_small_for_any_number_of_cores() -> None:
    (told,) = (one for one in judged(RULES, sized(rate=600_000, keys=10**8)) if "[view-falls-behind]" in one)
    assert told == (
        "! danger[view-falls-behind] view activity: a batch holds at most 300,000 records (no rate is declared), and "
        "2,400,000 are 4 s of 600,000 records/s\n"
        "    why: Batches pay their fixed cost so often that the view never catches up, whatever the number of cores.\n"
        '    fix: declare rate="600k/s" for what the view reads'
    )


def of_consumer(rate: float) -> Facts:
    @lf.consumer(clicks, start="now")
    def notify(click: Click) -> None: ...

    catalog, _ = Catalog.of([notify])
    made = size_catalog(catalog, {"clicks": Known(given=Given(rate=rate))}, Constants(), handlers={"notify": 0.01})
    return facts(notify, sizing=made)


def test_a_consumer_that_partitions_hold_back() -> None:
    assert judged(RULES, of_consumer(1_000)) == [
        "! danger[consumer-falls-behind] consumer notify: 1,000 records/s arrive, and 6 processes, one for each "
        "partition, handle 599\n"
        "    why: What is not handled now is never handled: the consumer falls further behind until retention "
        "overtakes it.\n"
        "    fix: declare parallel=4, or use a topic with 21 partitions"
    ]
    assert judged(RULES, of_consumer(400)) == [
        "· warning[consumer-slow-to-catch-up] consumer notify: after an outage of 1 h it takes 2.02 h to catch up, and "
        "1 h is asked for\n"
        "    why: 6 processes, one for each partition, handle 599 records/s, of which 400 are those that come in.\n"
        "    fix: declare parallel=2, or use a topic with 9 partitions"
    ]
    assert judged(RULES, of_consumer(200)) == []


def test_of_what_is_no_longer_declared_the_line_is_not_known() -> None:
    made = replace(sized(brokers=2, cores=8), catalog=Catalog({}, {}, {}))
    found = [(h.code, h.subject, h.source) for rule in RULES for h in rule(made)]
    assert found == [("brokers-few", "topic clicks", None), ("cores-idle", "view activity", None)]


# Disks --------------------------------------------------------------------------------------------------------------

# 2,000 records/s × 200 B × 7 d × 3 replicas × 1.3, a third of it on each of three brokers.
EACH = 2_000 * 200 * 7 * 86_400 * 1.3


def test_disks_that_are_too_small() -> None:
    (hazard,) = (hazard for rule in RULES for hazard in rule(sized(disks=(TB, 10**11, 2 * 10**11))))
    assert str(hazard) == (
        "! danger[disk-short] broker 2: 1 topic will take 943 GB, 314 GB on each of 3 brokers, and its disks hold "
        "100 GB\n"
        "    why: A broker takes a disk that is full out of use, and stops if it has no other. The other copies then "
        "lie on disks that are as full.\n"
        "    fix: use larger disks or more brokers, or declare a shorter retention"
    )


@pytest.mark.parametrize("brokers", [None, 3, 30])
def test_disks_are_those_of_the_brokers_that_there_are(brokers: int | None) -> None:
    just = int(EACH)
    assert codes(RULES, sized(disks=(just + 1,) * 3, brokers=brokers)) == []
    assert codes(RULES, sized(disks=(just + 1, just - 1, just + 1), brokers=brokers)) == ["disk-short"]


def test_a_local_cluster_is_for_trying_things() -> None:
    assert codes(RULES, sized(disks=(1, 1, 1), profile=LOCAL)) == []


def test_disks_of_which_nothing_is_known() -> None:
    assert codes(RULES, sized(disks=(-1, -1, -1))) == []
    assert codes(RULES, sized(disks=(-1, TB, TB))) == []
