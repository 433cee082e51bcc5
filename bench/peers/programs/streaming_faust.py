"""faust-streaming: a worker with one agent. Exactly once, it sends to a topic."""

import sys

import faust
from work import BOOTSTRAP, COPIES, GROUP, SESSION_MS, TOPIC, handle

app = faust.App(
    GROUP,
    broker=[f"kafka://{address}" for address in BOOTSTRAP.split(",")],
    store="memory://",
    processing_guarantee="exactly_once" if COPIES else "at_least_once",
    value_serializer="raw",
    key_serializer="raw",
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=1.0,
    broker_session_timeout=SESSION_MS / 1000,
    broker_heartbeat_interval=SESSION_MS / 3000,
    broker_request_timeout=max(90.0, SESSION_MS / 1000),
    topic_disable_leader=True,
    web_enabled=False,
)
source = app.topic(TOPIC, key_type=bytes, value_type=bytes)
copies = app.topic(COPIES, key_type=bytes, value_type=bytes) if COPIES else None


@app.agent(source)
async def read(stream):
    async for key, value in stream.items():
        handle(value)
        if copies is not None:
            await copies.send(key=key, value=value)


sys.argv = [sys.argv[0], "worker", "--without-web", "-l", "warn"]
app.main()
