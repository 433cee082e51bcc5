"""Compare: exactly the differences that were injected, between builds and with a table of somebody else's."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leftfold import clock
from leftfold.fold.expressions import from_micros
from tests.engine.conftest import Cluster
from tests.engine.driving import run_until_caught_up
from tests.engine.log import Logged
from tests.engine.rebuilds import VIEW, Project, limited, looked

SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
pytestmark = pytest.mark.usefixtures("near_clocks")


@pytest.mark.timeout(900)
def test_compare_finds_exactly_what_differs(cluster: Cluster, tmp_path: Path, spark: Any) -> None:
    project = Project(cluster.endpoints, tmp_path / "p", seed=SEED)
    project.send(4)
    moment = clock.now_us()
    run_until_caught_up(project.app, spark)
    changed = project.declared(limited(50).replace("amount_2m", "amount_24h").replace('amount, "2m"', 'amount, "24h"'))
    done = project.rebuild(changed).run(looked, session=spark)
    assert done.error is None, done.error
    found = changed.compare(VIEW, at=from_micros(moment), top=3, session=spark)
    values = {limit: big_at(project.logged(), limit, moment) for limit in (100, 50)}
    expected = {a: n - values[100].get(a, 0) for a, n in values[50].items() if n != values[100].get(a, 0)}
    by_name = {f.feature: f for f in found.differences.features}
    assert set(by_name) == {"big_12s", "note_2m", "recent_2m"}
    assert (found.only_left, found.only_right) == (("amount_2m",), ("amount_24h",))
    big = by_name["big_12s"]
    assert (big.different, big.only_left, big.only_right) == (len(expected), 0, 0)
    assert big.equal == found.differences.entities - len(expected)
    assert expected, "nothing was injected"
    assert [one.difference for one in big.largest] == sorted(expected.values(), reverse=True)[:3]
    assert all(expected[one.entity] == one.difference for one in big.largest)
    for name in ("note_2m", "recent_2m"):
        assert by_name[name].equal == found.differences.entities, by_name[name]

    # Somebody else's table with one value changed, and one key missing.
    table = str(tmp_path / "theirs")
    theirs = dict(values[50])
    one, *_, gone = sorted(theirs)
    theirs[one] += 1000
    del theirs[gone]
    spark.createDataFrame(list(theirs.items()), "who string, n long").write.parquet(table)
    keys = {"account": "who", "big_12s": "n"}
    found = changed.compare(VIEW, at=from_micros(moment), against=table, keys=keys, session=spark)
    (against,) = found.differences.features
    assert (against.different, against.only_left, against.only_right) == (1, 1, 0)
    assert [x.entity for x in against.largest] == [gone, one]


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
