"""The search index of the built site: it gets the words of the glossary, and puts guides before reference.

A person searches for the field's word, which need not be in a heading. The glossary knows the word, its other names and
the page that explains it, so each of its rows becomes an entry that leads there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docs.website.markdown import plain, without_fences

# Among sections that match equally well, those of guides come before reference, and decisions last.
ORDER = ("guide/", "install/", "tutorial/", "start/", "faq/", "reference/", "decisions/", "changes/", "contributing/")
# Pages that repeat the first words of others, with a link to them.
OVERVIEWS = ("reference/api/", "reference/errors/", "decisions/")
# What an entry of the reference is, said before its name. So a code also ranks below a guide that begins with its word.
KINDS = {
    r"reference/errors/.*#": "Error ",
    r"reference/hazards/#": "Hazard ",
    r"reference/cli/#": "leftfold ",
    r"reference/api/.*#leftfold\.App\.": "App.",
    r"reference/api/.*#leftfold\.": "lf.",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")

Item = dict[str, Any]


def improve(file: Path, glossary: str) -> None:
    """Rewrite search.json of a built site. `glossary` is the staged page, whose links are places in the site."""
    index = json.loads(file.read_text())
    sections: list[Item] = [i for i in index["items"] if i["location"].partition("#")[0] not in OVERVIEWS]
    paths = {item["location"]: item["path"] for item in index["items"]}
    for item in sections:
        item["title"] = _kind(item) + item["title"]
    words = [entry for row in rows(glossary) for entry in _entries(row, paths)]
    index["items"] = [*words, *sorted(sections, key=_order)]
    file.write_text(json.dumps(index, ensure_ascii=False))


def rows(glossary: str) -> list[list[str]]:
    """The cells of each row of the glossary's tables: term, meaning, other names, links."""
    lines = [line for line in without_fences(glossary).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 4 and row[0] != "term"]


def _entries(row: list[str], paths: dict[str, list[str]]) -> list[Item]:
    term, meaning, names, links = row
    title = f"{plain(term)} ({plain(names)})" if names else plain(term)
    return [
        {
            "location": place,
            "level": 1,
            "title": title,
            "text": f"<p>{plain(meaning)}</p>",
            "path": paths.get(place.partition("#")[0], []),
            "tags": [],
        }
        for place in (_place(target) for _, target in _LINK.findall(links))
    ]


def _place(target: str) -> str:
    """The place of a page of the staged tree in the built site."""
    path, hash_, anchor = target.partition("#")
    return path.removesuffix("index.md").replace(".md", "/") + hash_ + anchor


def _kind(item: Item) -> str:
    kind = next((kind for start, kind in KINDS.items() if re.match(start, item["location"])), "")
    return "" if kind == "leftfold " and not item["title"].startswith("<code>") else kind


def _order(item: Item) -> int:
    return next((rank for rank, start in enumerate(ORDER) if item["location"].startswith(start)), 0)
