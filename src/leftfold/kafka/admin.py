"""The admin client: reads the state of topics, offsets and configs, and creates, changes and deletes topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
)

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.failures import Heard, failed, quiet, refused, remedy, unreachable
from leftfold.kafka.python_admin import log_dirs
from leftfold.settings import Kafka

# A healthy cluster answers within a second. A cluster in trouble gets this long before we report it.
TIMEOUT_S = 20.0
# The same total time, split into tries. A broker that refuses a connection does so within a second or two.
_TRIES_S = (2.0, 5.0, TIMEOUT_S - 7.0)
# How long one question may take that is asked again. It goes to the broker that the client takes for the controller, or
# to each broker; one that has died a moment ago would be waited for.
ASK_S = 5.0
_LISTEN_S = 0.2
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library has no types here
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
# Errors that brokers return while a group's coordinator is being chosen. The admin client does not wait for it. It also
# keeps the coordinator that it has found for a quarter of an hour, although that broker answers that it is none. So the
# question must be asked again with a new client.
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
# Errors that brokers return while a topic is new or a leader is being elected, and errors that librdkafka reports for
# brokers that are away. If the other brokers no longer name a broker, librdkafka calls its handle "destroyed".
# librdkafka calls none of these errors retriable.
_PASSING = frozenset(
    (
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.OFFSET_NOT_AVAILABLE),
        KafkaError._NOENT,  # no partition has a leader yet
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION),
        *(KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_CONTROLLER, KafkaError.NOT_ENOUGH_REPLICAS),
        *(KafkaError._DESTROY_BROKER, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE),
        # The client has heard of a new leader earlier, or later, than the broker that leads.
        *(KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH),
        *MOVING,
    )
)


class Admin:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._bootstrap = kafka.bootstrap
        self._widths: dict[str, float] = {}
        self._heard = Heard(kafka)
        self.client = AdminClient({**kafka.for_librdkafka(), **quiet(self._heard)})
        self._knows_leaders = False

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic in `names` that exists."""
        names = list(names)
        existing = self.metadata().topics
        counts = {n: len(existing[n].partitions) for n in names if n in existing and existing[n].error is None}
        self._check_allowed([n for n in names if n not in counts])
        return counts

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a topic that exists.

        The broker that is asked may learn of a topic later than another broker. So the question is repeated.
        """
        deadline = clock.monotonic() + TIMEOUT_S
        while (count := self.partitions([topic]).get(topic)) is None:
            if clock.monotonic() > deadline:
                raise unreachable(self._bootstrap, f"topic {topic} is not known to them")
            time.sleep(0.1)
        return count

    def _check_allowed(self, missing: list[str]) -> None:
        """Raise if a missing topic is only hidden from this user.

        The list of all topics leaves out topics that this user may not see. A question for such a topic by name is
        denied.
        """
        if not missing or self._kafka.security == "PLAINTEXT":
            return
        for name, answer in self.client.describe_topics(TopicCollection(missing)).items():
            try:
                self._answered(answer)
            except KafkaException as error:
                if (refusal := refused(self._kafka, error.args[0], topic=name)) is not None:
                    raise refusal from error

    def configs(self, kind: Any, names: list[str]) -> dict[str, dict[str, Any]]:
        """Return the configs of those `names` that exist. Repeats the question for up to `TIMEOUT_S`.

        The broker that is asked may learn of a created or deleted topic a moment later than another broker.
        """
        wanted = list(names)
        deadline = clock.monotonic() + TIMEOUT_S
        while wanted:
            resources = [ConfigResource(kind, n) for n in wanted]
            try:
                return {r.name: entries for r, entries in self.each(self._configs(resources)).items()}
            except LogError as error:
                if not error.retriable or clock.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            if kind == ConfigResource.Type.TOPIC:
                existing = self.metadata().topics
                wanted = [n for n in wanted if n in existing]
        return {}

    def _configs(self, resources: list[ConfigResource]) -> dict[Any, Any]:
        return dict(self.client.describe_configs(resources, request_timeout=ASK_S))

    def session_timeouts(self, groups: list[str]) -> dict[str, int]:
        """Return the session timeout in force for members of each group, ms: its own, else that of the brokers."""
        name = "consumer.session.timeout.ms"
        configs = self.configs(ConfigResource.Type.GROUP, groups)
        return {group: int(entries[name].value) for group, entries in configs.items() if name in entries}

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the end offset of each partition: the offset after its last replicated record.

        It counts records of open and aborted transactions too; see `stable_offsets`.
        """
        return {p: int(found.offset) for p, found in self._offsets(topic, partitions, LATEST).items()}

    def stable_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the last stable offset of each partition: every transaction before it has ended.

        A read-committed consumer gets no further than this offset.
        """
        stable = self._offsets(topic, partitions, LATEST, IsolationLevel.READ_COMMITTED)
        return {p: int(found.offset) for p, found in stable.items()}

    def newest_times(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the largest timestamp (µs) of each partition that holds records."""
        newest = self._offsets(topic, partitions, NEWEST)
        return {p: int(found.timestamp) * 1_000 for p, found in newest.items() if int(found.timestamp) >= 0}

    def start_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the first offset that each partition still holds."""
        return {p: int(found.offset) for p, found in self._offsets(topic, partitions, EARLIEST).items()}

    def width(self, topic: str, partitions: int) -> float:
        """Return the average number of bytes per offset, as brokers store them; 0 if they do not report sizes.

        It is measured at the first call for a topic and then kept.
        """
        if topic not in self._widths:
            size = sum(log_dirs(self._kafka, [topic]).sizes.values())
            firsts, ends = self.start_offsets(topic, partitions), self.end_offsets(topic, partitions)
            self._widths[topic] = size / max(1, sum(ends[p] - firsts[p] for p in ends))
        return self._widths[topic]

    def offsets_at(self, topic: str, partitions: int, moment: int) -> dict[int, int | None]:
        """Return each partition's first offset with a timestamp at or after `moment` (µs); None if there is none."""
        found = self._offsets(topic, partitions, OffsetSpec.for_timestamp(moment // 1_000))
        return {p: int(result.offset) if int(result.offset) >= 0 else None for p, result in found.items()}

    def _offsets(
        self, topic: str, partitions: int, spec: Any, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, Any]:
        """Return the result of one question about the offsets of each partition. It changes nothing."""
        wanted = {TopicPartition(topic, p): spec for p in range(partitions)}
        # A client that does not know the leaders yet finds them out by itself. But if its connection is made just then,
        # it notices that only after one to three seconds.
        if not self._knows_leaders:
            self.metadata()

        def ask() -> dict[Any, Any]:
            return dict(self.client.list_offsets(wanted, isolation_level=isolation, request_timeout=ASK_S))

        return {place.partition: result for place, result in self.asked(ask).items()}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of existing topics. A topic that is deleted and created again keeps its name, not its id."""
        existing = self.metadata().topics
        present = [n for n in names if n in existing and existing[n].error is None]
        if not present:
            return {}
        return {name: str(description.topic_id) for name, description in self.described(present).items()}

    def described(self, names: list[str]) -> dict[str, Any]:
        """Return the descriptions of topics that exist."""
        return self.asked(lambda: self.client.describe_topics(TopicCollection(names), request_timeout=ASK_S))

    def create(self, name: str, *, partitions: int, replication: int, configs: dict[str, str]) -> None:
        """Create a topic. Does nothing if it already exists with the same number of partitions.

        A plan may come from a broker that has not heard of the topic yet, so "already exists" is not always an error.
        """
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
            time.sleep(0.05)  # the controller has created it; brokers hear of it a moment later
        if refusal is not None and self.partitions([name]).get(name) != partitions:
            raise refusal

    def delete(self, name: str, topic_id: str) -> None:
        """Delete the topic with this id. Does nothing if it is already gone.

        A topic that was created again under the same name has another id. It is not deleted; that raises a LogError.
        """
        current_id = self.topic_ids([name]).get(name)
        if current_id is None:
            return
        if current_id != topic_id:
            raise LogError(
                "another-topic",
                f"topic {name} is not the one that was to be deleted",
                why=f"it was deleted and recreated since: its id is {current_id}, not {topic_id}",
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
        """Return the metadata of all topics that this user may see.

        It asks in ever longer tries, because the reason why no broker answers may be known early.
        """
        for seconds in _TRIES_S:
            try:
                cluster = self.client.list_topics(timeout=seconds)
            except KafkaException as error:
                failure = error
                self.client.poll(0)  # calls `Heard` with the errors that arrived meanwhile
                if (refusal := self._heard.refusal()) is not None:
                    raise refusal from error
            else:
                self._heard.forget()
                self._knows_leaders = True
                return cluster
        raise failed(self._kafka, failure.args[0]) from failure

    def asked(self, ask: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
        """Return the answers to questions that change nothing. Asks again for up to `TIMEOUT_S`."""
        deadline = clock.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.each(ask())
            except LogError as error:
                if not error.retriable or clock.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            self.metadata()  # the client goes on asking the leaders that it knows

    def answer(self, future: Any) -> Any:
        return self.each({None: future})[None]

    def each(self, futures: dict[Any, Any]) -> dict[Any, Any]:
        answers = {}
        for key, future in futures.items():
            try:
                answers[key] = self._answered(future)
            except KafkaException as error:
                state = "steps before this one are done; running the same command again continues"
                cause = self._heard.instead_of(error.args[0])
                name = _named(key)
                if cause.code() == KafkaError._TIMED_OUT:
                    raise unreachable(self._bootstrap, cause.str()) from error
                raise refused(self._kafka, cause, topic=name, group=name, state=state) or LogError(
                    "kafka-refused",
                    f"the brokers at {self._bootstrap} refused a request{name and f' for {name}'}: "
                    f"{error.args[0].str()}",
                    why=f"Kafka's code for it is {error.args[0].name()}",
                    state=state,
                    fix=f"{remedy(error.args[0])}, then run the same command again",
                    retriable=passes(error.args[0]),
                ) from error
        return answers

    def _answered(self, future: Any) -> Any:
        """Return a broker's answer. While it waits, it checks whether a broker refuses the connection."""
        began, looks = clock.monotonic(), list(_TRIES_S)
        while True:
            try:
                answer = future.result(timeout=_LISTEN_S)
            except TimeoutError as error:
                self.client.poll(0)
                if clock.monotonic() - began > looks[0]:
                    began += looks.pop(0)
                    if (refusal := self._heard.refusal()) is not None:
                        raise refusal from error
                    if not looks:
                        why = f"it did not answer within {sum(_TRIES_S):g} s"
                        raise unreachable(self._bootstrap, why) from error
            else:
                self._heard.forget()
                return _checked(answer)


def _checked(answer: Any) -> Any:
    """Return an answer. Raises if it is an offset that nobody gave.

    `list_offsets` reports no error for a partition whose leader did not answer. It returns an invalid offset.
    """
    if isinstance(answer, ListOffsetsResultInfo) and answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the leader of a partition did not answer"))
    return answer


def _named(key: Any) -> str:
    """Return the name of the resource that a question was about, or an empty text if its key has none."""
    if isinstance(key, TopicPartition):
        return str(key.topic)
    return str(key.name) if isinstance(key, ConfigResource) else str(key or "")


def passes(error: KafkaError) -> bool:
    """Return whether an error is temporary: the same question may be answered a moment later."""
    return error.code() in _PASSING
