"""What machines and engines can do: numbers of the model that a probe measures, each with where its default is from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from leftfold.errors import ProjectError

_VERSION = 1
_DEFAULTS = "defaults, not measured here"


@dataclass(frozen=True)
class Constants:
    """Rates are per second and core, sizes in bytes. "Probed" is what `calibrate` measures; until it has, its default
    is a guess for a small machine, and `source` says so."""

    # A view: a batch costs batch_s + records / records_per_core / cores + tiles / tiles_per_core / cores. All probed.
    records_per_core: float = 50_000  # fetched, decoded, judged, folded
    tiles_per_core: float = 15_000  # changed tiles: into state, packed, written to the online store
    batch_s: float = 0.5  # the fixed cost b of a batch that the driver writes
    large_batch_s: float = 0.8  # ... and of one that executors write: it has another shuffle, and Python workers
    # How Leftfold runs a view: spark/sink.py, spark/source.py, run/broom.py; a test compares them.
    driver_rows: int = 5_000  # up to so many rows the driver writes a batch
    offsets_per_partition: int = 50_000  # in one batch
    state_slack_s: float = 3_600  # how much later than lateness a tile leaves the state
    # Spark's state: bytes of a row in the checkpoint, of those of its fields; below 1 because it is compressed. Probed.
    state_packing: float = 0.5
    # ... and what RocksDB's files add to it: a sequence number, and the row's part of filter and index. Measured by
    # `make model`: 69 bytes of a row whose fields take 54.
    state_row_bytes: float = 14
    # Redis. Probed with MEMORY USAGE.
    entity_bytes: float = 100  # of a row beside its name and tiles
    tile_bytes: float = 5  # of a tile beside its text, where Redis packs a row into one block ...
    loose_tile_bytes: float = 75  # ... and where it does not
    # Redis packs up to so many fields, of values up to so long: its hash-max-listpack-entries and -value.
    packed_tiles: int = 128
    packed_value_bytes: int = 64
    store_tiles: float = 100_000  # tiles a second that one Redis takes: it runs one script at a time. Probed.
    # Kafka.
    # Half of what LinkedIn's benchmark of 2014 wrote to each of three machines with six disks: 2,024,032 records/s of
    # 100 bytes, three copies. A probe, which has one producer, only ever raises it.
    broker_bytes_s: float = 100e6
    producer_rate: float = 50_000  # small records a second that one Python producer encodes and sends. Probed.
    producer_bytes_s: float = 30e6  # ... and bytes, of records of 1 kB. Probed.
    # KIP-578 names both as the general recommendation. A broker's are counted with replicas, which is what it carries.
    partitions_per_broker: int = 4_000
    partitions_per_cluster: int = 200_000
    # Retention deletes whole segments, some time after they are due; and a full disk stops a broker.
    disk_room: float = 1.3
    # Above this share of what it can do, a view has no room left for a peak: at 0.7 batches take 3.3 times as long as
    # with no load, at 0.9 ten times.
    busy: float = 0.7
    source: str = _DEFAULTS

    @property
    def measured(self) -> bool:
        return self.source != _DEFAULTS

    def as_json(self) -> dict[str, Any]:
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Constants:
        known = {f.name: type(f.default) for f in fields(cls)}
        values = {name: value for name, value in data.items() if name != "version"}
        fits = data.get("version") == _VERSION and values.keys() == known.keys()
        if not fits or not all(_is(value, known[name]) for name, value in values.items()):
            raise _unreadable("it is of another release, or a number in it is missing or not positive")
        return cls(**values)


def _is(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    return type(value) in ((int,) if kind is int else (int, float)) and 0 < value < float("inf")


def place(state: Path, profile: str) -> Path:
    """Where a profile's constants are kept; `state` is the project's .leftfold."""
    return state / profile / "constants.json"


def read(file: Path) -> Constants:
    """As they were probed, or the defaults if they never were."""
    if not file.is_file():
        return Constants()
    try:
        data = json.loads(file.read_text())
    except ValueError as error:
        raise _unreadable(f"{file} is not JSON") from error
    return Constants.from_json(data if isinstance(data, dict) else {})


def write(constants: Constants, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(constants.as_json(), indent=2) + "\n")


def _unreadable(why: str) -> ProjectError:
    return ProjectError(
        "bad-constants",
        "constants.json, which a probe has left, cannot be used",
        why=why,
        fix="delete it, and probe again; the defaults hold until then",
    )
