"""aiokafka: batches by getmany, and a commit each second of what was handled."""

import asyncio
import time

from aiokafka import AIOKafkaConsumer
from work import BOOTSTRAP, GROUP, SESSION_MS, TOPIC, handle


async def main():
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 3,
    )
    await consumer.start()
    committed, open_ = time.monotonic(), False
    while True:
        batches = await consumer.getmany(timeout_ms=100, max_records=1_000)
        for messages in batches.values():
            for message in messages:
                handle(message.value)
        open_ = open_ or bool(batches)
        if open_ and time.monotonic() - committed > 1:
            await consumer.commit()
            committed, open_ = time.monotonic(), False


asyncio.run(main())
