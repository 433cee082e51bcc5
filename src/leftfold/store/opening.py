"""Opens a store by its URL. The one place that knows which engine a URL names."""

from __future__ import annotations

from leftfold.store.engine import AsyncClient, Client, Questions, Store


def open_store(url: str) -> Store:
    """Open a store to write to it, to move its readers, or to look at its builds."""
    from leftfold.store.redis.store import RedisStore

    return RedisStore(url)


def open_client(url: str) -> tuple[Questions, Client]:
    """Open a store to read rows, from threads."""
    from leftfold.store.redis import client, questions

    return questions.RedisQuestions(), client.Client(url)


def open_async_client(url: str) -> AsyncClient:
    """Open a store to read rows, from an event loop."""
    from leftfold.store.redis import client

    return client.AsyncClient(url)
