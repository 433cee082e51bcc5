"""The builds that readers of views followed, and when each of their batches became readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from leftfold.declare.catalog import DeclaredView
from leftfold.declare.companions import receipts_table
from leftfold.errors import RunError
from leftfold.fold.durations import text
from leftfold.fold.expressions import from_micros
from leftfold.fold.known import AppliedBatch, Unknown
from leftfold.offsets import SLOTS_PER_TOPIC
from leftfold.run.deployment import Deployment
from leftfold.run.receipt_store import DETAILS_KEPT, ReceiptStore
from leftfold.run.receipts import Applied, Receipt, known_history
from leftfold.store.builds import followed_builds
from leftfold.store.layout import definition_in

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession
    from leftfold.spark.sinks.receipts import ReceiptRow


@dataclass(frozen=True)
class Served:
    """The build that readers of one view followed, and when each of its batches became readable."""

    build: str
    last: int  # the newest batch that is taken into account
    batches: tuple[AppliedBatch, ...]
    unknown: tuple[Unknown, ...]  # groups of batches for which only the time of the last is known
    begins: Mapping[int, int] = field(default_factory=dict)  # by slot: where the build began to read


class LabelSpans(Protocol):
    """The moments of labels, and the batches that they name."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last moment of the labels (µs)."""

    def batches(self, view: str) -> tuple[int, int] | None:
        """The first and the last batch of a view that labels name; None if they name none."""

    def among(self, unknown: Iterable[Unknown], view: str) -> int:
        """The number of labels that need a batch that is not known."""


class ServedBuilds:
    """The builds that the labels' readers followed: those that a manifest or the options name, else those of now."""

    def __init__(
        self,
        deployment: Deployment,
        views: Mapping[str, DeclaredView],
        named: Mapping[str, str],
        labels: LabelSpans,
        frozen: Mapping[str, Any] | None,
    ) -> None:
        self._deployment = deployment
        self._views = views
        self._named = named
        self._labels = labels
        self._frozen = frozen  # the manifest, if the set is made again

    @cached_property
    def _builds(self) -> dict[str, tuple[str, Any]]:
        """By view: the build whose batches count as served, and the definition of the build that readers follow now.

        The definition is None if readers follow none.
        """
        online = self._deployment.engines.online.address
        followed = followed_builds(online, self._deployment.profile.namespace, self._views)
        builds = {b.view: (b.id, definition_in({"build": b.id, **b.manifest})) for b in followed}
        if self._frozen is not None:
            named = {n: v["build"] for n, v in self._frozen["views"].items() if v["build"]}
        else:
            named = dict(self._named)
        return builds | {name: (build, builds.get(name, (None, None))[1]) for name, build in named.items()}

    def build(self, view: DeclaredView) -> tuple[str, Any]:
        if view.name not in self._builds:
            raise RunError(
                "nothing-served",
                f"the store has no build of {view.name}",
                why="what readers got is known from the receipts of the build that they followed",
                fix=f'leftfold run builds it; or take as_of="log", or name an earlier build={{{view.name!r}: ...}}',
            )
        return self._builds[view.name]

    @property
    def complete(self) -> bool:
        """True if every view has a build."""
        return all(name in self._builds for name in self._views)

    def served(self, *, needed: bool) -> dict[str, Served]:
        """Return what was served of each view. If it is `needed`, raise if it is not known for some of the labels."""
        return {name: self._served_of(view, needed=needed) for name, view in self._views.items()}

    def _served_of(self, view: DeclaredView, *, needed: bool) -> Served:
        build, _ = self.build(view)
        receipts, begins = self._receipts(view, build)
        last = None if self._frozen is None else self._frozen["views"][view.name]["last"]
        if not receipts:
            raise RunError(
                "nothing-served",
                f"build {build} of {view.name} has no receipts",
                why="it never applied a batch, or this namespace never had such a build",
                fix="name a build that readers followed: leftfold status shows the one they follow now",
            )
        served = served_by(receipts, build, [t.name for t in view.reading.topics], last)
        unknown = tuple(u for u in served.unknown if u.meets(self._labels.span, self._labels.batches(view.name)))
        if needed and unknown:
            check_known(view, build, unknown, self._labels.among(unknown, view.name))
        return replace(served, unknown=unknown, begins=begins)

    def _receipts(self, view: DeclaredView, build: str) -> tuple[list[Receipt], dict[int, int]]:
        """Return the receipts of a build that the labels need, and where the build began."""
        held = ReceiptStore(self._deployment.receipts, f"{view.name}/{build}").every()
        begins = begins_of(held, [topic.name for topic in view.reading.topics])
        table = receipts_table(self._deployment.lake, view.name)
        labels = self._labels
        return with_lake(held, table, build, lambda: (labels.session, labels.span, labels.batches(view.name))), begins


def with_lake(
    held: Sequence[Receipt],
    table: str,
    build: str,
    asked: Callable[[], tuple[SparkSession, tuple[int, int], tuple[int, int] | None]],
) -> list[Receipt]:
    """Return the receipts of a build: those that the topic holds, and those in the lake that labels need.

    `asked` is called if some may be in the lake. It gives the session, the moments of the labels (µs), and the batches
    that labels name, if they name any: the first and the last of each.
    """
    receipts = list(held)
    oldest = min((receipt.first for receipt in receipts if receipt.known), default=None)
    if receipts and oldest != 0:
        from leftfold.spark.sinks import receipts as receipt_table

        session, span, batches = asked()
        moved = [r for r in receipt_table.rows_of(session, table, build) if oldest is None or r.last < oldest]
        if needed := needed_of(moved, span, batches):
            first, last = needed[0].first, needed[-1].last
            documents = receipt_table.documents(session, table, build, first, last)
            receipts += [Receipt.from_json(document) for document in documents]
    return known_history(receipts)


def begins_of(held: Iterable[Receipt], topics: Sequence[str]) -> dict[int, int]:
    """Return the offsets at which a build began to read, by slot. `held` are the receipts that the topic holds.

    One of them reaches from batch 0, so the first that has a partition says where it began. If none does, the result is
    empty.
    """
    receipts = sorted(held, key=lambda receipt: receipt.first)
    begins: dict[int, int] = {}
    for receipt in receipts if receipts and receipts[0].first == 0 else ():
        for topic, parts in receipt.ranges.items():  # a partition may have been added in between
            for partition, (start, _) in parts.items():
                begins.setdefault(topics.index(topic) * SLOTS_PER_TOPIC + partition, start)
    return begins


def served_by(receipts: Iterable[Receipt], build: str, topics: list[str], last: int | None) -> Served:
    """Return when each batch of a build became readable, up to the batch `last` if it is given.

    `receipts` come from `known_history`, and may have gaps. The batches of a gap count as one.
    """
    batches: list[AppliedBatch] = []
    unknown: list[Unknown] = []
    before, following = 0, 0
    for receipt in receipts:
        applied = receipt.batches()
        if applied is None:
            # It is not known when each of its batches was applied, only when all of them were.
            unknown.append(Unknown(before, receipt.applied["online"], following, receipt.last))
            applied = [Applied(receipt.last, receipt.applied["online"], receipt.ends)]
        elif receipt.first > following:  # the missing batches end where this receipt begins
            starts = {t: {p: start for p, (start, _) in parts.items()} for t, parts in receipt.ranges.items()}
            unknown.append(Unknown(before, applied[0].online, following, receipt.first - 1))
            applied = [Applied(receipt.first - 1, applied[0].online, starts), *applied]
        for batch in applied:
            ends = {
                topics.index(topic) * SLOTS_PER_TOPIC + partition: end
                for topic, parts in batch.ends.items()
                for partition, end in parts.items()
            }
            # A batch that ran again has the time of its last run. No batch can be readable before its predecessor.
            before = max(before, batch.online)
            # Several batches may count as one here, with `last` among them. No label has seen those after `last`.
            if last is None or following <= last:
                number = batch.batch if last is None else min(batch.batch, last)
                batches.append(AppliedBatch(number, before, ends))
            following = batch.batch + 1
    return Served(build, batches[-1].batch, tuple(batches), tuple(unknown))


def needed_of(moved: Iterable[ReceiptRow], span: tuple[int, int], batches: tuple[int, int] | None) -> list[ReceiptRow]:
    """Return the receipts in the lake that the labels need.

    These are the receipts for the moments of the labels (`span`, µs) and for the batches that labels name.
    """
    needed, since = [], 0
    for row in moved:
        if Unknown(since, row.online, row.first, row.last).meets(span, batches):
            needed.append(row)
        since = row.online
    return needed


def check_known(view: DeclaredView, build: str, unknown: Iterable[Unknown], labels: int) -> None:
    """Raise if there are labels for which the served batch is not known. `labels` is their number."""
    if labels:
        until = from_micros(max(span.until for span in unknown)).isoformat(timespec="seconds")
        raise RunError(
            "served-not-known",
            f"what readers of {view.name} got is not known for {labels} of the labels",
            why=f"build {build} no longer tells, or never did, when each of its batches before {until} was applied: "
            f"receipts keep that for {text(DETAILS_KEPT)}, and for ever if the view has a lake",
            state="nothing was written",
            fix=f'leave out labels before {until}, or take as_of="log"; a lake keeps it from now on: '
            "to=[lf.Online(), lf.Lake()]",
            source=view.source,
        )
