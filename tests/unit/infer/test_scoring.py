"""One path from rows to predictions: answers, fallbacks, shadows, canaries, and models that are swapped."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import leftfold as lf
from leftfold.errors import LeftfoldError, StoreError
from leftfold.infer.requests import RequestScoring
from leftfold.infer.scoring import Scoring, ToScore, new_id
from tests.unit.infer.ranker import NOON, RankerInput, RankerScore, half, read, scores


def asked(user: str = "u1", number: int = 0) -> ToScore:
    return ToScore({"user_id": user, "cart_value": 9.0}, f"id{number}")


def scoring(
    root: Path, function: Any = half, *, model: Any = lambda: lf.Model("m", version="1"), **options: Any
) -> Any:
    declared = lf.scorer(RankerInput, to=scores, model=model, name="ranker", **options)(function)
    return Scoring(declared, root)


def test_a_prediction_holds_what_it_rests_on(tmp_path: Path) -> None:
    (answer,) = scoring(tmp_path).score([asked()], [read()])
    assert isinstance(answer, RankerScore)
    assert RankerScore.model_validate(answer.__dict__) == answer, "it is a valid event, though made without a check"
    assert (answer.score, answer.version, answer.role, answer.outcome) == (0.5, "1", "live", "scored")
    assert (answer.user_id, answer.cart_value, answer.clicks_1h) == ("u1", 9.0, 3)  # type: ignore[attr-defined]
    row = answer.inputs(RankerInput)
    assert (row.clicks_1h, row.read_at, row.found) == (3, NOON, True)
    assert row.provenance == read().provenance


def test_answers_are_checked_by_the_declared_field(tmp_path: Path) -> None:
    one = scoring(tmp_path, lambda model, rows: [0.5 if not row.provenance else 1.5 for row in rows])
    with pytest.raises(ValueError, match=r"score=1\.5: input should be less than or equal to 1"):
        one.score([asked()], [read()])


@pytest.mark.parametrize("form", ["list", "array", "columns"])
def test_forms_of_answers(tmp_path: Path, form: str) -> None:
    import numpy as np

    def function(model: Any, rows: lf.Rows[RankerInput]) -> Any:
        values = rows.matrix("float32")[:, 0] / 10
        return {"list": values.tolist(), "array": values, "columns": {"score": values}}[form]

    answers = scoring(tmp_path, function).score([asked(number=n) for n in range(3)], [read(n) for n in range(3)])
    assert [one.score for one in answers] == pytest.approx([0.0, 0.1, 0.2])
    assert np.isnan(lf.Rows(RankerInput, [read(None)]).matrix()[0, 0]), "a missing number is NaN"


def test_missing_rows(tmp_path: Path) -> None:
    assert scoring(tmp_path).score([asked()], [read(found=False)])[0].outcome == "scored"
    given = scoring(tmp_path, missing="fallback", fallback=lambda row: 0.25)
    (one,) = given.score([asked()], [read(found=False)])
    assert (one.score, one.outcome) == (0.25, "fallback")
    with pytest.raises(LeftfoldError, match="refuses user_id='u1'"):
        scoring(tmp_path, missing="refuse").score([asked()], [read(found=False)])


def test_shadows_are_logged_and_never_answered(tmp_path: Path) -> None:
    def by_model(model: float, rows: lf.Rows[RankerInput]) -> Sequence[float]:
        return [model] * len(rows)

    one = scoring(
        tmp_path,
        by_model,
        model=lambda: lf.Model(0.1, version="1"),
        shadow=[lambda: lf.Model(0.2, version="2"), lambda: lf.Model(0.3, version="3")],
    )
    both = [asked(number=0), asked(number=1)], [read(), read()]
    live, (first, second) = one.score(*both), one.shadow(*both)
    assert [(p.score, p.role, p.version) for p in [live[0], *first]] == [
        (0.1, "live", "1"),
        (0.2, "shadow", "2"),
        (0.3, "shadow", "3"),
    ]
    assert [p.prediction_id for p in [live[1], *second]] == ["id1", "id1/2", "id1/3"]
    assert {p.request_id for p in [live[1], *second]} == {"id1"}


def test_a_shadow_that_fails_or_is_slow_harms_no_answer(tmp_path: Path) -> None:
    released = threading.Event()

    def function(model: str, rows: lf.Rows[RankerInput]) -> Sequence[float]:
        if rows[0].provenance and model == "slow":
            released.wait(30)
        if rows[0].provenance and model == "wrong":
            raise ZeroDivisionError("no clicks")
        return [0.5] * len(rows)

    shadow = [lambda: lf.Model("wrong", version="2"), lambda: lf.Model("slow", version="3")]
    one = scoring(tmp_path, function, shadow=shadow, deadline="5s", fallback=0.02)
    answering, log = requests(one, lambda *_: [read()])
    (answer,) = answering.score([{"user_id": "u1", "cart_value": 1.0}])
    assert (answer.score, answer.outcome) == (0.5, "scored")  # type: ignore[attr-defined]
    assert log.logged == [answer], "it does not wait for shadows"
    released.set()
    assert answering.close() == 0
    assert [(p.role, p.version) for p in log.logged] == [("live", "1"), ("shadow", "3")]
    assert one.failed_shadows == 1


def test_a_canary_answers_for_its_share_of_the_keys(tmp_path: Path) -> None:
    canary = lf.Canary(lambda: lf.Model(0.9, version="2"), share=0.05)
    one = scoring(tmp_path, lambda m, rows: [m] * len(rows), model=lambda: lf.Model(0.1, version="1"), canary=canary)
    users = [f"user-{n}" for n in range(100_000)]
    chosen = [one.is_canary({"user_id": user}) for user in users]
    assert abs(sum(chosen) / len(users) - 0.05) < 0.002
    by_user: dict[str, set[str]] = {}
    roles: Counter[str] = Counter()
    for order in (users, users[::-1]):  # twice, in other batches
        for begin in range(0, len(order), 1_000):
            some = order[begin : begin + 1_000]
            for user, answer in zip(some, one.score([asked(u) for u in some], [read()] * len(some)), strict=True):
                by_user.setdefault(user, set()).add(answer.version)
                roles[answer.role] += 1
                assert (answer.role, answer.score) == (("canary", 0.9) if answer.version == "2" else ("live", 0.1))
    assert all(len(versions) == 1 for versions in by_user.values()), "each key has one model"
    assert roles["canary"] == 2 * sum(chosen)


def test_a_model_file_is_swapped_between_batches(tmp_path: Path) -> None:
    """100 swaps under load: no answer fails, and each has the version of the model that gave it."""
    path = tmp_path / "model.txt"
    path.write_text("0.000")
    one = scoring(
        tmp_path,
        lambda model, rows: [model] * len(rows),
        model=lf.ModelFile("model.txt", lambda file: float(Path(file).read_text())),
    )
    one.models.load()
    answers: list[RankerScore] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.extend(one.score([asked()] * 8, [read()] * 8))
            except BaseException as error:  # noqa: BLE001 # anything is a finding
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 101):
        temporary = tmp_path / "new"
        temporary.write_text(f"{number / 1_000:.3f}")
        temporary.replace(path)
        assert one.models.look()
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert one.models.swaps == 100
    by_version: dict[str, set[float]] = {}
    for answer in answers:
        by_version.setdefault(answer.version, set()).add(answer.score)
    assert all(len(values) == 1 for values in by_version.values())
    assert all(version.startswith("sha256-") for version in by_version)


def test_a_model_that_does_not_fit_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("0.5")
    one = scoring(
        tmp_path,
        lambda model, rows: [model] * len(rows),
        model=lf.ModelFile("model.txt", lambda file: float(Path(file).read_text())),
    )
    one.models.load()
    path.write_text("7.5")  # beyond what the prediction allows
    assert not one.models.look()
    assert one.models.problem is not None
    assert one.models.problem.code == "model-not-loaded"
    assert one.score([asked()], [read()])[0].score == 0.5


class Log:
    """What was logged."""

    def __init__(self) -> None:
        self.logged: list[Any] = []

    def write(self, predictions: list[Any], *, wait: bool) -> None:
        self.logged += predictions

    def close(self) -> int:
        return 0


def requests(one: Scoring, rows: Any) -> tuple[RequestScoring, Log]:
    log = Log()
    reader: Any = type("Reader", (), {"read": staticmethod(rows)})()
    return RequestScoring(one, reader, log), log  # type: ignore[arg-type]


def test_beyond_its_deadline_a_request_gets_the_fallback(tmp_path: Path) -> None:
    released = threading.Event()

    def slow(model: Any, rows: lf.Rows[RankerInput]) -> Sequence[float]:
        if rows[0].provenance:  # not the row with which a model is tried at its start
            released.wait(30)
        return [0.5] * len(rows)

    answering, log = requests(scoring(tmp_path, slow, deadline="50ms", fallback=0.02), lambda *_: [read()])
    (answer,) = answering.score([{"user_id": "u1", "cart_value": 1.0}])
    released.set()
    assert isinstance(answer, RankerScore)
    assert (answer.score, answer.outcome, answer.reason) == (0.02, "fallback", "not scored within 0.05 s")
    assert log.logged == [answer]


def test_a_store_that_is_away_gets_the_fallback(tmp_path: Path) -> None:
    def away(*_: Any) -> Any:
        raise StoreError("store-unreachable", "no Redis answered", why="refused", fix="start it", retriable=True)

    answering, _ = requests(scoring(tmp_path, fallback=0.02), away)
    (answer,) = answering.score([{"user_id": "u1", "cart_value": 1.0}])
    assert (answer.outcome, answer.reason) == ("fallback", "features: no Redis answered")
    without, _ = requests(scoring(tmp_path), away)
    with pytest.raises(StoreError):
        without.score([{"user_id": "u1", "cart_value": 1.0}])


def test_ids_of_requests_are_in_the_order_of_time() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert all(one[14] == "7" and one[19] in "89ab" for one in ids)
    assert sorted(ids, key=lambda one: one[:13]) == ids
