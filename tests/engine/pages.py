"""Pages of docs/ whose blocks are executed: the blocks, the shell that runs them, and how output is compared.

`console` blocks hold commands and what they print. The comment before a block says what else is done with it:
CONTRIBUTING.md lists these notes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"(?:<!-- (?P<note>.*?) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_EDIT = re.compile(r"file: (?P<file>\S+)(?: (?P<how>new|append|after (?P<after>\w+)))?")
_END = "=== end of command"


@dataclass(frozen=True)
class Done:
    """One command that was run: both streams as a terminal shows them."""

    command: str
    code: int
    output: str
    seconds: float


class Shell:
    """One bash for all commands: directories and background jobs stay. A marker tells that a command is over."""

    def __init__(self, directory: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEFTFOLD_PROFILE", "PYTEST"))}
        self.directory = directory
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=directory,
            # A command has a Spark of its own that lives for seconds: to compile it well costs more than it saves.
            env={**kept, "PATH": path, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            encoding="utf-8",
        )

    def run(self, command: str, *, given: str = "") -> Done:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        source = f"<<'GIVEN'\n{given}\nGIVEN" if given else "</dev/null"
        started = time.monotonic()
        # The marker is on a line of its own, also after output that does not end its last line.
        self._bash.stdin.write(f"{{\n{command}\n}} {source}\nprintf '\\n%s %s %s\\n' '{_END}' $? \"$PWD\"\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(_END):
                code, _, directory = line.removeprefix(_END).strip().partition(" ")
                self.directory = Path(directory)
                return Done(command, int(code), "".join(lines).removesuffix("\n"), time.monotonic() - started)
            lines.append(line)
        raise AssertionError(f"the shell ended during: {command}\n{''.join(lines)}")

    def close(self) -> None:
        """Also what a command left in the background: the session is ours alone."""
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()


@dataclass(frozen=True)
class Block:
    """One fenced block of the tutorial: its language, the note in the comment before it, its text, its line."""

    language: str
    note: str
    body: str
    line: int

    @property
    def code(self) -> int:
        """The exit code that its commands are to have."""
        return int(self.note.removeprefix("exit: ")) if self.note.startswith("exit: ") else 0

    @property
    def picture(self) -> str | None:
        """The name of the picture that draws what its one command prints."""
        return self.note.removeprefix("picture: ") if self.note.startswith("picture: ") else None

    def commands(self) -> list[tuple[str, str]]:
        """Each command of a console block with the output shown for it."""
        found: list[tuple[str, str]] = []
        for line in self.body.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line.removeprefix("$ ").rstrip("\n"), ""))
            else:
                command, output = found.pop()
                found.append((command, output + line))
        return found


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["note"] or "", m["body"], text.count("\n", 0, m.start("body")) + 1)
        for m in _BLOCK.finditer(text)
    ]


def check_read(page: Path) -> None:
    """Check that every block of a page is found. A block that the pattern misses would never be run."""
    assert len(blocks(page)) == len(re.findall(r"^```\w+$", page.read_text(encoding="utf-8"), re.MULTILINE))


def matches(shown: str, output: str) -> bool:
    """`…` is anything within a line; alone on a line it is any number of lines.

    Spaces at the end of a line do not count, nor does a last line that is not ended.
    """
    return _match(shown, output) is not None


def filled(shown: str, output: str) -> str:
    """What is shown, with what was printed for each `…` within a line. One that stands for lines stays."""
    found = _match(shown, output)
    assert found, "compare first"
    printed = iter(found.groups())
    return "".join(f"{'…' if line.strip() == '…' else next(printed)}\n" for line in shown.splitlines())


def _match(shown: str, output: str) -> re.Match[str] | None:
    pattern = ""
    for line in shown.splitlines():
        within = ".*?".join(map(re.escape, line.rstrip().split("…")))
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else rf"({within}) *\n"
    return re.fullmatch(pattern, output if output.endswith("\n") or not output else f"{output}\n")


def edited(text: str, body: str, *, after: str | None) -> str:
    """With `body` after the first line that gives the name `after` its value, or at the end."""
    lines = text.splitlines(keepends=True)
    place = len(lines)
    if after is not None:
        place = 1 + next(n for n, line in enumerate(lines) if line.strip().startswith(f"{after} = "))
    return "".join([*lines[:place], body, *lines[place:]])


def patched(text: str, diff: str) -> str:
    """Return the text with a diff applied. The old lines must occur in it exactly once, as one block."""
    lines = diff.splitlines()
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
    assert text.count(old) == 1, f"not there, or more than once:\n{old}"
    return text.replace(old, new)


@dataclass
class Following:
    """A page that is followed in a shell. `clean` is applied to output before it is compared; `see` gets each command.

    The first commands of the page may have been run `already`.
    """

    page: Path
    shell: Shell
    already: list[Done] = field(default_factory=list)
    clean: Callable[[str], str] = str
    see: Callable[[Block, Done], None] = lambda _block, _done: None
    _last: Done | None = None

    def follow(self) -> None:
        """Execute every block, in order."""
        for block in blocks(self.page):
            where = f"{self.page.name}:{block.line}"
            if block.language == "console":
                self._run(block, where)
            elif block.language == "text":
                assert self._last is not None, where
                self._compare(block.body, self._last, where)
            elif block.note == "run":
                self._last = self.shell.run("python -", given=block.body)
                assert self._last.code == 0, f"{where}\n{self._last.output}"
            elif block.note.startswith("shows: "):
                assert block.body in (self.shell.directory / block.note.removeprefix("shows: ")).read_text(), where
            else:
                self._edit(block, where)

    def _run(self, block: Block, where: str) -> None:
        for command, shown in block.commands():
            if self.already:
                done = self.already.pop(0)
                assert command == done.command, f"{where}: other commands were run already"
            else:
                done = self.shell.run(command)
            self.see(block, done)
            assert done.code == block.code, f"{where}: $ {command}\nexit code {done.code}\n{done.output}"
            self._compare(shown, done, where)
            self._last = done

    def _compare(self, shown: str, done: Done, where: str) -> None:
        output = self.clean(done.output)
        assert matches(shown, output), f"{where}: $ {done.command}\nshown:\n{shown}\nprinted:\n{output}"

    def _edit(self, block: Block, where: str) -> None:
        edit = _EDIT.fullmatch(block.note)
        assert edit, f"{where}: a block that nobody executes"
        file = self.shell.directory / edit["file"]
        assert file.exists() is (edit["how"] != "new"), where
        before = "" if edit["how"] == "new" else file.read_text(encoding="utf-8")
        if block.language == "diff":
            after = patched(before, block.body)
        else:
            assert edit["how"], f"{where}: where in the file?"
            after = edited(before, block.body, after=edit["after"])
        file.write_text(after, encoding="utf-8")
