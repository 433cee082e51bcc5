"""Rows of a frame, scored from whole columns: the same values and answers as a request gets, to the last bit."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import leftfold as lf
from leftfold import loading
from leftfold.declare.rows import Read
from leftfold.declare.vector_rows import Rows
from leftfold.errors import LeftfoldError
from leftfold.fold.expressions import from_micros, to_micros
from leftfold.infer.frames import FrameRows, FrameScorer, frame_scorer, model_files
from leftfold.infer.loaders import Loaded
from leftfold.infer.scoring import Scoring


class Visit(lf.Event):
    user_id: str
    page: str
    price: float
    items: int
    member: bool
    at: datetime


visits = lf.Topic("visits", Visit, key=Visit.user_id, time=Visit.at)


class Visits(lf.Features, of=visits, by=Visit.user_id):
    visits_1h = lf.count("1h")
    items_1h = lf.sum(Visit.items, "1h")
    spent_1h = lf.sum(Visit.price, "1h")
    page_1h = lf.last(Visit.page, "1h")
    seen_1h = lf.last(Visit.at, "1h")
    pages = lf.last_n(Visit.page, "1h", n=3)
    prices = lf.last_n(Visit.price, "1h", n=3)
    member_1h = lf.last(Visit.member, "1h")


class EveryKind(lf.Vector):
    visits_1h = Visits.visits_1h
    items_1h = Visits.items_1h
    spent_1h = Visits.spent_1h
    page_1h = Visits.page_1h
    seen_1h = Visits.seen_1h
    pages = Visits.pages
    prices = Visits.prices
    member_1h = Visits.member_1h
    cart = lf.request(float)


NUMBERS = ("visits_1h", "items_1h", "spent_1h", "member_1h", "cart")
TYPES = {
    "visits_1h": pa.int64(),
    "items_1h": pa.int64(),
    "spent_1h": pa.float64(),
    "page_1h": pa.string(),
    "seen_1h": pa.timestamp("us", "UTC"),
    "pages": pa.list_(pa.string()),
    "prices": pa.list_(pa.float64()),
    "member_1h": pa.bool_(),
    "cart": pa.float64(),
}


def rows_of(count: int, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        {
            "visits_1h": chance.randrange(10),
            "items_1h": maybe(chance.choice([chance.getrandbits(63), -chance.getrandbits(54), 3])),
            "spent_1h": maybe(chance.choice([0.1 + 0.2, -0.0, 1e-320, 1e300, chance.random()])),
            "page_1h": maybe(chance.choice(["", "ä", "/home"])),
            "seen_1h": maybe(from_micros(chance.getrandbits(50))),
            "pages": [maybe("p") for _ in range(chance.randrange(4))],
            "prices": [chance.random() for _ in range(chance.randrange(4))],
            "member_1h": maybe(chance.random() < 0.5),
            "cart": chance.random() * 100,
        }
        for _ in range(count)
    ]


def columns_of(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: pa.array([row[name] for row in values], kind) for name, kind in TYPES.items()}


def pair(values: Sequence[dict[str, Any]]) -> tuple[Rows[EveryKind], Rows[EveryKind]]:
    """The same rows, from columns and as they are read for a request."""
    moments = [1_700_000_000_000_000 + 1_000_001 * n for n in range(len(values))]
    reads = [Read(row, from_micros(at), ()) for row, at in zip(values, moments, strict=True)]
    return FrameRows(EveryKind, columns_of(values), pa.array(moments, pa.int64())), Rows(EveryKind, reads)


def same(mine: Any, theirs: Any) -> bool:
    """Equal in type and in every bit."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, float):
        return math.copysign(1, mine) == math.copysign(1, theirs) and mine == theirs
    if isinstance(mine, datetime):
        return mine == theirs and mine.tzinfo is theirs.tzinfo is UTC
    return bool(mine == theirs)


def test_values_are_those_of_a_request() -> None:
    mine, theirs = pair(rows_of(500, 1))
    assert len(mine) == len(theirs) == 500
    for one, other in zip(mine, theirs, strict=True):
        assert (one.found, one.read_at) == (other.found, other.read_at)
        assert all(same(one.values[name], other.values[name]) for name in TYPES), (one, other)
    assert all(same(mine.column(name), theirs.column(name)) for name in TYPES)
    assert same(mine[3].values, theirs[3].values)
    assert [row.visits_1h for row in mine[5:9]] == [row.visits_1h for row in theirs[5:9]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_matrix_has_the_same_bits(dtype: str) -> None:
    mine, theirs = (rows.matrix(dtype, columns=NUMBERS) for rows in pair(rows_of(2_000, 2)))
    assert mine.dtype == theirs.dtype
    assert np.array_equal(np.isnan(mine), np.isnan(theirs))
    assert mine[~np.isnan(mine)].tobytes() == theirs[~np.isnan(theirs)].tobytes()


def test_a_matrix_of_whole_numbers() -> None:
    mine, theirs = pair(rows_of(50, 3))
    assert np.array_equal(mine.matrix("int64", columns=["visits_1h"]), theirs.matrix("int64", columns=["visits_1h"]))
    for rows in (mine, theirs):
        with pytest.raises(TypeError):
            rows.matrix("int64", columns=["items_1h"])  # some are missing
        with pytest.raises(LeftfoldError, match="no number page_1h"):
            rows.matrix()


def test_a_data_frame_is_the_same() -> None:
    from pandas.testing import assert_frame_equal

    some, complete = rows_of(300, 4), [row for row in rows_of(300, 5) if None not in row.values()]
    for values in (some, complete):
        mine, theirs = pair(values)
        assert_frame_equal(mine.frame(), theirs.frame(), check_exact=True)


STREAMS = """\
from datetime import datetime

import leftfold as lf
from helper import rate


class Click(lf.Event):
    user_id: str
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)


class Clicks(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")


class ClickInput(lf.Vector):
    clicks_1h = Clicks.clicks_1h


class ClickScore(lf.Prediction, of=ClickInput):
    score: float
    until: datetime
    tags: list[str] = []


scores = lf.Predictions("scores", ClickScore)
loads = []


def load(path):
    loads.append(path)
    with open(path) as file:
        return float(file.read())


@lf.scorer(ClickInput, to=scores, model=lf.ModelFile("model.txt", load))
def ranker(model, rows):
    return {
        "score": [rate(model, row.clicks_1h) for row in rows],
        "until": [row.read_at for row in rows],
        "tags": [["a"] * row.clicks_1h for row in rows],
    }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "streams.py").write_text(STREAMS)
    (tmp_path / "helper.py").write_text("def rate(model, clicks):\n    return model * clicks\n")
    (tmp_path / "model.txt").write_text("0.5")
    return tmp_path


def declared(root: Path) -> Any:
    return next(one for one in loading.load(root, ["streams.py"]) if isinstance(one, lf.Scorer))


def score(asked: FrameScorer, root: Path) -> dict[str, list[Any]]:
    return asked(str(root), {"clicks_1h": pa.array([1, 2])}, pa.array([10, 20]))


def test_a_scorer_that_was_sent_scores(project: Path) -> None:
    asked = frame_scorer(declared(project), project, ["streams.py"])
    sent: FrameScorer = pickle.loads(pickle.dumps(asked))
    assert score(sent, project) == {"score": [0.5, 1.0], "until": [10, 20], "tags": [["a"], ["a", "a"]]}
    (one,) = Scoring(declared(project), project)._call(
        Loaded(0.5, "ranker", asked.version), [Read({"clicks_1h": 2}, from_micros(20), ())]
    )
    assert (one["score"], to_micros(one["until"]), one["tags"]) == (1.0, 20, ["a", "a"])
    score(sent, project)
    import streams  # type: ignore[import-not-found] # it is a file of this test

    assert len(streams.loads) == 2, "by the driver, and once by the process that scores"


def test_another_model_is_refused(project: Path) -> None:
    asked = frame_scorer(declared(project), project, ["streams.py"])
    (project / "model.txt").write_text("0.6")
    with pytest.raises(LeftfoldError) as refused:
        score(asked, project)
    assert refused.value.code == "model-version-differs"
    again = frame_scorer(declared(project), project, ["streams.py"])
    assert score(again, project)["score"] == [0.6, 1.2]
    assert again.version != asked.version


def test_answers_are_checked(project: Path) -> None:
    (project / "helper.py").write_text("def rate(model, clicks):\n    return float('nan') if clicks == 2 else 0.5\n")
    asked = frame_scorer(declared(project), project, ["streams.py"])
    with pytest.raises(ValueError, match="ranker answered score=nan"):
        score(asked, project)


def test_what_executors_need(project: Path) -> None:
    scorer = declared(project)
    sent = [*loading.sources(project, ["streams.py"]), *model_files(scorer, project)]
    assert {path.name for path in sent} == {"streams.py", "helper.py", "model.txt"}
