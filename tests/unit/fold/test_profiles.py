"""Profiles: their cells, their form in a manifest, and the drift between two of them."""

from __future__ import annotations

import json

import pytest

from leftfold.fold.profiles import MISSING, Cells, ColumnProfile, as_document, drift_of, edges_of, from_document

NUMBERS = Cells("number", (1.0, 2.0), 0.0, 9.0)
TEXTS = Cells("text", texts=("a", "b"))


def test_a_profile_survives_its_manifest() -> None:
    profiles = {
        "n": ColumnProfile(NUMBERS, (5, 3, 2), 1),
        "t": ColumnProfile(TEXTS, (4, 3, 2), 0, new=2),
        "l": ColumnProfile(Cells("length", (), 0.0, 0.0), (7,), 2),
        "nothing": ColumnProfile(Cells("number"), (0,), 9),
        "infinite": ColumnProfile(Cells("number", (float("-inf"), 0.0), float("-inf"), float("inf")), (1, 2, 3), 0),
    }
    assert from_document(json.loads(json.dumps(as_document(profiles)))) == profiles


def test_a_profile_of_counts_by_cell() -> None:
    assert ColumnProfile.of(NUMBERS, {0: 4, 2: 1, MISSING: 7}, new=1) == ColumnProfile(NUMBERS, (4, 0, 1), 7, 1)
    assert ColumnProfile.of(TEXTS, {}, new=0).rows == 0


def test_a_value_that_many_rows_have_is_one_edge() -> None:
    assert edges_of([0.0, 0.0, -0.0, 1.0]) == (0.0, 1.0)


def test_the_drift_of_equal_shares_is_zero() -> None:
    found = drift_of(
        "n", ColumnProfile(NUMBERS, (50, 30, 20), 10), ColumnProfile(NUMBERS, (500, 300, 200), 100, new=40)
    )
    assert found.psi == pytest.approx(0)
    assert found.ks == pytest.approx(0)
    assert not found.flagged
    assert (found.missing_before, found.missing, found.new) == (1 / 11, 1 / 11, 0.04)
    assert found.psi_noise == pytest.approx(3 * (1 / 110 + 1 / 1_100))  # four cells: missing is one
    assert found.ks_noise == pytest.approx(1.36 * (1 / 100 + 1 / 1_000) ** 0.5)


def test_a_column_that_is_lost_is_flagged() -> None:
    found = drift_of("n", ColumnProfile(NUMBERS, (50, 30, 20), 0), ColumnProfile(NUMBERS, (0, 0, 0), 200))
    assert found.flagged
    assert (found.ks, found.new, found.missing) == (None, None, 1.0)


def test_texts_have_no_order() -> None:
    found = drift_of("t", ColumnProfile(TEXTS, (40, 30, 20), 0, new=20), ColumnProfile(TEXTS, (4, 3, 93), 0, new=93))
    assert (found.ks, found.ks_noise) == (None, None)
    assert (found.new_before, found.new) == (20 / 90, 0.93)
    assert found.flagged
