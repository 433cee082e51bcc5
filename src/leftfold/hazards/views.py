"""Hazards of a declared view: records that its windows need, calls in its function, its topics and its builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.declare.topic import Topic
from leftfold.fold.definition import Definition
from leftfold.fold.reach import needed_since, store_reach
from leftfold.hazards import view_builds
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.repeatable import unrepeatable
from leftfold.hazards.retention import keep_all, keep_longer, retention_of
from leftfold.units import spoken

CODES = (
    *view_builds.CODES,
    "lifetime-beyond-retention",
    "repair-after-outage",
    "repair-beyond-retention",
    "topics-not-co-partitioned",
    "view-not-repeatable",
    "window-beyond-retention",
)


def repair_needs(definition: Definition) -> int | None:
    """The µs of log that a repair reads, back from the newest event of the build; None if it needs all history."""
    since = needed_since(definition, 0, store_reach(definition))
    return None if since is None else -since


def _windows(facts: Facts) -> Iterator[Hazard]:
    """Yield the worst hazard only, for each view and topic."""
    for view in facts.catalog.views.values():
        if not isinstance(view.definition, Definition) or not view.definition.rings:
            continue
        for topic in view.reading.topics:
            if (keeps := retention_of(facts, topic)) is not None:
                yield from _window(facts, view, view.definition, topic, keeps)


def _window(
    facts: Facts, view: DeclaredView, definition: Definition, topic: Topic[Any], keeps: int
) -> Iterator[Hazard]:
    longest, needed, name = definition.longest_window, repair_needs(definition), facts.name(topic)
    said = f"topic {name} keeps {spoken(keeps)}"
    if topic.archive:
        if keeps < longest:
            yield _window_archived(view, f"its longest window is {spoken(longest)}, and {said}", longest - keeps)
    elif keeps < longest:
        yield Hazard(
            "window-beyond-retention",
            "danger",
            f"view {view.name}",
            f"its longest window is {spoken(longest)}, and {said}",
            f"A new build starts with what the log still has, so for {spoken(longest - keeps)} its windows lack what "
            "happened before. A store that lost its data cannot be computed anew.",
            f"{keep_longer(facts, topic, needed or longest)}, or a window of at most {spoken(keeps)}",
            view.source,
        )
    elif needed is not None and keeps < needed:
        yield Hazard(
            "repair-beyond-retention",
            "warning",
            f"view {view.name}",
            f"computing its rows anew takes {spoken(needed)} of the log, and {said}",
            "A store that lost its data is computed anew from the log, and a window starts on a step, so it reaches a "
            "little further back than it is long. Once retention has deleted anything, the repair is refused "
            "(repair-needs-history).",
            f"{keep_longer(facts, topic, needed)}, or a shorter window",
            view.source,
        )
    elif needed is not None and keeps < needed + facts.downtime:
        yield Hazard(
            "repair-after-outage",
            "warning",
            f"view {view.name}",
            f"computing its rows anew takes {spoken(needed)} of the log before it stopped; topic {name}, which keeps "
            f"{spoken(keeps)}, has {spoken(max(0, keeps - facts.downtime))} of that after an outage of "
            f"{spoken(facts.downtime)}",
            "A store that lost its data is computed anew up to where the view stood. After a long outage the log no "
            "longer reaches that far back, and the repair is refused (repair-needs-history).",
            f"{keep_longer(facts, topic, needed + facts.downtime)}, or start over with leftfold run --fresh "
            f"{view.name} if that happens",
            view.source,
        )


def _window_archived(view: DeclaredView, what: str, lacks: int) -> Hazard:
    return Hazard(
        "window-beyond-retention",
        "warning",
        f"view {view.name}",
        what,
        f"A new build that leftfold run makes starts with what the log still has, so for {spoken(lacks)} its windows "
        "lack what happened before. The archive has it: a repair reads it, and so does a rebuild.",
        f"leftfold rebuild {view.name} when its definition has changed",
        view.source,
    )


def _lifetime(facts: Facts) -> Iterator[Hazard]:
    for view in facts.catalog.views.values():
        if not view_builds.keeps_everything(view):
            continue
        for topic in view.reading.topics:
            keeps = retention_of(facts, topic)
            if keeps is None or (view_builds.is_new(facts, view) and view_builds.deleted(facts, topic)):
                continue  # lifetime-history-gone reports more
            if topic.archive:
                yield _lifetime_archived(facts, view, topic, keeps)
                continue
            yield Hazard(
                "lifetime-beyond-retention",
                "danger",
                f"view {view.name}",
                f"{view_builds.lifetime_text(view)} is of everything that ever happened, and topic "
                f"{facts.name(topic)} keeps {spoken(keeps)}",
                "What the build holds of older records is nowhere else: a changed definition, or a store that lost its "
                f"data, starts again with the last {spoken(keeps)}.",
                f"{keep_all(facts, topic)}, or declare a window that fits",
                view.source,
            )


def _lifetime_archived(facts: Facts, view: DeclaredView, topic: Topic[Any], keeps: int) -> Hazard:
    return Hazard(
        "lifetime-beyond-retention",
        "warning",
        f"view {view.name}",
        f"{view_builds.lifetime_text(view)} is of everything that ever happened, and topic {facts.name(topic)} keeps "
        f"{spoken(keeps)}",
        f"A new build that leftfold run makes starts with the last {spoken(keeps)}. The archive has what was before: a "
        "repair reads it, and so does a rebuild.",
        f"leftfold rebuild {view.name} when its definition has changed",
        view.source,
    )


def _co_partitioned(facts: Facts) -> Iterator[Hazard]:
    for view in facts.catalog.views.values():
        shapes = {(_partitions(facts, t), tuple(k.name for k in t.key)) for t in view.reading.topics}
        if len(shapes) == 1:
            continue
        partitioning = ", ".join(
            f"{facts.name(t)} ({_partitions(facts, t)} by {', '.join(k.name for k in t.key)})"
            for t in view.reading.topics
        )
        yield Hazard(
            "topics-not-co-partitioned",
            "warning",
            f"view {view.name}",
            f"its topics are partitioned in different ways: {partitioning}",
            "Records of one key lie under different partition numbers. The view is right, because Spark brings a key's "
            "records together; a consumer that joins the topics partition by partition would miss some.",
            "give the topics the same key and number of partitions, unless only views read them together",
            view.source,
        )


def _partitions(facts: Facts, topic: Topic[Any]) -> int:
    existing = facts.found(topic)
    return topic.partitions if existing is None else existing.partitions


def _repeatable(facts: Facts) -> Iterator[Hazard]:
    functions: dict[str, Any] = {}
    for view in facts.catalog.views.values():
        if isinstance(view.definition, View):
            functions[f"view {view.name}"] = view.definition.function
        elif view.reading.stream is not None:
            functions[f"stream {view.reading.stream.name}"] = view.reading.stream.function
    for subject, function in functions.items():
        for called, source in unrepeatable(function):
            yield Hazard(
                "view-not-repeatable",
                "danger",
                subject,
                f"calls {called}",
                "It gives something else each time: after a restart, or when a batch runs again after a crash, the "
                "same records make other rows.",
                "take times from the events, and make ids from their fields",
                source,
            )


RULES: tuple[Rule, ...] = (*view_builds.RULES, _windows, _lifetime, _co_partitioned, _repeatable)
