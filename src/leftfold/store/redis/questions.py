"""The questions of a reader as packed commands, in the form in which they are sent.

The library's own pipeline packs every argument at every call. For a row of tiles that costs more than the work in
Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leftfold.store.engine import BuildPlace, ViewPlace
from leftfold.store.redis.client import pack
from leftfold.store.redis.names import names_of, row_key, vector_name


class RedisQuestions:
    def followed(self, at: ViewPlace) -> bytes:
        return pack("GET", names_of(at).active)

    def manifest(self, at: BuildPlace) -> bytes:
        return pack("GET", names_of(at).manifest(at.build))

    def vector(self, namespace: str, name: str) -> bytes:
        return pack("GET", vector_name(namespace, name))

    def mark(self, at: BuildPlace, fields: Sequence[str]) -> bytes:
        return pack("HMGET", names_of(at).mark(at.build), *fields)

    def whole_mark(self, at: BuildPlace) -> bytes:
        return pack("HGETALL", names_of(at).mark(at.build))

    def row(self, at: BuildPlace) -> Callable[[str], bytes]:
        prefix = row_key(at, "")
        # All fields: the server looks through a small row once, not once for each field that is asked for.
        return lambda entity: pack("HGETALL", prefix + entity)
