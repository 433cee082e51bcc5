"""Pictures of a terminal: drawn of what was printed, which is what the tutorial shows, and whole without a network."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docs.website.pictures import COLUMNS, DIRECTORY, drawn, text_of

from tests.engine.pages import DOCS, Block, blocks, matches

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = sorted(DIRECTORY.glob("*.svg"))
SHOWN = {b.picture: b for page in sorted(DOCS.glob("tutorial*.md")) for b in blocks(page) if b.picture}


def shown(svg: str) -> list[str]:
    """The lines of a picture, as a reader can select them."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_each_picture_is_of_a_block_of_the_tutorial() -> None:
    assert {path.stem for path in DRAWN} == set(SHOWN) == {path.stem for path in DIRECTORY.glob("*.txt")}
    assert len(DRAWN) > 1


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_make_pictures_draws_it_so(path: Path) -> None:
    assert path.read_text() == drawn(text_of(path.stem).read_text()), "run `make pictures`"


@pytest.mark.parametrize(("name", "block"), SHOWN.items(), ids=str)
def test_the_text_is_what_the_tutorial_shows(name: str, block: Block) -> None:
    """The tutorial's test compares the block with a real run; here the text of the picture is compared with it."""
    ((command, output),) = block.commands()
    first, _, printed = text_of(name).read_text().partition("\n")
    assert first == f"$ {command}"
    assert matches(output, printed), "LEFTFOLD_GOLDEN=write pytest tests/engine/test_tutorial.py keeps a new one"


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_it_is_whole_without_a_network(path: Path) -> None:
    svg = path.read_text()
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in svg
    assert "@font-face" not in svg
    description = ElementTree.fromstring(svg).findtext(f"{SVG}desc")
    assert description == text_of(path.stem).read_text()
    assert "".join(shown(svg)).split() == "".join(line.strip() for line in (description or "").splitlines()).split()


def test_marks_have_a_class_and_text_is_escaped() -> None:
    svg = drawn('$ leftfold get "<a>" & b\n  + one  &lt;\n✗ it failed\n\nnext: leftfold run\n')
    assert shown(svg) == ['$ leftfold get "<a>" & b', "+ one  &lt;", "✗ it failed", "next: leftfold run"]
    assert '<tspan class="good">+</tspan> one' in svg
    assert '<tspan class="bad">✗</tspan> it' in svg
    assert '<tspan class="strong">leftfold run</tspan>' in svg


def test_a_long_line_goes_on_in_the_next() -> None:
    assert [len(line) for line in shown(drawn(f"$ {'x' * 2 * COLUMNS}\n"))] == [COLUMNS, COLUMNS, 2]
