"""Methods of `App` that do more than call one function of a room."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

import pytest

import leftfold
from leftfold.declare.event import Event
from tests.unit.conftest import MakeProject


class Recording:
    """Takes what a producer is given."""

    def __init__(self) -> None:
        self.given: list[Event | Mapping[str, Any]] = []
        self.left = False

    @property
    def sent(self) -> int:
        return len(self.given)

    def send(self, event: Event) -> None:
        assert isinstance(event, Event)
        self.given.append(event)

    def send_dict(self, record: Mapping[str, Any]) -> None:
        assert isinstance(record, dict)
        self.given.append(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = True


def test_send_takes_events_and_dicts_and_waits(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    app = leftfold.open(make_project())
    recording = Recording()
    monkeypatch.setattr(app, "producer", lambda topic: {"clicks": recording}[topic])
    record = {"user_id": "u1", "item_id": "i1", "price": 1.0, "at": datetime(2026, 1, 5, tzinfo=UTC)}
    event = app.catalog.topic("clicks").event(**record)
    both: list[Event | Mapping[str, Any]] = [event, record]
    assert app.send("clicks", iter(both)) == 2
    assert recording.given == both
    assert recording.left
