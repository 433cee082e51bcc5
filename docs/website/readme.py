"""Pages of the site that are made of the README: what it is, and how to install it."""

from __future__ import annotations

from docs.website.markdown import headings

# The page of each section. A section that is not named here stays on the first page; None leaves it out.
HOMES: dict[str, str | None] = {
    "Install": "install.md",
    "The first ten minutes": "install.md",
    "Documentation": None,  # the navigation of the site says it
}
TITLES = {"install.md": "# Install, and the first ten minutes\n"}


def parts(readme: str) -> dict[str, str]:
    """The text of each page."""
    starts = [h for h in headings(readme) if h.level == 2]
    made = {"index.md": readme[: starts[0].start]}
    sections = dict[str, str]()
    for heading, following in zip(starts, [*starts[1:], None], strict=True):
        sections[heading.text] = readme[heading.start : following.start if following else len(readme)]
    for title in [*(t for t in HOMES if t in sections), *(t for t in sections if t not in HOMES)]:
        page = HOMES.get(title, "index.md")
        if page is not None:
            made[page] = made.get(page, TITLES.get(page, "")) + "\n" + sections[title]
    return made


def places(readme: str) -> dict[str, str]:
    """The page of each anchor."""
    found = {}
    for page, text in parts(readme).items():
        found.update(dict.fromkeys((h.anchor for h in headings(text)), page))
    return found
