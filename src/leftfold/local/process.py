"""Child processes that outlive the command which started them.

A process is identified by its pid and its start time, so a recycled pid is never mistaken for ours, let alone killed.
Every child also has a mark in its environment. With it, a child is found even if its record was lost because the
starter died.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leftfold import clock, private

MARK = "LEFTFOLD_LOCAL"
POLL_S = 0.05  # a tenth of what a user notices; a poll costs microseconds
KEPT_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR")  # JAVA_TOOL_OPTIONS could open a JMX port
_PROC = Path("/proc")
_children: dict[int, subprocess.Popen[bytes]] = {}  # we must reap them: an unreaped child still counts in its group


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one process: no other process, earlier or later, has the same."""

    pid: int
    started: str


def start(argv: Sequence[str], *, mark: str, directory: Path, log: Path, environment: Mapping[str, str]) -> Identity:
    """Start a child in a session of its own, so that a Ctrl-C here does not reach it. Its output goes to `log`.

    The log of the previous start is kept next to it, as NAME.log.1.
    """
    private.directory(log.parent)
    private.directory(directory)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    inherited = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            cwd=directory,
            env={**inherited, **environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    return identify(child.pid)


def identify(pid: int) -> Identity:
    """The identity of the process that has this pid now. If the process is already gone, `alive` is always False."""
    return Identity(pid, _started(pid) or "gone")


def alive(identity: Identity) -> bool:
    """Return whether exactly this process still runs. A zombie does not."""
    child = _children.get(identity.pid)
    if child is not None and child.poll() is not None:
        del _children[identity.pid]
    return _started(identity.pid) == identity.started


def marked(prefix: str) -> dict[Identity, str]:
    """Processes whose mark begins with `prefix`, each with the rest of its mark. Empty on systems without /proc."""
    processes: dict[Identity, str] = {}
    wanted = f"{MARK}={prefix}".encode()
    for entry in _PROC.glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it belongs to another user, or is gone meanwhile
            continue
        pid = int(entry.name)
        for variable in variables:
            if variable.startswith(wanted) and (started := _started(pid)):
                processes[Identity(pid, started)] = os.fsdecode(variable[len(wanted) :])
    return processes


def session(identity: Identity) -> int | None:
    """The pid of the session leader of this process; None if this process is gone."""
    try:
        return os.getsid(identity.pid)
    except ProcessLookupError:
        return None


def end(identities: Iterable[Identity], *, grace_s: float) -> dict[Identity, str]:
    """Ask all processes to end, wait for all together, and kill the rest. The result says `ended` or `killed` for each.

    Processes that were not alive at the start are not in the result.
    """
    living = [identity for identity in identities if alive(identity)]
    for identity in living:
        _signal(identity, signal.SIGTERM)
    wait_until(lambda: not any(map(alive, living)), timeout_s=grace_s)
    stubborn = [identity for identity in living if alive(identity)]
    for identity in stubborn:
        _signal(identity, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, stubborn)), timeout_s=grace_s)
    return {identity: "killed" if identity in stubborn else "ended" for identity in living}


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Poll a condition until it holds or the time is up. Return whether it holds."""
    deadline = clock.monotonic() + timeout_s
    while not condition():
        if clock.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _signal(identity: Identity, number: signal.Signals) -> None:
    """Send a signal to the whole process group if the process leads one, as each child of ours does.

    Otherwise, for example for an executor, send it to the process alone.
    """
    try:
        if os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
    except ProcessLookupError:  # it ended between the look and the signal
        return


def _started(pid: int) -> str | None:
    """The start time of the process, in a form that is only good for comparing; None if it is gone or a zombie."""
    if not _PROC.joinpath("self").exists():
        return _started_without_proc(pid)
    try:
        # The name stands in parentheses, and may contain spaces and parentheses. Field 3 follows the last parenthesis.
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in "ZX" and int(fields[17]) <= 1:  # a killed JVM is a zombie while its other threads still hold ports
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{fields[19]}"  # field 22: ticks since boot, which alone could repeat after a reboot


def _started_without_proc(pid: int) -> str | None:
    """The start time on macOS, from ps, in whole seconds; None if the process is gone or a zombie."""
    ran = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = ran.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
