"""A project directory: leftfold.toml, its profiles and the declarations it lists.

`open` opens no connection; each verb of the command line is one thin method of `App`.
"""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dotenv import dotenv_values
from pydantic import ValidationError

from leftfold.errors import DeclarationError, ProjectError, RunError
from leftfold.fold.durations import SECOND, Duration, micros
from leftfold.fold.expressions import to_micros
from leftfold.loading import load
from leftfold.settings import Kafka, Online, Profile, Registry, Spark, resolve_environment
from leftfold.spec.catalog import Catalog
from leftfold.spec.free import View
from leftfold.spec.rows import Row

if TYPE_CHECKING:
    from leftfold.adopt.adopting import Adopted
    from leftfold.kafka.admin import Admin
    from leftfold.kafka.producer import Producer
    from leftfold.kafka.registry import SchemaRegistry
    from leftfold.kafka.rejects import Rejects
    from leftfold.local.endpoints import Endpoints
    from leftfold.plan.asked import Asked
    from leftfold.plan.observe import Observed
    from leftfold.plan.sizing.constants import Constants
    from leftfold.plan.steps import Plan, Step
    from leftfold.render.documents import Manifest
    from leftfold.render.spark import SparkOptions
    from leftfold.render.strimzi import StrimziOptions
    from leftfold.replay.archives import Archives
    from leftfold.replay.comparing import Comparison
    from leftfold.replay.copying import Copy
    from leftfold.replay.rebuild import Rebuild
    from leftfold.replay.replay import Replay
    from leftfold.replay.training import Project, TrainingSet
    from leftfold.run.status import ViewStatus
    from leftfold.run.supervisor import Supervisor
    from leftfold.run.why import Why
    from leftfold.spark.as_of import AsOf
    from leftfold.spark.session import SparkSession
    from leftfold.store.reader import Reader
    from leftfold.store.serving import NamedRow
    from leftfold.store.standings import Standing, Standings

FILE = "leftfold.toml"
# A build that readers left is kept for a minute at least: reads that are under way still see it.
MINUTE = 60 * SECOND
R = TypeVar("R", bound=Row)


def find_root(start: Path | None = None) -> Path:
    """The nearest directory upwards that holds a leftfold.toml."""
    start = (start or Path.cwd()).resolve()
    for directory in (start, *start.parents):
        if (directory / FILE).is_file():
            return directory
    raise ProjectError(
        "no-project",
        f"there is no {FILE} in {start} or above it",
        why="a project is a directory with that file",
        fix="cd into a project, or make one: leftfold init shop",
    )


def open(path: str | Path | None = None, *, profile: str | None = None) -> App:
    """The project at `path` (or around the current directory). Nothing is connected and no declaration loaded yet."""
    root = find_root(Path(path) if path is not None else None)
    return App(root, profile)


class App:
    """One project under one profile.

    With `secrets=False` a variable that is not set stays "env:NAME": enough for what connects to nothing.
    """

    def __init__(self, root: Path, profile: str | None = None, *, secrets: bool = True) -> None:
        self.root = root
        self._document = _read(root / FILE)
        self.name: str = self._document["project"]["name"]
        self.profile = _profile(root, self._document, profile, secrets=secrets)

    @cached_property
    def _loaded(self) -> tuple[Catalog, list[DeclarationError]]:
        return Catalog.of(load(self.root, self._document["project"]["declarations"]))

    @property
    def problems(self) -> list[DeclarationError]:
        return self._loaded[1]

    @property
    def catalog(self) -> Catalog:
        if self.problems:
            raise self.problems[0]
        return self._loaded[0]

    # Where things are ------------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        return self.root / ".leftfold"

    @property
    def log_directory(self) -> Path:
        return self.state / "logs"

    @property
    def checkpoints(self) -> str:
        return self.profile.checkpoints or str(self.state / self.profile.name / "checkpoints")

    @property
    def lake(self) -> str:
        return self.profile.lake or str(self.state / self.profile.name / "lake")

    @property
    def _locks(self) -> Path:
        return self.state / self.profile.name / "locks"

    @cached_property
    def kafka(self) -> Kafka:
        return self.profile.kafka or Kafka(bootstrap=self._endpoints().bootstrap)

    @cached_property
    def registry(self) -> Registry:
        return self.profile.registry or Registry(url=self._endpoints().registry_url)

    @cached_property
    def online(self) -> Online:
        return self.profile.online or Online.model_validate({"url": self._endpoints().redis_url})

    @property
    def spark(self) -> Spark:
        """The profile's Spark, with "standalone" replaced by the address of this project's own Spark cluster."""
        spark = self.profile.spark
        if spark.master != "standalone":
            return spark
        from leftfold.local import endpoints

        local = endpoints.last(self.root)
        if local is None or local.spark_url is None or not local.alive("spark-master"):
            raise RunError(
                "spark-cluster-down",
                f'profile {self.profile.name} runs on the master "standalone", and no Spark cluster runs here',
                why="none was asked for" if local is None or local.spark_url is None else "its master is not alive",
                fix="leftfold up --spark-workers 2",
                retriable=True,
            )
        # Half of the cores, one of each worker: a second driver can start beside one that is stopped and keeps its own.
        conf = {"spark.cores.max": len(local.ports.spark_workers), **spark.conf}
        return spark.model_copy(update={"master": local.spark_url, "conf": conf})

    def _endpoints(self) -> Endpoints:
        from leftfold.local import endpoints

        return endpoints.read(self.root)

    # Verbs -----------------------------------------------------------------------------------------------------

    def observe(self, *, also: Sequence[str] = (), sample: bool = False) -> Observed:
        """What there is now, read-only: topics (declared ones, Leftfold's own, and these), schemas, groups, store.

        With `sample` also the newest records of declared topics, which takes seconds.
        """
        from leftfold.plan.observe import ObservedBuild, ObservedStore, StoredBuild, observe
        from leftfold.plan.sampling import sampled
        from leftfold.store.builds import followed_builds, stored_builds
        from leftfold.store.memory import memory_in_use

        url = self.online.url.get_secret_value()
        found = followed_builds(url, self.profile.namespace, self.catalog.views)
        builds = [ObservedBuild(view=b.view, id=b.id, followed=True, batch=b.batch, **b.manifest) for b in found]
        memory = memory_in_use(url)
        store = None if memory is None else ObservedStore(memory.used, memory.limit, memory.policy)
        stored = [
            StoredBuild(b.view, b.id, b.role) for b in stored_builds(url, self.profile.namespace, self.catalog.views)
        ]
        seen = observe(self.catalog, self.profile, self.kafka, *self.log, builds, also, store, stored)
        return sampled(seen, self.catalog, self.profile, self.kafka, *self.log) if sample else seen

    def plan(self, observed: Observed | None = None, *, delete: Sequence[str] = (), asked: Asked | None = None) -> Plan:
        """What `apply` would do, and what could go wrong with it. `delete` names topics that are to go."""
        from leftfold.plan.asked import Asked
        from leftfold.plan.diff import plan

        seen = observed or self.observe(also=delete)
        return plan(self.catalog, self.profile, seen, delete=delete, asked=asked or Asked(constants=self.constants))

    @property
    def constants(self) -> Constants:
        """What machines and engines can do: as they were probed, or the defaults."""
        from leftfold.plan.sizing import constants

        return constants.read(constants.place(self.state, self.profile.name))

    def probe(self, note: Callable[[str], None] = lambda _: None) -> Constants:
        """Measure them, in about two minutes, and keep them for every plan from now on."""
        _need_spark()
        from leftfold.plan.sizing import constants
        from leftfold.run.probe import calibrate
        from leftfold.run.supervisor import Engines

        profile = self.profile.model_copy(update={"spark": self.spark})
        found = calibrate(profile, Engines(self.kafka, self.online, *self.log), self.state, note=note)
        constants.write(found, constants.place(self.state, self.profile.name))
        return found

    @cached_property
    def log(self) -> tuple[Admin, SchemaRegistry]:
        from leftfold.kafka.admin import Admin
        from leftfold.kafka.registry import SchemaRegistry

        return Admin(self.kafka), SchemaRegistry(self.registry)

    def apply(self, plan: Plan) -> Iterator[Step]:
        """Do the steps, yielding each once it is done. Refused while another apply is at work on the same profile."""
        from leftfold.plan.journal import Journal
        from leftfold.store.lease import exclusive

        journal = Journal(self.state / self.profile.name / "applied.jsonl")
        with exclusive(self.online.url.get_secret_value(), self.profile.namespace, "apply") as lease:

            def before(step: Step) -> None:
                lease.check()
                journal.begun(step)

            for step in plan.apply(*self.log, before, self._remove_build):
                journal.done(step)
                yield step

    def _remove_build(self, view: str, build: str) -> None:
        from leftfold.kafka.receipt_log import ReceiptLog
        from leftfold.run.leftovers import remove_build
        from leftfold.spec.companions import receipts_topic

        remove_build(
            view,
            build,
            url=self.online.url.get_secret_value(),
            namespace=self.profile.namespace,
            receipts=ReceiptLog(self.kafka, self.profile.topic_name(receipts_topic())),
            checkpoints=self.checkpoints,
        )

    def adopt(self, topic: str) -> Adopted:
        """A declaration of a topic that is there already, by the name that it has in the cluster."""
        from leftfold.adopt.adopting import adopt
        from leftfold.adopt.look import look

        return adopt(look(topic, self.kafka, *self.log))

    def render(self, options: StrimziOptions | SparkOptions) -> list[Manifest]:
        """Kubernetes manifests of this project, checked against the schemas of their kinds. Connects to nothing."""
        from leftfold.render.manifests import render

        return render(self.name, self.catalog, self.profile, options)

    def producer(self, topic: str) -> Producer:
        """A typed producer for a declared topic; use it in a `with` block."""
        from leftfold.kafka.producer import Producer

        declared = self.catalog.topic(topic)
        name = self.profile.topic_name(topic, external=declared.external)
        return Producer(declared, name, self.kafka, self.log[1])

    def rejects(self, topic: str) -> Rejects:
        """What the topic's intake did not accept, and the way to put corrected records in its place."""
        from leftfold.kafka.rejects import Rejects, RejectTopics
        from leftfold.spec.companions import late_topic, redrive_topic, rejects_topic

        declared, name = self.catalog.topic(topic), self.profile.topic_name
        late, rejected, again = (name(of(topic)) for of in (late_topic, rejects_topic, redrive_topic))
        topics = RejectTopics(name(topic, external=declared.external), rejected, late, again)
        return Rejects(declared, topics, self.kafka, *self.log)

    def supervisor(
        self, *, views: Sequence[str] = (), until_caught_up: bool = False, fresh: Sequence[str] = ()
    ) -> Supervisor:
        """All views of the project, or those named, ready to run. Starts no JVM yet."""
        _need_spark()
        return self._supervise(
            views=tuple(views) or tuple(self.catalog.views), until_caught_up=until_caught_up, fresh=frozenset(fresh)
        )

    def _supervise(
        self, *, views: tuple[str, ...], until_caught_up: bool = False, fresh: frozenset[str] = frozenset()
    ) -> Supervisor:
        from leftfold.run.supervisor import Engines, Options, Supervisor

        options = Options(
            views=views,
            until_caught_up=until_caught_up,
            fresh=fresh,
            checkpoints=self.checkpoints,
            lake=self.lake,
            locks=self._locks,
            log_file=self.log_directory / "spark.log",
            application=f"leftfold {self.name}",
        )
        engines = Engines(self.kafka, self.online, *self.log)
        profile = self.profile.model_copy(update={"spark": self.spark})
        return Supervisor(self.catalog, profile, engines, options)

    def replay(self, topic: str, *, start: datetime | None = None, end: datetime | None = None) -> Replay:
        """What the topic holds from the first record logged at `start` or later, up to the first at `end` or later.

        The offsets are found and frozen now; `.frame()` is a Spark DataFrame of it, whenever it is asked for. Of a
        topic with an archive that asks Spark, which starts here if none is running.
        """
        _need_spark()
        from leftfold.replay.frozen import frozen, frozen_history
        from leftfold.replay.replay import Replay
        from leftfold.run.sources import source_of
        from leftfold.spark.session import build_session, session_at_hand
        from leftfold.spec.event import fields_of

        declared, (admin, registry) = self.catalog.topic(topic), self.log
        source = source_of(
            (declared,),
            frozenset(fields_of(declared.event)),
            profile=self.profile,
            kafka=self.kafka,
            lake=self.lake,
            admin=admin,
            registry=registry,
            who="a replay",
            at=declared.source,
        )
        (name,), (partitions,) = source.topics, source.partitions

        def session() -> SparkSession:
            return session_at_hand() or build_session(
                self.spark,
                application=f"leftfold {self.name}",
                log_file=self.log_directory / "spark.log",
                lake=declared.archive,
            )

        moments = {"start": _moment(start), "end": _moment(end)}
        found = (
            frozen_history(session(), admin, source, **moments)
            if declared.archive
            else frozen(admin, name, partitions, **moments)
        )
        return Replay(
            topic=declared,
            topic_id=admin.topic_ids([name])[name],
            ranges=found.ranges,
            source=source,
            registry=registry,
            start_session=session,
        )

    def copy(
        self,
        topic: str,
        into: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        follow: bool = False,
    ) -> Copy:
        """The topic's records, ready to be copied to another one, once each, wherever it is killed. Needs no Spark.

        `start` is for the first run; later ones go on from where it stopped. With `follow` it has no end.
        """
        from leftfold.replay.copying import copying

        topics = self.catalog.topic(topic), self.catalog.topic(into)
        return copying(
            *topics, self.profile, self.kafka, self.log[0], start=_moment(start), end=_moment(end), follow=follow
        )

    def rebuild(
        self,
        view: str,
        *,
        since: datetime | None = None,
        again: bool = False,
        until_caught_up: bool = False,
        cores: int = 1,
    ) -> Rebuild:
        """A view's definition over all of history, into a build beside the one that readers follow. Not started yet."""
        _need_spark()
        from leftfold.replay.rebuild import Rebuild, RebuildOptions

        name = self.catalog.view(view).name
        options = RebuildOptions(
            name, _moment(since), again=again, until_caught_up=until_caught_up, cores=cores, locks=self._locks
        )
        log_file = self.log_directory / f"rebuild-{name}.log"
        return Rebuild(self._supervise(views=()), self.standings, self.spark, options, log_file=log_file)

    def compare(
        self,
        view: str,
        *,
        at: datetime | None = None,
        against: str | None = None,
        keys: Mapping[str, str] | None = None,
        tolerance: float = 0.0,
        top: int = 5,
        cores: int = 1,
        session: SparkSession | None = None,
    ) -> Comparison:
        """The staged build and the followed one, or a table of somebody else's, at one position of the log.

        `keys` says what keys and features are called in the table, by our names. A `session` that is given goes on.
        """
        _need_spark()
        from leftfold.replay.comparing import CompareOptions, Comparing
        from leftfold.spark.scanning import bounded
        from leftfold.spark.session import build_session

        options = CompareOptions(_moment(at), against, keys or {}, tolerance, top)
        comparing = Comparing(self._supervise(views=()), self.standings, self.log[0], self.catalog.view(view), options)
        if session is not None:
            return comparing.run(session)
        own = build_session(
            bounded(self.spark, cores),
            application=f"leftfold compare {view}",
            log_file=self.log_directory / f"compare-{view}.log",
            lake=True,
        )
        try:
            return comparing.run(own)
        finally:
            own.stop()

    def promote(self, view: str, *, keep: Duration = "24h", behind: int | None = None) -> Standing:
        """Readers move to the staged build at once; the one they leave is kept, and can take them back."""
        from leftfold.replay import moving

        most = moving.BEHIND if behind is None else behind
        kept = max(micros(keep, option="keep"), MINUTE)
        return moving.promote(self.catalog.view(view).name, self.standings, keep=kept, most_behind=most)

    def rollback(self, view: str) -> Standing:
        """Readers go back to the build that they left at the last promote."""
        from leftfold.replay import moving

        return moving.roll_back(self.catalog.view(view).name, self.standings)

    @cached_property
    def standings(self) -> Standings:
        """Which builds of each view readers follow, could follow, and did follow."""
        from leftfold.store.standings import Standings

        return Standings(self.online.url.get_secret_value(), self.profile.namespace)

    def archives(self, *, session: SparkSession | None = None) -> Archives:
        """The archives of topics that have one; use it in a `with` block. Spark starts when something is asked."""
        _need_spark()
        from leftfold.replay.archives import Archives
        from leftfold.spark.session import build_session

        def start() -> SparkSession:
            log_file = self.log_directory / "archive.log"
            return build_session(self.spark, application=f"leftfold {self.name} archive", log_file=log_file, lake=True)

        locks = self.state / self.profile.name / "locks"
        return Archives(self.catalog, self.profile, self.lake, self.kafka, *self.log, locks, start, session)

    def training_set(
        self,
        labels: Any,
        vector: type[Row] | str,
        /,
        *,
        time: str,
        keys: Mapping[str, str] | None = None,
        as_of: AsOf = "log",
        batch: str | Mapping[str, str] | None = None,
        build: Mapping[str, str] | None = None,
    ) -> TrainingSet:
        """For each label the features of the vector at the moment in its column `time`, from the log.

        `labels` is a DataFrame of Spark or pandas, or the path of a .parquet, .csv or .jsonl. `keys` says which column
        holds a view's key, where that is named otherwise: keys={"user_id": "uid"}. `as_of` is what counts as known:
        "event" all that had happened, "log" what had been logged, "served" what readers of the store could get; for
        that `batch` may name a column with the batch that a reader did get (`Row.provenance`; by view, if several), and
        `build` the builds that they followed. Nothing is read before rows are asked for.
        """
        from leftfold.replay.training import Options, TrainingSet, vector_of

        wanted = vector_of(vector, self.catalog)
        batches = dict.fromkeys(wanted.views, batch) if isinstance(batch, str) else dict(batch or {})
        options = Options(time, dict(keys or {}), as_of, batches, dict(build or {}))
        return TrainingSet(labels, wanted, options, self._for_training())

    def training_set_again(self, directory: str | Path) -> TrainingSet:
        """The one that was written there, made once more from the same offsets; its `digest()` must be `expected`."""
        from leftfold.replay.training import again

        return again(str(directory), self._for_training())

    def _for_training(self) -> Project:
        _need_spark()
        from leftfold.replay.training import Project
        from leftfold.run.supervisor import Engines
        from leftfold.spark.session import build_session, session_at_hand

        def session(given: Any) -> SparkSession:
            # With what reads Delta: of a free view the lake is its history.
            return session_at_hand(given) or build_session(
                self.spark,
                application=f"leftfold {self.name}",
                log_file=self.log_directory / "spark.log",
                lake=True,
            )

        engines = Engines(self.kafka, self.online, *self.log)
        return Project(self.catalog, self.profile, engines, self.lake, session)

    def view_statuses(self) -> list[ViewStatus]:
        """What each view has applied, and how far behind the log it is."""
        from leftfold.run.status import view_statuses

        return view_statuses(self.catalog, self.profile, self.log[0], self.reader, self.standings)

    def why(
        self, view: str, /, *, at: datetime | None = None, watch: Callable[[int, int], None] | None = None, **key: Any
    ) -> Why:
        """What made the values of one entity: its tiles in the store and its events in the log. Needs no Spark.

        `watch` is told, now and then, how many records were looked at, and of how many.
        """
        from leftfold.run.why import Sources, why

        sources = Sources(self.reader, self.kafka, *self.log, self.profile)
        return why(self.catalog.view(view), key, _moment(at), sources, watch or (lambda _done, _total: None))

    @cached_property
    def reader(self) -> Reader:
        from leftfold.store.reader import Reader

        return Reader(self.online.url.get_secret_value(), self.profile.namespace)

    @overload
    def get(self, view: type[R], /, *, at: datetime | None = None, **key: Any) -> R: ...
    @overload
    def get(self, view: str | View, /, *, at: datetime | None = None, **key: Any) -> NamedRow: ...
    def get(self, view: type[R] | str | View, /, *, at: datetime | None = None, **key: Any) -> R | NamedRow:
        """The row of one entity, or a vector, now. By class it is typed; by name the store's manifest alone is used.

        `at` is a moment that is past: a whole step, recent enough that the store still has its tiles.
        """
        from leftfold.store.serving import rows_of, target_of

        (row,) = rows_of(view, self.reader.read(target_of(view), [key], _moment(at)))
        return row

    @overload
    def get_many(
        self, view: type[R], keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[R]: ...
    @overload
    def get_many(
        self, view: str | View, keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[NamedRow]: ...
    def get_many(
        self, view: type[R] | str | View, keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[R] | list[NamedRow]:
        """One row for each of the keys, in their order, in one round trip."""
        from leftfold.store.serving import rows_of, target_of

        return rows_of(view, self.reader.read(target_of(view), list(keys), _moment(at)))

    @overload
    async def aget(self, view: type[R], /, *, at: datetime | None = None, **key: Any) -> R: ...
    @overload
    async def aget(self, view: str | View, /, *, at: datetime | None = None, **key: Any) -> NamedRow: ...
    async def aget(self, view: type[R] | str | View, /, *, at: datetime | None = None, **key: Any) -> R | NamedRow:
        """`get` for an event loop."""
        from leftfold.store.serving import rows_of, target_of

        (row,) = rows_of(view, await self.reader.aread(target_of(view), [key], _moment(at)))
        return row

    @overload
    async def aget_many(
        self, view: type[R], keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[R]: ...
    @overload
    async def aget_many(
        self, view: str | View, keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[NamedRow]: ...
    async def aget_many(
        self, view: type[R] | str | View, keys: Iterable[Mapping[str, Any]], /, *, at: datetime | None = None
    ) -> list[R] | list[NamedRow]:
        """`get_many` for an event loop."""
        from leftfold.store.serving import rows_of, target_of

        return rows_of(view, await self.reader.aread(target_of(view), list(keys), _moment(at)))


def _need_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise RunError(
            "spark-missing",
            "PySpark is not installed here",
            why="declaring, sending and reading work without it; running a view does not",
            fix="install it: pip install 'leftfold[spark]'",
        )


def _moment(at: datetime | None) -> int | None:
    if at is None:
        return None
    if at.tzinfo is None:
        raise DeclarationError(
            "naive-datetime",
            "a read is asked for a moment that has no time zone",
            why="without a zone it is a different moment on every machine",
            fix="use datetime(..., tzinfo=timezone.utc)",
        )
    return to_micros(at)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(
            "bad-toml",
            f"{FILE} cannot be read: {error}",
            why="it is not valid TOML",
            fix="correct that line",
        ) from error
    project = document.get("project")
    shaped = (
        isinstance(project, dict)
        and set(project) == {"name", "declarations"}
        and isinstance(project["name"], str)
        and isinstance(project["declarations"], list)
        and all(isinstance(file, str) for file in project["declarations"])
        and isinstance(document.get("profile", {}), dict)
    )
    if not shaped or set(document) - {"project", "profile"}:
        raise ProjectError(
            "bad-project",
            f"{FILE} needs [project] with name and declarations, and holds otherwise only [profile.NAME]",
            why="these say what the project is called and which Python files declare its events and views",
            fix='write [project], name = "shop", declarations = ["streams.py"]',
        )
    return document


def _profile(root: Path, document: dict[str, Any], asked: str | None, *, secrets: bool) -> Profile:
    environment = {**{k: v or "" for k, v in dotenv_values(root / ".env").items()}, **os.environ}
    name = asked or environment.get("LEFTFOLD_PROFILE") or "local"
    profiles = document.get("profile", {})
    if name != "local" and name not in profiles:
        raise ProjectError(
            "unknown-profile",
            f"{FILE} has no [profile.{name}]",
            why=f"it has {', '.join(sorted({'local', *profiles}))}",
            fix=f"choose one of these, or add [profile.{name}]",
        )
    missing: list[str] = []
    settings = resolve_environment(profiles.get(name, {}), environment, missing)
    if missing and not secrets:
        unset = {variable: f"env:{variable}" for variable in missing}
        settings = resolve_environment(profiles.get(name, {}), {**environment, **unset}, [])
    elif missing:
        raise ProjectError(
            "environment-missing",
            f"profile {name} needs the environment variable {missing[0]}",
            why=f'{FILE} says "env:{missing[0]}", and neither the environment nor .env has it',
            fix=f"export {missing[0]}=..., or put it into .env",
        )
    try:
        profile = Profile.model_validate({**settings, "name": name} if isinstance(settings, dict) else settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise _bad_profile(name, ".".join(str(part) for part in first["loc"]), first["msg"].lower()) from error
    if "name" in settings:
        raise _bad_profile(name, "name", "extra inputs are not permitted")
    named = [part for part in ("kafka", "registry", "online") if getattr(profile, part) is not None]
    if named and len(named) < 3:
        raise ProjectError(
            "half-profile",
            f"{FILE}: [profile.{name}] names {' and '.join(named)}, but not all of kafka, registry and online",
            why="records, schemas and features of one profile belong together",
            fix="name all three, or none of them for the local cluster",
        )
    return profile


def _bad_profile(name: str, where: str, message: str) -> ProjectError:
    return ProjectError(
        "bad-profile",
        f"{FILE}: [profile.{name}] {where or 'as a whole'}: {message}",
        why="a setting that is unknown or of the wrong type would be ignored or guessed",
        fix=f"correct {where or 'it'}; the settings stand in docs/reference/project.md",
    )
