"""Projects under test. Each has its own namespace on the shared cluster, and its state in a temporary directory."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.app import App
from leftfold.declare.catalog import Catalog
from leftfold.declare.topic import Topic
from leftfold.project import find_root
from leftfold.settings import Kafka, OnlineStore, Profile, Registry, Spark

if TYPE_CHECKING:
    from leftfold.local.endpoints import Endpoints
    from leftfold.run.progress import Progress
    from leftfold.spark.session import SparkSession


class _Namespaced(Profile):
    """A profile that adds the namespace to external topics too, so that two tests never share a record."""

    def topic_name(self, declared: str, *, external: bool = False) -> str:
        return super().topic_name(declared)


class TestedApp(App):
    """A project whose profile names the shared cluster. Its checkpoints, locks and logs are outside its directory."""

    __test__ = False  # pytest would collect the class, because its name starts with Test

    def __init__(self, root: Path, state: Path, endpoints: Endpoints, namespace: str) -> None:
        super().__init__(root, "local")
        self._state = state
        self.profile = _Namespaced(
            name="local",
            namespace=namespace,
            kafka=Kafka(bootstrap=endpoints.bootstrap),
            registry=Registry(url=endpoints.registry_url),
            online=OnlineStore.model_validate({"url": endpoints.redis_url}),
            spark=self.profile.spark.model_copy(update={"master": Spark().master}),  # of the tests' session
        )

    @property
    def state(self) -> Path:
        return self._state

    def create_topics(self) -> None:
        """Create all topics, as `leftfold apply` does. Also create external topics, which other owners would create."""
        from leftfold.observe.observation import observe
        from leftfold.plan.diff import plan

        topics = {name: _owned(topic) for name, topic in self.catalog.topics.items()}
        catalog = Catalog(topics, self.catalog.views, self.catalog.vectors)
        for _ in self.apply(plan(catalog, self.profile, observe(catalog, self.profile, self.kafka, *self.log))):
            pass


def _owned(topic: Topic[Any]) -> Topic[Any]:
    mine = copy.copy(topic)
    object.__setattr__(mine, "external", False)  # a declaration is frozen
    return mine


class AppFactory:
    """The value of the fixture `leftfold_app`. It makes apps, and runs their views."""

    def __init__(self, endpoints: Endpoints, directory: Path, session: Callable[[], SparkSession]) -> None:
        self._endpoints = endpoints
        self._directory = directory
        self._session = session

    def __call__(self, project: str | Path) -> TestedApp:
        """An app of the project at a path, or of a new project with these declarations. Its topics exist on return."""
        namespace = f"test-{uuid.uuid4().hex[:12]}"
        state = self._directory / namespace
        state.mkdir()
        text = isinstance(project, str) and "\n" in project
        root = _written(state, str(project), namespace) if text else find_root(Path(project))
        app = TestedApp(root, state / ".leftfold", self._endpoints, namespace)
        app.create_topics()
        return app

    def run(self, app: App, *views: str) -> Sequence[Progress]:
        """Run these views, or all, until everything in the log has been applied. Raises the error of a failed view."""
        ended = app.run(views=views, until_caught_up=True, session=self._session())
        for progress in ended:
            if progress.error is not None:
                raise progress.error
        return [progress for progress in ended if progress.kind == "view"]


def _written(directory: Path, declarations: str, namespace: str) -> Path:
    """Write a project with these declarations. Its module name is unique: a `streams` may be imported already."""
    file = f"{namespace.replace('-', '_')}.py"
    (directory / file).write_text(declarations)
    (directory / "leftfold.toml").write_text(f'[project]\nname = "{namespace}"\ndeclarations = ["{file}"]\n')
    return directory
