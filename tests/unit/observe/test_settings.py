"""However a topic is found: what is asked of it can be, and is not asked again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from leftfold.observe.settings import in_sync_for, reachable
from tests import clusters


def test_one_broker_may_be_down() -> None:
    assert [in_sync_for(copies) for copies in (1, 2, 3, 4)] == [1, 1, 2, 3]


@given(st.integers(1, 7), st.integers(1, 7), st.none() | st.integers(1, 7))
def test_what_is_in_sync_can_be_and_stays(wanted: int, copies: int, in_force: int | None) -> None:
    configs = {} if in_force is None else {"min.insync.replicas": str(in_force)}
    found = clusters.seen_topic("clicks", 1, copies, configs)
    chosen = reachable(wanted, found)
    assert chosen <= wanted
    assert chosen <= max(1, copies - 1) or (chosen == in_force and chosen <= copies)
    assert reachable(wanted, replace(found, configs={"min.insync.replicas": str(chosen)})) == chosen
