"""How to provoke every error of rendering."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from leftfold.render import crds, documents
from tests.unit.render.projects import CONSUMERS, EXAMPLES, PROFILE, SPARK, STRIMZI, for_kubernetes, with_consumers

_SHARED = """
class UserClicks(lf.Features, of=clicks, by=Click.user_id):
    clicks_7d = lf.count("7d")
"""


def _render(tmp: Path, *groups: tuple[str, tuple[str, ...]], profile: str | None = None) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp, **({} if profile is None else {"profile": profile}))
    streams = app.root / "streams.py"
    streams.write_text(streams.read_text() + _SHARED)
    app.render(replace(SPARK, groups=groups))


def bad_profile(tmp: Path) -> None:
    _render(tmp, profile='\n[profile.prod]\ncheckpoints = "/data/checkpoints"\n')


def not_fenced(tmp: Path) -> None:
    _render(tmp, profile=PROFILE.replace("/shared/shop/checkpoints", "s3a://lake/shop/checkpoints"))


def lake_not_fenced(tmp: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp, PROFILE.replace("/shared/shop/lake", "s3a://lake/shop"))
    streams = app.root / "streams.py"
    streams.write_text(
        streams.read_text().replace("by=Click.user_id)", "by=Click.user_id, to=[lf.Online(), lf.Lake()])")
    )
    app.render(SPARK)


def view_twice(tmp: Path) -> None:
    _render(tmp, ("a", ("item",)), ("b", ("item",)))


def group_twice(tmp: Path) -> None:
    _render(tmp, ("a", ("item",)), ("a", ("user_activity", "user_clicks")))


def one_name(tmp: Path) -> None:
    _render(tmp, ("items", ("user_activity", "user_clicks")))


def topic_split(tmp: Path) -> None:
    _render(tmp, ("heavy", ("user_activity",)))


def not_installed(tmp: Path) -> None:
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        for_kubernetes(EXAMPLES / "clickstream", tmp).render(STRIMZI)


def invalid(_: Path) -> None:
    spec = {"topicName": "clicks", "partition": 6, "replicas": "3", "config": {}}
    metadata = {"name": "clicks", "namespace": "shop"}
    crds.check([{"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "metadata": metadata, "spec": spec}])


def differs(tmp: Path) -> None:
    made = for_kubernetes(EXAMPLES / "clickstream", tmp).render(STRIMZI)
    for name in ("kafka-shop.yaml", "kafkauser-leftfold.yaml"):
        (tmp / name).write_text("spec: edited\n")
    documents.write(made, tmp, force=False)


def too_many_replicas(tmp: Path) -> None:
    with_consumers(tmp).render(replace(CONSUMERS, replicas=(("notify", 9),)))


CAUSES: dict[str, Callable[[Path], None]] = {
    "bad-groups": view_twice,
    "bad-groups/group": group_twice,
    "bad-groups/name": one_name,
    "checkpoint-not-fenced": not_fenced,
    "kubernetes-not-installed": not_installed,
    "lake-not-fenced": lake_not_fenced,
    "manifest-differs": differs,
    "manifest-invalid": invalid,
    "profile-not-for-kubernetes": bad_profile,
    "replicas-beyond-partitions": too_many_replicas,
    "topic-split": topic_split,
}
