"""Tells apart why a Kafka client failed: no broker answers, the login, TLS, or a missing right.

librdkafka retries a refused connection for ever, and reports the refusal only to the client's `error_cb`. A caller that
waits for an answer sees only a timeout. `Heard` is that `error_cb`. Java's client, inside Spark, reports the refusal in
the failure of a query.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import Any

from confluent_kafka import KafkaError

from leftfold import clock
from leftfold.errors import NOTHING_CHANGED, LogError, behind, start_or_check
from leftfold.settings import Kafka

_LOGIN = frozenset(
    (
        *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
        *(KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE),
    )
)
_TLS = frozenset((KafkaError._SSL,))
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
# After this time, a timeout may have another cause than the refusal that was heard last. librdkafka suppresses a
# repeated error for half a minute.
_FRESH_S = 60.0
# A listening server accepts a connection, and completes a handshake, within milliseconds.
_HANDSHAKE_S = 2.0
# OpenSSL's reasons for an answer that is not TLS, or for no answer.
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")

# Exceptions of Java's Kafka client. Exceptions with the same names from other libraries, such as a file system's, must
# not match.
_JAVA = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)(?:: (.*))?")
_JAVA_LOGIN = ("SaslAuthenticationException", "UnsupportedSaslMechanismException", "IllegalSaslStateException")
_JAVA_TLS = re.compile(r"(?:SSLHandshakeException|ValidatorException|CertificateException): (.*)")
_JAVA_RESOURCE = re.compile(r"(topic|group)s?: \[?([^\]\s]+)")


_DECLARATION = "correct the topic's declaration (name, partitions, replication, settings) so that the brokers accept it"
_REMEDIES = {
    KafkaError.POLICY_VIOLATION: "correct the topic's declaration so that it obeys the policy of the brokers' owner",
    KafkaError.TOPIC_EXCEPTION: _DECLARATION,
    KafkaError.INVALID_CONFIG: _DECLARATION,
    KafkaError.INVALID_PARTITIONS: _DECLARATION,
    KafkaError.INVALID_REPLICATION_FACTOR: _DECLARATION,
    KafkaError.MSG_SIZE_TOO_LARGE: "send smaller records, with large values in object storage, or raise "
    "max.message.bytes of the topic",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic: leftfold apply",
    KafkaError._UNKNOWN_TOPIC: "create the topic: leftfold apply",
    KafkaError.NOT_ENOUGH_REPLICAS: "start the brokers that are away (leftfold topics shows the replicas)",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "start the brokers that are away (leftfold topics shows the replicas)",
}

# The causes of brokers that do not answer, apart from being away. Refused logins and TLS have errors of their own.
BROKERS = (
    "kafka.bootstrap and kafka.security of the profile, and that this machine reaches the addresses that the brokers "
    "advertise (advertised.listeners)"
)


class Heard:
    """The newest refusal of login or TLS that a client met.

    It is the client's `error_cb`, which is called whenever the client is polled.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._error: KafkaError | None = None
        self._at = 0.0
        self._looked = False  # whether TLS was probed: a probe costs a connection to each broker
        self._found: LogError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _LOGIN | _TLS:
            self._error, self._at = error, clock.monotonic()

    def forget(self) -> None:
        """Forget earlier refusals: a broker has answered since, so it accepts this client's protocol."""
        self._error, self._looked, self._found = None, True, None

    def instead_of(self, error: KafkaError) -> KafkaError:
        """Return the refusal behind an error that only says that no broker answered; else the error itself."""
        if self._error is None or clock.monotonic() - self._at > _FRESH_S or refused(self._kafka, error) is not None:
            return error
        return self._error

    def refusal(self) -> LogError | None:
        """Return why no broker answers, if that is known by now. Meant to be called between two tries."""
        if self._error is not None and clock.monotonic() - self._at <= _FRESH_S:
            return refused(self._kafka, self._error)
        if not self._looked:
            self._looked, self._found = True, _clear_to_tls(self._kafka)
        return self._found


def remedy(error: KafkaError) -> str:
    """Return what a user can do about a refusal. It is the beginning of a fix."""
    return _REMEDIES.get(error.code(), "see the brokers' own log for the cause and remove it")


def failed(kafka: Kafka, error: KafkaError, *, topic: str = "", group: str = "") -> LogError:
    """Return the error for a failed question: its own refusal, or else that no broker answered."""
    return refused(kafka, error, topic=topic, group=group) or unreachable(kafka.bootstrap, error.str())


def refused(
    kafka: Kafka, error: KafkaError, *, topic: str = "", group: str = "", state: str = NOTHING_CHANGED
) -> LogError | None:
    """Return the error for a refused login, TLS connection or right; None if the error is none of these.

    A broker that denies something does not name it. So `topic`, and `group` (a group or transactional id), name what
    the caller asked for.
    """
    code, says = error.code(), _without_place(error.str())
    if code in _LOGIN:
        return _login(kafka, says)
    if code in _TLS:
        return _tls(kafka, says)
    if code in _DENIED:
        kind = _DENIED[code]
        name = {"topic": topic, "cluster": ""}.get(kind, group)
        return _denied(kafka, f"{kind} {name}" if name else f"the {kind}", says, state=state)
    return None


def in_java(failure: str) -> LogError | None:
    """Return the refusal in the failure text of a Spark query or job, whose Kafka client is Java's; None if none."""
    for kind, says in reversed(_JAVA.findall(failure)):  # the root cause comes last
        if kind in _JAVA_LOGIN:
            return _login(None, says)
        if kind == "SslAuthenticationException":
            return _tls(None, (_JAVA_TLS.findall(failure) or [says])[-1])
        if kind.endswith("AuthorizationException"):
            named = _JAVA_RESOURCE.search(says)
            return _denied(None, f"{named[1]} {named[2]}" if named else "what a query reads or writes", says or kind)
    return None


def in_python(kafka: Kafka, error: Exception) -> LogError | None:
    """Return the refusal behind an exception of kafka-python; None if it is not a refusal.

    Exceptions are recognized by their names, because the library is loaded only where it is used.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"SaslAuthenticationFailedError", "AuthenticationFailedError", "UnsupportedSaslMechanismError"}:
        return _login(kafka, str(error))
    if (tls := behind(error, ssl.SSLError)) is not None:
        return _tls(kafka, str(tls))
    if any(name.endswith("AuthorizationFailedError") for name in names):
        return _denied(kafka, "what was asked for", str(error))
    return None


def unreachable(bootstrap: str, why: str) -> LogError:
    return LogError(
        "kafka-unreachable",
        f"no broker answered at {bootstrap}",
        why=why,
        fix=start_or_check(BROKERS),
        retriable=True,
    )


def _denied(kafka: Kafka | None, resource: str, says: str, *, state: str = NOTHING_CHANGED) -> LogError:
    """Return the error for a missing right. Not retriable: the answer is the same until somebody grants the right."""
    return LogError(
        "kafka-denied",
        f"{_brokers(kafka)} do not give {_user(kafka)} the right that it needs on {resource}",
        why=says,
        state=state,
        fix=_grant(kafka, resource),
    )


def _grant(kafka: Kafka | None, resource: str) -> str:
    kind, _, name = resource.rpartition(" ")
    option = kind.replace(" ", "-")
    if kafka is None or option not in ("topic", "group", "transactional-id"):
        return "grant it: docs/reference/project.md lists the ACLs that each verb needs"
    login = _user(kafka) if kafka.security.startswith("SASL") else "User:ANONYMOUS"
    return (
        f"grant it: kafka-acls --bootstrap-server {kafka.bootstrap} --add --allow-principal {login} --{option} "
        f"{name} --operation OPERATION; docs/reference/project.md lists the operations that each verb needs"
    )


def _login(kafka: Kafka | None, says: str) -> LogError:
    """Return the error for a refused login. Not retriable: many tries with a wrong password lock an account."""
    return LogError(
        "kafka-login",
        f"{_brokers(kafka)} refused the login of {_user(kafka)}",
        why=says,
        fix="correct kafka.username, kafka.password and kafka.mechanism of the profile",
    )


def _tls(kafka: Kafka | None, says: str) -> LogError:
    """Return the error for a failed TLS connection. Not retriable: certificates do not change by themselves."""
    return LogError(
        "kafka-tls",
        f"no TLS connection could be made to {_brokers(kafka)}",
        why=says,
        fix="set kafka.ca of the profile to the PEM file of the CA that signed the brokers' certificates, and "
        "kafka.security to what their listener speaks",
    )


def _brokers(kafka: Kafka | None) -> str:
    return "the brokers" if kafka is None else f"the brokers at {kafka.bootstrap}"


def _user(kafka: Kafka | None) -> str:
    """Return the principal, in the form that brokers use for a login by name."""
    if kafka is None:
        return "Spark's Kafka client"
    return f"User:{kafka.username}" if kafka.security.startswith("SASL") else "a client without a login"


def _clear_to_tls(kafka: Kafka) -> LogError | None:
    """Return an error if this client speaks without TLS to a listener that expects TLS; else None.

    The broker disconnects such a client without a message.
    """
    if kafka.security in ("SSL", "SASL_SSL") or not any(map(_speaks_tls, kafka.bootstrap.split(","))):
        return None
    wanted = kafka.security.replace("PLAINTEXT", "SSL")
    return LogError(
        "kafka-tls",
        f"the brokers at {kafka.bootstrap} speak TLS, and this client does not",
        why=f"kafka.security is {kafka.security}; they close every connection that does not begin with TLS",
        fix=f'set kafka.security to "{wanted}" in the profile, and kafka.ca to the PEM file of their CA',
    )


def _speaks_tls(server: str) -> bool:
    """Return whether a server completes a TLS handshake.

    The certificate is not verified. That is safe, because nothing is sent after the handshake.
    """
    host, _, port = server.strip().rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_HANDSHAKE_S) as link,
            context.wrap_socket(link),
        ):
            return True
    except ssl.SSLError as error:
        # A server that asks for a client certificate, or for another version of TLS, speaks TLS as well.
        return error.reason is not None and error.reason not in _NO_TLS
    except (OSError, ValueError):
        return False


def _without_place(says: str) -> str:
    """Remove librdkafka's own notes: which thread's broker it was, and how long it was in which state."""
    says = re.sub(r"^[a-z_]*(?:://)?[^\s/]+:\d+/\S+: ", "", says)
    return re.sub(r" \(after \d+ms in state [^)]*\)$", "", says)


def quiet(heard: Heard) -> dict[str, Any]:
    """Return settings for every client: no logs, because what a user must know arrives as an error of ours."""
    return {"log_level": 0, "error_cb": heard}
