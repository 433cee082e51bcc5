"""Which views share a Spark application: those of one topic do, because one of them records what the topic refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftfold.errors import ProjectError
from leftfold.render.names import label_name
from leftfold.spec.catalog import Catalog


@dataclass(frozen=True)
class Application:
    name: str  # as Kubernetes takes it
    views: tuple[str, ...]


def applications(project: str, catalog: Catalog, groups: Sequence[tuple[str, Sequence[str]]]) -> list[Application]:
    """The groups that were asked for, then the rest: views that read a topic in common stay together.

    What a topic does not accept is recorded by one intake, on one checkpoint, beside the views that read it. Processes
    agree on who does it by a lock of their machine, and pods share none.
    """
    asked = [(name, [catalog.view(view).name for view in views]) for name, views in groups]
    grouped = [view for _, views in asked for view in views]
    _check_groups([name for name, _ in asked], grouped)
    left = [name for name in catalog.views if name not in grouped]
    named = [*asked, *_together(catalog, left)]
    made = [Application(label_name(f"{project}-{name}"), tuple(views)) for name, views in named]
    _check_names(made)
    _check_topics(catalog, named)
    return made


def _together(catalog: Catalog, views: Iterable[str]) -> list[tuple[str, list[str]]]:
    """By what they read, under the name of the topic that is declared first among theirs.

    Not of a view: when a second view of a topic is declared, the application keeps its name. Under a new one it would
    start beside the old.
    """
    sets: list[tuple[set[str], set[str]]] = []  # topics, and the views that read them
    for view in views:
        read = set(_topics(catalog, view))
        met = [one for one in sets if one[0] & read]
        joined = read.union(*(topics for topics, _ in met)), {view}.union(*(names for _, names in met))
        sets = [*(one for one in sets if one not in met), joined]
    first = [(next(t for t in catalog.topics if t in topics), names) for topics, names in sets]
    order = list(catalog.views)
    made = [(topic, sorted(names, key=order.index)) for topic, names in first]
    return sorted(made, key=lambda one: order.index(one[1][0]))


def _topics(catalog: Catalog, view: str) -> list[str]:
    return [topic.name for topic in catalog.view(view).reading.topics]


def _check_groups(groups: Sequence[str], views: Sequence[str]) -> None:
    for kind, all_of_them in (("group", groups), ("view", views)):
        twice = sorted({one for one in all_of_them if all_of_them.count(one) > 1})
        if twice:
            raise ProjectError(
                "bad-groups",
                f"{kind} {twice[0]} is named twice among the groups",
                why="two applications would run one view, and undo each other's commits"
                if kind == "view"
                else "a group is one application",
                fix="name every group, and every view in it, once",
            )


def _check_topics(catalog: Catalog, named: Iterable[tuple[str, Sequence[str]]]) -> None:
    reader: dict[str, tuple[str, str]] = {}
    for name, views in named:
        for view in views:
            for topic in _topics(catalog, view):
                first, first_view = reader.setdefault(topic, (name, view))
                if first != name:
                    raise ProjectError(
                        "topic-split",
                        f"{first_view} and {view} read topic {topic}, in two applications",
                        why="each would run the intake of that topic on one checkpoint; only processes on one machine "
                        "can leave it to each other",
                        fix=f"put both into one group: --group {first}={first_view},{view}",
                    )


def _check_names(made: Sequence[Application]) -> None:
    names = [one.name for one in made]
    for one in made:
        if names.count(one.name) > 1:
            raise ProjectError(
                "bad-groups",
                f"two applications would be called {one.name}",
                why="a group has the name of another topic or group; to Kubernetes - and _ are the same",
                fix="give the group another name",
            )
