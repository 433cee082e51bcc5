"""Both parts of the tutorial, executed as they are written, and the first ten minutes of a new user.

One cluster, started by `leftfold up` as a user would. The tutorial begins with the commands of the first ten minutes,
so these run once and serve both tests. Part two continues in the project that part one leaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.website import pictures

from tests.engine.pages import DOCS, Block, Done, Following, Shell, blocks, check_read, edited, filled, matches

PARTS = (DOCS / "tutorial.md", DOCS / "tutorial-training.md")
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

pytestmark = pytest.mark.timeout(900)


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


def keep(block: Block, done: Done) -> None:
    """Keep what a picture draws, if golden files are written: the block, with what was printed within its lines."""
    if block.picture and os.environ.get("LEFTFOLD_GOLDEN") == "write":
        ((command, shown),) = block.commands()
        pictures.text_of(block.picture).write_text(f"$ {command}\n{filled(shown, done.output)}", encoding="utf-8")


def test_both_parts(shell: Shell, first_commands: list[Done], capsys: pytest.CaptureFixture[str]) -> None:
    already = list(first_commands)
    for page in PARTS:
        began = time.monotonic()
        Following(page, shell, already=already, see=keep).follow()
        with capsys.disabled():
            print(f"\n    {time.monotonic() - began:6.1f} s  {page.name}")


def test_the_tutorial_is_read() -> None:
    """A block that the pattern misses would be a block that is never run."""
    for page in PARTS:
        check_read(page)
    assert matches("a … c\n…\nd\n", "a b c\nx\ny\nd\n")
    assert matches("…\n", "")
    assert not matches("a\n", "a\nb\n")
    assert not matches("", "unexpected\n")
    assert matches("a\n\nb\n", "a  \n\nb")
    assert not matches("a b\n", "ab\n")
    assert filled("a … c\n\n…\nd…\n", "a b c  \n\nx\ny\nd 1 2\n") == "a b c\n\n…\nd 1 2\n"
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
