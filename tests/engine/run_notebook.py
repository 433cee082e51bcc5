"""Runs the code cells of a notebook in its directory: `python run_notebook.py FILE` writes their outputs into it.

It is a program of its own, because IPython changes the process that it works in. A cell that fails ends it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

Json = dict[str, Any]


def outputs(shell: Any, source: str, count: int) -> list[Json]:
    """Run a cell, and return what it printed and showed, in the form that notebooks have."""
    values: list[Any] = []
    shell.display_trap.hook = values.append
    with capture_output() as captured:
        done = shell.run_cell(source, store_history=True)
    if not done.success:
        sys.exit(f"In [{count}]:\n{source}\n{captured.stdout}{captured.stderr}")
    made: list[Json] = []
    if captured.stdout:
        made.append({"name": "stdout", "output_type": "stream", "text": captured.stdout.splitlines(keepends=True)})
    for value in values:
        if value is not None:
            shown, _ = shell.display_formatter.format(value)
            data = {kind: text.splitlines(keepends=True) for kind, text in sorted(shown.items())}
            made.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return made


def main(file: Path) -> None:
    sys.path.insert(0, str(Path.cwd()))
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))  # type: ignore[no-untyped-call]
    notebook = json.loads(file.read_text(encoding="utf-8"))
    for count, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), start=1):
        cell["outputs"] = outputs(shell, "".join(cell["source"]), count)
        cell["execution_count"] = count
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
