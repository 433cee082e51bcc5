"""The slots of a Redis Cluster: the library's rule, the protocol's rule of tags, and an even share for each server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from leftfold.store.buckets import bucket_of
from leftfold.store.engine import BuildPlace, StorePosition
from leftfold.store.redis.cluster.buckets import BUCKETS, SLOTS, control_tag, slot_of, tags
from leftfold.store.redis.cluster.nodes import ClusterUrl
from leftfold.store.redis.cluster.routes import NodeAddress
from leftfold.store.redis.names import names_of, row_key


@given(st.text(alphabet="lf:{}a7é", max_size=20))
def test_a_slot_is_that_of_the_library(key: str) -> None:
    assert slot_of(key) == key_slot(key.encode())


def test_all_keys_of_a_bucket_are_in_one_slot_whatever_the_entity_is() -> None:
    at = BuildPlace("prod", "clicks", "b-1")
    for bucket in (0, 17, 255):
        names = names_of(at, tags()[bucket])
        keys = [names.mark("b-1"), names.calls("b-1"), row_key(at, "{x}", tags()[bucket]), row_key(at, "}", names.tag)]
        assert {slot_of(key) for key in keys} == {slot_of(f"{{{tags()[bucket]}}}")}
    assert row_key(at, "e", tags()[0]) == f"lf:{{{tags()[0]}}}:prod:row:clicks:b-1:e"
    assert names_of(at, control_tag("prod")).active == "lf:{control:prod}:prod:active:clicks"
    assert names_of(at).active == "lf:prod:active:clicks"


@pytest.mark.parametrize("servers", [1, 2, 3, 5, 12, 50, 80])
def test_each_server_has_its_share_of_the_buckets(servers: int) -> None:
    """As `redis-cli --cluster create` divides the slots: into ranges of one length."""
    shares = [0] * servers
    for tag in tags():
        shares[slot_of(tag) * servers // SLOTS] += 1
    assert sum(shares) == BUCKETS
    assert max(shares) - min(shares) <= 2


def test_the_tags_that_the_page_of_the_protocol_names() -> None:
    """Another rule would place every row elsewhere."""
    assert (tags()[0], tags()[1], tags()[255]) == ("460", "14", "430")
    page = (Path(__file__).parents[3] / "docs" / "reference" / "protocol.md").read_text()
    assert "bucket 0 has the tag `460`, bucket 1 `14`,\nbucket 255 `430`" in page


def test_a_bucket_of_an_entity() -> None:
    assert [bucket_of(entity, BUCKETS) for entity in ("", "u1", "é")] == [0, 118, 62]
    assert bucket_of("u1", 1) == 0


@pytest.mark.parametrize(
    ("url", "seeds", "of"),
    [
        ("redis+cluster://a:1,b:2", [("a", 1), ("b", 2)], "redis://c:3"),
        (
            "rediss+cluster://u:p%40@a,b:2?ssl_ca_certs=/ca",
            [("a", 6379), ("b", 2)],
            "rediss://u:p%40@c:3?ssl_ca_certs=/ca",
        ),
        ("redis+cluster://:p@[::1]:7", [("::1", 7)], "redis://:p@c:3"),
    ],
)
def test_the_url_of_a_cluster_and_of_its_servers(url: str, seeds: list[tuple[str, int]], of: str) -> None:
    parsed = ClusterUrl.parse(url)
    assert parsed.seeds == tuple(NodeAddress(*seed) for seed in seeds)
    assert parsed.of(NodeAddress("c", 3)) == of
    assert "p" not in parsed.where.replace("ports", "")


def test_a_position_of_several_buckets() -> None:
    whole = StorePosition(4, 0)
    assert (whole.furthest, whole.behind(4), whole.behind(5)) == (4, frozenset(), frozenset({0}))
    parts = StorePosition(3, 0, (4, 3, 5))
    assert (parts.furthest, parts.behind(3), parts.behind(5)) == (5, frozenset(), frozenset({0, 1}))
