"""What of a probe needs no engine: which batches it asks for, and how long each took."""

from __future__ import annotations

from leftfold.declare.companions import companions_of
from leftfold.run import probed
from leftfold.run.probe import PHASES, WARM_UP, between
from leftfold.sizing.constants import Constants
from leftfold.sizing.fit import Timed
from leftfold.sizing.pace import Shape, is_small


def test_a_batch_lasts_until_the_next_begins_and_the_last_one_is_not_known() -> None:
    begun = [(10.0, 0, 0), (12.0, 300, 40), (13.5, 900, 45)]
    assert list(between(begun)) == [Timed(300, 40, 2.0), Timed(600, 5, 1.5)]
    assert list(between(begun[:1])) == []


def test_phases_lie_on_both_sides_of_what_the_driver_writes() -> None:
    shape = Shape((300.0, 3_600.0), None, 6)
    small = {phase.name: is_small(shape, phase.size, Constants()) for phase in (WARM_UP, *PHASES)}
    assert small == {"warm-up": False, "tiles": False, "records": False, "large": False, "small": True}


def test_the_phase_of_tiles_shares_none_and_that_of_records_shares_nearly_all() -> None:
    by_name = {phase.name: phase for phase in PHASES}
    assert by_name["tiles"].keys >= by_name["tiles"].records
    assert by_name["records"].keys < by_name["records"].size / 100


def test_what_it_declares_is_a_project_of_its_own() -> None:
    catalog = probed.catalog()
    assert set(catalog.topics) == {probed.TOPIC, probed.BYTES}
    assert set(catalog.views) == {probed.VIEW}
    assert len(list(companions_of(catalog))) == 2 + 2 * 3
    assert probed.catalog().view(probed.VIEW).fingerprint == catalog.view(probed.VIEW).fingerprint
