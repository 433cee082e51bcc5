"""The effect of a changed declaration on an existing view: on each feature, and on the view's build.

Definitions are compared, because a definition identifies a build. An edit outside the definition changes nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from leftfold.fold.build_id import BuildId
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.observe.observation import ObservedBuild
from leftfold.plan.history import RebuildEstimate, TopicLog
from leftfold.plan.meaning import Aspect, Aspects, Meaning, Serves, features_of, in_words, serves, whole_of

# first: the view has no build yet. continues: the same build continues from its checkpoint. new: a new build is made,
# next to the old one. unreadable: like new, and another release wrote the old definition, which this one cannot read.
Verdict = Literal["first", "continues", "new", "unreadable"]
_NONE = Aspect(None, "none")


@dataclass(frozen=True)
class Difference:
    """A difference in one aspect, before and after, in words."""

    what: str  # window, step, aggregate, field, where, default, ttl, key, lateness, rules, ...
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what} {self.before} → {self.after}"


@dataclass(frozen=True)
class FeatureChange:
    """The change of one feature of a view."""

    name: str
    change: Literal["same", "additive", "changed", "renamed", "removed"]
    differences: tuple[Difference, ...] = ()  # its own only; differences of the whole view also change it
    was: str | None = None  # its old name, if it was renamed
    meaning: str = ""  # in words, only if the change is additive

    def __str__(self) -> str:
        match self.change:
            case "additive":
                return f"+ {self.name}   {self.meaning}"
            case "removed":
                return f"- {self.name}"
            case "renamed":
                return f"~ {self.name}   renamed from {self.was}"
            case "changed":
                return f"~ {self.name}   " + ", ".join(map(str, self.differences))
        return f"  {self.name}"


@dataclass(frozen=True)
class ViewChange:
    """The change of one view: its verdict, its features, and what a new build has to read."""

    view: str
    verdict: Verdict
    features: tuple[FeatureChange, ...]  # in declared order, then the removed ones
    whole: tuple[Difference, ...] = ()  # differences in what all features share
    serves: Serves = "new"
    rebuild: RebuildEstimate | None = None  # None if nothing is built again, or if the log is not known
    earlier: str | None = None  # the build that continues, if readers no longer follow it

    def of(self, change: str) -> list[str]:
        return [f.name for f in self.features if f.change == change]

    def __str__(self) -> str:
        if self.verdict == "continues":
            status = "its build goes on"
            if self.earlier is not None:
                status = f"build {self.earlier} goes on where it stood, if its checkpoint is still there"
            return f"{' ' if self.earlier is None else '~'} view    {self.view}   {status}"
        reason = {
            "first": "its first build",
            "new": "a new build",
            "unreadable": "a new build; what changed is not known: this release cannot read the old one",
        }
        lines = [f"{'+' if self.verdict == 'first' else '~'} view    {self.view}   {reason[self.verdict]}"]
        lines += [f"    ~ all features   {difference}" for difference in self.whole]
        lines += [f"    {f}" for f in self.features if f.change != "same" and (f.change != "changed" or f.differences)]
        if self.verdict == "new" and self.serves != "new":
            held = "nothing that is stored changes" if self.serves == "all" else "the tiles that are stored hold it all"
            lines.append(f"    needs no new tiles: {held}; today it is a new build all the same")
        if self.rebuild is not None:
            lines += [f"    {line}" for line in self.rebuild.lines()]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "view": self.view,
            "verdict": self.verdict,
            "features": [_feature_json(f) for f in self.features],
            "whole": [vars(d) for d in self.whole],
            "serves": self.serves,
            "earlier": self.earlier,
            "rebuild": None if self.rebuild is None else self.rebuild.as_json(),
        }


def _feature_json(feature: FeatureChange) -> dict[str, Any]:
    return {**vars(feature), "differences": [vars(d) for d in feature.differences]}


def changes_of(builds: Iterable[ObservedBuild], after: Meaning, log: TopicLog | None = None) -> ViewChange:
    """Compare a definition with the builds in the store.

    A build's id says whether the build continues. This also works if the build's definition cannot be read.
    """
    mine = sorted((b for b in builds if b.view == after.view), key=lambda b: b.followed, reverse=True)
    if (build := next((b for b in mine if BuildId.parse(b.id).fingerprint == after.fingerprint), None)) is not None:
        same = tuple(FeatureChange(name, "same") for name in after.visible)
        return ViewChange(after.view, "continues", same, serves="all", earlier=None if build.followed else build.id)
    if not mine:
        return changes(None, after, log)
    remade = None if log is None else log.rebuild(after)
    before = _read(mine[0])
    if before is None:
        return ViewChange(after.view, "unreadable", (), rebuild=remade)
    change = changes(before, after, log)
    if BuildId.parse(mine[0].id).fingerprint == before.fingerprint:
        return change
    layout = Difference("layout", "of another release", "of this release")
    return replace(change, verdict="new", whole=(layout, *change.whole), serves="new", rebuild=remade)


def _read(build: ObservedBuild) -> Meaning | None:
    try:
        return (Definition if build.kind == "features" else Latest).from_json(build.definition)
    except (KeyError, ValueError, TypeError, IndexError):
        return None


def changes(before: Meaning | None, after: Meaning, log: TopicLog | None = None) -> ViewChange:
    """Compare two definitions of a view. With a `log`, also report what a new build has to read from it."""
    remade = None if log is None else log.rebuild(after)
    if before is None:
        return ViewChange(after.view, "first", tuple(_features({}, features_of(after))), rebuild=remade)
    features = tuple(_features(features_of(before), features_of(after)))
    if before.fingerprint == after.fingerprint:
        return ViewChange(after.view, "continues", features, serves="all")
    whole = tuple(_differences(whole_of(before), whole_of(after)))
    if whole:
        features = tuple(replace(f, change="changed") if f.change == "same" else f for f in features)
    elif [n for n in before.visible if n in after.visible] != [n for n in after.visible if n in before.visible]:
        whole = (Difference("order", ", ".join(before.visible), ", ".join(after.visible)),)
    elif all(f.change == "same" for f in features):
        whole = (Difference("spelling", "a formula", "another that means the same"),)
    return ViewChange(after.view, "new", features, whole, serves(before, after), remade)


def _features(before: dict[str, Aspects], after: dict[str, Aspects]) -> Iterator[FeatureChange]:
    left = {name: aspects for name, aspects in before.items() if name not in after}
    for name, aspects in after.items():
        if name in before:
            differences = tuple(_differences(before[name], aspects))
            yield FeatureChange(name, "changed" if differences else "same", differences)
        elif (was := next((n for n, a in left.items() if not list(_differences(a, aspects))), None)) is not None:
            del left[was]
            yield FeatureChange(name, "renamed", was=was)
        else:
            yield FeatureChange(name, "additive", meaning=in_words(aspects))
    for name in left:
        yield FeatureChange(name, "removed")


def _differences(before: Aspects, after: Aspects) -> Iterator[Difference]:
    """Yield the aspects that differ. An aspect that only one side has is shown as "none" on the other side."""
    for what in [*after, *(w for w in before if w not in after)]:
        then, now = (side.get(what, _NONE) for side in (before, after))
        if then == now:
            continue
        parts = " of changed features" if what == "formula" and then.words == now.words else ""
        yield Difference(what, then.words, now.words + parts)
