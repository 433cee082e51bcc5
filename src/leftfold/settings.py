"""Profiles: where the engines are and how to reach them.

Client properties have one spelling here, for librdkafka and for Spark's Java client. Secrets come from the
environment and are never printed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints

LISTENING = r"^(?:(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:]+\]):)?(?P<port>[0-9]{1,5})$"
Listening = Annotated[str, StringConstraints(pattern=LISTENING)]  # PORT, HOST:PORT or [IPV6]:PORT


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)  # inputs hold secrets


class Kafka(_Strict):
    bootstrap: str
    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str | None = None
    password: SecretStr | None = None
    ca: str | None = None  # a PEM file

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


class Spark(_Strict):
    # Every core, and four tries for a task: plain local[*] gives up at a task's first failure.
    master: str = "local[*,4]"  # "standalone" is the cluster of `leftfold up --spark-workers N`
    python: str | None = None  # the interpreter on the workers, of this one's version
    # Offsets of a partition in one batch, on average: fewer make smaller batches and a quicker stop after a backlog.
    most_offsets: int | None = Field(default=None, ge=1)
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict)


class Online(_Strict):
    kind: Literal["redis"] = "redis"
    url: SecretStr  # may hold a password


class Profile(_Strict):
    """`kafka`, `registry` and `online` together name existing engines; with none of them the local cluster is meant."""

    name: str
    namespace: str = Field(default="", pattern=r"^[a-zA-Z0-9_-]{0,40}$")
    topics: Literal["managed", "checked"] = "managed"
    kafka: Kafka | None = None
    registry: Registry | None = None
    online: Online | None = None
    spark: Spark = Spark()
    replication: int | None = Field(default=None, ge=1)  # caps what topics declare: 1 for a laptop with one broker
    checkpoints: str | None = None  # a path or URL; by default under the project's .leftfold
    lake: str | None = None  # likewise: a directory of Delta tables
    metrics: Listening | None = None  # where `run` tells Prometheus of its views; nowhere by default

    def topic_name(self, declared: str, *, external: bool = False) -> str:
        """The name in the cluster. A topic that somebody else owns keeps the name that its owner gave it."""
        return f"{self.namespace}.{declared}" if self.namespace and not external else declared


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def resolve_environment(value: Any, environment: dict[str, str], missing: list[str]) -> Any:
    """Replace every "env:NAME" in a profile; names that are not set are added to `missing`."""
    if isinstance(value, dict):
        return {k: resolve_environment(v, environment, missing) for k, v in value.items()}
    if isinstance(value, str) and value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in environment:
            missing.append(name)
        return environment.get(name, "")
    return value
