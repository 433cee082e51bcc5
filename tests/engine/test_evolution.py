"""docs/guide/evolution.md, executed as it is written, in a project on the shared cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Cluster
from tests.engine.test_tutorial import _BLOCK, Block, Done, Shell, matches

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "evolution.md"
NAMESPACE = f"g{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


def blocks() -> list[Block]:
    text = GUIDE.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["note"] or "", m["body"], text.count("\n", 0, m.start("body")) + 1)
        for m in _BLOCK.finditer(text)
    ]


def patched(text: str, diff: str) -> str:
    """The text with the lines of a diff changed; they stand in it once, one after the other."""
    lines = diff.splitlines()
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
    assert text.count(old) == 1, f"not there, or more than once:\n{old}"
    return text.replace(old, new)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """In the shop of the tutorial, with a profile that names the shared cluster."""
    shell = Shell(tmp_path)
    try:
        assert shell.run("leftfold init shop && cd shop").code == 0
        endpoints = cluster.endpoints
        with (tmp_path / "shop" / "leftfold.toml").open("a") as toml:
            toml.write(
                f'\n[profile.local]\nnamespace = "{NAMESPACE}"\n'
                f'kafka = {{ bootstrap = "{endpoints.bootstrap}" }}\n'
                f'registry = {{ url = "{endpoints.registry_url}" }}\n'
                f'online = {{ url = "{endpoints.redis_url}" }}\n'
            )
        yield shell
    finally:
        shell.close()


def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks():
        where = f"evolution.md:{block.line}"
        if block.language == "diff":
            file = shell.directory / block.note.removeprefix("file: ")
            file.write_text(patched(file.read_text(encoding="utf-8"), block.body), encoding="utf-8")
            continue
        assert block.language == "console", f"{where}: a block that nobody executes"
        expected = int(block.note.removeprefix("exit: ")) if block.note else 0
        for command, shown in block.commands():
            done = plain(shell.run(command))
            with capsys.disabled():
                print(f"    {done.seconds:6.1f} s  {command}")
            assert done.code == expected, f"{where}: $ {command}\nexit code {done.code}\n{done.output}"
            assert matches(shown, done.output), f"{where}: $ {command}\nshown:\n{shown}\nprinted:\n{done.output}"


def plain(done: Done) -> Done:
    """As it looks without a namespace, which the guide's shop has not."""
    return Done(done.command, done.code, done.output.replace(f"{NAMESPACE}.", ""), done.seconds)


def test_the_guide_is_read() -> None:
    """A block that the pattern misses would be a block that is never run."""
    assert len(blocks()) == len(re.findall(r"^```\w+$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert patched("a\nb\nc\n", " a\n-b\n+x\n+y\n") == "a\nx\ny\nc\n"
    with pytest.raises(AssertionError, match="not there"):
        patched("a\n", "-b\n")
