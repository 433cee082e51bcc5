"""The connection to the store, and what a person is told when it does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from leftfold.errors import StoreError


def connect(url: str) -> Any:
    """Its types mix sync, asyncio, bytes and str answers; ours are all sync and bytes."""
    return redis.Redis.from_url(url)


@contextmanager
def reaching(client: Any) -> Iterator[None]:
    """Turns the client's failures into ours."""
    try:
        yield
    except redis.RedisError as error:
        where = client.connection_pool.connection_kwargs
        raise StoreError(
            "store-unreachable",
            f"no Redis answered at {where.get('host')}:{where.get('port')}",
            why=str(error),
            fix="leftfold status shows what runs; leftfold up starts the local cluster",
            retriable=True,
        ) from error
