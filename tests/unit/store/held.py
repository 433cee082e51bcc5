"""A store in memory, for the read path: answers the packed commands that a reader sends, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from leftfold import clock
from leftfold.declare.rows import Read
from leftfold.fold.definition import Definition
from leftfold.fold.latest import Latest
from leftfold.fold.vector import VectorDefinition
from leftfold.store.layout import Build, manifest
from leftfold.store.reader import Reader
from leftfold.store.redis.names import Names, vector_name

Rows = Mapping[str, Mapping[str, bytes]]  # entity -> field -> value


@dataclass
class HeldStore:
    strings: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    round_trips: int = 0

    def publish(
        self,
        definition: Definition | Latest,
        rows: Rows,
        *,
        newest: int,
        batch: int = 3,
        generation: str = "generation",
    ) -> None:
        """A build that readers follow, and its rows."""
        build, names = Build(definition, generation), Names("", definition.view)
        self.strings[names.active] = build.id.encode()
        self.strings[names.manifest(build.id)] = manifest(build).encode()
        self.hashes[names.mark(build.id)] = {"batch": b"%d" % batch, "newest": b"%d" % newest}
        for entity, row in rows.items():
            self.hashes[names.row_prefix(build.id) + entity] = dict(row)

    def publish_vector(self, document: bytes, vector: VectorDefinition) -> None:
        self.strings[vector_name("", vector.name)] = document

    def reader(self) -> ReaderThen:
        reader = ReaderThen("redis://nowhere.invalid", "")  # it connects at the first command, and gets none
        reader._client = self
        return reader

    def execute(self, commands: Sequence[bytes]) -> list[Any]:
        self.round_trips += 1
        return [self._reply(*arguments(command)) for command in commands]

    def _reply(self, verb: str, key: str, *names: str) -> Any:
        if verb == "GET":
            return self.strings.get(key)
        held = self.hashes.get(key, {})
        if verb == "HGETALL":
            return [part for name, value in held.items() for part in (name.encode(), value)]
        assert verb == "HMGET"
        return [held.get(name) for name in names]


class ReaderThen(Reader):
    """A reader whose clock shows the moment that it is asked for, or another one if told so."""

    now: int | None = None

    def read(self, target: str | VectorDefinition, asked: Sequence[Mapping[str, Any]], at: int | None) -> list[Read]:
        now = at if self.now is None else self.now
        with nullcontext() if now is None else patch.object(clock, "now_us", return_value=now):
            return super().read(target, asked, at)


def arguments(command: bytes) -> list[str]:
    """A packed command taken apart: *3\\r\\n$4\\r\\nHGET\\r\\n…"""
    count, _, rest = command.partition(b"\r\n")
    found = []
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        size = int(length[1:])
        found.append(rest[:size].decode())
        rest = rest[size + 2 :]
    assert len(found) == int(count[1:])
    return found
