"""docs/tutorial.md, executed as it is written, and the first ten minutes of a new user.

One cluster, started by `leftfold up` as a user would. The tutorial begins with the commands of the first ten minutes,
so these run once and serve both tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
README = Path(__file__).parents[2] / "README.md"
TEN_MINUTES = (
    "leftfold init shop",
    "cd shop",
    "leftfold up",
    "leftfold plan",
    "leftfold apply --yes",
    "leftfold send clicks --synthetic 200000 --seed 1",
    "leftfold run --until-caught-up",
    "leftfold get user_activity u42 --json",
)
_BLOCK = re.compile(r"(?:<!-- (?P<note>.*?) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_END = "=== end of command"

pytestmark = pytest.mark.timeout(900)


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


def blocks(page: Path = TUTORIAL) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["note"] or "", m["body"], text.count("\n", 0, m.start("body")) + 1)
        for m in _BLOCK.finditer(text)
    ]


def matches(shown: str, output: str) -> bool:
    """`…` is anything within a line; alone on a line it is any number of lines."""
    pattern = ""
    for line in shown.splitlines():
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(pattern, output) is not None


def edited(text: str, body: str, *, after: str | None) -> str:
    """With `body` after the first line that gives the name `after` its value, or at the end."""
    lines = text.splitlines(keepends=True)
    place = len(lines)
    if after is not None:
        place = 1 + next(n for n, line in enumerate(lines) if line.strip().startswith(f"{after} = "))
    return "".join([*lines[:place], body, *lines[place:]])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("tutorial")
    shell = Shell(home)
    try:
        yield shell
    finally:
        shell.close()
        if (home / "shop").is_dir():
            leftfold = Path(sys.executable).with_name("leftfold")
            subprocess.run([leftfold, "down"], cwd=home / "shop", check=True, timeout=120)


@pytest.fixture(scope="module")
def first_commands(shell: Shell) -> list[Done]:
    """The first ten minutes, up to the first command that fails."""
    done: list[Done] = []
    for command in TEN_MINUTES:
        done.append(shell.run(command))
        if done[-1].code != 0:
            break
    return done


def test_first_ten_minutes(first_commands: list[Done], capsys: pytest.CaptureFixture[str]) -> None:
    for done in first_commands:
        assert done.code == 0, f"$ {done.command}\n{done.output}"
    assert [done.command for done in first_commands] == list(TEN_MINUTES)
    verbs = [done for done in first_commands if done.command.startswith("leftfold")]
    for done in verbs[:-1]:
        *did, following = done.output.splitlines()
        assert did, f"{done.command} did not say what it did"
        assert following.startswith("next: "), done.output
    answer = json.loads(verbs[-1].output)
    assert answer["found"] is True
    assert answer["features"]["clicks_1h"] > 0
    assert answer["features"]["clicks_24h"] >= answer["features"]["clicks_1h"]
    with capsys.disabled():
        print()
        for done in verbs:
            print(f"    {done.seconds:6.1f} s  {done.command}")
        print(f"    {sum(done.seconds for done in first_commands):6.1f} s  time to first feature")


def test_the_readme_shows_what_was_printed(shell: Shell, first_commands: list[Done]) -> None:
    """Its commands are those of the first ten minutes, several in one line, and a last one for people."""
    printed = {done.command: done.output for done in first_commands}
    (block,) = (b for b in blocks(README) if b.language == "console" and "leftfold up" in b.body)
    for line, shown in block.commands():
        commands = line.split(" && ")
        *did, last = (printed[c] if c in printed else shell.run(c).output for c in commands)
        assert matches(shown, "".join([*did, last])), f"$ {line}\nshown:\n{shown}\nprinted:\n{did}\n{last}"


def test_tutorial(shell: Shell, first_commands: list[Done]) -> None:
    already = list(first_commands)
    last: Done | None = None
    for block in blocks():
        where = f"tutorial.md:{block.line}"
        if block.language == "console":
            expected = int(block.note.removeprefix("exit: ")) if block.note else 0
            for command, shown in block.commands():
                if already:
                    last = already.pop(0)
                    assert command == last.command, f"{where}: the tutorial starts with the first ten minutes"
                else:
                    last = shell.run(command)
                assert last.code == expected, f"{where}: $ {command}\nexit code {last.code}\n{last.output}"
                assert matches(shown, last.output), f"{where}: $ {command}\nshown:\n{shown}\nprinted:\n{last.output}"
        elif block.language == "text":
            assert last is not None, where
            assert matches(block.body, last.output), f"{where}: shown:\n{block.body}\nprinted:\n{last.output}"
        elif block.note == "run":
            last = shell.run("python -", given=block.body)
            assert last.code == 0, f"{where}\n{last.output}"
        elif block.note.startswith("shows: "):
            assert block.body in (shell.directory / block.note.removeprefix("shows: ")).read_text(), where
        else:
            edit = re.fullmatch(r"file: (\S+) (append|after (\w+))", block.note)
            assert edit, f"{where}: a block that nobody executes"
            file = shell.directory / edit[1]
            file.write_text(edited(file.read_text(encoding="utf-8"), block.body, after=edit[3]), encoding="utf-8")


def test_the_tutorial_is_read() -> None:
    """A block that the pattern misses would be a block that is never run."""
    assert len(blocks()) == len(re.findall(r"^```\w+$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE))
    assert matches("a … c\n…\nd\n", "a b c\nx\ny\nd\n")
    assert matches("…\n", "")
    assert not matches("a\n", "a\nb\n")
    assert not matches("", "unexpected\n")
    assert edited("a = 1\n  b = 2\nc = 3\nb = 4\n", "x\n", after="b") == "a = 1\n  b = 2\nx\nc = 3\nb = 4\n"
    assert edited("a = 1\n", "x\n", after=None) == "a = 1\nx\n"


def test_the_shell(tmp_path: Path) -> None:
    """Codes, directories, background jobs and unfinished lines: what the other tests rely on."""
    shell = Shell(tmp_path)
    try:
        assert shell.run("false").code == 1
        failed = shell.run("echo said; echo complained >&2; (exit 7)")
        assert (failed.code, failed.output) == (7, "said\ncomplained\n")
        assert shell.run("printf half").output == "half"
        shell.run("mkdir 'a b'; cd 'a b'; sleep 60 &")
        assert shell.directory == tmp_path / "a b"
        assert shell.run("kill $!; wait $!").code == 128 + signal.SIGTERM
        assert shell.run("cat", given="one\n'two'").output == "one\n'two'\n"
    finally:
        shell.close()
