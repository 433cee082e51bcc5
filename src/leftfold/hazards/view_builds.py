"""Hazards of builds in the online store: what the new build of a changed view reads, and if the log still has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.free import View
from leftfold.declare.topic import Topic
from leftfold.fold.build_id import BuildId
from leftfold.fold.definition import LAYOUT, LAYOUTS_READ, STATE, Definition, fingerprint
from leftfold.hazards.hazard import Facts, Hazard, Rule
from leftfold.hazards.retention import retention
from leftfold.observe.observation import ObservedBuild
from leftfold.units import spoken

CODES = ("build-of-another-release", "lifetime-history-gone", "new-build")


def is_new(facts: Facts, view: DeclaredView) -> bool:
    """Return whether no build of the view can continue.

    Only Spark knows the meaning of a function, so any build of this release may continue a view with a function.
    """
    mine = [build for build in facts.observed.builds if build.view == view.name]
    if isinstance(view.definition, View):
        return not any(_of_this_release(build) for build in mine)
    return view.fingerprint not in {BuildId.parse(build.id).fingerprint for build in mine}


def keeps_everything(view: DeclaredView) -> bool:
    definition = view.definition
    if isinstance(definition, View):
        return definition.keep_forever
    return isinstance(definition, Definition) and definition.lifetime


def lifetime_text(view: DeclaredView) -> str:
    if not isinstance(view.definition, Definition):
        return "what it groups (keep_forever=True)"
    names = [f.name for f in view.definition.windowed if f.window is None]
    return ", ".join(dict.fromkeys(n.split(".")[1] if n.startswith(".") else n for n in names))


def deleted(facts: Facts, topic: Topic[Any]) -> int:
    """The number of offsets that the log no longer has."""
    existing = facts.found(topic)
    return 0 if existing is None else sum(part.start for part in existing.spread)


def _of_this_release(build: ObservedBuild) -> bool:
    """Return whether a release with the same layouts made the build. The fingerprint covers the layout numbers."""
    return fingerprint([LAYOUT, STATE, build.definition]) == BuildId.parse(build.id).fingerprint


def _changed(facts: Facts) -> Iterator[Hazard]:
    for view in facts.catalog.views.values():
        builds = [b for b in facts.observed.builds if b.view == view.name and b.followed]
        for build in builds:
            if not is_new(facts, view):
                continue
            lacking = _lacking(facts, view)
            if _of_this_release(build):
                yield _new(facts, view, build, lacking)
            else:
                yield _another_release(facts, view, build, lacking)


def _new(facts: Facts, view: DeclaredView, build: ObservedBuild, lacking: tuple[str, int] | None) -> Hazard:
    tail = f". Then they see windows that are whole only after {spoken(lacking[1])}" if lacking else ""
    return Hazard(
        "new-build",
        "danger" if lacking else "warning",
        f"view {view.name}",
        f"means something else than {build.id}: a new build reads {_read(facts, view)}"
        + (lacking[0] if lacking else ""),
        f"Nothing of one definition's rows is taken over into another's, and {_readers_stay(facts)}{tail}.",
        f"leftfold run builds it; if the change was not meant, undo it and {build.id} goes on"
        if facts.profile.is_local
        else f"leftfold rebuild {view.name} builds it beside {build.id}, which a run of the old declaration keeps up "
        "to date meanwhile; if the change was not meant, undo it",
        view.source,
    )


def _another_release(facts: Facts, view: DeclaredView, build: ObservedBuild, lacking: tuple[str, int] | None) -> Hazard:
    rows = build.layout != LAYOUT
    mismatch = f"has rows of layout {build.layout}, not {LAYOUT}" if rows else "has a state of another layout"
    return Hazard(
        "build-of-another-release",
        "danger" if lacking else "warning",
        f"view {view.name}",
        f"{build.id} {mismatch}: a new build reads {_read(facts, view)}" + (lacking[0] if lacking else ""),
        "Another release of Leftfold made it, and this one cannot continue it. "
        + (f"{_readers_stay(facts).capitalize()}." if not rows else _readers_of_both(build)),
        "run the view with this release"
        + ("" if facts.profile.is_local else f", and leftfold promote {view.name} once the new build has caught up")
        + (_when_readers_move(build) if rows else ""),
        view.source,
    )


def _readers_of_both(build: ObservedBuild) -> str:
    """Say which readers can read the rows of which release."""
    if build.layout in LAYOUTS_READ:
        return (
            "Readers of this release read the rows of both; readers of the other refuse the new ones (unknown-layout)."
        )
    return "Readers of each release refuse the rows of the other (unknown-layout)."


def _when_readers_move(build: ObservedBuild) -> str:
    if build.layout in LAYOUTS_READ:
        return ", and give its readers this release before that"
    return ", and give its readers this release once the new build has caught up"


def _readers_stay(facts: Facts) -> str:
    """Say for how long readers follow the old build. Only the local profile moves them without being asked."""
    until = "until the new one has caught up" if facts.profile.is_local else "until leftfold promote moves them"
    return f"readers follow the old build {until}"


def _read(facts: Facts, view: DeclaredView) -> str:
    topics = [topic for t in view.reading.topics if (topic := facts.found(t)) is not None]
    if not topics:
        return "the log from its start"
    return f"{sum(topic.records for topic in topics):,} offsets of {', '.join(topic.name for topic in topics)}"


def _lacking(facts: Facts, view: DeclaredView) -> tuple[str, int] | None:
    """The missing part of the longest window, as text and in µs; None if the log has all of it, as far as known."""
    if not isinstance(view.definition, Definition):
        return None
    longest = view.definition.longest_window
    for topic in view.reading.topics:
        existing = facts.found(topic)
        keeps = None if existing is None else retention(existing)
        if existing is not None and keeps is not None and keeps < longest and deleted(facts, topic):
            return f"; of its longest window, {spoken(longest)}, {existing.name} has {spoken(keeps)}", longest - keeps
    return None


def _history_gone(facts: Facts) -> Iterator[Hazard]:
    for view in facts.catalog.views.values():
        if not keeps_everything(view) or not is_new(facts, view):
            continue
        for topic in view.reading.topics:
            if gone := deleted(facts, topic):
                yield Hazard(
                    "lifetime-history-gone",
                    "danger",
                    f"view {view.name}",
                    f"{lifetime_text(view)} is of everything that ever happened, and {gone:,} offsets of topic "
                    f"{facts.name(topic)} are deleted",
                    "A new build begins with what the log still has, and no reader can tell a count of everything from "
                    "a count since then.",
                    f"leftfold rebuild {view.name} reads the archive, too"
                    if topic.archive
                    else "declare a window that the log still has, or let who reads it know since when it counts",
                    view.source,
                )


RULES: tuple[Rule, ...] = (_changed, _history_gone)
