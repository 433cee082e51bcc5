"""Markdown as GitHub and the site read it: anchors, links, lists."""

from __future__ import annotations

import pytest
from docs.website.markdown import as_python_markdown, headings, link_codes, replace_targets, targets

FENCED = "# A\n\n```python\n# no heading [x](y)\n```\n\n`[a](b)` and [c](d.md#e)\n"


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("Arrow or Spark", "arrow-or-spark"),
        ("`why VIEW KEY… [--at TIME] [--all]`", "why-view-key---at-time---all"),
        ("What Feast has, and this has not", "what-feast-has-and-this-has-not"),
        ("`Prediction`, `Predictions`, `@scorer`", "prediction-predictions-scorer"),
        ("See [the log](the-log.md)", "see-the-log"),
        ("log\\_time", "log_time"),
    ],
)
def test_anchors_are_those_of_github(title: str, anchor: str) -> None:
    assert [h.anchor for h in headings(f"## {title}\n")] == [anchor]


def test_a_second_heading_of_one_text_is_numbered() -> None:
    assert [h.anchor for h in headings("# A\n\n## B\n\n## B\n")] == ["a", "b", "b-1"]


def test_code_holds_neither_headings_nor_links() -> None:
    assert [h.text for h in headings(FENCED)] == ["A"]
    assert list(targets(FENCED)) == ["d.md#e"]


def test_targets_are_replaced_in_their_place() -> None:
    assert replace_targets(FENCED, str.upper) == FENCED.replace("d.md#e", "D.MD#E")


def test_codes_become_links_but_not_in_headings_and_links() -> None:
    text = "## `a-b`\n\n`a-b`, [`a-b`](x), `a-b c`\n\n```\n`a-b`\n```\n"
    assert link_codes(text, {"a-b": "p#a-b"}) == text.replace("\n\n`a-b`,", "\n\n[`a-b`](p#a-b),")


def test_lists_get_the_empty_line_and_the_indent_that_they_need() -> None:
    text = "Also:\n- a\n  more\n  - b\n- c\n\n```\nx\n- y\n```\n<!-- run -->\n"
    assert as_python_markdown(text) == "Also:\n\n- a\n  more\n    - b\n- c\n\n```\nx\n- y\n```\n"
