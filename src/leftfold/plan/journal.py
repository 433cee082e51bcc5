"""What was applied, when and by whom: a line when a step begins, and one when it is done."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path
from typing import Any

from leftfold import clock
from leftfold.plan.steps import Step


class Journal:
    """Written through to the disk line by line, so that it also tells which step a death interrupted."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def begun(self, step: Step) -> None:
        self._write(step, "begun")

    def done(self, step: Step) -> None:
        self._write(step, "done")

    def interrupted(self) -> str | None:
        """The step that was begun last and not reported done, if there is one."""
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
        """A last line that a death cut short is left out."""
        if not self.path.exists():
            return []
        entries = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries
