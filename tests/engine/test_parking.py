"""Keys that are parked behind a dead letter, and come back by a re-drive: the order of each key is that of the log."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import leftfold
from tests.engine import consumers, projects
from tests.engine.conftest import Cluster

CUSTOMERS = 300
PARKS = """
import os
out = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@lf.consumer(
    orders, start="beginning", parallel=8, failure="park", retry=lf.Retry(attempts=1),
    most_dead=lf.MostDead(share=1.0, run=100_000),
)
def note(order: Order) -> None:
    if os.path.exists(os.environ["AWAY"]) and int(order.customer[1:]) % 3 == 0:
        raise lf.Unprocessable("this customer is unknown")
    os.write(out, f"{order.number} {order.customer}\\n".encode())
"""

pytestmark = pytest.mark.timeout(600)


def handled(root: Path) -> list[tuple[int, str]]:
    path = root / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), customer) for number, customer in (line.split() for line in lines)]


def test_the_order_of_a_key_survives_a_redrive(cluster: Cluster, tmp_path: Path) -> None:
    os.environ["NOTES"], os.environ["AWAY"] = str(tmp_path / "notes"), str(tmp_path / "away")
    (tmp_path / "away").touch()
    app = consumers.make(tmp_path / "project", cluster.endpoints, f"p{uuid.uuid4().hex[:8]}", PARKS)
    consumers.send(app, range(2_000), customers=CUSTOMERS)
    (ended,) = app.consume(until_caught_up=True)
    assert ended.error is None
    letters = app.dead("note").letters()
    outcomes = Counter(letter.outcome for letter in letters)
    assert outcomes["failed"] == len({letter.key for letter in letters}) > 20, "one of each key, all others wait"
    assert outcomes["parked"] == len(letters) - outcomes["failed"] > 100
    sent = redriven_under_load(app, 2_000)
    notes = handled(tmp_path)
    assert app.dead("note").letters() == []
    by_key: dict[str, list[int]] = defaultdict(list)
    for number, customer in dict.fromkeys(notes):  # those in hand of the killed member may come twice
        by_key[customer].append(number)
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(sent)), "each of them"
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), "the order of a key"


def redriven_under_load(app: leftfold.App, sent: int) -> int:
    """Re-drive all keys while two members run and records arrive; one of them is killed meanwhile."""
    Path(os.environ["AWAY"]).unlink()
    with consumers.consuming(app.root) as first, consumers.consuming(app.root) as second:
        consumers.send(app, range(sent, sent + 500), customers=CUSTOMERS)
        letters = app.dead("note")
        letters.redrive(letters.letters()[:1])
        letters.redrive(letters.letters())
        first.process.send_signal(signal.SIGKILL)
        consumers.send(app, range(sent + 500, sent + 1_000), customers=CUSTOMERS)
        position = app.position("note")
        projects.await_true(lambda: all(p.lag == 0 for p in position.show()), timeout=240, what="the group")
        while left := letters.letters():  # parked while their keys came back
            letters.redrive(left)
            projects.await_true(lambda: all(p.lag == 0 for p in position.show()), timeout=240, what="the group")
        assert second.terminate() == 0, second.explain()
    return sent + 1_000
