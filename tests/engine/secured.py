"""A secured cluster for one test: Kafka with SASL_SSL, SCRAM and ACLs, Redis and a registry over TLS, a private CA.

It has one broker, so that it is up in seconds. Leftfold does not set it up: it is made as an operator would make it.
No password of a user is written to a file or a command line here. So a test can search all of them for leaked
passwords.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs forget to re-export these
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from leftfold import jars
from leftfold.local import java, registry
from leftfold.local.ports import choose
from tests.engine.projects import await_true

HOST = "127.0.0.1"
MECHANISM = "SCRAM-SHA-512"
OPERATOR = ("operator", "operator-of-the-test")  # the cluster's own login; tests do not search for this secret
_LOG4J2 = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
# Every question to the authorizer: which rights were used, and which were missing.
logger.authorizer.name = kafka.authorizer.logger
logger.authorizer.level = debug
"""


class Acl(NamedTuple):
    """A right, as written in the guide's table. A `name` that ends with * is a prefix."""

    resource: str  # Topic, Group, TransactionalId, Cluster
    name: str
    operation: str

    def binding(self, user: str) -> AclBinding:
        kind = {"Topic": "TOPIC", "Group": "GROUP", "TransactionalId": "TRANSACTIONAL_ID", "Cluster": "BROKER"}
        prefixed = self.name.endswith("*")
        return AclBinding(
            ResourceType[kind[self.resource]],
            self.name.removesuffix("*"),
            ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation["".join(f"_{c}" if c.isupper() else c for c in self.operation).upper().lstrip("_")],
            AclPermissionType.ALLOW,
        )


@dataclass
class Secured:
    """The running cluster: its processes, and the addresses and files needed to reach it."""

    home: Path
    bootstrap: str
    registry_url: str
    redis_port: int
    ca: Path
    other_ca: Path  # a CA that signed none of the certificates
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def admin(self) -> AdminClient:
        """An admin client that is logged in as the cluster's operator."""
        return AdminClient(self.login(*OPERATOR))

    def login(self, user: str, password: str) -> dict[str, Any]:
        """Return the settings with which a librdkafka client logs in as a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }

    def add_user(self, name: str, password: str) -> None:
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        change = UserScramCredentialUpsertion(name, credentials, password.encode())
        admin = self.admin
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(240)

    def grant(self, user: str, acls: Iterable[Acl]) -> None:
        admin = self.admin
        for future in admin.create_acls([acl.binding(user) for acl in acls]).values():
            future.result(240)

    def revoke(self, user: str, acls: Iterable[Acl]) -> None:
        admin = self.admin
        filters = []
        for acl in acls:
            b = acl.binding(user)
            filters.append(
                AclBindingFilter(
                    b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, b.permission_type
                )
            )
        for future in admin.delete_acls(filters).values():
            future.result(240)

    def delete_topic(self, name: str) -> None:
        admin = self.admin
        for future in admin.delete_topics([name]).values():
            future.result(240)
        await_true(lambda: name not in admin.list_topics(timeout=120).topics, timeout=240, what=f"{name} to be gone")

    def close(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def start(self, argv: Iterable[str], directory: Path, name: str, environment: Mapping[str, str]) -> None:
        with (directory / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    list(argv),
                    cwd=directory,
                    env={**{k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )


@contextmanager
def secured(home: Path, redis_users: Mapping[str, tuple[str, str]]) -> Iterator[Secured]:
    """Start the cluster, and stop it at the end of the block.

    `redis_users` gives for each name the password, and the rest of the user's line in Redis' ACL file.
    """
    broker, controller, registry_port, redis_port = choose(4)
    (home / "pki").mkdir(parents=True)
    _certificates(home / "pki")
    made = Secured(
        home,
        f"{HOST}:{broker}",
        f"https://{HOST}:{registry_port}/apis/ccompat/v7",
        redis_port,
        home / "pki" / "ca.pem",
        home / "pki" / "other.pem",
    )
    try:
        _start_redis(made, redis_users)
        _start_registry(made, registry_port)
        _start_broker(made, broker, controller)
        context = ssl.create_default_context(cafile=str(made.ca))
        await_true(lambda: _answers(made.registry_url, context), timeout=120, what="the registry")
        await_true(lambda: _brokers(made) == 1, timeout=120, what="the broker")
        yield made
    finally:
        made.close()


def _answers(url: str, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", context=context, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _brokers(made: Secured) -> int:
    try:
        return len(made.admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return 0


# Certificates --------------------------------------------------------------------------------------------------------


def _certificates(pki: Path) -> None:
    """Make a CA, a server key with a certificate by that CA for loopback, and a second CA that signed nothing."""
    key, ca = _authority("trial")
    (pki / "ca.pem").write_bytes(_pem(ca))
    (pki / "other.pem").write_bytes(_pem(_authority("another")[1]))
    own = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
    server = (
        _builder("localhost", ca.subject)
        .public_key(own.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (pki / "server.key").write_bytes(private)
    (pki / "server.pem").write_bytes(_pem(server))
    (pki / "broker.pem").write_bytes(private + _pem(server) + _pem(ca))  # the order that Kafka expects in a keystore


def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        _builder(name, subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_signs(), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, made


def _signs() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
        key_cert_sign=True,
        crl_sign=True,
    )


def _builder(name: str, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


# Engines -------------------------------------------------------------------------------------------------------------


def _start_broker(made: Secured, port: int, controller: int) -> None:
    directory = made.home / "broker"
    directory.mkdir()
    user, password = OPERATOR
    login = "org.apache.kafka.common.security"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"SASL_SSL://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"SASL_SSL://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "SASL_SSL",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{login}.plain.PlainLoginModule required username="{user}" password="{password}" user_{user}="{password}";'
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            f'{login}.scram.ScramLoginModule required username="{user}" password="{password}";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(made.home / "pki" / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.ca),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{user}",
        "allow.everyone.if.no.acl.found": "false",
        "log.dirs": "data",
        **dict.fromkeys(("default.replication.factor", "min.insync.replicas"), "1"),
        **dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), "1"),
        "transaction.state.log.min.isr": "1",
        **dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "2"),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    (directory / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    (directory / "log4j2.properties").write_text(_LOG4J2)
    run = (java.find(), *java.BRIEF, *java.FLAGS, "-Xmx512m", "-Dlog4j2.configurationFile=log4j2.properties")
    classes = ("-cp", f"{jars.ensure('kafka')}/*")
    format_it = ("kafka.tools.StorageTool", "format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    scram = f"{MECHANISM}=[name={user},password={password}]"
    subprocess.run(
        [*run, *classes, *format_it, "--config", "server.properties", "--add-scram", scram],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    made.start((*run, *classes, "kafka.Kafka", "server.properties"), directory, "broker", {})


def _start_redis(made: Secured, users: Mapping[str, tuple[str, str]]) -> None:
    """Start Redis over TLS. Its ACL file holds only hashes of passwords."""
    directory = made.home / "redis"
    directory.mkdir()
    lines = ["user default off"]
    for name, (password, rights) in users.items():
        lines.append(f"user {name} on #{hashlib.sha256(password.encode()).hexdigest()} {rights}")
    (directory / "users.acl").write_text("".join(f"{line}\n" for line in lines))
    pki = made.home / "pki"
    options = {
        "port": "0",
        "tls-port": str(made.redis_port),
        "bind": HOST,
        "tls-cert-file": str(pki / "server.pem"),
        "tls-key-file": str(pki / "server.key"),
        "tls-ca-cert-file": str(made.ca),
        "tls-auth-clients": "no",
        "aclfile": "users.acl",
        "appendonly": "yes",
    }
    argv = ["redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]
    made.start(argv, directory, "redis", {})


def _start_registry(made: Secured, port: int) -> None:
    directory = made.home / "registry"
    directory.mkdir()
    runner = next(registry.unpacked().glob("*-runner.jar"))
    pki = made.home / "pki"
    environment = {
        "QUARKUS_HTTP_HOST": HOST,
        "QUARKUS_HTTP_INSECURE_REQUESTS": "disabled",
        "QUARKUS_HTTP_SSL_PORT": str(port),
        "QUARKUS_HTTP_SSL_CERTIFICATE_FILES": str(pki / "server.pem"),
        "QUARKUS_HTTP_SSL_CERTIFICATE_KEY_FILES": str(pki / "server.key"),
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "h2",
        "APICURIO_DATASOURCE_URL": "jdbc:h2:file:./registry;WRITE_DELAY=0",
    }
    argv = (java.find(), "-Xmx384m", *java.BRIEF, *java.FLAGS, "-jar", str(runner))
    made.start(argv, directory, "registry", environment)
