"""docs/reference/hazards.md and the rules speak of the same hazards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leftfold.hazards.rules import CODES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "hazards.md"
_, *PARTS = re.split(r"^## ", REFERENCE.read_text(), flags=re.MULTILINE)
SECTIONS = [(heading, text.strip()) for heading, _, text in (part.partition("\n") for part in PARTS)]


def test_every_code_has_a_heading_and_every_heading_a_code() -> None:
    assert [heading for heading, _ in SECTIONS] == list(CODES)
    assert len(set(CODES)) == len(CODES)


@pytest.mark.parametrize(("code", "text"), SECTIONS, ids=[heading for heading, _ in SECTIONS])
def test_every_section_says_how_bad_and_what(code: str, text: str) -> None:
    assert re.search(r"\b(danger|warning|note)\b", text, re.IGNORECASE), f"{code} does not say how bad it is"
    assert len(text) > 60
