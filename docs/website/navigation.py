"""The navigation of the site: every page, by what a person does, with a short title where the page's own is long."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

# A page by its place in the site, or its short title and its place.
Page = str | tuple[str, str]
# A page, or the title of several.
Entry = Page | tuple[str, list["Entry"]]

# `examples`, `errors`, `api` and `decisions` stand for the pages that the build makes.
SECTIONS: dict[str, list[Page]] = {
    "Start": [
        ("What it is", "index.md"),
        ("Install", "install.md"),
        ("Tutorial 1: features", "tutorial.md"),
        ("Tutorial 2: train and serve", "tutorial-training.md"),
        ("You build services", "start/application-developer.md"),
        ("You build models", "start/data-scientist.md"),
        ("You run the platform", "start/platform-engineer.md"),
        "architecture.md",
        "guarantees.md",
        "status.md",
        "glossary.md",
        "faq.md",
        "examples",
    ],
    "Build features": ["guide/features.md", "guide/windows.md", "guide/from-feast.md"],
    "Send and consume": [
        "guide/sending.md",
        "guide/the-log.md",
        "guide/adopt.md",
        "guide/delivery.md",
        "guide/the-model.md",
        "guide/rejects.md",
    ],
    "Serve and score": [
        "guide/serving.md",
        "guide/which-store.md",
        "guide/scoring.md",
        "guide/outcomes.md",
        "guide/evaluation.md",
        "guide/skew.md",
    ],
    "Train": ["guide/training.md", "guide/replay.md", "guide/archive.md"],
    "Change safely": ["guide/plan.md", "guide/evolution.md", "guide/rebuild.md", "guide/fix-and-replay.md"],
    "Operate": [
        "operate/connect.md",
        "guide/secured.md",
        "guide/sizing.md",
        "guide/running.md",
        "guide/effects.md",
        "guide/kubernetes.md",
        ("A container image", "operate/image.md"),
        ("Alerts and dashboard", "operate/alerts.md"),
        ("Runbook", "operate/runbook.md"),
        ("Codes that stop a process", "operate/codes.md"),
        "operate/backup.md",
        ("In CI", "operate/ci.md"),
        ("In Airflow", "operate/airflow.md"),
        ("Package declarations", "operate/packaging.md"),
        ("Troubleshooting", "operate/troubleshooting.md"),
    ],
    "Reference": [
        "api",
        "reference/declarations.md",
        "reference/cli.md",
        "reference/project.md",
        "errors",
        "reference/hazards.md",
        "reference/protocol.md",
    ],
    "How it works": ["measured.md", "decisions", "contributing.md", "changes.md"],
}


def navigation(pages: Iterable[str], groups: Mapping[str, tuple[str, list[Page]]]) -> list[Entry]:
    """The whole navigation. Raises ValueError if a page has no place in it, or a place no page.

    `groups` gives the title and the pages of each name in SECTIONS that stands for several.
    """
    tree = [(section, [_entry(page, groups) for page in entries]) for section, entries in SECTIONS.items()]
    placed, existing = list(_places(tree)), set(pages)
    if sorted(placed) != sorted(existing):
        raise ValueError(
            f"pages without a place in docs/website/navigation.py: {sorted(existing - set(placed))}, "
            f"places without a page: {sorted(set(placed) - existing)}"
        )
    return [*tree]


def _entry(page: Page, groups: Mapping[str, tuple[str, list[Page]]]) -> Entry:
    if isinstance(page, str) and page in groups:
        title, pages = groups[page]
        return title, [*pages]
    return page


def _places(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        match entry:
            case str(page) | (_, str(page)):
                yield page
            case (_, below):
                yield from _places(below)


def as_toml(entries: Sequence[Entry]) -> str:
    """Entries as a TOML array of places and of inline tables from a title to a place or to an array."""
    return f"[{', '.join(_as_toml(entry) for entry in entries)}]"


def _as_toml(entry: Entry) -> str:
    match entry:
        case str(page):
            return json.dumps(page)
        case (title, str(page)):
            return f"{{{json.dumps(title)} = {json.dumps(page)}}}"
        case (title, below):
            return f"{{{json.dumps(title)} = {as_toml(below)}}}"
