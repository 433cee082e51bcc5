"""faststream with confluent-kafka: a subscriber that acknowledges each record, or each batch of up to 500."""

import asyncio

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from work import BOOTSTRAP, GROUP, SESSION_MS, SETTINGS, TOPIC, handle

broker = KafkaBroker(BOOTSTRAP, logger=None)
batch = {"batch": True, "max_records": 500} if SETTINGS["batch"] else {}


@broker.subscriber(
    TOPIC,
    group_id=GROUP,
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
    session_timeout_ms=SESSION_MS,
    heartbeat_interval_ms=SESSION_MS // 3,
    decoder=lambda message: message.body,
    **batch,
)
async def read(body):
    for value in body if SETTINGS["batch"] else (body,):
        handle(value)


asyncio.run(FastStream(broker, logger=None).run())
