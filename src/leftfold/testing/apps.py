"""Projects under test: on the shared cluster, each in a namespace of its own, its state in a temporary directory."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.project import App, find_root
from leftfold.settings import Kafka, Online, Profile, Registry, Spark
from leftfold.spec.catalog import Catalog
from leftfold.spec.topic import Topic

if TYPE_CHECKING:
    from leftfold.local.endpoints import Endpoints
    from leftfold.run.progress import Progress
    from leftfold.spark.session import SparkSession


class _Namespaced(Profile):
    """Topics of other owners get the namespace too: two tests never share a record."""

    def topic_name(self, declared: str, *, external: bool = False) -> str:
        return super().topic_name(declared)


class TestedApp(App):
    """A project whose profile names the shared cluster and whose checkpoints, locks and logs lie elsewhere."""

    __test__ = False  # not a class of tests, whatever its name starts with

    def __init__(self, root: Path, state: Path, endpoints: Endpoints, namespace: str) -> None:
        super().__init__(root, "local")
        self._state = state
        self.profile = _Namespaced(
            name="local",
            namespace=namespace,
            kafka=Kafka(bootstrap=endpoints.bootstrap),
            registry=Registry(url=endpoints.registry_url),
            online=Online.model_validate({"url": endpoints.redis_url}),
            spark=self.profile.spark.model_copy(update={"master": Spark().master}),  # whose session tests are given
        )

    @property
    def state(self) -> Path:
        return self._state

    def create_topics(self) -> None:
        """What `leftfold apply` does, and what the owners of external topics have done."""
        from leftfold.plan.diff import plan
        from leftfold.plan.observe import observe

        topics = {name: _owned(topic) for name, topic in self.catalog.topics.items()}
        catalog = Catalog(topics, self.catalog.views, self.catalog.vectors)
        for _ in self.apply(plan(catalog, self.profile, observe(catalog, self.profile, self.kafka, *self.log))):
            pass


def _owned(topic: Topic[Any]) -> Topic[Any]:
    mine = copy.copy(topic)
    object.__setattr__(mine, "external", False)  # frozen, as every declaration
    return mine


class AppFactory:
    """What the fixture `leftfold_app` gives: makes apps, and runs their views."""

    def __init__(self, endpoints: Endpoints, directory: Path, session: Callable[[], SparkSession]) -> None:
        self._endpoints = endpoints
        self._directory = directory
        self._session = session

    def __call__(self, project: str | Path) -> TestedApp:
        """The project at a path, or one that consists of these declarations; its topics exist when this returns."""
        namespace = f"test-{uuid.uuid4().hex[:12]}"
        state = self._directory / namespace
        state.mkdir()
        text = isinstance(project, str) and "\n" in project
        root = _written(state, str(project), namespace) if text else find_root(Path(project))
        app = TestedApp(root, state / ".leftfold", self._endpoints, namespace)
        app.create_topics()
        return app

    def run(self, app: App, *views: str) -> Sequence[Progress]:
        """Run these views, or all, until all that is in the log has been applied. Raises what made a view stop."""
        supervisor = app.supervisor(views=views, until_caught_up=True)
        ended = supervisor.run(lambda _: None, session=self._session())
        for progress in ended:
            if progress.error is not None:
                raise progress.error
        return [progress for progress in ended if progress.kind == "view"]


def _written(directory: Path, declarations: str, namespace: str) -> Path:
    """A module name of its own: a person's tests may have imported a `streams` already."""
    file = f"{namespace.replace('-', '_')}.py"
    (directory / file).write_text(declarations)
    (directory / "leftfold.toml").write_text(f'[project]\nname = "{namespace}"\ndeclarations = ["{file}"]\n')
    return directory
