"""Profiles: one spelling for both clients, and no secret in anything that is printed."""

from __future__ import annotations

import json
import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import leftfold as lf
from leftfold.errors import LeftfoldError, ProjectError
from leftfold.local import endpoints, process
from leftfold.local.endpoints import Endpoints, Ports
from leftfold.settings import Kafka, OnlineStore, Profile, Registry, group_id, resolve_environment
from tests.unit.conftest import TOML, MakeProject

SECRET = "hunter2-çé"

PROD = (
    TOML
    + """
[profile.prod]
namespace = "prod"
topics = "checked"
kafka = { bootstrap = "b:9093", security = "SASL_SSL", username = "env:KAFKA_USER", password = "env:KAFKA_PASSWORD" }
registry = { url = "https://registry", username = "env:KAFKA_USER", password = "env:KAFKA_PASSWORD" }
online = { url = "env:REDIS_URL" }
"""
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USER", "app")
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    monkeypatch.setenv("REDIS_URL", f"redis://:{SECRET}@cache:6379/0")


# One spelling -------------------------------------------------------------------------------------------------------


def sasl(**changes: Any) -> Kafka:
    return Kafka.model_validate(
        {"bootstrap": "b:9093", "security": "SASL_SSL", "username": "app", "password": SECRET, **changes}
    )


def test_plain() -> None:
    plain = Kafka(bootstrap="b:9092")
    assert plain.for_librdkafka() == {"bootstrap.servers": "b:9092", "security.protocol": "PLAINTEXT"}
    assert plain.for_spark() == {"kafka.bootstrap.servers": "b:9092", "kafka.security.protocol": "PLAINTEXT"}


def test_scram_for_librdkafka() -> None:
    assert sasl(ca="/etc/ca.pem").for_librdkafka() == {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/etc/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": SECRET,
    }


def test_scram_for_spark() -> None:
    assert sasl(ca="/etc/ca.pem").for_spark() == {
        "kafka.bootstrap.servers": "b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="app" password="{SECRET}";',
    }


def test_plain_sasl_has_another_module() -> None:
    jaas = sasl(mechanism="PLAIN").for_spark()["kafka.sasl.jaas.config"]
    assert jaas.startswith("org.apache.kafka.common.security.plain.PlainLoginModule required ")


def test_quotes_in_a_password_cannot_end_it() -> None:
    jaas = sasl(password='a"b\\c').for_spark()["kafka.sasl.jaas.config"]
    assert jaas.endswith(r'password="a\"b\\c";')


def test_ssl_without_sasl_sends_no_password() -> None:
    assert not [k for k in sasl(security="SSL").for_librdkafka() if "sasl" in k]
    assert not [k for k in sasl(security="SSL").for_spark() if "sasl" in k]


@pytest.mark.parametrize(("name", "expected"), [("", "clicks"), ("prod", "prod.clicks")])
def test_namespace(name: str, expected: str) -> None:
    assert Profile(name="p", namespace=name).topic_name("clicks") == expected


@pytest.mark.parametrize("namespace", ["a.b", "a:b", "é", "a b", "x" * 41, "a\n"])
def test_namespaces_that_would_not_fit_a_key(namespace: str) -> None:
    with pytest.raises(ValidationError):
        Profile(name="p", namespace=namespace)


# Precedence ---------------------------------------------------------------------------------------------------------


def test_env_names_are_replaced_at_any_depth() -> None:
    missing: list[str] = []
    given = {"a": {"b": "env:X", "c": 3, "d": "environment"}, "e": "env:NOT"}
    assert resolve_environment(given, {"X": "1"}, missing) == {"a": {"b": "1", "c": 3, "d": "environment"}, "e": ""}
    assert missing == ["NOT"]


@pytest.mark.usefixtures("environment")
def test_a_profile_from_the_environment(make_project: MakeProject) -> None:
    profile = lf.open(make_project(PROD), profile="prod").profile
    assert profile.kafka is not None
    assert profile.kafka.username == "app"
    assert profile.kafka.for_librdkafka()["sasl.password"] == SECRET
    assert profile.online is not None
    assert profile.online.url.get_secret_value() == f"redis://:{SECRET}@cache:6379/0"
    assert (profile.namespace, profile.topics) == ("prod", "checked")


def test_values_from_dotenv(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(PROD)
    (root / ".env").write_text(f"KAFKA_USER=from-file\nKAFKA_PASSWORD={SECRET}\nREDIS_URL=redis://cache\n")
    assert lf.open(root, profile="prod").profile.kafka.username == "from-file"  # type: ignore[union-attr] # PROD has it
    monkeypatch.setenv("KAFKA_USER", "from-environment")
    assert lf.open(root, profile="prod").profile.kafka.username == "from-environment"  # type: ignore[union-attr]


def test_which_profile(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(TOML + "".join(f"[profile.{n}]\nnamespace = '{n}'\n" for n in ("flag", "environment", "file")))
    assert lf.open(root).profile.name == "local"
    (root / ".env").write_text("LEFTFOLD_PROFILE=file\n")
    assert lf.open(root).profile.name == "file"
    monkeypatch.setenv("LEFTFOLD_PROFILE", "environment")
    assert lf.open(root).profile.name == "environment"
    assert lf.open(root, profile="flag").profile.name == "flag"


# Mistakes -----------------------------------------------------------------------------------------------------------


def wrong(root: Path, profile: str | None = None) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        lf.open(root, profile=profile)
    return caught.value


def test_a_variable_that_is_not_set(make_project: MakeProject) -> None:
    error = wrong(make_project(PROD), "prod")
    assert error.code == "environment-missing"
    assert "KAFKA_USER" in error.what


@pytest.mark.usefixtures("environment")
def test_another_profiles_variables_are_not_needed(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PASSWORD")
    assert lf.open(make_project(PROD)).profile.name == "local"


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ('kafka = { bootstrap = "b", securty = "SSL" }', "kafka.securty"),
        ("kafka = { }", "kafka.bootstrap"),
        ('kafka = { bootstrap = "b", security = "TLS" }', "kafka.security"),
        ('namespace = "a b"', "namespace"),
        ("replication = 0", "replication"),
        ('topics = "mine"', "topics"),
        ('archive = "s3a://x"', "archive"),
        ('name = "other"', "name"),  # a profile is called what its table is called
    ],
)
def test_bad_settings_are_named(make_project: MakeProject, settings: str, where: str) -> None:
    error = wrong(make_project(f"{TOML}[profile.p]\n{settings}\n"), "p")
    assert error.code == "bad-profile"
    assert f"[profile.p] {where}:" in error.what


@pytest.mark.parametrize("profiles", ["[profile]\nlocal = 3\n", "[profile]\nlocal = []\n"])
def test_a_profile_is_a_table(make_project: MakeProject, profiles: str) -> None:
    assert wrong(make_project(TOML + profiles)).code == "bad-profile"


def test_profiles_are_a_table(make_project: MakeProject) -> None:
    assert wrong(make_project("profile = 3\n" + TOML)).code in ("bad-profile", "bad-project")


@pytest.mark.parametrize("part", ["kafka", "registry", "online"])
def test_half_a_profile(make_project: MakeProject, part: str) -> None:
    value = {"kafka": '{ bootstrap = "b" }'}.get(part, '{ url = "redis://x" }')
    assert wrong(make_project(f"{TOML}[profile.local]\n{part} = {value}\n")).code == "half-profile"


def test_the_postgres_of_the_local_cluster_is_no_half_profile(make_project: MakeProject) -> None:
    root = make_project(f'{TOML}[profile.local]\nonline = {{ url = "postgres" }}\n')
    profile = lf.open(root).profile
    assert profile.online is not None
    assert profile.online.is_local_postgres
    endpoints.write(
        root, Endpoints("id", Ports((1,), (2,), 3, 4, postgres=5), {"redis": process.identify(os.getpid())})
    )
    assert lf.open(root).online.address == endpoints.read(root).postgres_url


def test_the_postgres_of_the_local_cluster_is_not_for_other_brokers(make_project: MakeProject) -> None:
    engines = 'kafka = { bootstrap = "b" }\nregistry = { url = "http://r" }\nonline = { url = "postgres" }\n'
    assert wrong(make_project(f"{TOML}[profile.local]\n{engines}")).code == "half-profile"


def test_an_unknown_profile_says_which_there_are(make_project: MakeProject) -> None:
    error = wrong(make_project(PROD), "prd")
    assert (error.code, error.why) == ("unknown-profile", "it has local, prod")


# Secrets ------------------------------------------------------------------------------------------------------------


def texts(value: object) -> str:
    return " ".join([repr(value), str(value), f"{value}"])


def test_secrets_are_not_in_any_text() -> None:
    kafka = sasl()
    registry = Registry.model_validate({"url": "http://r", "username": "u", "password": SECRET})
    online = OnlineStore.model_validate({"url": f"redis://:{SECRET}@cache"})
    profile = Profile(name="p", kafka=kafka, registry=registry, online=online)
    for value in (kafka, registry, online, profile, [profile], {"p": profile}):
        assert SECRET not in texts(value)
    assert SECRET not in profile.model_dump_json()
    assert SECRET not in json.dumps(profile.model_dump(mode="json"), ensure_ascii=False)


@pytest.mark.parametrize(
    "settings",
    [
        f'kafka = {{ bootstrap = 3, password = "{SECRET}" }}',
        f'kafka = {{ password = "{SECRET}" }}',
        f'kafka = {{ bootstrap = "b", password = ["{SECRET}"] }}',
        f'kafka = {{ bootstrap = "b", pasword = "{SECRET}" }}',
        f'online = {{ url = "redis://:{SECRET}@x", kind = "valkey" }}',
        f'kafka = {{ bootstrap = "b", mechanism = "{SECRET}" }}',
    ],
)
def test_secrets_are_not_in_an_error_or_its_trace(make_project: MakeProject, settings: str) -> None:
    """The trace goes into .leftfold/logs/errors.log, and to the terminal of whoever calls lf.open in a script."""
    error = wrong(make_project(f"{TOML}[profile.local]\n{settings}\n"))
    assert error.code == "bad-profile"
    assert SECRET not in str(error)
    assert SECRET not in json.dumps(error.as_json(), ensure_ascii=False)
    assert SECRET not in "".join(traceback.format_exception(error))


@pytest.mark.usefixtures("environment")
def test_secrets_are_not_in_the_app(make_project: MakeProject) -> None:
    app = lf.open(make_project(PROD), profile="prod")
    assert SECRET not in texts(app)
    assert SECRET not in texts(app.kafka) + texts(app.registry) + texts(app.online)


def test_a_password_in_the_registrys_url_is_not_in_an_error() -> None:
    from leftfold.kafka.registry import SchemaRegistry

    registry = SchemaRegistry(Registry(url="http://user:hunter2@127.0.0.1:1"))
    with pytest.raises(LeftfoldError) as caught:
        registry._call(lambda: (_ for _ in ()).throw(OSError("refused")), missing=None)
    assert "hunter2" not in str(caught.value)


def test_errors_survive_another_process() -> None:
    """Executors and process pools send exceptions home by pickle."""
    error = ProjectError("no-project", "what", why="why", fix="fix", state="state", retriable=True)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is ProjectError
    assert back.as_json() == error.as_json()


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:9464", "metrics.internal:80", "[::1]:9464"])
def test_where_metrics_are_served(address: str) -> None:
    assert Profile(name="p", metrics=address).metrics == address


@pytest.mark.parametrize("address", ["", "host", ":9464", "host:", "http://host:80", "::1:9464", "host:port", "1 2:80"])
def test_where_metrics_cannot_be_served(address: str) -> None:
    with pytest.raises(ValidationError):
        Profile(name="p", metrics=address)


def test_groups_of_a_namespace_share_a_prefix_and_no_other_namespace_has_them() -> None:
    assert group_id("prod", "user_activity") == "leftfold.prod.user_activity"
    assert group_id("", "user_activity") == "leftfold.user_activity"
    kafka = Kafka(bootstrap="b:1")
    mine, other = kafka.of("prod").reading_group, kafka.of("prod2").reading_group
    assert mine.startswith("leftfold.prod.")
    assert not other.startswith("leftfold.prod.")
    assert kafka.of("prod") != kafka  # it goes to executors and back
    assert pickle.loads(pickle.dumps(kafka.of("prod"))).reading_group == mine


def test_the_certificates_that_redis_is_trusted_by_are_part_of_its_address() -> None:
    def online(url: str, ca: str | None) -> str:
        return OnlineStore.model_validate({"url": url, "ca": ca}).address

    assert online("rediss://h:1/0", None) == "rediss://h:1/0"
    assert online("rediss://h:1/0", "/etc/a b.pem") == "rediss://h:1/0?ssl_ca_certs=/etc/a%20b.pem"
    assert online("rediss://h:1/0?socket_timeout=2", "/ca") == "rediss://h:1/0?socket_timeout=2&ssl_ca_certs=/ca"
    assert online("postgresql://h/d", "/ca") == "postgresql://h/d?sslrootcert=/ca&sslmode=verify-full"
    assert online("postgresql://h/d?sslmode=require", "/ca") == "postgresql://h/d?sslmode=require&sslrootcert=/ca"
