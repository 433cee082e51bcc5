"""What topics exist, and making new ones."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from leftfold import clock
from leftfold.errors import LogError
from leftfold.settings import Kafka

# A healthy cluster answers within a second; this is how long a struggling one may take before we say so.
TIMEOUT_S = 20.0
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library has no types here
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
# What brokers answer while a group's coordinator is being chosen, which the admin client does not wait for.
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
# What brokers answer while a topic is new or a leader is elected. librdkafka calls none of it retriable.
_PASSING = frozenset(
    (
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.OFFSET_NOT_AVAILABLE),
        # The client has heard of a new leader before the broker that leads, or after it.
        *(KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH),
        *MOVING,
    )
)


class Admin:
    def __init__(self, kafka: Kafka) -> None:
        self._bootstrap = kafka.bootstrap
        # Its background noise ("connection refused") is not for a person's terminal: our own errors say it.
        self.client = AdminClient({**kafka.for_librdkafka(), "log_level": 0})

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """How many those of `names` have that exist."""
        existing = self.metadata().topics
        return {n: len(existing[n].partitions) for n in names if n in existing and existing[n].error is None}

    def configs(self, kind: Any, names: list[str]) -> dict[str, dict[str, Any]]:
        """Of those that exist, asked again for a while.

        A broker hears of a topic that was made or deleted a moment after the one that told us of it.
        """
        wanted = list(names)
        deadline = clock.monotonic() + TIMEOUT_S
        while wanted:
            resources = [ConfigResource(kind, n) for n in wanted]
            try:
                return {r.name: found for r, found in self.each(self.client.describe_configs(resources)).items()}
            except LogError as error:
                if not error.retriable or clock.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            if kind == ConfigResource.Type.TOPIC:
                existing = self.metadata().topics
                wanted = [n for n in wanted if n in existing]
        return {}

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset after the last committed record of each partition."""
        wanted = {TopicPartition(topic, p): LATEST for p in range(partitions)}
        return {tp.partition: int(r.offset) for tp, r in self.each(self.client.list_offsets(wanted)).items()}

    def stable_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset up to which every transaction has ended: a reader of committed records gets no further."""
        wanted = {TopicPartition(topic, p): LATEST for p in range(partitions)}
        asked = self.client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        return {tp.partition: int(r.offset) for tp, r in self.each(asked).items()}

    def newest_times(self, topic: str, partitions: int) -> dict[int, int]:
        """The largest timestamp of each partition that has records, µs."""
        wanted = {TopicPartition(topic, p): NEWEST for p in range(partitions)}
        found = self.each(self.client.list_offsets(wanted))
        return {tp.partition: int(r.timestamp) * 1_000 for tp, r in found.items() if int(r.timestamp) >= 0}

    def start_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The first offset that each partition still has."""
        wanted = {TopicPartition(topic, p): EARLIEST for p in range(partitions)}
        return {tp.partition: int(r.offset) for tp, r in self.each(self.client.list_offsets(wanted)).items()}

    def offsets_at(self, topic: str, partitions: int, moment: int) -> dict[int, int | None]:
        """The first offset of each partition with a timestamp at or after `moment` (µs); None if there is none."""
        since: Any = OffsetSpec.for_timestamp(moment // 1_000)
        wanted = {TopicPartition(topic, p): since for p in range(partitions)}
        found = self.each(self.client.list_offsets(wanted))
        return {tp.partition: int(r.offset) if int(r.offset) >= 0 else None for tp, r in found.items()}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Of those that exist. A topic that was deleted and made again keeps its name, not its id."""
        existing = self.metadata().topics
        present = [n for n in names if n in existing and existing[n].error is None]
        if not present:
            return {}
        found = self.each(self.client.describe_topics(TopicCollection(present)))
        return {name: str(description.topic_id) for name, description in found.items()}

    def create(self, name: str, *, partitions: int, replication: int, configs: dict[str, str]) -> None:
        """Or nothing, if it is there as it is to be: a plan may rest on a broker that has not heard of it yet."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=configs)
        refusal = None
        try:
            self.each(self.client.create_topics([new], operation_timeout=TIMEOUT_S))
        except LogError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            refusal = error
        deadline = clock.monotonic() + TIMEOUT_S
        while name not in self.metadata().topics and clock.monotonic() < deadline:
            time.sleep(0.05)  # the controller made it; the brokers hear of it a moment later
        if refusal is not None and self.partitions([name]).get(name) != partitions:
            raise refusal

    def delete(self, name: str, topic_id: str) -> None:
        """The topic with this id, not one that was made again under its name. Nothing, if it is gone already."""
        found = self.topic_ids([name]).get(name)
        if found is None:
            return
        if found != topic_id:
            raise LogError(
                "another-topic",
                f"topic {name} is not the one that was to be deleted",
                why=f"it was deleted and made again since: its id is {found}, not {topic_id}",
                fix="leftfold plan shows what is there now",
            )
        self.each(self.client.delete_topics([name], operation_timeout=TIMEOUT_S))
        deadline = clock.monotonic() + TIMEOUT_S
        while name in self.metadata().topics and clock.monotonic() < deadline:
            time.sleep(0.05)

    def set_configs(self, name: str, configs: dict[str, str]) -> None:
        changes = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in configs.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        self.each(self.client.incremental_alter_configs([resource]))

    def metadata(self) -> Any:
        try:
            return self.client.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise unreachable(self._bootstrap, error.args[0].str()) from error

    def answer(self, future: Any) -> Any:
        return self.each({None: future})[None]

    def each(self, futures: dict[Any, Any]) -> dict[Any, Any]:
        try:
            return {key: future.result(timeout=TIMEOUT_S) for key, future in futures.items()}
        except TimeoutError as error:
            raise unreachable(self._bootstrap, f"it did not answer within {TIMEOUT_S:g} s") from error
        except KafkaException as error:
            raise LogError(
                "kafka-refused",
                f"the brokers at {self._bootstrap} refused: {error.args[0].str()}",
                why=f"Kafka's code for it is {error.args[0].name()}",
                state="steps before this one are done; running the same command again continues",
                fix="correct the cause, then run the same command again",
                retriable=passes(error.args[0]),
            ) from error


def passes(error: KafkaError) -> bool:
    """Whether the same question may be answered in a moment."""
    return error.code() in _PASSING


def unreachable(bootstrap: str, why: str) -> LogError:
    return LogError(
        "kafka-unreachable",
        f"no broker answered at {bootstrap}",
        why=why,
        fix="leftfold status shows what runs; leftfold up starts the local cluster",
        retriable=True,
    )
