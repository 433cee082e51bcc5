"""Opens a store by its URL. The one place that knows which engine a URL names."""

from __future__ import annotations

import importlib.util
from urllib.parse import urlparse

from leftfold.errors import RunError
from leftfold.store.engine import AsyncClient, Client, Questions, Store

_CLUSTERS = ("redis+cluster://", "rediss+cluster://")


def open_store(url: str) -> Store:
    """Open a store to write to it, to move its readers, or to look at its builds."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster.store import ClusterStore

        return ClusterStore(url)
    if _is_postgres(url):
        from leftfold.store.postgres.store import PostgresStore

        return PostgresStore(url)
    from leftfold.store.redis.store import RedisStore

    return RedisStore(url)


def buckets_of(url: str) -> int:
    """Return how many parts of the store have a mark of their own."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster.buckets import BUCKETS

        return BUCKETS
    return 1


def open_client(url: str) -> tuple[Questions, Client]:
    """Open a store to read rows, from threads."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster import reading

        return reading.ClusterQuestions(), reading.ClusterClient(url)
    if _is_postgres(url):
        from leftfold.store.postgres import questions as of_postgres

        return of_postgres.PostgresQuestions(), of_postgres.PostgresClient(url)
    from leftfold.store.redis import client
    from leftfold.store.redis import questions as of_redis

    return of_redis.RedisQuestions(), client.RedisClient(url)


def open_async_client(url: str) -> AsyncClient:
    """Open a store to read rows, from an event loop."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster.reading import AsyncClusterClient

        return AsyncClusterClient(url)
    if _is_postgres(url):
        from leftfold.store.postgres import questions

        return questions.AsyncPostgresClient(url)
    from leftfold.store.redis import client

    return client.AsyncRedisClient(url)


def place_of(url: str) -> str:
    """Return host and port of a store, of each server that its URL names, without its login."""
    parts = urlparse(url)
    if url.startswith(_CLUSTERS):
        return parts.netloc.rpartition("@")[2]
    return f"{parts.hostname}:{parts.port or (5432 if parts.scheme.startswith('postgres') else 6379)}"


def _is_postgres(url: str) -> bool:
    if not url.startswith(("postgresql://", "postgres://")):
        return False
    if importlib.util.find_spec("psycopg") is None:
        raise RunError(
            "psycopg-missing",
            "psycopg is not installed here",
            why="online.url of the profile names a Postgres; everything else works without it",
            fix="install it: pip install 'leftfold[sql]'",
        )
    return True
