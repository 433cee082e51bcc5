"""Profiles: the addresses of the engines and how to connect to them.

A setting has one name here. It is translated for librdkafka, for Spark's Java client and for kafka-python. Secrets come
from the environment and are never printed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, StringConstraints

LISTENING = r"^(?:(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:]+\]):)?(?P<port>[0-9]{1,5})$"
Listening = Annotated[str, StringConstraints(pattern=LISTENING)]  # PORT, HOST:PORT or [IPV6]:PORT


def group_id(namespace: str, *parts: str) -> str:
    """The name of a consumer group, or a transactional id, that Leftfold uses.

    In a namespace, all these names begin with "leftfold.NAMESPACE.". So one prefixed ACL covers them, and no other
    namespace uses them.
    """
    return ".".join(part for part in ("leftfold", namespace, *parts) if part)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)  # inputs hold secrets


class Kafka(_Strict):
    bootstrap: str
    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str | None = None
    password: SecretStr | None = None
    ca: str | None = None  # a PEM file
    _namespace: str = PrivateAttr(default="")  # the namespace of the profile that names these brokers

    def of(self, namespace: str) -> Kafka:
        """The same settings, with the consumer group for plain reads in this namespace."""
        mine = self.model_copy()
        mine._namespace = namespace
        return mine

    @property
    def reading_group(self) -> str:
        """The group id of a consumer that joins no group and commits nothing. The client requires an id anyway.

        No view can have this name, because it contains a slash.
        """
        return group_id(self._namespace, "read/log")

    def for_librdkafka(self) -> dict[str, str]:
        properties = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security}
        if self.ca:
            properties["ssl.ca.location"] = self.ca
        if self.security.startswith("SASL"):
            properties |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username or "",
                "sasl.password": self._password(),
            }
        return properties

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source: Java client properties under "kafka."."""
        properties = {"kafka.bootstrap.servers": self.bootstrap, "kafka.security.protocol": self.security}
        if self.ca:
            properties |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": self.ca}
        if self.security.startswith("SASL"):
            module = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
            user, password = (_quoted(v) for v in (self.username or "", self._password()))
            properties |= {
                "kafka.sasl.mechanism": self.mechanism,
                "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required "
                f"username={user} password={password};",
            }
        return properties

    def for_kafka_python(self) -> dict[str, str]:
        properties = {"bootstrap_servers": self.bootstrap, "security_protocol": self.security}
        if self.ca:
            properties["ssl_cafile"] = self.ca
        if self.security.startswith("SASL"):
            properties |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username or "",
                "sasl_plain_password": self._password(),
            }
        return properties

    def _password(self) -> str:
        return self.password.get_secret_value() if self.password else ""


class Registry(_Strict):
    url: str
    username: str | None = None
    password: SecretStr | None = None
    ca: str | None = None  # a PEM file


class Spark(_Strict):
    # All cores, and four tries for each task: plain local[*] fails at the first failure of a task.
    master: str = "local[*,4]"  # "standalone" is the cluster of `leftfold up --spark-workers COUNT`
    python: str | None = None  # the Python interpreter on the workers; same version as this one
    # The offsets per partition in one batch, on average. Fewer offsets make smaller batches, and a view that works off
    # a backlog stops sooner.
    most_offsets: int | None = Field(default=None, ge=1)
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict)


class OnlineStore(_Strict):
    kind: Literal["redis", "postgres"] | None = None  # the scheme of the URL says it too
    url: SecretStr  # may hold a password; "postgres" is the one of `leftfold up --postgres`
    ca: str | None = None  # a PEM file

    @property
    def is_local_postgres(self) -> bool:
        return self.url.get_secret_value() == "postgres"

    @property
    def address(self) -> str:
        """The URL with everything that a client needs. It is a secret."""
        url = self.url.get_secret_value()
        if not self.ca:
            return url
        ca = quote(self.ca, safe="/")
        if url.startswith("redis"):
            more = f"ssl_ca_certs={ca}"
        else:
            more = f"sslrootcert={ca}" + ("" if "sslmode=" in url else "&sslmode=verify-full")
        return f"{url}{'&' if '?' in url else '?'}{more}"


class Profile(_Strict):
    """One profile. It names existing engines by `kafka`, `registry` and `online`, or none for the local cluster."""

    name: str
    namespace: str = Field(default="", pattern=r"^[a-zA-Z0-9_-]{0,40}$")
    topics: Literal["managed", "checked"] = "managed"
    kafka: Kafka | None = None
    registry: Registry | None = None
    online: OnlineStore | None = None
    spark: Spark = Spark()
    replication: int | None = Field(default=None, ge=1)  # caps the replication of topics: 1 for one broker
    checkpoints: str | None = None  # a path or URL; by default under the project's .leftfold
    lake: str | None = None  # a directory of Delta tables; by default under the project's .leftfold
    metrics: Listening | None = None  # where `run` serves Prometheus metrics of its views; not served by default

    @property
    def is_local(self) -> bool:
        """True for the profile of one's own machine: nobody else reads there."""
        return self.name == "local"

    def topic_name(self, declared: str, *, external: bool = False) -> str:
        """The topic's name in the cluster. An external topic keeps the name that its owner gave it."""
        return f"{self.namespace}.{declared}" if self.namespace and not external else declared


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def resolve_environment(value: Any, environment: dict[str, str], missing: list[str]) -> Any:
    """Replace every "env:NAME" in a profile. Names of variables that are not set are added to `missing`."""
    if isinstance(value, dict):
        return {k: resolve_environment(v, environment, missing) for k, v in value.items()}
    if isinstance(value, str) and value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in environment:
            missing.append(name)
        return environment.get(name, "")
    return value
