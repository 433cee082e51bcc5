"""How to provoke errors of events, topics, windowed features, the project, the plan and Kafka.

Each function is given an empty directory and raises the one error it is listed under. Where an engine would have to be
in a certain state, the real class is driven with a stand-in for that engine: what is tested here is the message.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import click
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined] # forgotten by its stubs
from confluent_kafka.schema_registry.error import SchemaRegistryError

import leftfold as lf
from leftfold.cli.declare_verbs import init
from leftfold.cli.main import cli
from leftfold.errors import LogError
from leftfold.kafka import admin, failures
from leftfold.kafka.admin import Admin
from leftfold.kafka.failures import in_java
from leftfold.kafka.producer import Producer
from leftfold.kafka.registry import SchemaRegistry
from leftfold.observe.observation import ObservedSubject
from leftfold.plan.diff import plan
from leftfold.settings import Kafka, Profile, Registry
from tests import clusters

DEAD = "127.0.0.1:1"  # port 1 is never listened on
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOTHING: Any = None  # for what an error comes before

PROJECT = '[project]\nname = "shop"\ndeclarations = ["streams.py"]\n'
HEAD = "from datetime import datetime\n\nfrom pydantic import Field, field_validator\n\nimport leftfold as lf\n\n\n"
EVENT = (
    "class Click(lf.Event):\n    user_id: str\n    item_id: str\n    price: float\n    tags: list[str] = []\n"
    "    at: datetime\n\n\n"
)
TOPIC = 'clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)\n\n\n'
VIEW = 'class UserActivity(lf.Features, of=clicks, by=Click.user_id):\n    clicks_1h = lf.count("1h")\n'

Cause = Callable[[Path], None]


def stand_in(**answers: Any) -> Any:
    """An engine's client that knows these answers and nothing else."""
    return SimpleNamespace(**answers)


def project(tmp: Path, streams: str = HEAD + EVENT + TOPIC + VIEW, *, toml: str = PROJECT) -> lf.App:
    (tmp / "leftfold.toml").write_text(toml)
    (tmp / "streams.py").write_text(streams)
    return lf.open(tmp)


def declares(text: str, *, topic: bool = True) -> Cause:
    """A project that declares Click, mostly also clicks, and then `text`."""

    def cause(tmp: Path) -> None:
        _ = project(tmp, HEAD + EVENT + (TOPIC if topic else "") + text + "\n").catalog

    return cause


def event(field: str) -> Cause:
    return declares(f"class Wrong(lf.Event):\n    {field}", topic=False)


def topic(options: str, *, name: str = '"x"', of: str = "Click") -> Cause:
    given = {"key": "Click.user_id", "time": "Click.at"}
    for part in filter(None, options.split("; ")):
        option, value = part.split("=", 1)
        given[option] = value
    return declares(f"lf.Topic({name}, {of}, {', '.join(f'{k}={v}' for k, v in given.items())})", topic=False)


def feature(text: str, *, of: str = "clicks", by: str = "Click.user_id", name: str = "n") -> Cause:
    return declares(f"class Activity(lf.Features, of={of}, by={by}):\n    {name} = {text}")


def toml(text: str, *, profile: str | None = None) -> Cause:
    def cause(tmp: Path) -> None:
        (tmp / "leftfold.toml").write_text(text)
        lf.open(tmp, profile=profile)

    return cause


def profile(settings: str) -> Cause:
    return toml(f"{PROJECT}[profile.prod]\n{settings}\n", profile="prod")


# The project --------------------------------------------------------------------------------------------------------


def project_not_yours(tmp: Path) -> None:
    (tmp / "leftfold.toml").write_text(PROJECT)
    (tmp / "below").mkdir()
    theirs = mock.patch.object(Path, "lstat", return_value=stand_in(st_uid=1002))
    with mock.patch("os.geteuid", return_value=1001), theirs:
        lf.open(tmp / "below")


def no_project(tmp: Path) -> None:
    lf.open(tmp)


def no_declarations(tmp: Path) -> None:
    (tmp / "leftfold.toml").write_text(PROJECT)
    _ = lf.open(tmp).catalog


def unknown_topic(tmp: Path) -> None:
    project(tmp).catalog.topic("clics")


def unlike_topic(tmp: Path) -> None:
    project(tmp).catalog.topic("orders")


def unknown_view(tmp: Path) -> None:
    project(tmp).catalog.view("user_activty")


def directory_not_empty(tmp: Path) -> None:
    (tmp / "shop").mkdir()
    (tmp / "shop" / "mine.txt").touch()
    _invoke(init, str(tmp / "shop"))


def project_name(tmp: Path) -> None:
    _invoke(init, str(tmp / "my shop"))


def _invoke(command: click.Command, *arguments: str) -> None:
    command.main(list(arguments), standalone_mode=False)


GOOD = {"user_id": "u1", "item_id": "i1", "price": 1.0, "at": NOON.isoformat()}
LINES = "\n".join(json.dumps(line) for line in (GOOD, GOOD, {**GOOD, "price": "dear"}, GOOD))


def bad_line(tmp: Path) -> None:
    """Of a file, which is read before anything is sent."""
    (tmp / "clicks.jsonl").write_text(LINES)
    sends(tmp, "clicks.jsonl", Silent())


def bad_line_of_a_pipe(tmp: Path) -> None:
    sends(tmp, "-", Silent())


def unknown_lines(tmp: Path) -> None:
    sends(tmp, "-", Silent(1, code=KafkaError._MSG_TIMED_OUT))


def failed_lines(tmp: Path) -> None:
    sends(tmp, "-", Silent(0, 1, code=KafkaError.MSG_SIZE_TOO_LARGE))


def send_interrupted(tmp: Path) -> None:
    sends(tmp, "-", Silent(0, code=KafkaError._PURGE_INFLIGHT, interrupted=True))


class Silent:
    """A client whose records are acknowledged, but for these, which get this error."""

    def __init__(self, *which: int, code: int = 0, interrupted: bool = False) -> None:
        self._which, self._code, self._interrupted = which, code, interrupted
        self._callbacks: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Any, timestamp: int) -> None:
        if self._interrupted and self._callbacks:
            raise KeyboardInterrupt
        self._callbacks.append(on_delivery)

    def flush(self, timeout: float) -> int:
        for number in self._which:
            self._callbacks[number](KafkaError(self._code), stand_in(key=lambda: b"u1", partition=lambda: 0))
        self._which = ()
        return 0

    def poll(self, timeout: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


def sends(tmp: Path, source: str, client: Any) -> None:
    sending = producer(tmp)
    sending._client, sending._produce = client, client.produce
    with contextlib.chdir(tmp), mock.patch.object(lf.App, "producer", return_value=sending):
        error = CliRunner().invoke(cli, ["send", "clicks", source], input=LINES).exception
    assert error is not None
    raise error


# Features by hand ---------------------------------------------------------------------------------------------------


def computed(key: str) -> Cause:
    """A unit test in the project's own words, over the events of two people."""
    return declares(
        f"{VIEW}\n\nnow = datetime.fromisoformat('2026-01-05T12:00:00Z')\n"
        "events = [Click(user_id=u, item_id='i', price=1.0, at=now) for u in ('u1', 'u2')]\n"
        f"UserActivity.compute(events, at=now{key})"
    )


# The plan -----------------------------------------------------------------------------------------------------------

REGISTERED = ObservedSubject("FULL_TRANSITIVE", registered=True, accepted=True)
WITHOUT_PRICE = (
    '{"type": "record", "name": "Click", "fields": [{"name": "user_id", "type": "string"}, {"name": "item_id", '
    '"type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}'
)
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}


def planned(options: str = "", **seen: Any) -> Cause:
    """What a plan says about clicks when the cluster looks like `seen`."""

    def cause(tmp: Path) -> None:
        catalog = project(tmp, HEAD + EVENT + TOPIC.replace("time=Click.at", f"time=Click.at{options}")).catalog
        found = seen.get("topic")
        there = clusters.seen(
            seen.get("brokers", 3),
            {"clicks": found} if found else {},
            {"clicks-value": seen.get("subject", REGISTERED)},
        )
        list(plan(catalog, Profile(name="local"), there).apply(NOTHING, NOTHING))

    return cause


# Kafka and the registry ---------------------------------------------------------------------------------------------


def kafka_unreachable(tmp: Path) -> None:
    with mock.patch.object(admin, "_TRIES_S", (0.5,)):
        Admin(Kafka(bootstrap=DEAD)).partitions([])


def registry_unreachable(tmp: Path) -> None:
    SchemaRegistry(Registry(url=f"http://{DEAD}")).versions("clicks-value")


def registry_answers(status: int, says: str) -> Cause:
    def cause(_: Path) -> None:
        registry = SchemaRegistry(Registry(url=f"http://{DEAD}"))
        registry._client = stand_in(get_versions=_raiser(SchemaRegistryError(status, 100 * status, says)))
        registry.versions("clicks-value")

    return cause


def _answered(error: KafkaError) -> None:
    """A broker's answer to the question for a topic's settings."""
    login = {"security": "SASL_SSL", "username": "shop", "password": "hunter2"}
    client = Admin(Kafka.model_validate({"bootstrap": DEAD, **login}))
    answer = {ConfigResource(ConfigResource.Type.TOPIC, "prod.clicks"): stand_in(result=_raiser(KafkaException(error)))}
    client.client = stand_in(describe_configs=lambda *_, **__: answer)
    client.configs(ConfigResource.Type.TOPIC, ["prod.clicks"])


def kafka_denied(tmp: Path) -> None:
    _answered(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed"))


def kafka_denied_to_spark(tmp: Path) -> None:
    told = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [prod.clicks]"
    raise cast(LogError, in_java(told))


def kafka_login(tmp: Path) -> None:
    says = "SASL authentication error: Authentication failed during authentication due to invalid credentials"
    _answered(KafkaError(KafkaError._AUTHENTICATION, f"sasl_ssl://{DEAD}/bootstrap: {says}"))


def kafka_tls(tmp: Path) -> None:
    says = "SSL handshake failed: certificate verify failed: broker certificate could not be verified"
    _answered(KafkaError(KafkaError._SSL, f"sasl_ssl://{DEAD}/bootstrap: {says} (after 24ms in state SSL_HANDSHAKE)"))


def kafka_tls_expected(tmp: Path) -> None:
    with mock.patch.object(failures, "_speaks_tls", return_value=True), mock.patch.object(admin, "_TRIES_S", (0.1,)):
        Admin(Kafka(bootstrap=DEAD)).partitions([])


def registry_tls(tmp: Path) -> None:
    registry = SchemaRegistry(Registry(url=f"https://{DEAD}"))
    says = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate"
    wrapped = OSError(says)
    wrapped.__cause__ = ssl.SSLCertVerificationError(1, says)
    registry._client = stand_in(get_versions=_raiser(wrapped))
    registry.versions("clicks-value")


def kafka_refused(code: int, says: str) -> Cause:
    def cause(_: Path) -> None:
        refused = KafkaException(KafkaError(code, says))
        client = Admin(Kafka(bootstrap=DEAD))
        client.client = stand_in(create_topics=lambda *_, **__: {"clicks": stand_in(result=_raiser(refused))})
        client.create("clicks", partitions=6, replication=3, configs={})

    return cause


def _raiser(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def producer(tmp: Path, *, schema_id: int | None = 1) -> Producer:
    registry = stand_in(id_of=lambda subject, schema: schema_id)
    made = Producer(project(tmp).catalog.topic("clicks"), "clicks", Kafka(bootstrap=DEAD), registry)
    made._opened = NOON
    return made


def schema_not_registered(tmp: Path) -> None:
    producer(tmp, schema_id=None)


def key_too_long(tmp: Path) -> None:
    producer(tmp).send_encoded(b"k" * 480_000, b"value")


def wrong_event(tmp: Path) -> None:
    class Purchase(lf.Event):
        user_id: str

    producer(tmp).send(Purchase(user_id="u"))


def record_does_not_fit(tmp: Path) -> None:
    producer(tmp).send_dict({"user_id": "u", "item_id": "i", "price": "dear", "tags": [], "at": NOON})


def delete_not_compacted(tmp: Path) -> None:
    producer(tmp).delete(user_id="u")


def log_time_not_ours(tmp: Path) -> None:
    producer(tmp).send_dict({"user_id": "u", "item_id": "i", "price": 1.0, "tags": [], "at": NOON}, log_time=NOON)


def answered(sending: Producer, client: Any) -> Producer:
    sending.sent = 1_000
    sending._client = client
    return sending


def undelivered(sending: Producer, code: int, keys: range) -> None:
    for n in keys:
        sending._undelivered.report(KafkaError(code), stand_in(key=lambda n=n: f"u{n}".encode(), partition=lambda: 0))


def not_delivered(tmp: Path) -> None:
    sending = answered(producer(tmp), Silent())
    undelivered(sending, KafkaError.MSG_SIZE_TOO_LARGE, range(7))
    sending.flush()


def delivery_unknown(tmp: Path) -> None:
    sending = answered(producer(tmp), Silent())
    undelivered(sending, KafkaError._MSG_TIMED_OUT, range(7))
    undelivered(sending, KafkaError.MSG_SIZE_TOO_LARGE, range(7, 9))
    sending.flush()


def not_delivered_yet(tmp: Path) -> None:
    class Slow(Silent):
        def flush(self, timeout: float) -> int:
            return 12

        def __len__(self) -> int:
            return 12

    answered(producer(tmp), Slow()).flush(timeout=5)


CAUSES: dict[str, Cause] = {
    # Events
    "field-type": event("colour: dict[str, str]"),
    "default-factory": event("tags: list[str] = Field(default_factory=list)"),
    "field-name": event("json: str"),
    "default-type": event('price: float = "dear"'),
    "rule-not-portable": event('name: str = Field(pattern="^a")'),
    "unknown-field": declares("Click.prise"),
    "not-a-field": topic("key=3"),
    "field-of-other-event": declares(
        "class Purchase(lf.Event):\n    user_id: str\n\n\n"
        "class A(lf.Features, of=clicks, by=Purchase.user_id):\n    n = lf.count('1h')"
    ),
    # Topics
    "topic-name": topic("", name='"my clicks"'),
    "not-an-event": topic("", of="dict"),
    "key-kind": topic("key=Click.price"),
    "time-kind": topic("time=Click.user_id"),
    "time-missing": topic("time=None"),
    "partitions-range": topic("partitions=5_000"),
    "bad-rate": topic('rate="fast"'),
    "replication-range": topic("replication=0"),
    "bad-compatibility": topic('compatibility="SOME"'),
    "json-compatibility": topic('format="json"; compatibility="FULL"'),
    "bad-topic-option": topic('format="xml"'),
    "compacted-retention": topic('compacted=True; retention="7d"'),
    "bad-duration": topic('lateness="soon"'),
    "duration-not-positive": topic('lateness="0s"'),
    # Features
    "not-a-topic": feature('lf.count("1h")', of='"clicks"'),
    "view-name": declares(f"{VIEW.replace('user_id)', 'user_id, name=' + repr('a:b') + ')')}"),
    "no-features": declares("class Activity(lf.Features, of=clicks, by=Click.user_id):\n    pass"),
    "reserved-name": feature('lf.count("1h")', name="found"),
    "by-kind": feature('lf.count("1h")', by="Click.price"),
    "aggregate-kind": feature('lf.sum(Click.item_id, "1h")'),
    "sum-scale": feature('lf.sum(Click.price, "1h", scale=20)'),
    "window-too-short": feature('lf.count("5s")'),
    "bad-step": feature('lf.count("1h", step="7s")'),
    "condition-as-bool": feature('lf.count("1h", where=Click.price > 1 and Click.item_id != "x")'),
    "condition-compared": feature('lf.count("1h", where=(Click.price > 1) == True)'),
    "condition-kinds": feature('lf.count("1h", where=Click.price > "100")'),
    "not-a-condition": feature('lf.count("1h", where=True)'),
    "naive-datetime": feature('lf.count("1h", where=Click.at > datetime(2026, 1, 1))'),
    "compute-needs-key": computed(""),
    "wrong-key": computed(", user='u1'"),
    # The project
    "no-project": no_project,
    "project-not-yours": project_not_yours,
    "bad-toml": toml("[project\n"),
    "bad-project": toml('[project]\nname = "shop"\n'),
    "unknown-profile": toml(PROJECT, profile="prod"),
    "environment-missing": profile('namespace = "env:LEFTFOLD_GOLDEN_NOT_SET"'),
    "bad-profile": profile('kafka = { bootstrap = "b:9092", securty = "SSL" }'),
    "bad-profile/far": profile('online = { url = "redis://r:6379", shards = 3 }'),
    "bad-profile/value": profile('kafka = { bootstrap = "b:9092", security = "TLS" }'),
    "half-profile": profile('kafka = { bootstrap = "b:9092" }'),
    "no-declarations": no_declarations,
    "declarations-failed": declares("1 / 0"),
    "duplicate-topic": declares('again = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)'),
    "duplicate-view": declares(VIEW + "\n\n" + VIEW.replace("UserActivity(", "userActivity(")),
    "unknown-topic": unknown_topic,
    "unknown-topic/far": unlike_topic,
    "unknown-view": unknown_view,
    "directory-not-empty": directory_not_empty,
    "project-name": project_name,
    "bad-line": bad_line,
    "bad-line/pipe": bad_line_of_a_pipe,
    # The plan
    "too-few-brokers": planned(brokers=1),
    "topic-cannot-shrink": planned(topic=clusters.seen_topic("clicks", 12, 3, BROKER_TIME)),
    "topic-cannot-grow": planned(topic=clusters.seen_topic("clicks", 3, 3, BROKER_TIME)),
    "topic-missing": planned(", external=True"),
    "producer-time": planned(", external=True", topic=clusters.seen_topic("clicks", 6, 3, {})),
    "broker-time": planned(
        ", external=True, log_time='producer'", topic=clusters.seen_topic("clicks", 6, 3, BROKER_TIME)
    ),
    "compaction-differs": planned(
        ", external=True", topic=clusters.seen_topic("clicks", 6, 3, {**BROKER_TIME, "cleanup.policy": "compact"})
    ),
    "schema-incompatible": planned(
        topic=clusters.seen_topic("clicks", 6, 3, BROKER_TIME),
        subject=ObservedSubject("FULL_TRANSITIVE", registered=False, accepted=False, versions=(WITHOUT_PRICE,)),
    ),
    # Kafka and the registry
    "kafka-unreachable": kafka_unreachable,
    "kafka-denied": kafka_denied,
    "kafka-denied/spark": kafka_denied_to_spark,
    "kafka-login": kafka_login,
    "kafka-tls": kafka_tls,
    "kafka-tls/expected": kafka_tls_expected,
    "registry-tls": registry_tls,
    "registry-unreachable": registry_unreachable,
    "registry-refused": registry_answers(500, "Error in the backend data store"),
    "registry-denied": registry_answers(401, "Unauthorized"),
    "registry-denied/right": registry_answers(403, "User is denied operation Read on Subject: clicks-value"),
    "kafka-refused": kafka_refused(KafkaError.POLICY_VIOLATION, "Topic names must start with a team"),
    "kafka-refused/unknown": kafka_refused(KafkaError.UNKNOWN, "The server experienced an unexpected error"),
    "schema-not-registered": schema_not_registered,
    "wrong-event": wrong_event,
    "record-does-not-fit": record_does_not_fit,
    "key-too-long": key_too_long,
    "delete-not-compacted": delete_not_compacted,
    "log-time-not-ours": log_time_not_ours,
    "not-delivered": not_delivered,
    "not-delivered/lines": failed_lines,
    "delivery-unknown": delivery_unknown,
    "delivery-unknown/lines": unknown_lines,
    "send-interrupted": send_interrupted,
    "not-delivered-yet": not_delivered_yet,
}
