"""Measures the constants of the sizing model on the engines at hand, in about two minutes.

Everything happens in a separate namespace, which is removed afterwards: topics, schemas, store keys, checkpoint.
The probe loads the engines like any other user while it runs, and other load disturbs it. If it runs next to a busy
view, it measures only the capacity that the view leaves over.
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
from leftfold.observe.observation import observe
from leftfold.plan.diff import plan
from leftfold.run import probed
from leftfold.run.deployment import Deployment, Engines
from leftfold.run.view import RunningView
from leftfold.settings import Profile
from leftfold.sizing import widths
from leftfold.sizing.constants import Constants
from leftfold.sizing.fit import Costs, Timed, fit, median
from leftfold.spark import files as spark_files
from leftfold.spark.session import build_session
from leftfold.store.opening import open_store

if TYPE_CHECKING:
    from leftfold.spark.session import SparkSession

Note = Callable[[str], None]
# The amounts below were chosen for this duration, two minutes, on two cores.
USUAL_S = 120.0
# The most that the producer's test sends: enough to fill buffers, little enough for any disk.
_MOST_BYTES = 300_000_000
_BYTES_S = 4.0
_PAYLOAD = 1_000
# So many different records are encoded once and sent repeatedly: the cost of encoding is not measured.
_ENCODED = 1_000
# The first batch of a phase starts workers and compiles code, so it is not counted.
_DROPPED = 1


@dataclass(frozen=True)
class Phase:
    """A load of `batches` batches with `size` records each, spread over `keys` keys."""

    name: str
    batches: int
    size: int
    keys: int

    @property
    def records(self) -> int:
        return self.batches * self.size


# "small" and "large" lie on both sides of the limit up to which the driver writes a batch itself (5,000 rows; a record
# makes one row for each of two steps). "records" is mostly records, "tiles" is mostly tiles. The warm-up is not
# measured: a JVM is slow until it has compiled the code that it runs, which takes half a minute of work.
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
    """Run the probe and return the measured constants.

    `directory` takes the log file, and the checkpoints if the profile names no place for them. `seconds` is roughly how
    long the probe may take on a small machine. A given session is not stopped.
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
        self._url = engines.online.address

    def measured(self, scale: float, brokers: int) -> Constants:
        observed = observe(self._catalog, self._profile, self._engines.kafka, *self._log)
        for _ in plan(self._catalog, self._profile, observed).apply(*self._log):
            pass
        bytes_s = self._bytes_s(scale)
        self._note(f"one producer: {bytes_s / 1e6:.0f} MB/s of {_PAYLOAD} bytes, acknowledged by all replicas")
        costs, producer_rate, packing, tile_s = self._view(scale)
        cores = self._cores
        usual = self._with_store(Constants(), tile_s)
        replicated = bytes_s * (self._profile.replication or 1) / brokers
        return replace(
            usual,
            records_per_core=1 / costs.record_s / cores,
            tiles_per_core=1 / costs.tile_s / cores,
            batch_s=costs.small_s,
            large_batch_s=costs.large_s,
            state_packing=packing,
            broker_bytes_s=max(usual.broker_bytes_s, replicated),
            producer_rate=producer_rate,
            producer_bytes_s=bytes_s,
            source=f"probed at {clock.now():%Y-%m-%d %H:%M} UTC: {cores} cores, {brokers} brokers",
        )

    def _with_store(self, usual: Constants, tile_s: float | None) -> Constants:
        """Return constants with what the store was measured to need, as far as it can be measured."""
        with open_store(self._url) as store:
            footprint = store.footprint(self._profile.namespace)
        if footprint is None or tile_s is None:
            self._note("the online store does not tell what rows cost it: the usual figures stay")
            return usual
        self._note(
            f"online store: beside its texts a row has {footprint.entity:.0f} bytes, a tile {footprint.tile:.1f}, "
            f"a loose one {footprint.loose_tile:.0f}"
        )
        return replace(
            usual,
            entity_bytes=footprint.entity,
            tile_bytes=footprint.tile,
            loose_tile_bytes=footprint.loose_tile,
            packed_tiles=footprint.packed_tiles or usual.packed_tiles,
            packed_value_bytes=footprint.packed_value or usual.packed_value_bytes,
            store_tiles=1 / tile_s,
        )

    @property
    def _log(self) -> tuple[Admin, SchemaRegistry]:
        return self._engines.admin, self._engines.registry

    @property
    def _cores(self) -> int:
        return int(self._session.sparkContext.defaultParallelism)

    def remove(self) -> None:
        with open_store(self._url) as store:
            store.remove_namespace(self._profile.namespace)
        kafka_scratch.remove_namespace(self._engines.admin, self._engines.registry, self._profile.namespace)
        spark_files.remove(self._session, str(self._profile.checkpoints))

    def _bytes_s(self, scale: float) -> float:
        payloads, sent = [os.urandom(_PAYLOAD) for _ in range(1_000)], 0  # random: compression cannot shrink it
        with self._producer(probed.BYTES) as producer:
            started = clock.monotonic()
            while clock.monotonic() - started < _BYTES_S * scale and sent * _PAYLOAD < _MOST_BYTES:
                for number, payload in enumerate(payloads):
                    producer.send_encoded(b"%d" % number, payload)
                sent += len(payloads)
            producer.flush()
            return sent * _PAYLOAD / (clock.monotonic() - started)

    def _view(self, scale: float) -> tuple[Costs, float, float, float | None]:
        """Run all phases and return four measurements.

        They are: the costs of a batch; the records sent per second; the ratio of a state row's bytes to the bytes of
        its fields; and the seconds that the store needs to write a tile, if it tells.
        """
        self._run(WARM_UP, scale)
        timed: dict[str, Timed] = {}
        packing = producer_rate = 0.0
        tile_s: float | None = None
        for phase in PHASES:
            before, wrote = self._changelogs(), self._writing_s()
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
                if wrote is not None and (now := self._writing_s()) is not None:
                    tile_s = (now - wrote) / tiles
                producer_rate = sending
        return fit(**timed), producer_rate, packing, tile_s

    def _writing_s(self) -> float | None:
        with open_store(self._url) as store:
            return store.writing_s()

    @property
    def _state_row(self) -> int:
        definition = self._catalog.view(probed.VIEW).definition
        assert isinstance(definition, Definition)
        return widths.state_row(definition)

    def _changelogs(self) -> dict[str, int]:
        """The sizes of the files in which batches wrote the changes of their state, by file name."""
        return spark_files.sizes(self._session, str(self._profile.checkpoints), ".changelog")

    def _run(self, phase: Phase, scale: float) -> tuple[list[Timed], int, float]:
        """Send a phase's records and let the view catch up.

        Return the timed batches, the number of all tiles written, and the records sent per second.
        """
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
        deployment = Deployment(
            self._catalog,
            self._profile.model_copy(update={"spark": spark}),
            self._engines,
            checkpoints=str(self._profile.checkpoints),
            lake="",
            locks=self._directory / "locks",
            log_file=self._directory / "logs" / "probe.log",
            application="leftfold probe",
        )
        return deployment.view(probed.VIEW)

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
    """A record of random values: regular values would take less space than real ones."""
    return {
        "user_id": user,
        "item_id": _text(chance),
        "price": chance.randrange(20_000) / 100,
        "at": from_micros(clock.now_us() - chance.randrange(1_000_000)),
    }


def _text(chance: Random) -> str:
    return f"{chance.getrandbits(4 * widths.TEXT):0{widths.TEXT}x}"


def between(begun: list[tuple[float, int, int]]) -> Iterator[Timed]:
    """Yield each batch, timed from its beginning to that of the next. The last batch has no next and is left out."""
    for (start, records, tiles), (end, more_records, more_tiles) in pairwise(begun):
        yield Timed(more_records - records, more_tiles - tiles, end - start)
