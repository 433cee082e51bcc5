"""The tree of pages that the site is made of: where each file of the repository goes, and what its links become."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from pathlib import Path

from docs.website import api_pages, command_page, errors_pages, navigation, readme
from docs.website.markdown import (
    as_python_markdown,
    is_outside,
    link_codes,
    replace_targets,
    title_of,
)

from leftfold.hazards.rules import CODES

HERE = "docs/website"
PICTURES = (".svg", ".png")


@dataclass
class Tree:
    """Pages and files of the site, by their place in it."""

    root: Path
    pages: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    nav: list[navigation.Entry] = field(default_factory=list)

    def write(self, directory: Path) -> None:
        for place, text in self.pages.items():
            target = directory / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        for place, source in self.files.items():
            target = directory / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def markdown_files(root: Path) -> list[str]:
    """Every page that people write, by its place in the repository."""
    docs = [p for p in (root / "docs").rglob("*.md") if not p.is_relative_to(root / HERE)]
    examples = (root / "examples").glob("*/README.md")
    top = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return sorted(p.relative_to(root).as_posix() for p in (*docs, *examples, *top))


def tree(root: Path) -> Tree:
    """Make every page of the site, with its links and its place in the navigation."""
    made = Tree(root, files={"site.css": root / HERE / "site.css"})
    links = Links(root, made)
    for source in markdown_files(root):
        _add(made, links, source)
    for directory in sorted(p for p in (root / "examples").iterdir() if p.is_dir()):
        _list_files(made, links, directory)
    made.pages |= api_pages.pages() | errors_pages.pages(root)
    made.pages["index.md"] += (root / HERE / "doors.md").read_text()
    made.pages["decisions/index.md"] = _decisions(made)
    made.pages = {place: as_python_markdown(text) for place, text in made.pages.items()}
    made.nav = navigation.navigation(made.pages, _groups(made))
    return made


def _add(made: Tree, links: Links, source: str) -> None:
    text = (made.root / source).read_text()
    if source == "README.md":
        made.pages |= {page: links.rewritten(part, source, page) for page, part in readme.parts(text).items()}
        return
    place = links.page_of(source)
    if place == command_page.PAGE:
        text, _ = command_page.made(text)
    made.pages[place] = links.rewritten(text, source, place)


def _list_files(made: Tree, links: Links, directory: Path) -> None:
    """Add the files of an example to its page."""
    place = f"examples/{directory.name}.md"
    if place not in made.pages:
        made.pages[place] = f"# The project `{directory.name}`\n"
    rows = [p for p in sorted(directory.iterdir()) if p.is_file() and p.name != "README.md"]
    listed = "".join(f"- [`{p.name}`]({links.copied(p.relative_to(made.root).as_posix(), place)})\n" for p in rows)
    made.pages[place] += f"\n## Files of this project\n\n{listed}"


def _decisions(made: Tree) -> str:
    rows = "".join(f"- [{title_of(made.pages[p])}]({p.removeprefix('decisions/')})\n" for p in _in(made, "decisions/"))
    return f"# Decisions\n\nWhat was decided, why, and what shows that it holds.\n\n{rows}"


def _in(made: Tree, directory: str) -> list[str]:
    return sorted(p for p in made.pages if p.startswith(directory) and not p.endswith("/index.md"))


def _groups(made: Tree) -> dict[str, tuple[str, list[str | tuple[str, str]]]]:
    kinds = [(kind.doing, kind.page) for kind in errors_pages.kinds()]
    listed: dict[str, tuple[str, list[str | tuple[str, str]]]] = {
        "examples": ("Examples", list(_in(made, "examples/"))),
        "api": (
            "Python API",
            [("All names", api_pages.OVERVIEW), api_pages.APP, *(api_pages.page(g) for g in api_pages.NAMES)],
        ),
        "errors": (
            "Errors",
            [("All codes", errors_pages.OVERVIEW), *kinds],
        ),
        "decisions": ("Decisions", ["decisions/index.md", *_in(made, "decisions/")]),
    }
    return listed


class Links:
    """Where a link of a page leads in the site."""

    def __init__(self, root: Path, made: Tree) -> None:
        self._root, self._made = root, made
        self._sources = {source: self.page_of(source) for source in markdown_files(root)}
        self._readme = readme.places((root / "README.md").read_text())
        self._commands = command_page.made((root / "docs" / command_page.PAGE).read_text())[1]
        codes = {code: f"reference/hazards.md#{code}" for code in CODES} | errors_pages.places()
        self._codes = {code: place for code, place in codes.items() if "-" in code}

    @staticmethod
    def page_of(source: str) -> str:
        """The place of a page in the site."""
        fixed = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
        if source.startswith("examples/"):
            return f"{source.removesuffix('/README.md')}.md"
        return fixed.get(source) or source.removeprefix("docs/")

    def rewritten(self, text: str, source: str, page: str) -> str:
        """The text with each link as the site needs it, and with links of error and hazard codes."""
        text = replace_targets(text, lambda target: self._target(target, source, page))
        codes = {code: _relative(place, page) for code, place in self._codes.items() if not place.startswith(page)}
        return text if page in (errors_pages.OVERVIEW, "changes.md") else link_codes(text, codes)

    def _target(self, target: str, source: str, page: str) -> str:
        if is_outside(target):
            return target
        path, _, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
        if name == "README.md" and anchor:
            place = self._readme[anchor]
        elif name in self._sources:
            place = self._sources[name]
        elif (self._root / name).is_dir():
            place = "decisions/index.md" if name == "docs/decisions" else f"{name}.md"
        elif name.endswith(PICTURES):
            place = name.removeprefix("docs/")
            self._made.files[place] = self._root / name
        else:
            return self.copied(name, page)
        if place == command_page.PAGE:
            anchor = self._commands.get(anchor, anchor)
        return _relative(place + (f"#{anchor}" if anchor else ""), page)

    def copied(self, name: str, page: str) -> str:
        """A link to a copy of a source file. The project has no public host that it could lead to."""
        place = f"source/{name}.txt"  # browsers show .txt, and save most others
        self._made.files[place] = self._root / name
        return _relative(place, page)


def _relative(place: str, page: str) -> str:
    path, hash_, anchor = place.partition("#")
    if path == page:
        return f"#{anchor}" if anchor else posixpath.basename(path)
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + hash_ + anchor
