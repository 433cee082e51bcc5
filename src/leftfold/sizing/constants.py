"""The model's constants: what machines and engines can do. A probe measures some; the origin of defaults is noted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from leftfold import private
from leftfold.errors import ProjectError

_VERSION = 1
_DEFAULTS = "defaults, not measured here"


@dataclass(frozen=True)
class Constants:
    """The constants of the sizing model. Rates are per second, and per core where the name says so; sizes are in bytes.

    "Probed" marks what `calibrate` measures. Until then, its default is a guess for a small machine, and `source` says
    so.
    """

    # A view's batch costs batch_s + records / records_per_core / cores + tiles / tiles_per_core / cores. All probed.
    records_per_core: float = 50_000  # fetched, decoded, judged, folded
    tiles_per_core: float = 15_000  # changed tiles: put into state, packed, written to the online store
    batch_s: float = 0.5  # the fixed cost b of a batch that the driver writes
    large_batch_s: float = 0.8  # b of a batch that executors write: it has one more shuffle, and Python workers
    # These mirror how Leftfold runs a view (spark/sinks/online.py, run/watermark.py). A test compares them.
    driver_rows: int = 5_000  # the driver writes a batch of up to so many rows
    state_slack_s: float = 3_600  # a tile leaves the state this much later than its lateness
    # Spark's state: bytes of a row in the checkpoint, divided by the bytes of its fields. It is below 1 because the
    # checkpoint is compressed. Probed.
    state_packing: float = 0.5
    # RocksDB's files add this to each row: a sequence number, and the row's part of filter and index. `make model`
    # measured 69 bytes for a row whose fields take 54.
    state_row_bytes: float = 14
    # Redis. The next three are probed with MEMORY USAGE.
    entity_bytes: float = 100  # of a row, in addition to its name and tiles
    tile_bytes: float = 5  # of a tile in addition to its text, if Redis packs the row into one block
    loose_tile_bytes: float = 75  # of a tile in addition to its text, if Redis does not pack the row
    # Redis packs a row with up to so many fields and values up to so long: its hash-max-listpack-entries and -value.
    packed_tiles: int = 128
    packed_value_bytes: int = 64
    # A row with more tiles has most of them in one packed field (store/packer.py). A test compares.
    loose_tiles: int = 16
    packed_row_bytes: float = 250  # of the packed field and its batch, without tiles and answers. A test compares.
    store_tiles: float = 100_000  # tiles a second that one Redis takes: it runs one script at a time. Probed.
    # Memory of one Redis for rows. A node of twice that: while Redis saves, it may hold a second copy of what changes.
    store_node_bytes: float = 64e9
    # Kafka.
    # Half of what LinkedIn's benchmark of 2014 wrote to each of three machines with six disks: 2,024,032 records/s of
    # 100 bytes, with three replicas. A probe has only one producer, so it can raise this value but never lowers it.
    broker_bytes_s: float = 100e6
    producer_rate: float = 50_000  # small records a second that one Python producer encodes and sends. Probed.
    producer_bytes_s: float = 30e6  # bytes a second that it sends, with records of 1 kB. Probed.
    # KIP-578 names both as the general recommendation. A broker carries replicas, so each replica of a partition counts
    # for the limit per broker.
    partitions_per_broker: int = 4_000
    partitions_per_cluster: int = 200_000
    # A full disk stops a broker, and retention deletes only whole segments, some time after they are due.
    disk_room: float = 1.3
    # Above this share of its capacity, a view has no room for a peak. At 0.7, batches take 3.3 times as long as without
    # load; at 0.9, ten times.
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
    """The path of a profile's constants. `state` is the project's .leftfold directory."""
    return state / profile / "constants.json"


def read(file: Path) -> Constants:
    """Read the probed constants, or return the defaults if nothing was probed."""
    if not file.is_file():
        return Constants()
    try:
        data = json.loads(file.read_text())
    except ValueError as error:
        raise _unreadable(f"{file} is not JSON") from error
    return Constants.from_json(data if isinstance(data, dict) else {})


def write(constants: Constants, file: Path) -> None:
    private.directory(file.parent)
    file.write_text(json.dumps(constants.as_json(), indent=2) + "\n")


def _unreadable(why: str) -> ProjectError:
    return ProjectError(
        "bad-constants",
        "constants.json, which a probe has left, cannot be used",
        why=why,
        fix="delete it, and probe again; the defaults hold until then",
    )
