"""Every link within the repository resolves, with its anchor, as GitHub makes anchors."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

import pytest
from docs.website.markdown import headings, is_outside, targets
from docs.website.tree import markdown_files

ROOT = Path(__file__).parents[2]


def dead(source: str) -> list[str]:
    """The links of a page that lead nowhere."""
    return [
        target
        for target in targets((ROOT / source).read_text())
        if not is_outside(target) and not _ends(source, target)
    ]


def _ends(source: str, target: str) -> bool:
    path, _, anchor = target.partition("#")
    place = ROOT / (posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source)
    if not place.exists() or not place.resolve().is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(place)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of headings, and those that the page names itself: rows of a table have no others."""
    text = page.read_text()
    return {heading.anchor for heading in headings(text)} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("source", markdown_files(ROOT))
def test_links_resolve(source: str) -> None:
    assert dead(source) == []


def test_the_check_reads_links() -> None:
    assert sum(len(list(targets((ROOT / source).read_text()))) for source in markdown_files(ROOT)) > 300
