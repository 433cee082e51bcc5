"""Views of 600,000 and of 10,000,000 records/s: how many cores, partitions and stores, with the arithmetic shown.

`LEFTFOLD_GOLDEN=write pytest tests/unit/sizing/test_large_views.py` writes tests/golden/sizing_large.txt; read the
diff. The constants are the defaults, which nobody has measured on such machines.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold.declare.catalog import DeclaredView
from leftfold.fold.definition import Definition
from leftfold.sizing.constants import Constants
from leftfold.sizing.line import Advice, table
from leftfold.sizing.load import Load
from leftfold.sizing.log_size import partitions
from leftfold.sizing.view_size import Sized, size_view

GOLDEN = Path(__file__).parents[2] / "golden" / "sizing_large.txt"
WRITE = os.environ.get("LEFTFOLD_GOLDEN") == "write"


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    pieces: int
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at, lateness="10m")


def eight(window: str) -> dict[str, Any]:
    return {
        f"n_{window}": lf.count(window),
        f"spend_{window}": lf.sum(Click.price, window),
        f"mean_{window}": lf.mean(Click.pieces, window),
        f"least_{window}": lf.min(Click.price, window),
        f"most_{window}": lf.max(Click.pieces, window),
        f"last_{window}": lf.last(Click.item_id, window),
        f"recent_{window}": lf.last_n(Click.item_id, window, n=10),
        f"different_{window}": lf.distinct(Click.item_id, window),
    }


Users: Any = type("Users", (lf.Features,), {**eight("1h"), **eight("24h"), **eight("7d")}, of=clicks, by=Click.user_id)
LARGE = Load(rate=600_000, record_bytes=200, keys=100_000_000, declared_rate=600_000)
HUGE = Load(rate=10_000_000, record_bytes=200, keys=1_000_000_000, declared_rate=10_000_000)


def sized(load: Load, cores: int | None = None) -> Sized:
    definition = DeclaredView.of(Users).definition
    assert isinstance(definition, Definition)
    assert [step / 1e6 for step in definition.steps] == [300, 3_600]
    return size_view(definition, load, Constants(), cores=cores)


def codes(load: Load) -> list[str]:
    return [advice.code for advice in sized(load).advice]


def advised(load: Load, code: str) -> Advice:
    (advice,) = (advice for advice in sized(load).advice if advice.code == code)
    return advice


def test_golden() -> None:
    parts = {
        "600,000 records/s, 100 million entities": sized(LARGE),
        "10,000,000 records/s, a billion entities": sized(HUGE),
    }
    text = "\n\n".join(
        f"# {heading}\n{table(part.lines)}\n" + "\n".join(str(advice) for advice in part.advice)
        for heading, part in parts.items()
    )
    if WRITE:
        GOLDEN.write_text(f"{text}\n")
    assert f"{text}\n" == GOLDEN.read_text()


def test_batches_grow_before_cores_do() -> None:
    assert sized(LARGE).result("Spark cores") <= 150
    assert sized(LARGE).result("records of a full batch") == 4 * 600_000
    assert sized(LARGE).result("offsets of a partition in it") == 4 * 600_000 / partitions(LARGE)


@pytest.mark.parametrize("keys", [None, 10**6, 10**7, 10**8, 10**9])
def test_no_number_of_entities_needs_more_cores_than_these(keys: int | None) -> None:
    assert sized(replace(LARGE, keys=keys)).result("Spark cores") <= 150


def test_batches_of_partitions_alone_took_many_more() -> None:
    """What a run does if nobody declares the rate: the sizing says so, and what it costs."""
    small = advised(replace(LARGE, declared_rate=None), "batch-small")
    assert "1,200,000 records (no rate is declared)" in small.what
    assert small.fix == 'declare rate="600k/s" for what the view reads'
    assert "153 cores instead of 131" in small.why
    lower = advised(replace(LARGE, declared_rate=20_000), "batch-small")
    assert "(20,000 records/s are declared)" in lower.what
    assert "batch-small" not in codes(LARGE)
    assert "batch-small" not in codes(replace(LARGE, declared_rate=700_000))


def test_a_profile_that_limits_batches_is_told() -> None:
    limited = advised(replace(LARGE, most_offsets=25_000), "batch-small")
    assert "600,000 records (most_offsets = 25000 of the profile)" in limited.what
    assert "459 cores instead of 131" in limited.why
    assert limited.fix == "remove most_offsets from the profile, or set it to 100000"
    assert advised(replace(LARGE, most_offsets=10_000), "view-falls-behind").fix == limited.fix


def test_ten_million_has_a_number_and_says_what_else_is_in_the_way() -> None:
    huge = sized(HUGE)
    assert 2_000 < huge.result("Spark cores") < 2_500
    assert partitions(HUGE) == 400
    assert huge.result("Redis, for writes") == 198
    assert codes(HUGE) == ["view-large", "store-busy", "store-large"]
    assert "198 of them" in advised(HUGE, "store-busy").what


def test_memory_for_entities() -> None:
    for load in (LARGE, HUGE):
        view = sized(load)
        each = view.result("online bytes per entity")
        assert load.keys is not None
        assert view.result("online bytes, at most") == load.keys * each
        assert view.result("Redis, for memory") == -(-load.keys * each // 64e9)
    few = replace(LARGE, keys=1_000_000)
    assert "store-large" not in codes(few)
    assert "store-large" in codes(replace(few, keys=int(1.01e12 / sized(few).result("online bytes per entity"))))
