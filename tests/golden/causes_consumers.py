"""How to provoke errors of consumers: their declaration, their start, their handler, and what they leave behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr

import leftfold as lf
from leftfold.consume.clients import ConsumerNames, LogClients
from leftfold.consume.consuming import Consuming
from leftfold.consume.crew import ConsumerCrew
from leftfold.consume.lanes import Work
from leftfold.consume.position import ConsumerPosition
from leftfold.consume.returned import Returned
from leftfold.consume.settled import Committed, Settled, encoded
from leftfold.consume.slices import Slice, SliceWriter
from leftfold.consume.sql_rows import SqlRows
from leftfold.consume.starts import Starts
from leftfold.errors import LeftfoldError
from leftfold.kafka import document_log
from leftfold.kafka.consumer_log import ConsumerLog, begun_key
from leftfold.kafka.dead_letters import DeadLetters, DeadLetterWriter, RecordPlace
from leftfold.kafka.group import LogPartition, Member, Position
from leftfold.kafka.group_offsets import set_group_offsets
from leftfold.settings import Kafka
from tests.golden.causes import DEAD, EVENT, HEAD, TOPIC, VIEW, Cause, declares, project, stand_in

NOTIFY = '@lf.consumer(clicks, start="beginning"{options})\ndef notify(click: Click) -> None:\n    pass\n'
ID, OTHER_ID = "KzVhwQ0xQxaZ1Jb9uVnX2g", "m1wX3kPjTx2Wq7d0Ue5b9A"
PART = LogPartition("clicks", 0)
KAFKA = Kafka(bootstrap=DEAD)


def consumer(options: str) -> Cause:
    return declares(NOTIFY.format(options=f", {options}"))


def declared(tmp: Path, options: str = "") -> Any:
    return project(tmp, HEAD + EVENT + TOPIC + NOTIFY.format(options=options)).catalog.consumer("notify")


def names(declared: Any) -> ConsumerNames:
    return ConsumerNames("leftfold.notify", {"clicks": declared.topics[0]}, "notify.dead", "notify.again")


def clients(*, notes: Mapping[str, Any] | None = None, topics: Mapping[str, int] | None = None) -> LogClients:
    """Of a log in which the topic holds offsets 500 to 900."""
    there = topics if topics is not None else {"clicks": 1, "notify.dead": 1, "notify.again": 1}
    admin = stand_in(
        topic_ids=lambda _: {"clicks": ID},
        partitions=lambda _: there,
        partitions_of=lambda _: 1,
        start_offsets=lambda *_: {0: 500},
        end_offsets=lambda *_: {0: 900},
    )
    return LogClients(KAFKA, admin, stand_in(schema=None), stand_in(notes=lambda _: dict(notes or {})))


def starts(position: Committed | None, *, notes: Mapping[str, Any] | None = None, commits: bool = True) -> Cause:
    """A partition is assigned to a group with this position."""

    def cause(tmp: Path) -> None:
        one = declared(tmp)
        committed = {} if position is None else {PART: Position(position.offset, encoded(position))}
        member: Any = stand_in(committed=lambda _: committed, commit=lambda *_, **__: commits)
        Starts(one, names(one), clients(notes=notes)).choose([PART], member)

    return cause


def note(topic_id: str) -> dict[str, Any]:
    began = {"topic": "clicks", "partition": 0, "of": 1, "offset": 17, "at": "2026-01-05T12:00:00+00:00"}
    return {begun_key(topic_id, 0): began}


def consuming(tmp: Path, options: str) -> Consuming:
    one = declared(tmp, options)
    running = Consuming(one, names(one), clients())
    running._letters = stand_in(write=lambda *_: None, look=lambda: None, acknowledged=deque())
    return running


class StandInMessage(SimpleNamespace):
    def __len__(self) -> int:
        return 10


def failed(options: str, times: int) -> Cause:
    """The handler has failed for records of one key after the other."""

    def cause(tmp: Path) -> None:
        running = consuming(tmp, options)
        part = Settled("clicks", ID, 0, Committed(500))
        for offset in range(500, 500 + times):
            message = StandInMessage(
                topic=lambda: "clicks",
                key=lambda: b"u1",
                value=lambda: b"",
                headers=lambda: [],
                timestamp=lambda: (2, 0),
            )
            part.take(offset, 0)
            work = Work(part, offset, "u1", None, "accepted", message)
            running._lanes.put([work])
            running._lanes.drop(lambda _: True)
            running._lanes._lanes["u1"] = deque()
            running._retries.failed([work], lf.Unprocessable("no such user"))

    return cause


def not_applied(tmp: Path) -> None:
    one = declared(tmp)
    Consuming(one, names(one), clients(topics={"clicks": 1})).run()


def ended_by_a_fault(tmp: Path) -> None:
    running: Any = stand_in(progress=stand_in(consumer="notify", state="running", error=None), stop=lambda: None)

    def run() -> None:
        raise KeyError("offset")

    running.run = run
    (progress,) = ConsumerCrew([running]).run()
    assert isinstance(progress.error, LeftfoldError)
    raise progress.error


def member(error: int, *, fatal: bool = True) -> Cause:
    """A member whose client reports an error."""

    def cause(_: Path) -> None:
        events: Any = stand_in()
        one = Member(KAFKA, "leftfold.notify", ["clicks"], events)
        told = KafkaError(error, fatal=fatal)
        one.ended(stand_in(error=lambda: told, topic=lambda: "clicks", partition=lambda: 3))

    return cause


def dead_letter_not_written(_: Path) -> None:
    writer = DeadLetterWriter(KAFKA, "notify.dead")
    writer._failures.append(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    writer.look()


def letters(topics: Mapping[str, int], sent: KafkaError | None = None) -> Cause:
    def cause(_: Path) -> None:
        admin: Any = stand_in(partitions=lambda _: topics)
        dead = DeadLetters("notify", "notify.dead", "notify.again", KAFKA, admin)
        with mock.patch("leftfold.kafka.dead_letters.scan", return_value=iter(())):
            if sent is None:
                dead.find([RecordPlace("clicks", 0, 17)])
            with mock.patch("leftfold.kafka.dead_letters.Client") as client:
                client.return_value.produce.side_effect = lambda *_, on_delivery, **__: on_delivery(sent, None)
                client.return_value.flush.return_value = 0
                dead.drop([stand_in(place=RecordPlace("clicks", 0, 17))])

    return cause


def writing_to(tmp: Path) -> tuple[Any, ConsumerNames, LogClients]:
    one = declared(tmp, ', delivery="exactly_once", to=lf.Topic("more", Click, key=Click.user_id, time=Click.at)')
    writing: Any = stand_in(schema=None, id_of=lambda *_: 1)
    to = ConsumerNames("leftfold.notify", {"clicks": one.topics[0]}, "notify.dead", "notify.again", "more")
    return one, to, LogClients(KAFKA, stand_in(), writing, stand_in())


def handler_returns(tmp: Path) -> None:
    Returned(*writing_to(tmp)).encoded(17)


def transaction_not_committed(tmp: Path) -> None:
    writer = SliceWriter(*writing_to(tmp))
    writer._transactions = stand_in(commit=lambda *_: False, failure="Local: Timed out", settle=lambda: None)
    part = Settled("clicks", ID, 0, Committed(500))
    piece = Slice(None, [Work(part, 500, "u1", None, "accepted", None)], failing_since=-100.0)
    member: Any = stand_in(committed=lambda _: {})
    with mock.patch("leftfold.clock.monotonic", return_value=0.0):
        writer.write(piece, member)


LEDGER = "postgresql://clerk:secret@127.0.0.1:1/ledger"
INTO = 'delivery="exactly_once", into=lf.Sql("env:LEDGER_URL")'
BOOK = f'@lf.consumer(clicks, start="beginning", {INTO})\ndef book(click: Click, db: lf.SqlConnection) -> None: ...\n'


def booking(tmp: Path) -> Any:
    return project(tmp, HEAD + EVENT + TOPIC + BOOK).catalog.consumer("book")


def rows(tmp: Path, url: str = LEDGER) -> SqlRows:
    return SqlRows(booking(tmp), "leftfold.book", SecretStr(url))


def database_away(tmp: Path) -> None:
    rows(tmp).open()


def database_refused(tmp: Path) -> None:
    rows(tmp, "postgres//clerk:secret@ledger")


def table_refused(tmp: Path) -> None:
    raise rows(tmp).refused(psycopg.errors.InsufficientPrivilege("permission denied for table leftfold_positions"))


def partition_overtaken(tmp: Path) -> None:
    raise rows(tmp).overtaken(Settled("clicks", ID, 0, Committed(500)))


def handler_committed(tmp: Path) -> None:
    ended: Any = stand_in(cursor=lambda **_: stand_in(execute=lambda *_: stand_in(fetchone=lambda: ("8",))))
    rows(tmp).move_with(ended, Settled("clicks", ID, 0, Committed(500)), 501, "7")


def row_forgotten(tmp: Path) -> None:
    one = booking(tmp)
    none: Any = stand_in(claim=lambda _: {})
    Starts(one, names(one), clients(notes=note(ID)), none).choose([PART], stand_in())


def topic_recreated(tmp: Path) -> None:
    one = booking(tmp)
    none: Any = stand_in(claim=lambda _: {})
    Starts(one, names(one), clients(notes=note(OTHER_ID)), none).choose([PART], stand_in())


def psycopg_missing(tmp: Path) -> None:
    booking(tmp)
    with mock.patch("importlib.util.find_spec", return_value=None):
        lf.open(tmp).position("book")


def url_missing(tmp: Path) -> None:
    booking(tmp)
    kafka = 'kafka = { bootstrap = "127.0.0.1:1" }'
    more = 'registry = { url = "http://127.0.0.1:1" }\nonline = { url = "redis://127.0.0.1:1" }'
    with (tmp / "leftfold.toml").open("a") as file:
        file.write(f"\n[profile.prod]\n{kafka}\n{more}\n")
    lf.open(tmp, profile="prod").position("book")


def not_noted(_: Path) -> None:
    log = ConsumerLog(KAFKA, "leftfold.consumers")
    log.__dict__["_partitions"] = 1
    with mock.patch.object(document_log, "TIMEOUT_S", 0.1):
        log.note("notify", {"paused": {}})


def group_has_members(_: Path) -> None:
    def result() -> None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    client = stand_in(alter_consumer_group_offsets=lambda *_, **__: {"leftfold.notify": stand_in(result=result)})
    with mock.patch("leftfold.kafka.group_offsets.Admin", return_value=stand_in(client=client)):
        set_group_offsets(KAFKA, "leftfold.notify", {PART: Position(17, "")})


def moved(to: Mapping[int, int]) -> Cause:
    def cause(tmp: Path) -> None:
        one = declared(tmp)
        with mock.patch("leftfold.consume.position.group_offsets", return_value={}):
            ConsumerPosition("notify", names(one), clients()).moves(to)

    return cause


def no_consumers(tmp: Path) -> None:
    project(tmp).crew()


def unknown_consumer(tmp: Path) -> None:
    declared(tmp)
    lf.open(tmp).catalog.consumer("notfy")


CAUSES: dict[str, Cause] = {
    "consumer-start": declares(NOTIFY.format(options="").replace('"beginning"', '"earliest"')),
    "exactly-once-nowhere": consumer('delivery="exactly_once"'),
    "consumer-option": consumer("parallel=0"),
    "consumer-option/order": consumer('batch=lf.Batch(10), order="key"'),
    "consumer-option/failure": consumer('failure="ignore"'),
    "consumer-park": consumer('failure="park", order="none"'),
    "consumer-to": consumer("to=clicks"),
    "sql-url": consumer(f'delivery="exactly_once", into=lf.Sql("{LEDGER}")'),
    "consumer-into": declares(BOOK.replace("def book", "async def book")),
    "consumer-into/often": consumer('into=lf.Sql("env:LEDGER_URL")'),
    "consumer-into/to": consumer(f"{INTO}, to=clicks"),
    "consumer-option/into": consumer(f'{INTO}, order="key"'),
    "handler-signature/into": consumer(INTO),
    "database-away": database_away,
    "database-refused": database_refused,
    "database-refused/table": table_refused,
    "partition-overtaken": partition_overtaken,
    "handler-committed": handler_committed,
    "psycopg-missing": psycopg_missing,
    "environment-missing/consumer": url_missing,
    "handler-returns": handler_returns,
    "transaction-not-committed": transaction_not_committed,
    "handler-signature": declares('@lf.consumer(clicks, start="now")\ndef notify() -> None:\n    pass\n'),
    "retry-at-most-once": consumer('delivery="at_most_once", retry=lf.Retry(attempts=3)'),
    "retry-attempts": consumer("retry=lf.Retry(attempts=0)"),
    "retry-too-long": consumer("retry=lf.Retry(attempts=50)"),
    "batch-size": consumer("batch=lf.Batch(0)"),
    "most-dead": consumer("most_dead=lf.MostDead(share=2)"),
    "duplicate-consumer": declares(
        NOTIFY.format(options="") + "\n\n" + NOTIFY.format(options=', name="notify"').replace("notify(", "again(")
    ),
    "group-taken": declares(VIEW + "\n\n" + NOTIFY.format(options=', name="user_activity"')),
    "no-consumers": no_consumers,
    "unknown-consumer": unknown_consumer,
    "topic-recreated/consumer": starts(Committed(600, OTHER_ID)),
    "topic-recreated/database": topic_recreated,
    "topic-recreated/note": starts(None, notes=note(OTHER_ID)),
    "log-overtaken/consumer": starts(Committed(100, ID)),
    "log-overtaken/fetch": member(KafkaError._AUTO_OFFSET_RESET, fatal=False),
    "position-beyond-log": starts(Committed(1_000, ID)),
    "position-forgotten": starts(None, notes=note(ID)),
    "position-forgotten/database": row_forgotten,
    "position-not-committed": starts(None, commits=False),
    "not-applied/consumer": not_applied,
    "handler-failed": failed(', failure="stop"', 1),
    "too-many-dead": failed(", most_dead=lf.MostDead(run=2)", 3),
    "consumer-ended": ended_by_a_fault,
    "group-protocol": member(KafkaError.UNSUPPORTED_VERSION),
    "member-refused": member(KafkaError.FENCED_INSTANCE_ID),
    "dead-letter-not-written": dead_letter_not_written,
    "unknown-position/dead": letters({"notify.dead": 1}),
    "companion-missing/dead": letters({}),
    "not-redriven/dead": letters({"notify.dead": 1}, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)),
    "consumer-not-noted": not_noted,
    "group-has-members": group_has_members,
    "offset-not-there": moved({0: 100}),
    "partition-missing/position": moved({0: 600, 7: 1}),
}
