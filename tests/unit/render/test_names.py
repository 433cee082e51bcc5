"""Names that Kubernetes takes: valid, different, and never dependent on other names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.render.names import label_name, resource_name

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
TOPIC = st.text(alphabet="abzAZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize("name", ["clicks", "prod.clicks.late", "a-b", "0", "a" * 249])
def test_a_name_that_will_do_is_kept(name: str) -> None:
    assert resource_name(name) == name


@pytest.mark.parametrize(
    ("real", "near"),
    [("user_activity.changelog", "user-activity.changelog"), ("Clicks", "clicks"), ("a..b", "a.b"), ("__", "x")],
)
def test_the_nearest_name_and_a_hash_of_the_real_one(real: str, near: str) -> None:
    assert re.fullmatch(rf"{re.escape(near)}-[0-9a-f]{{8}}", resource_name(real))


@given(TOPIC)
def test_every_topic_has_a_valid_name(name: str) -> None:
    made = resource_name(name)
    assert len(made) <= 253
    assert re.fullmatch(rf"{LABEL}(\.{LABEL})*", made)


@given(st.lists(TOPIC, unique=True, min_size=2, max_size=8))
def test_no_two_topics_share_one(names: list[str]) -> None:
    assert len({resource_name(name) for name in names}) == len(names)


def test_neighbours_that_differ_only_where_kubernetes_does_not() -> None:
    names = ["a_b", "a-b", "A-b", "a.b", "a__b", "a_B"]
    assert len({resource_name(name) for name in names}) == len(names)


@given(st.text(alphabet="abzAZ019_-", min_size=1, max_size=80))
def test_every_label_is_valid_and_leaves_room_for_what_kubernetes_adds(name: str) -> None:
    assert re.fullmatch(LABEL, label_name(name))
    assert len(label_name(name)) <= 52


def test_a_view_is_known_by_its_label() -> None:
    assert label_name("shop-user_activity") == "shop-user-activity"
