"""Parts that all pods of a project share: names and labels, the CA's volume, what Prometheus looks for."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leftfold.errors import ProjectError
from leftfold.render.documents import Manifest
from leftfold.render.names import label_name
from leftfold.settings import Profile

SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class Pods:
    """Pods of one kind. `app` is the label by which one kind is told from another."""

    project: str
    profile: Profile
    namespace: str  # of Kubernetes
    ca_secret: str | None  # mounted in the directory of the profile's kafka.ca
    app: str

    def named(self, api: str, kind: str, name: str, **content: Any) -> Manifest:
        metadata = {"name": name, "namespace": self.namespace, "labels": self.labels(name)}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}

    def labels(self, name: str) -> dict[str, str]:
        return {**self.selector(name), "app.kubernetes.io/part-of": label_name(self.project)}

    def selector(self, name: str) -> dict[str, str]:
        return {"app.kubernetes.io/name": self.app, "app.kubernetes.io/instance": name}

    @property
    def ca_directory(self) -> str | None:
        kafka = self.profile.kafka
        return posixpath.dirname(kafka.ca) if self.ca_secret and kafka and kafka.ca else None

    def check_profile(self, needs: Sequence[tuple[bool, str]] = ()) -> None:
        """Check that the profile can run in pods. Raises one error that names everything that is missing.

        `needs` are more conditions, each with the setting that it is about.
        """
        kafka = self.profile.kafka
        wanted = [
            (kafka is not None, 'kafka, registry and online: pods cannot reach the cluster of "leftfold up"'),
            *needs,
            (
                self.ca_secret is None or (kafka is not None and kafka.ca is not None),
                "kafka.ca, the file that --ca-secret holds",
            ),
        ]
        missing = [what for there, what in wanted if not there]
        if missing:
            name = self.profile.name
            raise ProjectError(
                "profile-not-for-kubernetes",
                f"profile {name} cannot run in pods: it does not say {missing[0].partition(':')[0]}",
                why="; ".join(missing),
                fix=f"add to [profile.{name}] what is named here, or choose another profile with --profile",
            )


def scraped(port: int) -> dict[str, str]:
    """The annotations by which Prometheus finds the metrics of a pod."""
    return {"prometheus.io/path": "/metrics", "prometheus.io/port": str(port), "prometheus.io/scrape": "true"}
