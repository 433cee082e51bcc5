"""Reads of a Vector, and writes of a batch, against bare Redis calls.

A read covers two entities, each with eight features over three windows (48 values in all). Real views fill the store
from a real log, 400 events for each entity. Two comparisons:

- `read_one`, `read_many`: bare calls fetch the same tiles, one field each, and decode JSON and sketches into objects.
  Only our side also merges tiles into values.
- `vs_packed`, `vs_packed_later`, `vs_packed_many`: bare calls fetch one ready-made value per entity; just after rows
  were written, three hours later, and fifty vectors at once. Both moments are also computed from the events.

`bytes_…` divide the memory of an entity by its goal: 400 or 60 events in seven days, eight aggregates or six.

A write sets the rows of a batch: our fenced writer against a bare pipelined loop that sets the same fields. `packing`
compares our writer that packs older tiles with the same one that does not, as entities get one event after another;
nearly each event makes new tiles, so rows are packed as often as they can be. It is reported but not judged.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import redis
from datasketches import hll_sketch

import leftfold
from bench.engines import project
from bench.pairs import Case, interleave, note
from bench.rows import BY_FIELDS, definition_of, store_by_fields
from leftfold import clock
from leftfold.fold import columns
from leftfold.fold.compute import compute
from leftfold.fold.definition import Definition
from leftfold.fold.durations import SECOND
from leftfold.fold.expressions import to_micros
from leftfold.store.engine import BuildPlace
from leftfold.store.frames import framed_row
from leftfold.store.layout import field
from leftfold.store.opening import open_store
from leftfold.store.redis.names import row_key
from leftfold.store.tile_read import TileRead
from leftfold.store.writer import write_rows

ENTITIES = 200
EVENTS = 80_000
READS = 400  # reads of each side in a pair; a tenth of that for reads of many
MANY = 50
GOAL = 1.3
READY_GOAL, LATER_GOAL, LATER = 2.0, 4.0, timedelta(hours=3)
BYTES_GOALS = {"users": 3_300, "few": 1_700}
SPARSE_BYTES_GOALS = {"users": 1_500, "few": 800}
WRITTEN = 40_000  # entities, with TILES tiles each
TILES = 5
WRITE_GOAL = 1.0
START = 1_772_323_200 * SECOND
OURS, BARE = (BuildPlace("bench", "write", side) for side in ("ours", "bare"))
SPARSE, SPARSE_EVENTS = 500, 60  # entities, and events of each in seven days

SHOP = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    pieces: int
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="8d")


def eight(other, but=()):
    made = {}
    for window in ("1h", "24h", "7d"):
        made |= {
            f"n_{window}": lf.count(window),
            f"spend_{window}": lf.sum(Click.price, window),
            f"mean_{window}": lf.mean(Click.pieces, window),
            f"least_{window}": lf.min(Click.price, window),
            f"most_{window}": lf.max(Click.pieces, window),
            f"last_{window}": lf.last(other, window),
            f"recent_{window}": lf.last_n(other, window, n=10),
            f"different_{window}": lf.distinct(other, window),
        }
    return {name: feature for name, feature in made.items() if not name.startswith(but)}


Users = type("Users", (lf.Features,), eight(Click.item_id), of=clicks, by=Click.user_id)
Items = type("Items", (lf.Features,), eight(Click.user_id), of=clicks, by=Click.item_id)
Few = type("Few", (lf.Features,), eight(Click.item_id, ("recent", "different")), of=clicks, by=Click.user_id)
Both = type(
    "Both",
    (lf.Vector,),
    {f"{view.__name__.lower()}_{n}": getattr(view, n) for view in (Users, Items) for n in view.__leftfold_names__},
)
"""


def measure(pairs: int) -> dict[str, Case]:
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory, project(Path(directory), SHOP) as app:
        events = fill(app)
        bench = _Bench(app, events)
        equal = bench.equal()
        note(f"vectors equal to the bare calls' tiles, merged by hand: {equal}")
        figures = {
            "bytes_per_entity": bench.bytes_of(bench.row_keys()),
            "bytes_as_fields": bench.bytes_of(BY_FIELDS + key for key in bench.row_keys()),
            "packed_bytes_per_entity": bench.packed_bytes(),
            "server_us_per_entity": bench.server_us(),
        }
        note(f"in the store: {figures}")
        cases = {
            "write": _write(app, pairs),
            **{f"packing{'' if view == 'users' else '_' + view}": _packing(app, view, pairs) for view in BYTES_GOALS},
            "read_one": Case(bench.compare("read_one", pairs, 1), GOAL, equal, lower_is_better=True),
            "read_many": Case(bench.compare("read_many", pairs, MANY), GOAL, equal, lower_is_better=True),
        }
        for name, many, goal, later in (
            ("vs_packed", 1, READY_GOAL, timedelta()),
            ("vs_packed_many", MANY, READY_GOAL, timedelta()),
            ("vs_packed_later", 1, LATER_GOAL, LATER),
        ):
            with bench.moved(later):
                right = bench.equals_the_events()
                ratios = bench.compare(name, pairs, many, packed=True)
            cases[name] = Case(ratios, goal, equal and right, lower_is_better=True, figures=figures)
        for view, goal in BYTES_GOALS.items():
            size = bench.bytes_of(bench.keys_of(view))
            cases[f"bytes_{view}_400"] = _bytes(size, goal)
        for view, goal in SPARSE_BYTES_GOALS.items():
            size = int(cases[f"packing{'' if view == 'users' else '_' + view}"].figures["bytes_per_entity"])
            cases[f"bytes_{view}_60"] = _bytes(size, goal)
        return cases


def _bytes(size: int, goal: int) -> Case:
    return Case((size / goal,), 1.0, outputs_equal=True, lower_is_better=True, figures={"bytes": size, "at_most": goal})


def _write(app: leftfold.App, pairs: int) -> Case:
    """Compare writes: our writer against a bare loop.

    Both run in one process and write the same fields and values under keys that differ only in their prefix. Each
    run starts with its part of the store empty.
    """
    url = app.online.url.get_secret_value()
    store = redis.Redis.from_url(url, decode_responses=True)
    entities = [
        (
            f"e{number}",
            [f"3600:{tile}" for tile in range(TILES)],
            [f"[{tile},7,{number},1,2.5]" for tile in range(TILES)],
        )
        for number in range(WRITTEN)
    ]

    def ours() -> float:
        started = clock.monotonic()
        rows = (framed_row(key, fields, values) for key, fields, values in entities)
        written, _ = write_rows(url, OURS, rows, 0)
        assert written == WRITTEN * TILES
        return clock.monotonic() - started

    def bare() -> float:
        started = clock.monotonic()
        pipeline = store.pipeline(transaction=False)
        for number, (key, fields, values) in enumerate(entities):
            for name, value in zip(fields, values, strict=True):
                pipeline.hset(row_key(BARE, key), name, value)
            if number % 200 == 199:  # 1,000 commands a round trip
                pipeline.execute()
        pipeline.execute()
        return clock.monotonic() - started

    def emptied(side: BuildPlace, write: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            for start in range(0, WRITTEN, 10_000):
                store.unlink(*(row_key(side, key) for key, _, _ in entities[start : start + 10_000]))
            return write()

        return run

    mine, theirs = emptied(OURS, ours), emptied(BARE, bare)
    mine(), theirs()
    equal = all(
        store.hgetall(row_key(OURS, key)) == store.hgetall(row_key(BARE, key)) for key, _, _ in entities[:2_000]
    )
    ratios = interleave("write", pairs, mine, theirs)
    for side in (OURS, BARE):
        emptied(side, lambda: 0.0)()
    return Case(ratios, WRITE_GOAL, equal)


def _packing(app: leftfold.App, view: str, pairs: int) -> Case:
    url = app.online.url.get_secret_value()
    store = redis.Redis.from_url(url)
    definition = definition_of(app, view)
    batches = list(_sparse_batches(definition))
    server: dict[bool, float] = {}

    def keys(*, packs: bool) -> list[str]:
        return [row_key(place(packs=packs), f"e{number}") for number in range(SPARSE)]

    def place(*, packs: bool) -> BuildPlace:
        return BuildPlace("bench", "packing", "packed" if packs else "plain")

    def writing_s() -> float:
        with open_store(url) as opened:
            return opened.writing_s() or 0.0

    def write(*, packs: bool) -> float:
        store.unlink(*keys(packs=packs))
        before = writing_s()
        started = clock.monotonic()
        for batch in batches:
            rows = (framed_row(f"e{number}", *tiles) for number, tiles in enumerate(batch))
            write_rows(url, place(packs=packs), rows, 0, packs=definition if packs else None)
        seconds = clock.monotonic() - started
        server[packs] = (writing_s() - before) / (len(batches) * SPARSE) * 1e6
        return seconds

    write(packs=True), write(packs=False)
    both = zip(keys(packs=True), keys(packs=False), strict=True)
    rows: Any = [(store.hgetall(packed), store.hgetall(plain)) for packed, plain in both]
    equal = all(_values(definition, one) == _values(definition, other) for one, other in rows)
    size = {packs: sum(store.memory_usage(key, samples=0) or 0 for key in keys(packs=packs)) for packs in (True, False)}
    ratios = interleave("packing", pairs, lambda: write(packs=True), lambda: write(packs=False))
    figures = {
        "events": len(batches),
        "bytes_per_entity": size[True] // SPARSE,
        "bytes_as_fields": size[False] // SPARSE,
        "server_us_per_changed_entity": round(server[True], 1),
        "server_us_without_packing": round(server[False], 1),
    }
    return Case(ratios, None, equal, figures=figures)


def _values(definition: Definition, row: dict[bytes, bytes]) -> list[str]:
    """Return the values of a row at some moments after its last event."""
    finest, end = definition.steps[0], START + 7 * 86_400 * SECOND
    moments = [end + hours * 3_600 * SECOND for hours in (0, 1, 5, 30)]
    return [repr(TileRead(definition, at, at + finest, exact=False).values(row, at).values) for at in moments]


def _sparse_batches(definition: Definition) -> Iterator[list[tuple[list[str], list[str]]]]:
    """Yield batches in which each entity has one event: the fields and values of the tiles that it makes."""
    chance = random.Random(3)
    for number in range(SPARSE_EVENTS):
        batch = []
        for _ in range(SPARSE):
            at = START + int((number + chance.random()) * 7 * 86_400 / SPARSE_EVENTS * SECOND)
            event = {
                "user_id": "u",
                "item_id": f"i{chance.randrange(ENTITIES)}",
                "price": round(chance.expovariate(1 / 40), 2),
                "pieces": chance.randrange(5),
                "at": at,
            }
            partials = [columns.partial(column, [event]) for column in definition.columns]
            indexes = [at // step for step in definition.steps]
            names = [field(s, i, definition.rings[s]) for s, i in zip(definition.steps, indexes, strict=True)]
            batch.append((names, [json.dumps([i, number, *partials], separators=(",", ":")) for i in indexes]))
        yield batch


def fill(app: leftfold.App) -> list[dict[str, Any]]:
    """Send events, and run the views. Returns the events, with their times in microseconds."""
    chance, now, sent = random.Random(1), datetime.now(UTC), []
    with app.producer("clicks") as producer:
        for _ in range(EVENTS):
            event: dict[str, Any] = {
                "user_id": f"u{chance.randrange(ENTITIES)}",
                "item_id": f"i{chance.randrange(ENTITIES)}",
                "price": round(chance.expovariate(1 / 40), 2),
                "pieces": chance.randrange(5),
                "at": now - timedelta(days=7) * chance.random(),
            }
            producer.send_dict(event)
            sent.append({**event, "at": to_micros(event["at"])})
    for progress in app.supervisor(until_caught_up=True).run(lambda _: None):
        assert progress.error is None, progress.error
    return sent


class _Bench:
    def __init__(self, app: leftfold.App, events: list[dict[str, Any]]) -> None:
        self._app = app
        self._events: dict[str, list[dict[str, Any]]] = {}
        for event in events:
            for entity in (event["user_id"], event["item_id"]):
                self._events.setdefault(entity, []).append(event)
        self._store = redis.Redis.from_url(app.online.url.get_secret_value())
        self._chance = random.Random(2)
        streams: Any = app.catalog  # loads the declarations
        self._vector = streams.vectors["both"]
        self._builds = {v: app.reader.ledger(v)[0] for v in ("users", "items", "few")}  # type: ignore[index] # both are built
        self._tiles = _fields_by_hand()
        for view in ("users", "items"):
            rows = {key: self._events[key.rpartition(":")[2]] for key in self.keys_of(view)}
            store_by_fields(app, self._store, view, rows)
        self._pack()

    @contextmanager
    def moved(self, later: timedelta) -> Iterator[None]:
        """Read so much later, and have ready-made values of that time."""
        real, by = clock.now_us, int(later.total_seconds() * SECOND)
        with patch.object(clock, "now_us", lambda: real() + by):
            self._pack()
            yield

    def equals_the_events(self) -> bool:
        """Return whether vectors are what the events of their entities make, at the moment of the read."""
        for _ in range(50):
            (person,) = self._people(1)
            row = self._app.get(self._vector, **person)
            at = to_micros(row.read_at)
            for view, entity in (("users", person["user_id"]), ("items", person["item_id"])):
                wanted = compute(definition_of(self._app, view), self._events[entity], at)
                if any(row.values[f"{view}_{name}"] != value for name, value in wanted.items()):
                    return False
        return True

    def keys_of(self, view: str) -> list[str]:
        letter = "i" if view == "items" else "u"
        return [f"lf::row:{view}:{self._builds[view]}:{letter}{number}" for number in range(ENTITIES)]

    def compare(self, name: str, pairs: int, many: int, *, packed: bool = False) -> tuple[float, ...]:
        """Return, for each pair, the ratio of the median times of a read: ours / bare."""
        bare = self._packed if packed else self._bare
        for _ in range(50):
            self._ours(self._people(many))
            bare(self._people(many))
        ratios = []
        for number in range(pairs):
            mine: list[float] = []
            theirs: list[float] = []
            for _ in range(READS if many == 1 else READS // 10):
                people = self._people(many)
                sides: list[tuple[list[float], Callable[[Any], Any]]] = [(mine, self._ours), (theirs, bare)]
                for times, read in sides if number % 2 else reversed(sides):
                    started = clock.monotonic()
                    read(people)
                    times.append(clock.monotonic() - started)
            ratio = statistics.median(mine) / statistics.median(theirs)
            note(
                f"{name} pair {number + 1}: ours {statistics.median(mine) * 1e6:.0f} µs, "
                f"bare {statistics.median(theirs) * 1e6:.0f} µs, ratio {ratio:.3f}"
            )
            ratios.append(ratio)
        return tuple(ratios)

    def _people(self, many: int) -> list[dict[str, Any]]:
        pick = self._chance.randrange
        return [{"user_id": f"u{pick(ENTITIES)}", "item_id": f"i{pick(ENTITIES)}"} for _ in range(many)]

    def _ours(self, people: list[dict[str, Any]]) -> Any:
        if len(people) == 1:
            return self._app.get(self._vector, **people[0])
        return self._app.get_many(self._vector, people)

    def _keys(self, people: list[dict[str, Any]]) -> list[str]:
        keys = dict.fromkeys(
            key
            for person in people
            for key in (
                f"lf::row:users:{self._builds['users']}:{person['user_id']}",
                f"lf::row:items:{self._builds['items']}:{person['item_id']}",
            )
        )
        return list(keys)

    def _bare(self, people: list[dict[str, Any]]) -> list[list[Any]]:
        """Read as a careful engineer would by hand: one pipeline, one JSON text per entity, each sketch an object."""
        pipeline = self._store.pipeline(transaction=False)
        for key in self._keys(people):
            pipeline.hmget(BY_FIELDS + key, self._tiles)
        decoded = []
        for held in pipeline.execute():
            rows = json.loads(b"[" + b",".join([value for value in held if value is not None]) + b"]")
            for row in rows:
                row[-1] = hll_sketch.deserialize(base64.b64decode(row[-1]))
            decoded.append(rows)
        return decoded

    def _pack(self) -> None:
        """Store one ready-made value per entity, as a job that computes windows itself would write it."""
        for number in range(ENTITIES):
            person: dict[str, Any] = {"user_id": f"u{number}", "item_id": f"i{number}"}
            row = self._app.get(self._vector, **person)
            for kind in ("users", "items"):
                values = {n: v for n, v in row.values.items() if n.startswith(kind)}
                self._store.set(f"packed:{kind}:{number}", json.dumps(values))

    def _packed(self, people: list[dict[str, Any]]) -> list[Any]:
        pipeline = self._store.pipeline(transaction=False)
        for person in people:
            pipeline.get(f"packed:users:{person['user_id'][1:]}")
            pipeline.get(f"packed:items:{person['item_id'][1:]}")
        return [json.loads(value) for value in pipeline.execute()]

    def equal(self) -> bool:
        """Return whether counts, exact sums and last values, merged by hand from the bare tiles, equal the vectors'."""
        for _ in range(100):
            (person,) = self._people(1)
            row = self._app.get(self._vector, **person).values
            for kind, rows in zip(("users", "items"), self._bare([person]), strict=True):
                hours = [r for r in rows if r[0] < 10**6]  # hour tiles: their index has six digits, not seven
                by_hand = (sum(r[2] for r in hours), sum(r[3] for r in hours) / 10**6, hours[-1][-3])
                if by_hand != tuple(row[f"{kind}_{name}_7d"] for name in ("n", "spend", "last")):
                    return False
        return True

    def row_keys(self) -> list[str]:
        return [key for n in range(ENTITIES) for key in self._keys([{"user_id": f"u{n}", "item_id": f"i{n}"}])]

    def bytes_of(self, keys: Iterable[str]) -> int:
        sizes = [self._store.memory_usage(key, samples=0) or 0 for key in keys]
        return sum(sizes) // len(sizes)

    def server_us(self) -> float:
        """Return the server's own time for the row of one entity, in µs."""
        self._store.config_resetstat()
        for _ in range(READS):
            self._ours(self._people(1))
        return round(float(self._store.info("commandstats")["cmdstat_hgetall"]["usec_per_call"]), 1)

    def packed_bytes(self) -> int:
        keys = [f"packed:{kind}:{n}" for kind in ("users", "items") for n in range(ENTITIES)]
        return sum(self._store.memory_usage(key) or 0 for key in keys) // len(keys)


def _fields_by_hand() -> list[str]:
    """Return the Redis fields of the tiles that the three windows need now, by docs/reference/protocol.md."""
    now = clock.now_us() // 1_000_000
    rings = {300: -(-(3_600 + 300 + 60) // 300) + 2, 3_600: -(-(7 * 86_400 + 300 + 60) // 3_600) + 2}
    fine = (now - 3_600) // 300  # five-minute tiles from here to the next full hour, then hour tiles
    wanted = [(300, index) for index in range(fine, -(-fine // 12) * 12)]
    wanted += [(3_600, now // 3_600 - back) for back in range(168, -1, -1)]
    return [f"{step}:{index % rings[step]}" for step, index in wanted]
