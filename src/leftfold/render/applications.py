"""Groups views into Spark applications. Views of one topic share one, because only one intake records its rejects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftfold.declare.catalog import Catalog
from leftfold.errors import ProjectError
from leftfold.render.names import label_name


@dataclass(frozen=True)
class Application:
    """A Spark application and the views that it runs."""

    name: str  # in a form that Kubernetes accepts
    views: tuple[str, ...]


def applications(project: str, catalog: Catalog, groups: Sequence[tuple[str, Sequence[str]]]) -> list[Application]:
    """The requested groups, then the other views. Views that read a common topic stay together.

    One intake, on one checkpoint, records what a topic does not accept. It runs next to the views that read the topic.
    Processes on one machine agree by a lock which of them runs the intake, but pods share no such lock.
    """
    asked = [(name, [catalog.view(view).name for view in views]) for name, views in groups]
    grouped = [view for _, views in asked for view in views]
    _check_groups([name for name, _ in asked], grouped)
    left = [name for name in catalog.views if name not in grouped]
    named = [*asked, *_together(catalog, left)]
    apps = [Application(label_name(f"{project}-{name}"), tuple(views)) for name, views in named]
    _check_names(apps)
    _check_topics(catalog, named)
    return apps


def _together(catalog: Catalog, views: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group views by the topics that they read. A group has the name of that topic of its own which is declared first.

    The name is not that of a view, so that the application keeps its name when a second view of a topic is declared.
    Under a new name, it would start next to the old application.
    """
    sets: list[tuple[set[str], set[str]]] = []  # topics, and the views that read them
    for view in views:
        read = set(_topics(catalog, view))
        met = [one for one in sets if one[0] & read]
        joined = read.union(*(topics for topics, _ in met)), {view}.union(*(names for _, names in met))
        sets = [*(one for one in sets if one not in met), joined]
    first = [(next(t for t in catalog.topics if t in topics), names) for topics, names in sets]
    order = list(catalog.views)
    groups = [(topic, sorted(names, key=order.index)) for topic, names in first]
    return sorted(groups, key=lambda one: order.index(one[1][0]))


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


def _check_names(apps: Sequence[Application]) -> None:
    names = [one.name for one in apps]
    for one in apps:
        if names.count(one.name) > 1:
            raise ProjectError(
                "bad-groups",
                f"two applications would be called {one.name}",
                why="a group has the name of another topic or group; to Kubernetes - and _ are the same",
                fix="give the group another name",
            )
