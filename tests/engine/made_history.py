"""A generated history for training sets, and an oracle that computes every label's features the long way.

Events are late and out of order, one key has 30 % of them, and many times lie on the edges of tiles. Offsets have
holes, and batches have an outage. The oracle has its own windows, its own rules for what was known when, and its own
arithmetic; for sketches it uses the library. It shares no code with what it checks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasketches import HLL_8, hll_sketch, hll_union

S = 1_000_000
HOUR = 3_600 * S
BASE = 1_772_323_200 * S  # 2026-03-01, midnight
SPAN = 96 * HOUR
LATENESS, FUTURE = 1_800 * S, 60 * S
PARTITIONS = 6
ITEMS = 200
# By hand: the step of a window is the largest of 1 s, 10 s, 1 min, 5 min, 1 h, 1 d that fits into it twelve times.
WINDOWS = {"1h": (HOUR, 300 * S), "6h": (6 * HOUR, 300 * S), "24h": (24 * HOUR, HOUR)}
MODES = ("event", "log", "served")

Array = Any  # a numpy array


@dataclass(frozen=True)
class History:
    """Events as one array per column. Within each partition they are in the order of the log."""

    key: Array
    slot: Array
    offset: Array
    log: Array
    time: Array
    price_cents: Array
    pieces: Array
    item: Array  # -1 is missing
    batch: Array
    batches: list[tuple[int, int, dict[int, int]]]  # number, when applied, ends by partition


@dataclass(frozen=True)
class Asked:
    key: Array
    at: Array


def made_history(events: int, keys: int, seed: int) -> History:
    chance = np.random.default_rng(seed)
    log = np.sort(BASE + chance.integers(0, SPAN // 1_000, events) * 1_000)  # whole milliseconds, like a broker's
    delay = chance.exponential(2 * S, events).astype(np.int64)
    late = chance.random(events)
    delay = np.where(late < 0.05, chance.integers(300 * S, LATENESS + 1, events), delay)  # over a tile's edge
    delay = np.where(late > 0.998, LATENESS, delay)  # as late as is still accepted
    delay = np.where((late > 0.99) & (late < 0.995), LATENESS + chance.integers(1, HOUR, events), delay)  # too late
    delay = np.where((late > 0.98) & (late < 0.985), -chance.integers(0, FUTURE + 20 * S, events), delay)
    time = log - delay
    whole = chance.random(events)
    # Put some on the start of their second or tile, which only moves them back in time.
    time = np.where(whole < 0.05, time // S * S, time)
    time = np.where((whole > 0.98) & (late > 0.05) & (late < 0.9), time // (300 * S) * 300 * S, time)
    key = np.where(chance.random(events) < 0.3, 0, chance.integers(0, keys, events))
    slot = key % PARTITIONS
    offset = np.zeros(events, dtype=np.int64)
    for s in range(PARTITIONS):
        mine = slot == s
        offset[mine] = np.cumsum(1 + (chance.random(mine.sum()) < 0.01)) - 1  # holes
    batch, batches = _batches(chance, log, slot, offset)
    return History(
        key=key,
        slot=slot,
        offset=offset,
        log=log,
        time=time,
        price_cents=chance.integers(-5_000, 50_000, events),
        pieces=chance.integers(0, 6, events),
        item=np.where(chance.random(events) < 0.1, -1, (chance.pareto(0.8, events) * 5).astype(np.int64) % ITEMS),
        batch=batch,
        batches=batches,
    )


def _batches(chance: Any, log: Array, slot: Array, offset: Array) -> tuple[Array, list[Any]]:
    """Return the batch of each event, and the list of batches.

    There is a batch every few minutes. It reads some partitions less far than others. For three hours the view is down.
    """
    cuts = []
    moment = BASE
    while moment < BASE + SPAN:
        moment += int(chance.integers(60 * S, 900 * S))
        if BASE + 40 * HOUR < moment < BASE + 43 * HOUR:
            moment = BASE + 43 * HOUR
        cuts.append(moment)
    batch = np.full(len(log), -1, dtype=np.int64)
    batches = []
    reached = dict.fromkeys(range(PARTITIONS), 0)
    mine = {s: np.flatnonzero(slot == s) for s in range(PARTITIONS)}
    for number, cut in enumerate(cuts[:-1]):  # the events after the last batch were never applied
        for s in range(PARTITIONS):
            behind = int(chance.integers(0, 120 * S)) if chance.random() < 0.3 else 0
            rows = mine[s]
            upto = int(np.searchsorted(log[rows], cut - behind))
            first = int(np.searchsorted(offset[rows], reached[s]))
            if upto > first:
                batch[rows[first:upto]] = number
                reached[s] = int(offset[rows[upto - 1]]) + 1
        batches.append((number, cut + int(chance.integers(1, 5 * S)), dict(reached)))
    return batch, batches


def made_labels(history: History, number: int, keys: int, seed: int) -> Asked:
    """Return generated labels, a twentieth of them for the hot key.

    Their moments are event times, log times, moments at which batches were applied, edges of tiles, and random moments.
    """
    chance = np.random.default_rng(seed + 1)
    picked = chance.integers(0, len(history.key), number)
    hot = chance.random(number) < 0.05
    key = np.where(hot, 0, np.where(chance.random(number) < 0.5, history.key[picked], chance.integers(0, keys, number)))
    key = np.where(~hot & (key == 0), 1, key)
    key = np.where(chance.random(number) < 0.02, keys + 7, key)  # never seen
    kind = chance.random(number)
    applied = np.array([a for _, a, _ in history.batches])
    at = BASE + chance.integers(0, SPAN + 3 * HOUR, number)
    at = np.where(kind < 0.2, history.time[picked], at)
    at = np.where((kind > 0.2) & (kind < 0.3), at // (300 * S) * 300 * S, at)
    at = np.where((kind > 0.3) & (kind < 0.4), at // HOUR * HOUR, at)
    at = np.where((kind > 0.4) & (kind < 0.45), history.log[picked], at)
    at = np.where((kind > 0.45) & (kind < 0.5), applied[chance.integers(0, len(applied), number)], at)
    at = np.where((kind > 0.5) & (kind < 0.55), history.time[picked] + 1, at)
    return Asked(key, at)


def expected(history: History, asked: Asked) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Compute the features of every label in every mode: (label, mode, values)."""
    accepted = (history.log - history.time <= LATENESS) & (history.time - history.log <= FUTURE)
    order = np.lexsort((history.offset, history.slot, history.time, history.key))
    order = order[accepted[order]]
    keys = history.key[order]
    applied = np.array([a for _, a, _ in history.batches])
    when = np.where(history.batch >= 0, applied[history.batch], np.iinfo(np.int64).max)
    estimates: dict[bytes, int] = {}
    for label in range(len(asked.key)):
        lo, hi = np.searchsorted(keys, asked.key[label]), np.searchsorted(keys, asked.key[label], side="right")
        rows, at = order[lo:hi], int(asked.at[label])
        rows = rows[: np.searchsorted(history.time[rows], at)]
        rows = rows[np.searchsorted(history.time[rows], at - 26 * HOUR) :]  # no window reaches further
        for mode in MODES:
            seen = rows
            if mode == "log":
                seen = rows[history.log[rows] < at]
            elif mode == "served":
                seen = rows[when[rows] <= at]
            values: dict[str, Any] = {}
            for window, (length, step) in WINDOWS.items():
                start = (at - length) // step * step
                chosen = seen[np.searchsorted(history.time[seen], start) :]
                values |= {f"{n}_{window}": v for n, v in _values(history, chosen, estimates).items()}
            yield label, mode, values


def _values(history: History, chosen: Array, estimates: dict[bytes, int]) -> dict[str, Any]:
    pieces, cents, items = history.pieces[chosen], history.price_cents[chosen], history.item[chosen]
    known = items[items >= 0]
    there = np.zeros(ITEMS, dtype=bool)
    there[known] = True
    packed = np.packbits(there).tobytes()
    if packed not in estimates:
        estimates[packed] = _estimated([f"i{i}" for i in np.flatnonzero(there)])
    some = len(chosen) > 0
    return {
        "count": int((pieces > 1).sum()),
        "sum": int(cents.sum()) / 100 if some else None,
        "mean": float(int(pieces.sum())) / len(chosen) if some else None,
        "min": int(cents.min()) / 100 if some else None,
        "max": int(history.time[chosen].max()) if some else None,  # µs
        "last": f"i{known[-1]}" if len(known) else None,
        "last_n": [f"i{i}" for i in known[:-6:-1]],
        "distinct": estimates[packed],
    }


def _estimated(items: list[str]) -> int:
    sketch, union = hll_sketch(9, HLL_8), hll_union(9)
    for item in items:
        sketch.update(item)
    for _ in range(2):
        union.update(sketch)
    return math.floor(float(union.get_estimate()) + 0.5)
