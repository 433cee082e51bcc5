"""The verbs init and check. Neither needs an engine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sized
from pathlib import Path

import click

from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.errors import ProjectError

_TEMPLATE = Path(__file__).parent.parent / "template" / "clickstream"


@click.command()
@click.argument("name")
@json_option
def init(name: str, as_json: bool) -> None:
    """Make a new project from the clickstream example."""
    target = Path(name)
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]*", target.name):
        raise ProjectError(
            "project-name",
            f"{target.name!r} cannot name a project",
            why="the name becomes part of file and application names",
            fix="use letters, digits, - and _, starting with a letter: leftfold init shop",
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ProjectError(
            "directory-not-empty",
            f"{target} already exists and is not an empty directory",
            why="init never overwrites a file",
            fix="choose another name",
        )
    files = _copy(target)
    if as_json:
        document("init", project=target.name, directory=str(target.resolve()), files=files)
        return
    say(f"made the project {target.name}:")
    purposes = {
        "leftfold.toml": "its name, its files, its profiles",
        "streams.py": "events, topics, two views, a vector and a scorer",
        "test_streams.py": "how features are tested, without any engine",
    }
    for file in files:
        if file in purposes:
            say(f"  {target / file!s:24} {purposes[file]}")
    next_step(f"cd {target} && leftfold up")


def _copy(target: Path) -> list[str]:
    target.mkdir(parents=True, exist_ok=True)
    copied = []
    for source in sorted(_TEMPLATE.iterdir()):
        if source.is_file():
            name = ".gitignore" if source.name == "gitignore" else source.name
            shutil.copyfile(source, target / name)
            copied.append(name)
    toml = target / "leftfold.toml"
    toml.write_text(toml.read_text().replace('name = "clickstream"', f'name = "{target.name}"', 1))
    return copied


@click.command()
@profile_option
@json_option
def check(profile: str | None, as_json: bool) -> None:
    """Load the declarations and check them as a whole. Needs no engine: for CI."""
    import leftfold

    app = leftfold.open(profile=profile)
    problems = app.problems
    if problems and not as_json:
        for problem in problems[:-1]:
            say(str(problem))
        raise problems[-1]
    catalog = None if problems else app.catalog
    if catalog is None or as_json:
        document(
            "check",
            topics=sorted(catalog.topics) if catalog else [],
            views={name: v.fingerprint for name, v in catalog.views.items()} if catalog else {},
            vectors=sorted(catalog.vectors) if catalog else [],
            consumers=sorted(catalog.consumers.keys() - catalog.scorers.keys()) if catalog else [],
            scorers=sorted(catalog.scorers) if catalog else [],
            problems=[p.as_json() for p in problems],
        )
        if problems:
            raise SystemExit(1)
        return
    counts = [_count(catalog.topics, "topic"), _count(catalog.views, "view")]
    counts += [_count(catalog.vectors, "vector")] if catalog.vectors else []
    consumers = [consumer for name, consumer in catalog.consumers.items() if name not in catalog.scorers]
    counts += [_count(consumers, "consumer")] if consumers else []
    counts += [_count(catalog.scorers, "scorer")] if catalog.scorers else []
    say(f"✓ {app.name}: {', '.join(counts)}, nothing wrong")
    for view in catalog.views.values():
        say(f"  {view.name}   {view.summary}   {view.fingerprint}")
    for name, vector in catalog.vectors.items():
        say(f"  {name}   {len(vector.__leftfold_names__)} values of {', '.join(vector.__leftfold_definition__.views)}")
    for consumer in consumers:
        topics = ", ".join(topic.name for topic in consumer.topics)
        say(f"  {consumer.name}   consumer of {topics}, {consumer.delivery.replace('_', ' ')}")
    for scorer in catalog.scorers.values():
        on = "requests" if scorer.on is None else f"requests, and records of {scorer.on.topic.name}"
        vector = scorer.vector.__leftfold_definition__.name
        say(f"  {scorer.name}   scorer of {vector} into {scorer.to.name}, for {on}")
    next_step("leftfold plan")


def _count(things: Sized, noun: str) -> str:
    number = len(things)
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
