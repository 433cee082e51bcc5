"""examples/nine_am: its README executed as it is written.

`make nine-am` steals 500 cards in 20 runs, while honest cards pay 1,000 times a second, and prints the spread.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.engine import guides
from tests.engine.conftest import Cluster
from tests.engine.pages import Shell, check_read

FULL = os.environ.get("LEFTFOLD_NINE_AM") == "full"
README = guides.EXAMPLES / "nine_am" / "README.md"
NAMESPACE = f"n{uuid.uuid4().hex[:8]}"
MIDNIGHT = 27_001  # payments of a thief from 9:00 to 24:00: one at once, then one each two seconds

pytestmark = pytest.mark.timeout(3_600 if FULL else 600)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.example("nine_am", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.nightly
def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    check_read(README)


@pytest.mark.skipif(not FULL, reason="make nine-am")
def test_500_thefts(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    runs, thefts = int(os.environ.get("LEFTFOLD_RUNS", "20")), 25
    for command in (
        "leftfold apply --yes",
        "leftfold run 2> run.log &",
        "leftfold consume --consumers fraud 2> fraud.log &",
        "leftfold consume --consumers block 2> block.log &",
    ):
        assert shell.run(command).code == 0, command
    done = shell.run(f"python nine_am.py --rate 1000 --thefts {thefts} --runs {runs} --json")
    assert done.code == 0, done.output
    found = json.loads(done.output.splitlines()[0])
    with capsys.disabled():
        print()
        for way in ("nightly", "view", "scorer"):
            completed, seconds = found[way]["completed"], found[way]["seconds"]
            each = len(seconds) // runs
            p50s = sorted(median(seconds[n : n + each]) for n in range(0, len(seconds), each))
            slowest = sorted(seconds)[-(-99 * len(seconds) // 100) - 1]
            print(
                f"    {way:8} {median(completed):,.0f} payments ({min(completed):,} to {max(completed):,}); p50 "
                f"{median(seconds):.3f} s ({p50s[0]:.3f} to {p50s[-1]:.3f} by run), p99 {slowest:.3f} s, "
                f"at most {max(seconds):.3f} s"
            )
        read = found["nightly"]["payments"]
        print(f"    the nightly job read {min(read):,} to {max(read):,} payments")
    assert (found["thefts"], found["missed"], found["wrong"]) == (runs * thefts, [], [])
    assert min(found["nightly"]["completed"]) >= MIDNIGHT
    assert median(found["scorer"]["seconds"]) < median(found["view"]["seconds"])
