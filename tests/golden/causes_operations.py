"""How to provoke errors of watching views and of asking why."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from leftfold.fold.definition import Definition, Key
from leftfold.fold.expressions import to_micros
from leftfold.metrics_server import MetricsServer
from leftfold.run.why import Sources, why
from leftfold.settings import Kafka, Profile
from leftfold.store.layout import Build, LedgerRow
from leftfold.store.reader import Inside
from tests.golden.causes import DEAD, NOON, Cause, project, stand_in


def metrics_port(tmp: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        MetricsServer(str(taken.getsockname()[1]), list)


def asked_why(*, by: str = "user_id") -> Cause:
    """Of a store whose active build is keyed so, and of a log that has no topic."""

    def cause(tmp: Path) -> None:
        declared = project(tmp).catalog.view("user_activity")
        assert isinstance(declared.definition, Definition)
        built = replace(declared.definition, keys=(Key(by, "string"),))
        ledger = [LedgerRow("clicks", 0, "accepted", 1, 0, 0, 0)]
        inside = Inside(Build(built, "0123456789").id, built, "u1", 7, ledger, to_micros(NOON), False, {}, True)
        reader, admin = stand_in(inside=lambda *_: inside), stand_in(partitions=lambda _: {})
        sources = Sources(reader, Kafka(bootstrap=DEAD), admin, stand_in(), Profile(name="local"))
        why(declared, {by: "u1"}, None, sources, lambda *_: None)

    return cause


CAUSES: dict[str, Cause] = {
    "metrics-port": metrics_port,
    "build-not-declared": asked_why(by="account_id"),
    "not-applied/why": asked_why(),
}
