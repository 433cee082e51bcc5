"""Ports are kept while they can be, and only those that somebody took are chosen again."""

from __future__ import annotations

import socket

from leftfold.local import ports
from leftfold.local.endpoints import HOST, Endpoints, Ports


def test_fresh_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    chosen = [port for mine in ports.of(ports.fresh(3)).values() for port in mine]
    assert len(set(chosen)) == 8
    assert all(20_000 <= port < 32_000 for port in chosen)


def test_who_has_which() -> None:
    assert ports.of(Ports((1, 2, 3), (4, 5, 6), 7, 8)) == {
        "broker-1": (1, 4),
        "broker-2": (2, 5),
        "broker-3": (3, 6),
        "registry": (7,),
        "redis": (8,),
    }


def test_only_a_taken_port_is_chosen_again() -> None:
    before = Endpoints("id", ports.fresh(3))
    assert ports.rechosen(before) == before
    with socket.create_server((HOST, before.ports.controllers[1])), socket.create_server((HOST, before.ports.redis)):
        after = ports.rechosen(before)
    assert after.ports.brokers == before.ports.brokers
    assert after.ports.controllers[::2] == before.ports.controllers[::2]
    assert after.ports.controllers[1] != before.ports.controllers[1]
    assert after.ports.redis != before.ports.redis
    assert len({port for mine in ports.of(after.ports).values() for port in mine}) == 8
