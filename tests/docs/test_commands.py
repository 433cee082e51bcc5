"""Every command that a page, an error or a source file names exists, with the options that it is given there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs.website.tree import markdown_files

from leftfold.cli.main import VERBS
from tests.unit.cli.commands import ALL

ROOT = Path(__file__).parents[2]
# Up to the end of the command. In prose, words may follow that are no part of it.
_NAMED = re.compile(r"\bleftfold ((?:-C \S+ |--project-dir \S+ )?[a-z][a-z-]* (?:(?!leftfold )[^\n`;|&#\"])*)")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_VERB = re.compile(r"(?:`|\$ |&& )leftfold (?:-C [^\s`]+ )?([a-z][a-z-]*)")
_CODE = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.json")]
SOURCES = [*markdown_files(ROOT), *sorted(str(path.relative_to(ROOT)) for path in _CODE)]
TEXTS = {source: (ROOT / source).read_text(encoding="utf-8") for source in SOURCES}


def named(text: str) -> Iterator[tuple[click.Command, str]]:
    """The commands that a text names, each with what follows it."""
    for said in _NAMED.findall(text):
        words = re.sub(r"^(-C|--project-dir) \S+ ", "", said).split()
        name = next((n for n in (" ".join(words[:2]), words[0]) if f"leftfold {n}" in ALL), None)
        if name is not None:
            yield ALL[f"leftfold {name}"], said


def unknown(text: str) -> list[str]:
    """The options of commands in a text that the command does not have."""
    found = []
    for command, said in named(text):
        has = {name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
        before = {"-C", "--project-dir", "-h", "--help"}
        found += [f"leftfold {said}: {o}" for o in _OPTION.findall(said) if o not in has | before]
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_commands_and_options_exist(source: str) -> None:
    assert [verb for verb in _VERB.findall(TEXTS[source]) if verb not in VERBS] == []
    assert unknown(TEXTS[source]) == []


def test_an_option_that_is_not_there_is_found() -> None:
    assert unknown("`leftfold -C shop rebuild v --again`, or leftfold dead drop x --all") == [
        "leftfold -C shop rebuild v --again: --again"
    ]
    assert sum(len(list(named(text))) for text in TEXTS.values()) > 300
