"""`send`: what it says of each line. The client is real; nobody listens where it sends, or a stand-in answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

import leftfold as lf
from leftfold.cli import send_verb
from leftfold.cli.main import cli
from leftfold.errors import DeclarationError, DeliveryError, LeftfoldError
from leftfold.kafka import producer as module
from leftfold.kafka.producer import Producer
from leftfold.settings import Kafka
from tests.unit.conftest import MakeProject

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Tap(lf.Event):
    who: str
    at: datetime


taps = lf.Topic("taps", Tap, key=Tap.who, time=Tap.at)
"""
DEAD = "127.0.0.1:1"  # port 1 is never listened on
# As `leftfold`, with a producer that reaches nobody; SIGINT arrives once the first line was handed over.
INTERRUPTED = """\
import os, signal, sys, threading
from types import SimpleNamespace
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
import leftfold as lf
from leftfold.kafka.producer import Producer
from leftfold.settings import Kafka

class Watched(Producer):
    def send_encoded(self, key, value, **options):
        super().send_encoded(key, value, **options)
        print("sent", flush=True)

def producer(app, topic):
    return Watched(app.catalog.topic(topic), topic, Kafka(bootstrap="127.0.0.1:1"), SimpleNamespace(id_of=lambda *_: 1))

lf.App.producer = producer
from leftfold.cli.main import main
main()
"""


def tap(who: str = "ada") -> str:
    return json.dumps({"who": who, "at": "2026-01-05T12:00:00Z"}) + "\n"


class Answers:
    """A client that acknowledges everything but these keys, which get no answer."""

    def __init__(self, *silent: bytes) -> None:
        self.taken: list[bytes] = []
        self.on_delivery: Any = None  # of the client, for records without their own
        self._silent = silent
        self._reports: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, *, on_delivery: Any = None, timestamp: int = 0) -> None:
        self.taken.append(key)
        if key in self._silent:
            self._reports.append(
                (on_delivery or self.on_delivery, SimpleNamespace(partition=lambda: 0, key=lambda: key))
            )

    def flush(self, timeout: float) -> int:
        for report, message in self._reports:
            report(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        self._reports = []
        return 0

    poll = flush

    def __len__(self) -> int:
        return len(self._reports)


@pytest.fixture
def here(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_project(files={"streams.py": STREAMS})
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers(b"x")
    _sends_by(answers, monkeypatch)
    return answers


def _sends_by(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def producer(app: lf.App, topic: str) -> Producer:
        registry: Any = SimpleNamespace(id_of=lambda subject, schema: 1)
        made = Producer(app.catalog.topic(topic), topic, Kafka(bootstrap=DEAD), registry)
        if client is not None:
            made._client, made._produce = client, client.produce
            client.on_delivery = made._undelivered.report
        return made

    monkeypatch.setattr(lf.App, "producer", producer)


def send(source: str, text: str | None = None) -> LeftfoldError | None:
    error = CliRunner().invoke(cli, ["send", "taps", source, "--json"], input=text).exception
    assert error is None or isinstance(error, LeftfoldError), error
    return error


def test_a_file_with_a_bad_line_is_not_begun(here: Path, client: Answers) -> None:
    bad = '{"who": 5}\n'
    (here / "taps.jsonl").write_text(tap() + "\n" + tap() + bad + tap() + bad)
    error = send("taps.jsonl")
    assert isinstance(error, DeclarationError)
    assert error.code == "bad-line"
    assert error.what.startswith("line 4 is no Tap: who: ")
    assert error.what.endswith(", and 1 more lines")
    assert error.state == "the file was checked first, and nothing was sent"
    assert error.fix == "correct lines 4, 6 and run the same command again"
    assert error.details["bad"] == [4, 6]
    assert client.taken == []


def test_a_value_that_cannot_be_written_is_found_by_the_check_too(here: Path, client: Answers) -> None:
    (here / "taps.jsonl").write_text(tap() + '{"who": "ada", "at": "2026-01-05T12:00:00"}\n')
    error = send("taps.jsonl")
    assert error is not None
    assert error.code == "bad-line"
    assert error.what.startswith("line 2")
    assert client.taken == []


def test_a_good_file_is_sent_once(here: Path, client: Answers) -> None:
    (here / "taps.jsonl").write_text(tap() + "\n" + tap("bo"))
    assert send("taps.jsonl") is None
    assert client.taken == [b"ada", b"bo"]


def test_a_pipe_is_sent_up_to_its_bad_line(here: Path, client: Answers) -> None:
    error = send("-", tap() + "\n" + tap() + "nonsense\n" + tap())
    assert isinstance(error, DeclarationError)
    assert error.code == "bad-line"
    assert error.state == "lines 1-3: acknowledged; from line 4 on: not sent"
    assert error.fix == "correct it and send the rest: tail -n +4 FILE | leftfold send taps -"
    assert error.details["lines"] == {"acknowledged": [(1, 3)], "failed": [], "unknown": [], "not_sent_from": 4}


def test_unknown_lines_are_named_before_a_bad_one(here: Path, client: Answers) -> None:
    error = send("-", tap() + tap("x") + "\n" + tap("x") + tap() + "nonsense\n" + tap())
    assert isinstance(error, DeliveryError)
    assert error.code == "delivery-unknown"
    assert "line 6 is no Tap" in error.what
    assert error.state == ("lines 1, 5: acknowledged; lines 2, 4: unknown, may be in the log; from line 6 on: not sent")
    assert error.fix.startswith(
        "correct line 6; send what is not in the log: tail -n +6 FILE | leftfold send taps -; "
        "read what is in the log once all brokers are well: leftfold replay taps --from "
    )
    assert error.details["lines"]["unknown"] == [(2, 2), (4, 4)]
    assert (error.details["acknowledged"], error.details["unknown"]) == (2, 2)


def test_unknown_lines_of_a_whole_file(here: Path, client: Answers) -> None:
    (here / "my taps.jsonl").write_text(tap() + tap("x"))
    error = send("my taps.jsonl")
    assert error is not None
    assert error.state == "line 1: acknowledged; line 2: unknown, may be in the log"
    assert error.fix.startswith("read what is in the log")
    assert "send again" not in error.fix


def test_failed_lines_can_be_sent_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SETTINGS, "delivery.timeout.ms", 1_000)
    _sends_by(None, monkeypatch)
    (here / "my taps.jsonl").write_text(tap() + "\n" + tap())
    error = send("my taps.jsonl")
    assert isinstance(error, DeliveryError)
    assert error.code == "not-delivered"
    assert error.state == "lines 1, 3: failed, not in the log"
    assert error.fix.endswith("send what is not in the log: sed -n '1p;3p' 'my taps.jsonl' | leftfold send taps -")


def test_made_up_records_without_an_answer_are_counted_apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(b"w0")
    _sends_by(answers, monkeypatch)
    error = CliRunner().invoke(cli, ["send", "taps", "--synthetic", "50", "--seed", "1"]).exception
    assert isinstance(error, DeliveryError)
    assert error.code == "delivery-unknown"
    silent = answers.taken.count(b"w0")
    assert 1 < silent < 50
    assert error.state == f"{50 - silent} records: acknowledged; {silent} records: unknown, may be in the log"
    assert error.fix.startswith("read what is in the log")
    counted = {name: error.details[name] for name in ("acknowledged", "failed", "unknown", "not_sent")}
    assert counted == {"acknowledged": 50 - silent, "failed": 0, "unknown": silent, "not_sent": 0}


def test_made_up_records_after_a_failure_are_not_sent(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_EVERY", 4)
    answers = Answers(b"w0")
    _sends_by(answers, monkeypatch)
    error = CliRunner().invoke(cli, ["send", "taps", "--synthetic", "50", "--seed", "1"]).exception
    assert isinstance(error, DeliveryError)
    sent = len(answers.taken)
    assert sent < 50
    assert error.state.endswith(f"unknown, may be in the log; {50 - sent} records: not sent")
    assert f"send what is not in the log: leftfold send taps --synthetic {50 - sent}; " in error.fix


@pytest.mark.parametrize("handed_over", [True, False])
def test_ctrl_c_between_made_up_records(here: Path, monkeypatch: pytest.MonkeyPatch, handed_over: bool) -> None:
    class Interrupted(Answers):
        def produce(self, *record: Any, **options: Any) -> None:
            if handed_over and len(self.taken) == 3:
                raise KeyboardInterrupt
            super().produce(*record, **options)

    monkeypatch.setattr(send_verb, "_SHOWN_EVERY", 3)

    def between(producer: Producer, count: int, *, seed: int) -> Iterator[tuple[bytes, bytes]]:
        yield from [(b"a", b"")] * 3
        if not handed_over:
            raise KeyboardInterrupt
        yield b"a", b""

    answers = Interrupted()
    _sends_by(answers, monkeypatch)
    monkeypatch.setattr(Producer, "synthetic", between)
    error = CliRunner().invoke(cli, ["send", "taps", "--synthetic", "10"]).exception
    assert isinstance(error, DeliveryError)
    assert error.code == "send-interrupted"
    if handed_over:
        assert error.what == "interrupted at record 4"
        assert error.state == ("3 records: acknowledged; 1 record: unknown, may be in the log; 6 records: not sent")
    else:
        assert error.what == "interrupted at record 3"
        assert error.state == "3 records: acknowledged; 7 records: not sent"
        assert error.fix == "send the rest: leftfold send taps --synthetic 7"


def test_made_up_records_are_counted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SETTINGS, "delivery.timeout.ms", 1_000)
    _sends_by(None, monkeypatch)
    error = CliRunner().invoke(cli, ["send", "taps", "--synthetic", "5"]).exception
    assert isinstance(error, DeliveryError)
    assert error.state == "5 records: failed, not in the log"
    assert error.fix.endswith("leftfold send taps --synthetic 5")


@pytest.mark.parametrize("at_the_end", [False, True])
def test_ctrl_c_ends_it_soon_and_says_what_is_open(here: Path, at_the_end: bool) -> None:
    sending = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "send", "taps", "-", "--json"],
        cwd=here,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sending.stdin is not None
    assert sending.stdout is not None
    sending.stdin.write(tap())
    sending.stdin.flush()
    assert sending.stdout.readline() == "sent\n"
    if at_the_end:
        sending.stdin.close()  # it waits for the acknowledgement, or is about to
    sending.send_signal(signal.SIGINT)
    assert sending.wait(timeout=60) == 130
    error = json.loads(sending.stdout.read())["error"]
    assert error["code"] == "send-interrupted"
    assert error["details"]["lines"]["acknowledged"] == []
    assert error["details"]["lines"]["failed"] == [[1, 1]]
    for pipe in (sending.stdin, sending.stdout):
        pipe.close()
