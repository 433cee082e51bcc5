"""Every public name, verb, option, error code and hazard code has its place in the docs. Compared with the code."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import click
import pytest
from docs.website import api_pages, command_page, errors_pages
from docs.website.__main__ import settings
from docs.website.command_page import Verb, sections, verbs
from docs.website.markdown import headings, without_fences
from docs.website.tree import tree

from leftfold.app import App
from leftfold.hazards.rules import CODES
from tests.golden.codes import scan, unmatched

ROOT = Path(__file__).parents[2]
COMMANDS = (ROOT / "docs/reference/cli.md").read_text()


def test_every_public_name_and_every_member_of_app_has_a_page() -> None:
    assert api_pages.missing() == (set(), set())


def test_every_member_of_app_says_what_it_is() -> None:
    assert [name for name, member in inspect.getmembers(App) if name[0] != "_" and not inspect.getdoc(member)] == []


@pytest.mark.parametrize("verb", list(verbs()), ids=lambda verb: verb.anchor)
def test_every_verb_and_long_option_is_described(verb: Verb) -> None:
    about = [section for section in sections(COMMANDS) if verb in section.verbs]
    assert about, f"docs/reference/cli.md has no heading for `{' '.join(verb.words)}`"
    text = " ".join(section.heading.text + section.body + section.introduction for section in about)
    assert [name for name, option in verb.own_options().items() if not _described(name, option, text)] == []


def _described(name: str, option: click.Option, text: str) -> bool:
    """Return whether a text has the option, by its long or its short name."""
    short = [other for other in option.opts if not other.startswith("--")]
    return any(re.search(rf"(?<![\w-]){one}(?![a-z-])", text) for one in (name, *short))


def test_every_option_says_what_it_does() -> None:
    assert [(v.anchor, name) for v in verbs() for name, option in v.own_options().items() if not option.help] == []


def test_shared_options_are_described_once() -> None:
    introduction = COMMANDS[: sections(COMMANDS)[0].heading.start]
    assert [option for option in command_page.SHARED if option not in introduction] == []


def test_every_error_code_has_an_entry_with_its_messages() -> None:
    assert unmatched(scan(), set(errors_pages.places())) == (set(), set())
    assert [error.code for kind in errors_pages.kinds() for error in kind.errors if not error.examples] == []


def test_every_hazard_code_has_an_anchor() -> None:
    anchors = {h.anchor for h in headings((ROOT / "docs/reference/hazards.md").read_text())}
    assert set(CODES) - anchors == set()


def test_the_whole_tree_of_pages_is_made_and_in_the_navigation() -> None:
    made = tree(ROOT)  # raises if a page has no place in the navigation
    tomllib.loads(settings(made))
    assert [place for place, text in made.pages.items() if not without_fences(text).startswith("# ")] == []
