"""Which failure is which, by what clients really say. Real brokers say it in tests/engine/test_secured.py."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError
from kafka.errors import (  # type: ignore[import-untyped]
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
)

from leftfold import clock
from leftfold.errors import LogError
from leftfold.kafka.failures import Heard, failed, in_java, in_python, refused
from leftfold.settings import Kafka

SECURED = Kafka.model_validate({"bootstrap": "b:9093", "security": "SASL_SSL", "username": "shop", "password": "pw"})
LOGIN = KafkaError(
    KafkaError._AUTHENTICATION,
    "sasl_ssl://b:9093/bootstrap: SASL authentication error: no (after 3ms in state AUTH_REQ)",
)
TIMEOUT = KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller: Local: Timed out")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._AUTHENTICATION, "kafka-login"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "kafka-login"),
        (KafkaError.UNSUPPORTED_SASL_MECHANISM, "kafka-login"),
        (KafkaError._SSL, "kafka-tls"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "kafka-denied"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "kafka-denied"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "kafka-denied"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "kafka-denied"),
        (KafkaError._TRANSPORT, "kafka-unreachable"),
        (KafkaError._TIMED_OUT, "kafka-unreachable"),
    ],
)
def test_by_code(code: int, expected: str) -> None:
    told = failed(SECURED, KafkaError(code, "some words"), topic="prod.clicks")
    assert told.code == expected
    assert told.why == "some words"
    assert told.retriable is (expected == "kafka-unreachable")


def test_a_denial_names_user_and_resource() -> None:
    told = failed(
        SECURED, KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"), group="leftfold.prod.x/0"
    )
    assert "User:shop" in told.what
    assert "transactional id leftfold.prod.x/0" in told.what


def test_without_the_clients_own_notes() -> None:
    assert failed(SECURED, LOGIN).why == "SASL authentication error: no"


def test_a_timeout_is_told_by_what_was_heard_before(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(SECURED)
    assert heard.instead_of(TIMEOUT) is TIMEOUT
    assert heard.refusal() is None
    heard(KafkaError(KafkaError._TRANSPORT, "connection refused"))
    assert heard.instead_of(TIMEOUT) is TIMEOUT
    heard(LOGIN)
    assert heard.instead_of(TIMEOUT) is LOGIN
    assert code_of(heard.refusal()) == "kafka-login"
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")
    assert heard.instead_of(denied) is denied  # it has a reason of its own
    later = clock.monotonic() + 3_600
    monkeypatch.setattr(clock, "monotonic", lambda: later)
    assert heard.instead_of(TIMEOUT) is TIMEOUT
    assert heard.refusal() is None


def test_an_answer_makes_it_forget() -> None:
    heard = Heard(SECURED)
    heard(LOGIN)
    heard.forget()
    assert heard.refusal() is None


@pytest.mark.parametrize(
    ("failure", "code", "word"),
    [
        (
            "=== Streaming Query ===\norg.apache.spark.SparkException: x\nCaused by: java.util.concurrent."
            "ExecutionException: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed "
            "during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512\n\tat a.b(C.java:1)",
            "kafka-login",
            "invalid credentials",
        ),
        (
            "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n"
            "Caused by: javax.net.ssl.SSLHandshakeException: PKIX path building failed: unable to find valid path",
            "kafka-tls",
            "PKIX path building failed",
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized "
            "to access topics: [prod.clicks]",
            "kafka-denied",
            "topic prod.clicks",
        ),
        (
            "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: g",
            "kafka-denied",
            "group g",
        ),
        (
            "org.apache.kafka.common.errors.ClusterAuthorizationException: Cluster authorization failed.",
            "kafka-denied",
            "Cluster authorization",
        ),
    ],
)
def test_in_a_query_of_spark(failure: str, code: str, word: str) -> None:
    told = in_java(failure)
    assert told is not None
    assert told.code == code
    assert word in f"{told.what} {told.why}"
    assert not told.retriable


def test_other_failures_of_spark_are_not_explained() -> None:
    assert in_java("java.lang.OutOfMemoryError: Java heap space") is None
    assert in_java("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.") is None


def test_nor_those_of_a_file_system() -> None:
    assert in_java("javax.net.ssl.SSLHandshakeException: PKIX path building failed, at S3AFileSystem") is None
    assert in_java("org.apache.hadoop.security.authorize.AuthorizationException: not you") is None


def test_in_kafka_python() -> None:
    assert code_of(in_python(SECURED, SaslAuthenticationFailedError("no"))) == "kafka-login"
    assert code_of(in_python(SECURED, ClusterAuthorizationFailedError("no"))) == "kafka-denied"
    assert in_python(SECURED, KafkaConnectionError("gone")) is None
    wrapped = KafkaConnectionError("gone")
    wrapped.__cause__ = ssl.SSLCertVerificationError("not verified")
    assert code_of(in_python(SECURED, wrapped)) == "kafka-tls"


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A server that says this to whoever connects, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1_024)
                link.sendall(answer)

        server.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (bytes.fromhex("15 0303 0002 02 28"), "kafka-tls"),  # an alert of TLS: handshake failure
        (b"\0\0\0\x04junk", None),
        (b"", None),
    ],
)
def test_a_client_without_tls_finds_out_whether_the_listener_speaks_it(answer: bytes, expected: str | None) -> None:
    with listening(answer) as server:
        assert code_of(Heard(Kafka(bootstrap=server)).refusal()) == expected


def test_nobody_is_asked_where_the_client_speaks_tls() -> None:
    assert Heard(SECURED).refusal() is None  # b:9093 does not even resolve


def test_of_none_of_these() -> None:
    assert refused(SECURED, TIMEOUT) is None


def code_of(error: LogError | None) -> str | None:
    return None if error is None else error.code
