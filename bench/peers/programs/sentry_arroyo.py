"""sentry-arroyo: a stream processor of one task, with a commit each second."""

from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask
from arroyo.types import Topic
from work import BOOTSTRAP, GROUP, SESSION_MS, TOPIC, handle


class Factory(ProcessingStrategyFactory):
    def create_with_partitions(self, commit, partitions):
        return RunTask(lambda message: handle(message.payload.value), CommitOffsets(commit))


consumer = KafkaConsumer(
    build_kafka_consumer_configuration(
        {},
        group_id=GROUP,
        auto_offset_reset="earliest",
        bootstrap_servers=BOOTSTRAP.split(","),
        override_params={"session.timeout.ms": SESSION_MS},
    )
)
StreamProcessor(consumer, Topic(TOPIC), Factory(), ONCE_PER_SECOND).run()
