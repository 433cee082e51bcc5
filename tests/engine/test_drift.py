"""Drift on real engines: profiles and distances that Spark counts against numpy and DuckDB; and of a project."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leftfold.fold.profiles import Cells, ColumnProfile, as_document, drift_of, from_document
from leftfold.spark.quality.profiles import counted, profiles_of

FULL = bool(os.environ.get("LEFTFOLD_QUALITY"))
COLUMNS, ROWS = (200, 20_000) if FULL else (12, 4_000)


def column(seed: int, rows: int, moved: float) -> Any:
    """Values of one of six shapes, moved by a share; some are missing."""
    draw = np.random.default_rng([seed, int(moved * 1_000)])
    shapes: list[Callable[[], Any]] = [
        lambda: draw.normal(moved * 3, 1, rows),
        lambda: np.exp(draw.normal(moved, 2, rows)),
        lambda: draw.poisson(0.4 + moved, rows).astype(float),  # most are 0
        lambda: 0.3 + (draw.random(rows) + moved) * 1e-9,
        lambda: np.where(draw.random(rows) < 0.5, 7.0, draw.standard_cauchy(rows) * (1 + moved)),
        lambda: draw.integers(0, 3, rows) * (1.0 + round(moved)),
    ]
    values = shapes[seed % 6]()
    missing = draw.random(rows) < (0.0, 0.02, 0.3)[seed % 3] * (1 + moved)
    return [None if gone else float(value) for value, gone in zip(values, missing, strict=True)]


def frame_of(spark: Any, data: dict[str, Any], place: Path) -> Any:
    pq.write_table(pa.table(data), place)
    return spark.read.parquet(str(place)).repartition(3)


def psi_of_numpy(before: list[Any], now: list[Any], edges: tuple[float, ...]) -> float:
    """The PSI over the same edges and one more cell for missing values, from the values."""
    shares = []
    for values in (before, now):
        known = np.array([v for v in values if v is not None], dtype=float)
        bins = np.histogram(known, bins=np.unique([-np.inf, *(np.nextafter(e, np.inf) for e in edges), np.inf]))[0]
        shares.append(np.append(bins, len(values) - len(known)).astype(float))
    kept = shares[0] + shares[1] > 0
    p, q = (np.where(s == 0, 0.5, s)[kept] / s.sum() for s in shares)
    return float(np.sum((q - p) * np.log(q / p)))


def test_distances_are_those_of_numpy(spark: Any, tmp_path: Path) -> None:
    moves = np.random.default_rng(5).choice([0.0, 0.1, 0.8], COLUMNS)
    before = {f"c{n}": column(n, ROWS, 0.0) for n in range(COLUMNS)}
    now = {f"c{n}": column(n, ROWS // 3, float(moves[n])) for n in range(COLUMNS)}
    made = profiles_of(frame_of(spark, before, tmp_path / "before.parquet"), before)
    profiles = from_document(json.loads(json.dumps(as_document(made))))
    cells = {name: profile.cells for name, profile in profiles.items()}
    (found,) = counted(frame_of(spark, now, tmp_path / "now.parquet"), cells, by=()).values()
    for name, profile in profiles.items():
        known = np.array([v for v in before[name] if v is not None])
        assert (profile.rows, profile.missing) == (ROWS, ROWS - len(known))
        assert (profile.cells.least, profile.cells.greatest) == (known.min(), known.max())
        cumulative = np.cumsum(profile.counts)[:-1]
        assert cumulative.tolist() == [int((known <= edge).sum()) for edge in profile.cells.edges]
        told = drift_of(name, profile, found[name])
        assert told.psi == pytest.approx(psi_of_numpy(before[name], now[name], profile.cells.edges), abs=0.005)
        live = np.array([v for v in now[name] if v is not None])
        outside = ((live < known.min()) | (live > known.max())).mean()
        assert told.new == pytest.approx(float(outside), abs=1e-12)
        exact = max(abs((known <= edge).mean() - (live <= edge).mean()) for edge in profile.cells.edges)
        assert told.ks == pytest.approx(exact, abs=1e-12)


def test_texts_lists_and_truth_values(spark: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    cities = [f"city{int(n)}" for n in draw.zipf(1.4, 3_000) if n < 10**6]
    data = {
        "city": [None if n % 50 == 0 else city for n, city in enumerate(cities)],
        "member": [n % 3 == 0 for n in range(len(cities))],
        "tags": [["x"] * (n % 4) for n in range(len(cities))],
        "since": [pd.Timestamp("2026-03-01", tz="UTC")] * len(cities),
        "nothing": pa.array([None] * len(cities), pa.float64()),
        "version": ["12"[n // 4 % 2] for n in range(len(cities))],
    }
    frame = frame_of(spark, data, tmp_path / "data.parquet")
    profiles = profiles_of(frame, ["city", "member", "tags", "since", "nothing"])
    assert list(profiles) == ["city", "member", "tags", "nothing"]
    oracle = duckdb.connect()
    oracle.register("cities", pa.table({"city": data["city"]}))
    frequent = oracle.sql(
        "SELECT city, count(*) AS n FROM cities WHERE city IS NOT NULL GROUP BY city ORDER BY n DESC, city LIMIT 50"
    ).fetchall()
    city = profiles["city"]
    assert list(zip(city.cells.texts, city.counts, strict=False)) == frequent
    assert city.counts[-1] == city.new == sum(c is not None for c in data["city"]) - sum(n for _, n in frequent)
    assert dict(zip(profiles["member"].cells.texts, profiles["member"].counts, strict=False)) == {
        "true": sum(data["member"]),
        "false": len(cities) - sum(data["member"]),
    }
    assert (profiles["tags"].cells.least, profiles["tags"].cells.greatest) == (0.0, 3.0)
    assert profiles["nothing"] == ColumnProfile(Cells("number"), (0,), len(cities))
    groups = counted(frame, {name: p.cells for name, p in profiles.items()}, by=("version",))
    assert set(groups) == {("1",), ("2",)}
    for name, profile in profiles.items():
        parts = [group[name] for group in groups.values()]
        assert [sum(c) for c in zip(*(p.counts for p in parts), strict=True)] == list(profile.counts)
        assert drift_of(name, profile, profile).psi == 0.0
        assert not drift_of(name, profile, parts[0]).flagged
    lost = ColumnProfile(city.cells, (0,) * city.cells.number, 500)
    assert drift_of("city", city, lost).flagged  # a feature that is missing everywhere has moved
    told = drift_of("nothing", profiles["nothing"], ColumnProfile(Cells("number"), (400,), 0, new=400))
    assert told.new == 1.0
    assert told.flagged
    assert told.ks is None
    assert told.psi is not None
    assert math.isfinite(told.psi)
