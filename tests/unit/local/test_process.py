"""Processes by identity: a recycled pid is left alone, a stubborn one is killed, a lost one is found."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftfold.local import process
from leftfold.local.process import Identity


class Nursery:
    """Starts shell commands as children and ends those that a test leaves."""

    def __init__(self, tmp: Path) -> None:
        self.log = tmp / "logs" / "x.log"
        self.mark = f"{tmp}:"
        self.identities: list[Identity] = []

    def start(self, command: str, **environment: str) -> Identity:
        identity = process.start(
            ["/bin/sh", "-c", command],
            mark=f"{self.mark}x",
            directory=self.log.parent.parent / "x",
            log=self.log,
            environment=environment,
        )
        self.identities.append(identity)
        return identity


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path)
    yield nursery
    process.end(nursery.identities, grace_s=0)


def test_ended_when_asked(nursery: Nursery) -> None:
    identity = nursery.start("exec sleep 60")
    assert process.alive(identity)
    assert process.end([identity], grace_s=5) == {identity: "ended"}
    assert not process.alive(identity)
    assert process.end([identity], grace_s=5) == {}


def test_killed_with_its_group_when_it_does_not_listen(nursery: Nursery) -> None:
    identity = nursery.start("trap '' TERM; sleep 60 & echo $!; while :; do wait; done")
    assert process.wait_until(lambda: nursery.log.read_text().endswith("\n"), timeout_s=5)
    background = process.identify(int(nursery.log.read_text()))
    assert process.alive(background)
    assert process.end([identity], grace_s=0.2) == {identity: "killed"}
    assert process.wait_until(lambda: not process.alive(background), timeout_s=5)


def test_a_recycled_pid_is_somebody_else() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as stranger:
        ours = Identity(stranger.pid, "the moment when ours began")
        assert not process.alive(ours)
        assert process.end([ours], grace_s=0) == {}
        assert stranger.poll() is None
        stranger.kill()


def test_a_child_that_was_killed_and_not_reaped_is_dead(nursery: Nursery) -> None:
    identity = nursery.start("exec sleep 60")
    os.kill(identity.pid, signal.SIGKILL)
    assert process.wait_until(lambda: not process.alive(identity), timeout_s=5)


def test_found_by_its_mark_after_its_record_is_lost(nursery: Nursery) -> None:
    identity = nursery.start("exec sleep 60")
    # Until it has become another program, a child has the environment of its parent.
    assert process.wait_until(lambda: process.marked(nursery.mark) == {identity: "x"}, timeout_s=30)
    assert process.marked("/another/project:") == {}


def test_one_that_leads_no_group_is_ended_alone(nursery: Nursery) -> None:
    """As an executor is: in its worker's session, and ended without the worker."""
    leader = nursery.start("sleep 60 & echo $!; wait; sleep 60")
    assert process.wait_until(lambda: nursery.log.read_text().endswith("\n"), timeout_s=5)
    child = process.identify(int(nursery.log.read_text()))
    assert process.session(child) == leader.pid
    assert process.end([child], grace_s=5) == {child: "ended"}
    assert process.alive(leader)
    # Its shell may take a moment to notice the end.
    assert process.wait_until(lambda: process.session(child) is None, timeout_s=60)


def test_the_log_before_is_kept(nursery: Nursery) -> None:
    for word in ("first", "second", "third"):
        identity = nursery.start(f"echo {word}")
        assert process.wait_until(lambda identity=identity: not process.alive(identity), timeout_s=5)  # type: ignore[misc]
    assert nursery.log.read_text() == "third\n"
    assert nursery.log.with_name("x.log.1").read_text() == "second\n"


def test_the_environment_is_ours_not_the_shells(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dcom.sun.management.jmxremote.port=9999")
    identity = nursery.start('echo "$JAVA_TOOL_OPTIONS|$OWN|$PWD"', OWN="1")
    assert process.wait_until(lambda: not process.alive(identity), timeout_s=5)
    assert nursery.log.read_text() == f"|1|{nursery.log.parent.parent / 'x'}\n"


def test_waiting_says_whether_it_came_true() -> None:
    answers = iter([False, True])
    assert process.wait_until(lambda: next(answers), timeout_s=5)
    assert not process.wait_until(lambda: False, timeout_s=0.1)
