"""Broker settings: strong where there are three, possible where there is one, loopback always."""

from __future__ import annotations

from leftfold.local import brokers
from leftfold.local.endpoints import Endpoints, Ports

THREE = Endpoints("id", Ports((1, 2, 3), (4, 5, 6), 7, 8))
ONE = Endpoints("id", Ports((1,), (4,), 7, 8))


def test_three_brokers_keep_three_copies_and_need_two() -> None:
    settings = brokers.settings(THREE, 2)
    assert settings["node.id"] == "2"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:5"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:4,2@127.0.0.1:5,3@127.0.0.1:6"
    assert {value for name, value in settings.items() if name.endswith("replication.factor")} == {"3"}
    assert {value for name, value in settings.items() if name.endswith(("min.isr", "insync.replicas"))} == {"2"}
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["unclean.leader.election.enable"] == "false"


def test_one_broker_keeps_one_copy() -> None:
    settings = brokers.settings(ONE, 1)
    assert {value for name, value in settings.items() if name.endswith("replication.factor")} == {"1"}
    assert {value for name, value in settings.items() if name.endswith(("min.isr", "insync.replicas"))} == {"1"}


def test_nothing_listens_or_lives_elsewhere() -> None:
    for name, value in brokers.settings(THREE, 1).items():
        assert "0.0.0.0" not in value
        assert not value.startswith("/"), f"{name} is an absolute path: a project could not be moved"
