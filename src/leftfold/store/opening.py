"""Opens a store by its URL. The one place that knows which engine a URL names."""

from __future__ import annotations

from leftfold.store.engine import AsyncClient, Client, Questions, Store

_CLUSTERS = ("redis+cluster://", "rediss+cluster://")


def open_store(url: str) -> Store:
    """Open a store to write to it, to move its readers, or to look at its builds."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster.store import ClusterStore

        return ClusterStore(url)
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
        from leftfold.store.redis.cluster.reading import ClusterClient, ClusterQuestions

        return ClusterQuestions(), ClusterClient(url)
    from leftfold.store.redis import client, questions

    return questions.RedisQuestions(), client.Client(url)


def open_async_client(url: str) -> AsyncClient:
    """Open a store to read rows, from an event loop."""
    if url.startswith(_CLUSTERS):
        from leftfold.store.redis.cluster.reading import AsyncClusterClient

        return AsyncClusterClient(url)
    from leftfold.store.redis import client

    return client.AsyncClient(url)
