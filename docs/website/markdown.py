"""Links, headings and anchors of Markdown text, as GitHub and the site both understand them. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^ *(```|~~~)")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"\]\(([^()\s]*)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
_ITEM = re.compile(r"^( *)([-*] |\d+\. )")


@dataclass(frozen=True)
class Heading:
    """One heading: its level, its text in Markdown, its anchor, and where its line stands in the page."""

    level: int
    text: str
    anchor: str
    start: int
    end: int


def is_outside(target: str) -> bool:
    """Return whether a link leads to another host."""
    return re.match(r"[a-z]+:", target) is not None


def without_fences(text: str) -> str:
    """The same text with blocks of code blanked, so that positions stay valid."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line) is not None
        lines.append(_blank(line) if fence or inside else line)
        inside ^= fence
    return "".join(lines)


def without_code(text: str) -> str:
    """The same text with blocks of code and inline code blanked, so that positions stay valid."""
    return _CODE.sub(lambda code: _blank(code[0]), without_fences(text))


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def headings(text: str) -> list[Heading]:
    """Every heading of a page, with the anchor that GitHub gives it."""
    counts: dict[str, int] = {}
    found = []
    for match in _HEADING.finditer(without_fences(text)):
        title = text[match.start(2) : match.end(2)]
        slug = _slug(title)
        counts[slug] = counts.get(slug, -1) + 1
        anchor = f"{slug}-{counts[slug]}" if counts[slug] else slug
        found.append(Heading(len(match[1]), title, anchor, match.start(), match.end()))
    return found


def title_of(text: str) -> str:
    """The text of the first heading."""
    return plain(headings(text)[0].text)


def plain(markdown: str) -> str:
    """The text of one line of Markdown, without its marks."""
    linked = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"\\([|_*<])", r"\1", linked.replace("`", ""))


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", plain(title).lower()).strip().replace(" ", "-")


def targets(text: str) -> Iterator[str]:
    """Yield the target of every link and picture."""
    for match in _TARGET.finditer(without_code(text)):
        yield match[1]


def replace_targets(text: str, change: Callable[[str], str]) -> str:
    """Give every link and picture the target that `change` makes of its own."""
    return _replace(text, _TARGET.finditer(without_code(text)), lambda match: f"]({change(match[1])})")


def link_codes(text: str, places: dict[str, str]) -> str:
    """Make a link of every inline code that is a key of `places`, outside of headings and of other links."""

    def linked(match: re.Match[str]) -> str:
        around = text[max(match.start() - 1, 0) : match.end() + 1]
        in_link = around.startswith("[") or around.endswith("]")
        line = text.rfind("\n", 0, match.start()) + 1
        if match[2] not in places or in_link or text.startswith("#", line):
            return match[0]
        return f"[{match[0]}]({places[match[2]]})"

    return _replace(text, _CODE.finditer(without_fences(text)), linked)


def _replace(text: str, matches: Iterator[re.Match[str]], change: Callable[[re.Match[str]], str]) -> str:
    parts, position = [], 0
    for match in matches:
        parts += [text[position : match.start()], change(match)]
        position = match.end()
    return "".join([*parts, text[position:]])


def as_python_markdown(text: str) -> str:
    """Write lists as Python-Markdown needs them: after an empty line, and nested by four spaces.

    GitHub begins a list without an empty line before it, and nests by two. Directives for the tests that execute a page
    are left out.
    """
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE)
    lines: list[str] = []
    for line, outside in zip(text.splitlines(), without_fences(text).splitlines(), strict=True):
        item = _ITEM.match(outside)
        before = lines[-1] if lines else ""
        if item and before.strip() and not _ITEM.match(before) and not before.startswith("  "):
            lines.append("")
        nested = item is not None and 2 <= len(item[1]) < 4
        lines.append("  " + line if nested else line)
    return "\n".join(lines) + "\n"
