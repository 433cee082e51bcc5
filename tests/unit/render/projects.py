"""The projects that are rendered in tests: the template, with a profile for Kubernetes beside its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import leftfold as lf
from leftfold.app import App
from leftfold.render.consumers import ConsumerOptions
from leftfold.render.spark import SparkOptions
from leftfold.render.strimzi import StrimziOptions

EXAMPLES = Path(__file__).parents[3] / "examples"
PROFILE = """
[profile.prod]
namespace = "prod"
topics = "checked"
kafka = { bootstrap = "shop-kafka-bootstrap:9093", security = "SASL_SSL", username = "leftfold", \
password = "env:KAFKA_PASSWORD", ca = "/etc/kafka/ca.crt" }
registry = { url = "http://registry:8080/apis/ccompat/v7" }
online = { url = "env:REDIS_URL" }
checkpoints = "/shared/shop/checkpoints"
lake = "/shared/shop/lake"
spark = { master = "k8s://https://kubernetes.default.svc", conf = { "spark.sql.shuffle.partitions" = 8 } }
"""
STRIMZI = StrimziOptions(cluster="shop", namespace="shop")
SPARK = SparkOptions(image="registry.example/shop:1", namespace="shop", secret="shop-secrets")

CONSUMERS = ConsumerOptions(image="registry.example/shop:1", namespace="shop", secret="shop-secrets")
# Appended to the declarations of the template.
DECLARED = """

bought = lf.Topic("bought", Click, key=Click.user_id, time=Click.at)


@lf.consumer(clicks, start="beginning", drain="30s")
def notify(click: Click) -> None: ...


@lf.consumer(clicks, start="now", delivery="exactly_once", to=bought)
def buy(click: Click) -> Click | None: ...
"""


def examples() -> list[Path]:
    return sorted(path.parent for path in EXAMPLES.glob("*/leftfold.toml"))


def for_kubernetes(example: Path, directory: Path, profile: str = PROFILE) -> App:
    """A copy of the project with the profile `prod`, opened without its secrets."""
    shutil.copytree(example, directory / "shop", ignore=shutil.ignore_patterns(".leftfold", "__pycache__"))
    toml = directory / "shop" / "leftfold.toml"
    toml.write_text(toml.read_text() + profile)
    return App(directory / "shop", "prod", secrets=False)


def with_consumers(directory: Path, profile: str = PROFILE) -> App:
    """The template with two consumers beside its scorer, and the profile `prod`."""
    app = for_kubernetes(EXAMPLES / "clickstream", directory, profile)
    streams = app.root / "streams.py"
    streams.write_text(streams.read_text() + DECLARED)
    return app


def local(example: Path, directory: Path) -> App:
    shutil.copytree(example, directory / "shop", ignore=shutil.ignore_patterns(".leftfold", "__pycache__"))
    return lf.open(directory / "shop")
