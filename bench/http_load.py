"""A load of HTTP requests, from a process of its own. Usage: python -m bench.http_load KIND HOST:PORT RATE S N.

With a rate, requests are due at fixed moments, and a latency counts from then: a server that stalls cannot hide it.
With rate 0 each of the N connections asks again as soon as it is answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial

USERS = 200
MANY = 50
WARM_S = 2.0

Ask = Callable[[random.Random], tuple[str, object]]  # the path and the body of a request


def score(chance: random.Random) -> tuple[str, object]:
    user, item = chance.randrange(USERS), chance.randrange(USERS)
    return "/score/ranker", {"user_id": f"u{user}", "item_id": f"i{item}", "cart": chance.random() * 50}


def features(chance: random.Random, rows: int = 1) -> tuple[str, object]:
    return "/features/both", [
        {"user_id": f"u{chance.randrange(USERS)}", "item_id": f"i{chance.randrange(USERS)}"} for _ in range(rows)
    ]


def feast(chance: random.Random, rows: int = 1) -> tuple[str, object]:
    entities = {name: [f"{name[0]}{chance.randrange(USERS)}" for _ in range(rows)] for name in ("user_id", "item_id")}
    return "/get-online-features", {"feature_service": "both", "entities": entities}


KINDS: dict[str, Ask] = {
    "score": score,
    "features": features,
    "feast": feast,
    "many-features": partial(features, rows=MANY),
    "many-feast": partial(feast, rows=MANY),
}


async def _ask(ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    path, document = ask(chance)
    body = json.dumps(document).encode()
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    await reader.readexactly(length)


async def run(kind: str, address: str, rate: float, seconds: float, connections: int) -> dict[str, float]:
    host, _, port = address.partition(":")
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
    began, times, numbers = time.perf_counter(), list[float](), iter(range(10**9))
    end = began + WARM_S + seconds

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
        while True:
            due = began + next(numbers) / rate if rate else time.perf_counter()
            if due >= end:
                return
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            await _ask(KINDS[kind], reader, writer, chance)
            if due >= began + WARM_S:
                times.append(time.perf_counter() - due)

    await asyncio.gather(*(work(*stream, random.Random(n)) for n, stream in enumerate(streams)))
    times.sort()
    return {
        "per_s": len(times) / seconds,
        "p50": times[len(times) // 2] * 1e3,
        "p99": times[int(len(times) * 0.99)] * 1e3,
        "most": times[-1] * 1e3,
    }


if __name__ == "__main__":
    asked = sys.argv[1:]
    print(json.dumps(asyncio.run(run(asked[0], asked[1], float(asked[2]), float(asked[3]), int(asked[4])))))
