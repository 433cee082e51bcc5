"""Measures the constants of the sizing model on the engines at hand, in about two minutes.

Everything is done in a namespace of its own, which is removed afterwards: topics, schemas, store keys, checkpoint.
It is a load like any other while it lasts, and it is disturbed by others: what it measures beside a busy view is what
is left over.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from leftfold import clock
from leftfold.fold.definition import Definition
from leftfold.fold.expressions import from_micros
from leftfold.kafka import scratch as kafka_scratch
from leftfold.kafka.admin import Admin
from leftfold.kafka.producer import Producer
from leftfold.kafka.registry import SchemaRegistry
from leftfold.plan.diff import plan
from leftfold.plan.observe import observe
from leftfold.plan.sizing import widths
from leftfold.plan.sizing.constants import Constants
from leftfold.plan.sizing.fit import Costs, Timed, fit, median
from leftfold.run import probed
from leftfold.run.supervisor import Engines, Options, Supervisor
from leftfold.run.view import RunningView
from leftfold.settings import Profile
from leftfold.spark import files as spark_files
from leftfold.spark.session import build_session
from leftfold.store import memory

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

Note = Callable[[str], None]
# What the amounts below were chosen for: two minutes on two cores.
USUAL_S = 120.0
# Of one broker's write: enough to fill buffers, little enough for any disk.
_MOST_BYTES = 300_000_000
_BYTES_S = 4.0
_PAYLOAD = 1_000
# Different records are encoded once, and sent again and again: encoding is not what is measured.
_ENCODED = 1_000
# The first batch of a phase starts workers and compiles code.
_DROPPED = 1


@dataclass(frozen=True)
class Phase:
    """`batches` of `size` records each, over so many keys."""

    name: str
    batches: int
    size: int
    keys: int

    @property
    def records(self) -> int:
        return self.batches * self.size


# Sizes on both sides of what the driver writes by itself (5,000 rows, of two steps), and two that are mostly records
# and mostly tiles. The first is not measured: a JVM is slow until it has compiled what it runs, which takes half a
# minute of work.
WARM_UP = Phase("warm-up", 9, 60_000, 20_000)
PHASES = (
    Phase("tiles", 5, 18_000, 90_000),
    Phase("records", 6, 75_000, 500),
    Phase("large", 10, 3_000, 100),
    Phase("small", 16, 300, 100),
)


def calibrate(
    profile: Profile,
    engines: Engines,
    directory: Path,
    *,
    session: SparkSession | None = None,
    seconds: float = USUAL_S,
    note: Note = lambda _: None,
) -> Constants:
    """`directory` is for the log and, where the profile names no place for checkpoints, for those.

    `seconds` is about how long it may take on a small machine; a session that is given is left as it was.
    """
    namespace = f"leftfold-probe-{uuid.uuid4().hex[:8]}"
    brokers = len(engines.admin.metadata().brokers)
    scratch = profile.model_copy(
        update={
            "namespace": namespace,
            "topics": "managed",
            "replication": min(profile.replication or 3, brokers),
            "checkpoints": f"{profile.checkpoints or directory}/{namespace}",
        }
    )
    with ExitStack() as held:
        if session is None:
            session = build_session(
                profile.spark, application="leftfold probe", log_file=directory / "logs" / "probe.log"
            )
            held.callback(session.stop)
        probe = _Probe(scratch, engines, directory, session, note)
        held.callback(probe.remove)
        return probe.measured(seconds / USUAL_S, brokers)


class _Probe:
    def __init__(self, profile: Profile, engines: Engines, directory: Path, session: SparkSession, note: Note) -> None:
        self._profile = profile
        self._engines = engines
        self._directory = directory
        self._session = session
        self._note = note
        self._catalog = probed.catalog()
        self._url = engines.online.url.get_secret_value()

    def measured(self, scale: float, brokers: int) -> Constants:
        observed = observe(self._catalog, self._profile, self._engines.kafka, *self._log)
        for _ in plan(self._catalog, self._profile, observed).apply(*self._log):
            pass
        usual = Constants()
        bytes_s = self._bytes_s(scale)
        self._note(f"one producer: {bytes_s / 1e6:.0f} MB/s of {_PAYLOAD} bytes, acknowledged by all replicas")
        costs, producer_rate, packing, tile_script_s = self._view(scale)
        cores = self._cores
        found = memory.measured(self._url, self._profile.namespace)
        self._note(
            f"Redis: beside its texts a row has {found.entity:.0f} bytes, a tile {found.tile:.1f}, a loose one "
            f"{found.loose_tile:.0f}"
        )
        replicated = bytes_s * (self._profile.replication or 1) / brokers
        return replace(
            usual,
            records_per_core=1 / costs.record_s / cores,
            tiles_per_core=1 / costs.tile_s / cores,
            batch_s=costs.small_s,
            large_batch_s=costs.large_s,
            state_packing=packing,
            entity_bytes=found.entity,
            tile_bytes=found.tile,
            loose_tile_bytes=found.loose_tile,
            packed_tiles=found.packed_tiles or usual.packed_tiles,
            packed_value_bytes=found.packed_value or usual.packed_value_bytes,
            store_tiles=1 / tile_script_s,
            broker_bytes_s=max(usual.broker_bytes_s, replicated),
            producer_rate=producer_rate,
            producer_bytes_s=bytes_s,
            source=f"probed at {clock.now():%Y-%m-%d %H:%M} UTC: {cores} cores, {brokers} brokers",
        )

    @property
    def _log(self) -> tuple[Admin, SchemaRegistry]:
        return self._engines.admin, self._engines.registry

    @property
    def _cores(self) -> int:
        return int(self._session.sparkContext.defaultParallelism)

    def remove(self) -> None:
        memory.remove_namespace(self._url, self._profile.namespace)
        kafka_scratch.remove_namespace(self._engines.admin, self._engines.registry, self._profile.namespace)
        spark_files.remove(self._session, str(self._profile.checkpoints))

    def _bytes_s(self, scale: float) -> float:
        payloads, sent = [os.urandom(_PAYLOAD) for _ in range(1_000)], 0  # nothing that compression could make less of
        with self._producer(probed.BYTES) as producer:
            started = clock.monotonic()
            while clock.monotonic() - started < _BYTES_S * scale and sent * _PAYLOAD < _MOST_BYTES:
                for number, payload in enumerate(payloads):
                    producer.send_encoded(b"%d" % number, payload)
                sent += len(payloads)
            producer.flush()
            return sent * _PAYLOAD / (clock.monotonic() - started)

    def _view(self, scale: float) -> tuple[Costs, float, float, float]:
        """Costs of a batch, records a second sent, bytes of a state row to those of its fields, seconds of a tile."""
        self._run(WARM_UP, 1.0)
        timed: dict[str, Timed] = {}
        packing = tile_script_s = producer_rate = 0.0
        for phase in PHASES:
            before, scripts = self._changelogs(), memory.script_seconds(self._url)
            batches, tiles, sending = self._run(phase, scale)
            timed[phase.name] = middle = median(batches)
            self._note(
                f"{phase.name}: {middle.records:,.0f} records, {middle.tiles:,.0f} tiles in {middle.seconds:.2f} s, "
                f"median of {len(batches)} batches ({min(b.seconds for b in batches):.2f} to "
                f"{max(b.seconds for b in batches):.2f} s)"
            )
            if phase.name == "tiles":
                new = {name: size for name, size in self._changelogs().items() if name not in before}
                packing = sum(new.values()) / tiles / self._state_row
                tile_script_s = (memory.script_seconds(self._url) - scripts) / tiles
                producer_rate = sending
        return fit(**timed), producer_rate, packing, tile_script_s

    @property
    def _state_row(self) -> int:
        definition = self._catalog.view(probed.VIEW).definition
        assert isinstance(definition, Definition)
        return widths.state_row(definition)

    def _changelogs(self) -> dict[str, int]:
        """What each batch wrote of its state, by file."""
        return spark_files.sizes(self._session, str(self._profile.checkpoints), ".changelog")

    def _run(self, phase: Phase, scale: float) -> tuple[list[Timed], int, float]:
        """Send a phase's records and let the view catch up; its batches, all tiles written, records/s of sending."""
        started = clock.monotonic()
        rate = self._send(phase, scale) / (clock.monotonic() - started)
        view = self._started_view(phase)
        begun: list[tuple[float, int, int]] = []

        def at(step: str, _batch: int) -> None:
            if step == "begun":
                begun.append((clock.monotonic(), sum(view.progress.records().values()), view.progress.tiles))

        view.at_step = at
        try:
            view.start(self._session, until_caught_up=True)
            view.wait()
        finally:
            view.close()
        if view.progress.error is not None:
            raise view.progress.error
        return list(between(begun))[_DROPPED:], view.progress.tiles, rate

    def _started_view(self, phase: Phase) -> RunningView:
        topic = self._catalog.topic(probed.TOPIC)
        spark = self._profile.spark.model_copy(update={"most_offsets": phase.size // topic.partitions})
        options = Options(
            views=(probed.VIEW,),
            until_caught_up=True,
            fresh=frozenset(),
            checkpoints=str(self._profile.checkpoints),
            lake="",
            locks=self._directory / "locks",
            log_file=self._directory / "logs" / "probe.log",
            application="leftfold probe",
        )
        profile = self._profile.model_copy(update={"spark": spark})
        (view,) = Supervisor(self._catalog, profile, self._engines, options).views
        return view

    def _send(self, phase: Phase, scale: float) -> int:
        total = max(phase.size * (_DROPPED + 3), int(phase.records * scale))
        with self._producer(probed.TOPIC) as producer:
            chance = Random(phase.name)
            people = [_text(chance) for _ in range(phase.keys)]
            if phase.keys > _ENCODED:
                for number in range(total):
                    producer.send_dict(_record(people[number % phase.keys], chance))
                return total
            records = [_record(people[number % phase.keys], chance) for number in range(_ENCODED)]
            encoded = [(producer.key_of(record), producer.encode(record)) for record in records]
            for number in range(total):
                producer.send_encoded(*encoded[number % _ENCODED])
        return total

    def _producer(self, topic: str) -> Producer:
        declared = self._catalog.topic(topic)
        return Producer(declared, self._profile.topic_name(topic), self._engines.kafka, self._engines.registry)


def _record(user: str, chance: Random) -> dict[str, object]:
    """Of values that follow from nothing: what is regular takes less room than what people send."""
    return {
        "user_id": user,
        "item_id": _text(chance),
        "price": chance.randrange(20_000) / 100,
        "at": from_micros(clock.now_us() - chance.randrange(1_000_000)),
    }


def _text(chance: Random) -> str:
    return f"{chance.getrandbits(4 * widths.TEXT):0{widths.TEXT}x}"


def between(begun: list[tuple[float, int, int]]) -> Iterator[Timed]:
    """From the beginning of each batch to that of the next; the last has no next."""
    for (start, records, tiles), (end, more_records, more_tiles) in pairwise(begun):
        yield Timed(more_records - records, more_tiles - tiles, end - start)
