"""Compare: exactly the differences that were injected, between builds and with a table of somebody else's."""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leftfold import clock
from leftfold.fold.expressions import from_micros
from tests.engine import projects
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.log import Logged
from tests.engine.rebuilds import VIEW, Project, limited, looked

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
pytestmark = pytest.mark.usefixtures("near_clocks")


@pytest.mark.timeout(900)
def test_compare_finds_exactly_what_differs(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(4)
    moment = clock.now_us()
    run_until_caught_up(project.app, spark)
    changed = project.declared(limited(50).replace("amount_2m", "amount_24h").replace('amount, "2m"', 'amount, "24h"'))
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    values = {limit: big_at(project.logged(), limit, moment) for limit in (100, 50)}
    expected = {a: n - values[100].get(a, 0) for a, n in values[50].items() if n != values[100].get(a, 0)}
    assert expected, "nothing was injected"
    ways: tuple[dict[str, Any], ...] = ({"engine": "arrow"}, {"session": spark})
    found = [changed.compare(VIEW, at=from_micros(moment), top=3, **way) for way in ways]
    for one in found:
        by_name = {f.feature: f for f in one.differences.features}
        assert set(by_name) == {"big_12s", "note_2m", "recent_2m"}
        assert (one.only_left, one.only_right) == (("amount_2m",), ("amount_24h",))
        big = by_name["big_12s"]
        assert (big.different, big.only_left, big.only_right) == (len(expected), 0, 0)
        empty = sum(not values[100].get(a, 0) and not n for a, n in values[50].items())
        assert (big.equal, big.empty) == (one.differences.entities - len(expected) - empty, empty)
        assert [a.difference for a in big.largest] == sorted(expected.values(), reverse=True)[:3]
        assert all(expected[a.entity] == a.difference for a in big.largest)
        for name in ("note_2m", "recent_2m"):
            assert by_name[name].equal + by_name[name].empty == one.differences.entities, by_name[name]
            assert by_name[name].equal, by_name[name]
    assert found[0].differences == found[1].differences
    assert [one.choice.engine for one in found] == ["arrow", "spark"]

    # An hour later nothing lies in any window, so the moment is that of the newest event.
    with monkeypatch.context() as later:
        real = clock.now_us
        later.setattr(clock, "now_us", lambda: real() + 3_600_000_000)
        newest = max(r["at"] for r in accepted(project.logged(), clock.now_us(), 0))  # some producers' clocks are ahead
        for way in ways:
            of_newest = changed.compare(VIEW, **way)
            assert from_micros(of_newest.at) == newest + timedelta(microseconds=1)
            assert sum(f.equal + f.different for f in of_newest.differences.features)

    # Somebody else's table, which has doubles, with one value changed by a fraction, and one key missing.
    table = str(tmp_path / "theirs")
    theirs = {account: float(count) for account, count in values[50].items()}
    changed_one, *_, gone = sorted(theirs)
    theirs[changed_one] += 0.25
    del theirs[gone]
    spark.createDataFrame(list(theirs.items()), "who string, n double").write.parquet(table)
    keys = {"account": "who", "big_12s": "n"}
    for way in ways:
        with_table = changed.compare(VIEW, at=from_micros(moment), against=table, keys=keys, **way)
        (against,) = with_table.differences.features
        assert (against.different, against.only_left, against.only_right) == (1, 1, 0)
        assert [x.entity for x in against.largest] == [gone, changed_one]
        near = changed.compare(VIEW, at=from_micros(moment), against=table, keys=keys, tolerance=0.999, **way)
        assert near.differences.features[0].different == (values[50][changed_one] == 0)


TWO_TOPICS = """\
from datetime import datetime

import leftfold as lf


class Sale(lf.Event):
    shop: str
    at: datetime


old = lf.Topic("old", Sale, key=Sale.shop, time=Sale.at, partitions=2, lateness="1h")
new = lf.Topic("new", Sale, key=Sale.shop, time=Sale.at, partitions=3, lateness="1h")


class Sales(lf.Features, of={of}, by=Sale.shop):
    sales_1h = lf.count("1h")
"""


def test_each_build_is_evaluated_from_its_own_topics(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    namespace = f"own{uuid.uuid4().hex[:8]}"
    made = [
        projects.make(tmp_path / str(number), cluster.endpoints, namespace, TWO_TOPICS.format(of=of))
        for number, of in enumerate(("new", "(old, new)"))
    ]
    projects.apply(made[1])
    now = datetime.now(UTC)
    for topic, records in (("old", 3), ("new", 5)):
        made[1].send(topic, [{"shop": "s", "at": now - timedelta(seconds=n)} for n in range(records)])
    projects.put_build(made[0], "sales", "active")
    projects.put_build(made[1], "sales", "staged")
    ways: tuple[dict[str, Any], ...] = ({"engine": "arrow"}, {"session": spark})
    for way in ways:
        found = made[1].compare("sales", at=now + timedelta(seconds=60), **way).differences
        (counted,) = found.features
        (largest,) = counted.largest
        assert (largest.entity, largest.left, largest.right) == ("s", "5", "8"), way


def accepted(logged: list[Logged], at: int, since: int) -> Iterator[dict[str, Any]]:
    for one in logged:
        if one.record is not None:
            event = round(one.record["at"].timestamp() * 1_000_000)
            if one.log_us - 3_000_000 <= event <= one.log_us + 60_000_000 and since <= event < at:
                yield one.record


def big_at(logged: list[Logged], limit: int, at: int) -> Counter[str]:
    """By account, of all that had any payment."""
    found = Counter({r["account"]: 0 for r in accepted(logged, at, 0)})
    window = (at - 12_000_000) // 1_000_000 * 1_000_000
    found.update(r["account"] for r in accepted(logged, at, window) if r["amount"] > limit)
    return found
