"""A plan in a file, with what each step rests on. So a later apply does what was shown, or refuses."""

from __future__ import annotations

import getpass
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leftfold import clock, private
from leftfold.errors import ProjectError
from leftfold.observe.observation import Observed
from leftfold.plan.steps import (
    Basis,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Plan,
    RegisterSchema,
    RemoveBuild,
    SetCompatibility,
    Step,
)

VERSION = 1
_KINDS: dict[str, type[Step]] = {
    kind.__name__: kind
    for kind in (CreateTopic, ConfigureTopic, DeleteTopic, SetCompatibility, RegisterSchema, RemoveBuild)
}


def save(path: Path, plan: Plan, observed: Observed, *, project: str, profile: str) -> None:
    if plan.problems:
        raise plan.problems[0]
    document = {
        "version": VERSION,
        "project": project,
        "profile": profile,
        "cluster": observed.cluster.id,
        "steps": [
            {"kind": type(step).__name__, **asdict(step), "rests_on": step.basis(observed)} for step in plan.steps
        ],
        # For reviewers only: an apply uses just the steps.
        "changes": [change.as_json() for change in plan.changes],
        "hazards": [hazard.as_json() for hazard in plan.hazards],
        "sizing": None if plan.sizing is None else plan.sizing.as_json(),
    }
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=False)
            file.write("\n")
    except FileExistsError as error:
        raise ProjectError(
            "plan-file-exists",
            f"{path} is there already",
            why="a plan that somebody may have agreed to is not overwritten",
            fix="choose another name, or delete it first",
        ) from error


def load(path: Path, observed: Observed, *, project: str, profile: str) -> Plan:
    """Read a saved plan, without the steps that are already done, for example by an apply that died.

    Raises an error if anything else changed since the plan was saved.
    """
    document = _read(path)
    meant = (document["project"], document["profile"], document["cluster"])
    here = (project, profile, observed.cluster.id)
    if meant != here:
        names = ("project", "profile", "cluster")
        differs = ", ".join(f"{n} {m}, not {h}" for n, m, h in zip(names, meant, here, strict=True) if m != h)
        raise _drifted(path, f"it was made for {differs}")
    steps = []
    for entry in document["steps"]:
        step = _step(entry)
        if step.done(observed):
            continue
        if (basis := step.basis(observed)) != entry["rests_on"]:
            raise _drifted(path, f"{step}: {_difference(entry['rests_on'], basis)}")
        steps.append(step)
    return Plan(tuple(steps), ())


def topics_in(path: Path) -> list[str]:
    """The topics in a saved plan. They must be observed before the plan can be compared with what exists."""
    return [entry["name"] for entry in _read(path)["steps"] if "name" in entry]


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] == VERSION:
            return document
        why = f"it has version {document['version']}, this release reads {VERSION}"
    except FileNotFoundError:
        why = "there is no such file"
    except (ValueError, KeyError, TypeError):
        why = "it is not what leftfold plan --out writes"
    raise ProjectError(
        "plan-unreadable", f"{path} holds no plan", why=why, fix=f"leftfold plan --out {path.stem}.new.json"
    )


def _step(entry: dict[str, Any]) -> Step:
    fields = {k: _frozen(v) for k, v in entry.items() if k not in ("kind", "rests_on")}
    return _KINDS[entry["kind"]](**fields)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _difference(then: Basis, now: Basis) -> str:
    if then is None or now is None:
        return "it is there already, and not as planned" if then is None else "it is gone"
    return ", ".join(f"{k} was {then.get(k)}, is {now.get(k)}" for k in {**then, **now} if then.get(k) != now.get(k))


def _drifted(path: Path, why: str) -> ProjectError:
    return ProjectError(
        "plan-drifted",
        f"{path} no longer fits",
        why=why,
        fix="leftfold plan shows what is to be done now; save that with --out, and apply it",
    )


# The journal says what was applied, when and by whom: one line when a step begins, and one when it is done.


class Journal:
    """A log of applied steps. Each line is synced to disk at once, so the journal also shows which step a crash cut."""

    def __init__(self, path: Path) -> None:
        private.directory(path.parent)
        self.path = path

    def begun(self, step: Step) -> None:
        self._write(step, "begun")

    def done(self, step: Step) -> None:
        self._write(step, "done")

    def interrupted(self) -> str | None:
        """The last step in the journal, if it was begun and not reported done; else None."""
        entries = self._read()
        return str(entries[-1]["step"]) if entries and entries[-1]["state"] == "begun" else None

    def _write(self, step: Step, state: str) -> None:
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        entry = {"at": clock.now().isoformat(), "by": who, "pid": os.getpid(), "state": state, "step": str(step)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> list[dict[str, Any]]:
        """Read all entries. A line that is not valid JSON is skipped: a crash may have cut the last line short."""
        if not self.path.exists():
            return []
        entries = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries
