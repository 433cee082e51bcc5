"""The Python entry point: `open` returns an `App`, which has a method for each verb of the command line.

Opening a project connects to nothing. Each method imports the engines that it needs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from leftfold.errors import DeclarationError, LogError, ProjectError, RunError
from leftfold.fold.durations import SECOND, Duration, micros
from leftfold.fold.expressions import from_micros, to_micros
from leftfold.loading import load, sources
from leftfold.places import check_checkpoints, check_lake, scheme_of
from leftfold.private import STATE
from leftfold.project import environment_of, find_root, read_document, read_profile
from leftfold.settings import Kafka, OnlineStore, Registry, Spark

if TYPE_CHECKING:
    from pydantic import SecretStr

    from leftfold.adopt.adopting import Adopted
    from leftfold.consume.clients import ConsumerNames, LogClients
    from leftfold.consume.crew import ConsumerCrew
    from leftfold.consume.position import ConsumerPosition
    from leftfold.consume.progress import ConsumerProgress
    from leftfold.declare.catalog import Catalog
    from leftfold.declare.consumer import Consumer
    from leftfold.declare.event import Event
    from leftfold.declare.free import View
    from leftfold.declare.outcome import Outcome
    from leftfold.declare.prediction import Prediction
    from leftfold.declare.rows import Row
    from leftfold.declare.scorer import Scorer
    from leftfold.fold.known import AsOf
    from leftfold.hazards.cluster_review import ClusterReview
    from leftfold.infer.answered import AnswerFile, Unlogged
    from leftfold.infer.requests import RequestScoring
    from leftfold.infer.serving import Serving
    from leftfold.kafka.admin import Admin
    from leftfold.kafka.dead_letters import DeadLetters
    from leftfold.kafka.producer import Producer
    from leftfold.kafka.registry import SchemaRegistry
    from leftfold.kafka.rejects import Rejects
    from leftfold.local.endpoints import Endpoints
    from leftfold.observe.consumer_status import ConsumerStatus
    from leftfold.observe.group_status import GroupStatus
    from leftfold.observe.log_records import LogRecord
    from leftfold.observe.observation import Observed
    from leftfold.observe.topic_status import TopicStatus
    from leftfold.plan.describing import Description
    from leftfold.plan.diff import PlanOptions
    from leftfold.plan.steps import Plan, Step
    from leftfold.quality.drift import Drift
    from leftfold.quality.evaluation import Evaluation
    from leftfold.quality.outcomes import Appended, Outcomes
    from leftfold.quality.scored import ScoredFrame
    from leftfold.quality.skew import Skew
    from leftfold.rebuild.compare import Comparison
    from leftfold.rebuild.rebuild import Rebuild
    from leftfold.render.documents import Manifest
    from leftfold.render.manifests import RenderOptions
    from leftfold.replay.archives import Archives
    from leftfold.replay.copy import Copy
    from leftfold.replay.replay import Replay
    from leftfold.run.choice import Engine
    from leftfold.run.connections import Connection
    from leftfold.run.deployment import Deployment
    from leftfold.run.progress import Progress
    from leftfold.run.status import ViewStatus
    from leftfold.run.supervisor import Supervisor
    from leftfold.run.why import Why
    from leftfold.sizing.constants import Constants
    from leftfold.spark.session import SparkSession
    from leftfold.store.reader import Reader
    from leftfold.store.serving import NamedRow
    from leftfold.store.standings import Standing, Standings
    from leftfold.training.sets import TrainingSet

# After a promote the previous build is kept for at least a minute, because reads in progress still use it.
MINUTE = 60 * SECOND
R = TypeVar("R", bound="Row")
P = TypeVar("P", bound="Prediction")


def open(path: str | Path | None = None, *, profile: str | None = None) -> App:
    """Open the project at `path`, or the one that the current directory is in.

    This connects to nothing and loads no declaration yet.
    """
    root = find_root(Path(path) if path is not None else None)
    return App(root, profile)


class App:
    """One project under one profile.

    With `secrets=False` an environment variable that is not set stays "env:NAME" in the settings. This is enough for
    methods that connect to nothing.
    """

    def __init__(self, root: Path, profile: str | None = None, *, secrets: bool = True) -> None:
        self.root = root
        self._document = read_document(root)
        self.name: str = self._document["project"]["name"]
        self.profile = read_profile(root, self._document, profile, secrets=secrets)

    @cached_property
    def _loaded(self) -> tuple[Catalog, list[DeclarationError]]:
        from leftfold.declare.catalog import Catalog

        return Catalog.of(load(self.root, self._document["project"]["declarations"]))

    @property
    def problems(self) -> list[DeclarationError]:
        """Problems of the declarations; empty if there is none."""
        return self._loaded[1]

    @property
    def catalog(self) -> Catalog:
        """All declarations of the project, checked as a whole. Raises the first problem if there is one."""
        if self.problems:
            raise self.problems[0]
        return self._loaded[0]

    # Locations -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        """The directory of everything that Leftfold keeps in the project: `.leftfold`."""
        return self.root / STATE

    @property
    def log_directory(self) -> Path:
        """The directory of Spark's log and of traces of errors."""
        return self.state / "logs"

    @property
    def checkpoints(self) -> str:
        """The directory, or URL, of Spark's checkpoints."""
        return self.profile.checkpoints or str(self.state / self.profile.name / "checkpoints")

    @property
    def lake(self) -> str:
        """The directory, or URL, of Delta tables."""
        return self.profile.lake or str(self.state / self.profile.name / "lake")

    @property
    def _locks(self) -> Path:
        return self.state / self.profile.name / "locks"

    @cached_property
    def kafka(self) -> Kafka:
        """Kafka as the profile names it, else the local cluster's."""
        return (self.profile.kafka or Kafka(bootstrap=self._endpoints().bootstrap)).of(self.profile.namespace)

    @cached_property
    def registry(self) -> Registry:
        """The schema registry as the profile names it, else the local cluster's."""
        return self.profile.registry or Registry(url=self._endpoints().registry_url)

    @cached_property
    def online(self) -> OnlineStore:
        """The online store as the profile names it, else the local cluster's."""
        online = self.profile.online
        if online is None:
            return OnlineStore.model_validate({"url": self._endpoints().online_url})
        if not online.is_local_postgres:
            return online
        if (url := self._endpoints().postgres_url) is None:
            raise RunError(
                "local-postgres-missing",
                f'profile {self.profile.name} has its online store in "postgres", and no Postgres runs here',
                why="that is the one of the local cluster, and none was asked for",
                fix="leftfold up --postgres",
                retriable=True,
            )
        return OnlineStore.model_validate({"url": url})

    @property
    def spark(self) -> Spark:
        """The profile's Spark settings. "standalone" is replaced by the address of this project's own Spark cluster."""
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
        # Half of the cores: one per worker. A stopped driver keeps its cores, and a second driver can still start.
        conf = {"spark.cores.max": len(local.ports.spark_workers), **spark.conf}
        return spark.model_copy(update={"master": local.spark_url, "conf": conf})

    def _endpoints(self) -> Endpoints:
        from leftfold.local import endpoints

        return endpoints.read(self.root)

    # Verbs -----------------------------------------------------------------------------------------------------

    def observe(self, *, also: Sequence[str] = (), sample: bool = False) -> Observed:
        """Observe the current state, read-only: topics, schemas, consumer groups and the online store.

        The topics are the declared ones, Leftfold's own, and those named in `also`. With `sample` the newest records
        of the declared topics, and what consumers have noted, are read too, which takes seconds.
        """
        from leftfold.observe.observation import ObservedBuild, ObservedStore, observe
        from leftfold.observe.sampling import sampled
        from leftfold.store.builds import followed_builds, stored_builds
        from leftfold.store.memory import memory_in_use

        url = self.online.address
        followed = followed_builds(url, self.profile.namespace, self.catalog.views)
        builds = [ObservedBuild(view=b.view, id=b.id, followed=True, batch=b.batch, **b.manifest) for b in followed]
        memory = memory_in_use(url)
        store = None if memory is None else ObservedStore(memory.used, memory.limit, memory.policy)
        stored = list(stored_builds(url, self.profile.namespace, self.catalog.views))
        seen = observe(self.catalog, self.profile, self.kafka, *self.log, builds, also, store, stored)
        return sampled(seen, self.catalog, self.profile, self.kafka, *self.log) if sample else seen

    def plan(
        self, observed: Observed | None = None, *, delete: Sequence[str] = (), asked: PlanOptions | None = None
    ) -> Plan:
        """Return the steps that `apply` would do, and their hazards. `delete` names topics to delete."""
        from leftfold.plan.diff import PlanOptions, plan

        seen = observed or self.observe(also=delete)
        return plan(
            self.catalog, self.profile, seen, delete=delete, asked=asked or PlanOptions(constants=self.constants)
        )

    @property
    def constants(self) -> Constants:
        """The capacity figures of machines and engines: as measured by the last probe, or the defaults."""
        from leftfold.sizing import constants

        return constants.read(constants.place(self.state, self.profile.name))

    def probe(self, note: Callable[[str], None] = lambda _: None) -> Constants:
        """Measure the capacity of machines and engines, in about two minutes, and store it for all later plans."""
        _need_spark()
        from leftfold.run.probe import calibrate
        from leftfold.sizing import constants

        deployment = self._deployment
        measured = calibrate(deployment.profile, deployment.engines, self.state, note=note)
        constants.write(measured, constants.place(self.state, self.profile.name))
        return measured

    @cached_property
    def log(self) -> tuple[Admin, SchemaRegistry]:
        """Clients of the brokers and of the schema registry."""
        from leftfold.kafka.admin import Admin
        from leftfold.kafka.registry import SchemaRegistry

        return Admin(self.kafka), SchemaRegistry(self.registry)

    def apply(self, plan: Plan) -> Iterator[Step]:
        """Do the steps of a plan, and yield each step when it is done.

        Refused while another apply runs on the same profile.
        """
        from leftfold.plan.saved import Journal
        from leftfold.store.lease import exclusive

        journal = Journal(self.state / self.profile.name / "applied.jsonl")
        with exclusive(self.online.address, self.profile.namespace, "apply") as lease:

            def before(step: Step) -> None:
                lease.check()
                journal.begun(step)

            for step in plan.apply(*self.log, before, self._remove_build):
                journal.done(step)
                yield step

    def _remove_build(self, view: str, build: str) -> None:
        from leftfold.declare.companions import receipts_topic
        from leftfold.kafka.receipt_log import ReceiptLog
        from leftfold.run.leftovers import remove_build

        remove_build(
            view,
            build,
            url=self.online.address,
            namespace=self.profile.namespace,
            receipts=ReceiptLog(self.kafka, self.profile.topic_name(receipts_topic())),
            checkpoints=self.checkpoints,
        )

    def inspect(self, *, downtime: Duration = "3d") -> ClusterReview:
        """Review the whole cluster, with everything on it that others own. Read-only; it takes seconds.

        `downtime` is the longest outage of a consumer that is to be survived.
        """
        from leftfold.hazards.cluster_review import review_cluster

        return review_cluster(self.kafka, downtime=micros(downtime, option="downtime"))

    def adopt(self, topic: str) -> Adopted:
        """Make a declaration for an existing topic. `topic` is its name in the cluster."""
        from leftfold.adopt.adopting import adopt
        from leftfold.adopt.look import look

        return adopt(look(topic, self.kafka, *self.log))

    def render(self, options: RenderOptions) -> list[Manifest]:
        """Make the project's Kubernetes manifests, checked against the schemas of their kinds. Connects to nothing."""
        from leftfold.render.manifests import render

        return render(self.name, self.catalog, self.profile, options)

    def send(self, topic: str, records: Iterable[Event | Mapping[str, Any]]) -> int:
        """Send events, or dicts of their fields, to a declared topic. Return their number once all are acknowledged."""
        with self.producer(topic) as producer:
            for record in records:
                if isinstance(record, Mapping):
                    producer.send_dict(record)
                else:
                    producer.send(record)
        return producer.sent

    def producer(self, topic: str) -> Producer:
        """A typed producer for a declared topic; use it in a `with` block."""
        from leftfold.kafka.producer import Producer

        declared = self.catalog.topic(topic)
        name = self.profile.topic_name(topic, external=declared.external)
        return Producer(declared, name, self.kafka, self.log[1])

    def rejects(self, topic: str) -> Rejects:
        """The records that the topic's intake did not accept, and the means to re-drive corrected ones."""
        from leftfold.declare.companions import late_topic, redrive_topic, rejects_topic
        from leftfold.kafka.rejects import Rejects, RejectTopics

        declared, name = self.catalog.topic(topic), self.profile.topic_name
        late, rejected, again = (name(of(topic)) for of in (late_topic, rejects_topic, redrive_topic))
        topics = RejectTopics(name(topic, external=declared.external), rejected, late, again)
        return Rejects(declared, topics, self.kafka, *self.log, self.catalog.keys_of(declared))

    def run(
        self,
        *,
        views: Sequence[str] = (),
        until_caught_up: bool = False,
        fresh: Sequence[str] = (),
        take_over: bool | None = None,
        look: Callable[[list[Progress]], None] = lambda _: None,
        session: SparkSession | None = None,
    ) -> list[Progress]:
        """Run all views of the project, or those named, until they have caught up or `supervisor` is asked to stop.

        `look` is called about five times a second with the progress of each query. A failed view has an `error`.
        With `take_over`, a changed definition takes readers over once it has caught up; without, it is staged for
        `promote`. By default it takes over in the local profile only.
        """
        supervisor = self.supervisor(views=views, until_caught_up=until_caught_up, fresh=fresh, take_over=take_over)
        return supervisor.run(look, session=session)

    def supervisor(
        self,
        *,
        views: Sequence[str] = (),
        until_caught_up: bool = False,
        fresh: Sequence[str] = (),
        take_over: bool | None = None,
    ) -> Supervisor:
        """Prepare to run all views of the project, or the named ones. Starts no JVM yet."""
        _need_spark()
        self._check_places()
        from leftfold.run.supervisor import RunOptions, Supervisor

        takes_over = self.profile.is_local if take_over is None else take_over
        options = RunOptions(tuple(views) or tuple(self.catalog.views), until_caught_up, frozenset(fresh), takes_over)
        return Supervisor(self._deployment, options)

    def consume(
        self,
        *consumers: str,
        until_caught_up: bool = False,
        look: Callable[[list[ConsumerProgress]], None] = lambda _: None,
    ) -> list[ConsumerProgress]:
        """Run all consumers of the project, or those named, until they have caught up or are stopped. Needs no Spark.

        `look` is called about five times a second with their progress. A failed consumer has an `error`.
        """
        return self.crew(*consumers, until_caught_up=until_caught_up).run(look)

    def crew(self, *consumers: str, until_caught_up: bool = False) -> ConsumerCrew:
        """Prepare to run all consumers of the project, or those named, in this process."""
        from leftfold.consume.consuming import Consuming
        from leftfold.consume.crew import ConsumerCrew

        declared = [self._running(consumer) for consumer in self.catalog.chosen_consumers(*consumers)]
        clients, caught_up = self._log_clients, until_caught_up
        return ConsumerCrew(
            [
                Consuming(c, self._consumer_names(c), clients, database=self._database(c), until_caught_up=caught_up)
                for c in declared
            ]
        )

    def _running(self, consumer: Consumer[..., Any]) -> Consumer[..., Any]:
        """A consumer as it runs. That of a scorer gets the function that scores, with its models loaded."""
        scorer = self.catalog.scorers.get(consumer.name)
        if scorer is None:
            return consumer
        from leftfold.infer.scoring import Scoring
        from leftfold.infer.stream import StreamScoring

        scoring = Scoring(scorer, self.root)
        scoring.models.load()
        return replace(consumer, function=StreamScoring(scoring, self.reader))

    def scoring(self, scorer: Scorer[Any, Any] | str) -> RequestScoring:
        """The scorer that answers requests of this program. It is opened once, with its models loaded."""
        declared = self.catalog.scorer(scorer if isinstance(scorer, str) else scorer.name)
        if declared.name not in self._scorings:
            from leftfold.infer.requests import PredictionLog, RequestScoring
            from leftfold.infer.scoring import Scoring

            scoring = Scoring(declared, self.root)
            scoring.models.load()
            log = PredictionLog(declared.to, self.profile.topic_name(declared.to.name), self.kafka, self.log[1])
            self._scorings[declared.name] = RequestScoring(scoring, self.reader, log, self._answered(declared.name))
        return self._scorings[declared.name]

    def serving(self, *scorers: str, most_waiting: int = 1_000) -> Serving:
        """The server of all scorers, or those named, and of all vectors. `.asgi` fits into a server of one's own.

        At most `most_waiting` rows of a scorer wait; a request beyond that gets 503.
        """
        from leftfold.infer.serving import Serving

        names = [self.catalog.scorer(name).name for name in scorers] or list(self.catalog.scorers)
        opened = {name: partial(self.scoring, name) for name in names}
        return Serving(
            self.name, opened, self.catalog.vectors, self.reader, most_waiting=most_waiting, lost=self.unlogged
        )

    def unlogged(self) -> list[Unlogged]:
        """Count the answers of this project's programs and servers that were killed, which are not in the log.

        What is found is noted in `unlogged.jsonl` of the profile's state directory, and is not found again.
        """
        from leftfold.infer.answered import left_answers
        from leftfold.infer.looking_back import look_back

        left = left_answers(self._answers)
        return look_back(left, self._logged_ids, self.state / self.profile.name / "unlogged.jsonl") if left else []

    def _logged_ids(self, scorer: str, since: int, until: int) -> Iterator[str] | None:
        """Yield the ids of all predictions that were logged between two moments; None if the scorer is not declared."""
        declared = self.catalog.scorers.get(scorer)
        if declared is None:
            return None
        return self._ids_in(declared.to.name, since, until)

    def _ids_in(self, topic: str, since: int, until: int) -> Iterator[str]:
        for partition in range(self.log[0].partitions_of(self._name_in_cluster(topic))):
            for record in self.read(topic, partition=partition, start=from_micros(since), most=None):
                if record.log_us > until:
                    break
                if record.fields is not None:
                    yield record.fields["prediction_id"]

    @property
    def _answers(self) -> Path:
        return self.state / self.profile.name / "answers"

    def _answered(self, scorer: str) -> AnswerFile | None:
        """A file for the answers of a scorer in this process; None if the project's directory cannot be written."""
        from leftfold.infer.answered import AnswerFile

        try:
            return AnswerFile(self._answers, scorer)
        except OSError:
            return None

    @cached_property
    def _scorings(self) -> dict[str, RequestScoring]:
        return {}

    def score(self, scorer: Scorer[Any, P], /, **given: Any) -> P:
        """Score one row: read its features, call the model, log the prediction, and return it."""
        (prediction,) = self.score_many(scorer, [given])
        return prediction

    def score_many(self, scorer: Scorer[Any, P], given: Iterable[Mapping[str, Any]], /) -> list[P]:
        """Score many rows at once: one read of features, one call of the model."""
        return self.scoring(scorer).score(list(given))  # type: ignore[return-value] # as its scorer declares

    def score_frame(
        self,
        labels: Any,
        scorer: Scorer[Any, Any] | str,
        /,
        *,
        time: str,
        keys: Mapping[str, str] | None = None,
        as_of: AsOf = "log",
        batch: str | Mapping[str, str] | None = None,
        build: Mapping[str, str] | None = None,
    ) -> ScoredFrame:
        """Score each label by the live model of a scorer, with the features that were known at the label's moment.

        The rows are those of `training_set` with the scorer's vector; its other options have the same meaning here.
        The model is loaded and tried at once, in this process. Nothing is read until rows are asked for.
        Every row that has a moment is scored, without a deadline, a fallback, a canary or shadows. Nothing is logged.
        """
        _need_spark()
        from leftfold.infer.frames import answers_of, frame_scorer, model_files
        from leftfold.quality.scored import ScoredFrame, Shipping

        declared = self.catalog.scorer(scorer if isinstance(scorer, str) else scorer.name)
        files = self._document["project"]["declarations"]
        rows = self.training_set(labels, declared.vector, time=time, keys=keys, as_of=as_of, batch=batch, build=build)
        asked = frame_scorer(declared, self.root, files)
        sent = [*sources(self.root, files), *model_files(declared, self.root)]
        shipping = Shipping(asked, self.root.resolve(), sent, self.state / self.profile.name / "sent")
        answers = [(a.name, a.kind, a.repeated) for a in answers_of(declared)]
        return ScoredFrame(rows, declared, answers, (asked.model, asked.version), shipping)

    async def ascore(self, scorer: Scorer[Any, P], /, **given: Any) -> P:
        """Do the same as `score`, for an asyncio event loop: in a thread, because a model blocks."""
        import asyncio

        return await asyncio.to_thread(partial(self.score, scorer, **given))

    def close(self) -> None:
        """Wait until all predictions of this program are acknowledged, and end its scorers."""
        for scoring in self._scorings.values():
            scoring.close()
        self._scorings.clear()

    def dead(self, consumer: str) -> DeadLetters:
        """The dead letters of a consumer: list them, re-drive them, drop them."""
        from leftfold.kafka.dead_letters import DeadLetters

        declared = self.catalog.consumer(consumer)
        names, parks = self._consumer_names(declared), declared.failure == "park"
        return DeadLetters(consumer, names.dead, names.again, self.kafka, self.log[0], parks=parks)

    def position(self, consumer: str) -> ConsumerPosition:
        """The position of a consumer's group, beside the log: show it, or set it while the consumer does not run."""
        from leftfold.consume.position import ConsumerPosition

        declared = self.catalog.consumer(consumer)
        names, database = self._consumer_names(declared), self._database(declared)
        if database is None:
            return ConsumerPosition(consumer, names, self._log_clients)
        from leftfold.consume.sql_rows import SqlRows

        return ConsumerPosition(consumer, names, self._log_clients, SqlRows(declared, names.group, database))

    def pause(self, consumer: str) -> None:
        """Let all members of a consumer hand over no more records, within about a second. It outlives restarts."""
        from leftfold.clock import now
        from leftfold.kafka.consumer_log import PAUSED

        self._log_clients.notes.note(self.catalog.consumer(consumer).name, {PAUSED: {"since": now().isoformat()}})

    def resume(self, consumer: str) -> None:
        """End a pause."""
        from leftfold.kafka.consumer_log import PAUSED

        self._log_clients.notes.note(self.catalog.consumer(consumer).name, {PAUSED: None})

    @cached_property
    def _log_clients(self) -> LogClients:
        from leftfold.consume.clients import LogClients
        from leftfold.declare.companions import consumers_topic
        from leftfold.kafka.consumer_log import ConsumerLog

        notes = ConsumerLog(self.kafka, self.profile.topic_name(consumers_topic()))
        return LogClients(self.kafka, *self.log, notes)

    def _consumer_names(self, consumer: Consumer[..., Any]) -> ConsumerNames:
        from leftfold.consume.clients import ConsumerNames
        from leftfold.declare.companions import again_topic, dead_topic
        from leftfold.settings import group_id

        name = self.profile.topic_name
        return ConsumerNames(
            group=group_id(self.profile.namespace, consumer.name),
            sources={name(t.name, external=t.external): t for t in consumer.topics},
            dead=name(dead_topic(consumer.name)),
            again=name(again_topic(consumer.name)),
            to=None if consumer.to is None else name(consumer.to.name),
        )

    def _database(self, consumer: Consumer[..., Any]) -> SecretStr | None:
        """The URL of the database in which a consumer books; None if it books in none.

        It is in the environment. On the local cluster it need not be: then it is that of the cluster's own Postgres.
        """
        if consumer.into is None:
            return None
        if importlib.util.find_spec("psycopg") is None:
            raise RunError(
                "psycopg-missing",
                "psycopg is not installed here",
                why=f"consumer {consumer.name} books into a database; everything else works without it",
                fix="install it: pip install 'leftfold[sql]'",
                source=consumer.source,
            )
        variable = consumer.into.variable
        url = environment_of(self.root).get(variable)
        if not url and self.profile.kafka is None:
            url = self._endpoints().postgres_url
        if not url:
            raise ProjectError(
                "environment-missing",
                f"consumer {consumer.name} needs the environment variable {variable}",
                why=f'it is declared with lf.Sql("env:{variable}"), and neither the environment nor .env has it',
                fix=f"export {variable}=postgresql://…, or put it into .env; or leftfold up --postgres, for the local "
                "cluster",
                source=consumer.source,
            )
        from pydantic import SecretStr

        return SecretStr(url)

    def _check_places(self) -> None:
        """Refuse unsafe locations of checkpoints and lake, before anything starts that commits to them."""
        conf = self.profile.spark.conf
        check_checkpoints(self.checkpoints, scheme_of(self.checkpoints, conf))
        if self.catalog.fills_lake:
            check_lake(self.lake, scheme_of(self.lake, conf), conf)

    @property
    def _deployment(self) -> Deployment:
        from leftfold.run.deployment import Deployment, Engines

        return Deployment(
            self.catalog,
            self.profile.model_copy(update={"spark": self.spark}),
            Engines(self.kafka, self.online, *self.log),
            checkpoints=self.checkpoints,
            lake=self.lake,
            locks=self._locks,
            log_file=self.log_directory / "spark.log",
            application=f"leftfold {self.name}",
        )

    def replay(self, topic: str, *, start: datetime | None = None, end: datetime | None = None) -> Replay:
        """Prepare a replay of the topic's records from `start` up to `end`.

        It begins at the first record logged at `start` or later, and ends before the first logged at `end` or later.
        The offsets are found and frozen now. `.frame()` later gives the records as a Spark DataFrame. For a topic with
        an archive, finding the offsets needs Spark, which starts here if none is running.
        """
        from leftfold.offsets import Ranges
        from leftfold.replay.replay import Replay, frozen, frozen_history

        declared, (admin, _), deployment = self.catalog.topic(topic), self.log, self._deployment
        place = deployment.place(declared, who="a replay", at=declared.source)
        topic_id = admin.topic_ids([place.name])[place.name]
        replay = Replay(declared, topic_id, Ranges(), place, deployment)
        moments = {"start": _moment(start), "end": _moment(end)}
        offsets = (
            frozen_history(replay.start_session(), admin, replay.source, **moments)
            if declared.archive
            else frozen(admin, place.name, place.partitions, **moments)
        )
        replay.ranges = offsets.ranges
        return replay

    def copy(
        self,
        topic: str,
        into: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        follow: bool = False,
    ) -> Copy:
        """Prepare a copy of the topic's records to the topic `into`. Needs no Spark.

        The copy is exactly-once, even if it is killed at any point. `start` applies to the first run only. Later runs
        continue where the last one stopped. With `follow` the copy has no end.
        """
        from leftfold.replay.copy import copying

        topics = self.catalog.topic(topic), self.catalog.topic(into)
        return copying(
            *topics, self.profile, self.kafka, self.log[0], start=_moment(start), end=_moment(end), follow=follow
        )

    def rebuild(
        self,
        view: str,
        *,
        since: datetime | None = None,
        restart: bool = False,
        until_caught_up: bool = False,
        cores: int = 1,
    ) -> Rebuild:
        """Prepare a backfill of a view from all of history, into a new build next to the one that readers follow.

        It is not started yet.
        """
        _need_spark()
        self._check_places()
        from leftfold.rebuild.rebuild import Rebuild, RebuildOptions

        name = self.catalog.view(view).name
        options = RebuildOptions(name, _moment(since), restart=restart, until_caught_up=until_caught_up, cores=cores)
        log_file = self.log_directory / f"rebuild-{name}.log"
        return Rebuild(self._deployment, self.standings, options, log_file=log_file)

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
        engine: Engine | None = None,
        session: SparkSession | None = None,
    ) -> Comparison:
        """Compare the staged build of a view with the followed one, at one position of the log.

        With `against` the other side is a foreign table. It is compared with the staged build, else with the followed
        one, else with the declared definition. `keys` maps our names of keys and features to the columns of the table.
        Without a `session`, and if that is expected to be done first, this process compares by itself, with Arrow.
        `engine` decides it. A `session` that is passed in is not stopped.
        """
        from leftfold.rebuild.compare import CompareOptions, Comparing

        options = CompareOptions(_moment(at), against, keys or {}, tolerance, top)
        comparing = Comparing(self._deployment, self.standings, self.catalog.view(view), options)

        def start() -> SparkSession:
            _need_spark()
            from leftfold.spark.history.scan import bounded
            from leftfold.spark.session import build_session

            return build_session(
                bounded(self.spark, cores),
                application=f"leftfold compare {view}",
                log_file=self.log_directory / f"compare-{view}.log",
                lake=True,
            )

        return comparing.run(start, session=session, engine=engine)

    def promote(self, view: str, *, keep: Duration = "24h", behind: int | None = None) -> Standing:
        """Move readers to the staged build at once. The previous build is kept for `keep`, for a rollback."""
        from leftfold.rebuild import promote

        most = promote.BEHIND if behind is None else behind
        keep_us = max(micros(keep, option="keep"), MINUTE)
        return promote.promote(self.catalog.view(view).name, self.standings, keep=keep_us, most_behind=most)

    def rollback(self, view: str) -> Standing:
        """Move readers back to the build that they left at the last promote."""
        from leftfold.rebuild import promote

        return promote.roll_back(self.catalog.view(view).name, self.standings)

    @cached_property
    def standings(self) -> Standings:
        """The builds of each view that readers follow, could follow (staged), and followed before."""
        from leftfold.store.standings import Standings

        return Standings(self.online.address, self.profile.namespace)

    def archive(self, *, session: SparkSession | None = None) -> Archives:
        """The archives of all topics that have one; use it in a `with` block. Spark starts at the first request."""
        _need_spark()
        from leftfold.replay.archives import Archives
        from leftfold.spark.session import build_session

        def start() -> SparkSession:
            log_file = self.log_directory / "archive.log"
            return build_session(self.spark, application=f"leftfold {self.name} archive", log_file=log_file, lake=True)

        return Archives(self.catalog, self.profile, self.lake, self.kafka, *self.log, self._locks, start, session)

    def outcomes(
        self,
        outcome: type[Outcome] | str,
        /,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        open: bool = False,
    ) -> Outcomes:
        """Join predictions with what happened after them, in a `with` block: `.frame`, `.report()`, `.append()`.

        `start` and `end` bound the moments of predictions. The offsets of both topics are frozen now. A row is closed
        once nothing can change its labels any more; `open=True` also gives the rows whose labels are still missing.
        """
        _need_spark()
        from leftfold.quality.outcomes import Outcomes, definition_of

        return Outcomes(
            definition_of(outcome, self.catalog),
            self._deployment,
            lambda topic, first, last: self.replay(topic, start=first, end=last),
            start=_moment(start),
            end=_moment(end),
            include_open=open,
        )

    def append_outcomes(
        self, outcome: type[Outcome] | str, /, *, start: datetime | None = None, table: str | None = None
    ) -> Appended:
        """Append the rows of an outcome that were closed since the last append, to its Delta table in the lake.

        Every prediction is there once, whatever dies, and however many processes append at once. The first append
        begins at `start`, or at the beginning of the log; a later one goes on from where the table ends.
        """
        _need_spark()
        self._check_places()
        from leftfold.declare.companions import outcomes_table
        from leftfold.quality.outcomes import definition_of, next_start

        name = definition_of(outcome, self.catalog).name
        following = next_start(self._deployment.session(), table or outcomes_table(self.lake, name))
        with self.outcomes(outcome, start=start if following is None else from_micros(following)) as outcomes:
            return outcomes.append(table)

    def evaluate(
        self,
        scorer: Scorer[Any, Any] | str,
        outcome: type[Outcome] | str,
        /,
        *,
        by: Sequence[str] = ("version", "role"),
        label: str | None = None,
        score: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Evaluation:
        """Judge the predictions of a scorer by their outcomes: AUC, log loss, Brier score, calibration, base rate.

        Only closed predictions with the model's own answer count. `by` names fields of the prediction, or "hour" for
        the hour of `scored_at`. `label` may be left out if one label is true or false, `score` if the prediction
        declares one number. `start` and `end` bound the moments of predictions.
        """
        _need_spark()
        from leftfold.quality.evaluation import check_outcome, chosen_label, chosen_score, evaluated
        from leftfold.quality.outcomes import definition_of

        declared = self.catalog.scorer(scorer if isinstance(scorer, str) else scorer.name)
        definition = definition_of(outcome, self.catalog)
        check_outcome(declared, definition)
        # Before anything is read, so that a wrong name costs nothing.
        label, score = chosen_label(definition, label), chosen_score(declared, score)
        with self.outcomes(outcome, start=start, end=end, open=True) as outcomes:
            return evaluated(outcomes.frame, declared, definition, by=by, label=label, score=score)

    def drift(
        self,
        scorer: Scorer[Any, Any] | str,
        /,
        *,
        against: str | Path | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        against_start: datetime | None = None,
        against_end: datetime | None = None,
        by: Sequence[str] = ("version",),
    ) -> Drift:
        """Compare what a scorer's live predictions saw and answered with a training set, or with an earlier time.

        `against` is the directory of a training set. Without it, the predictions that were logged from `against_start`
        up to `against_end` are the other side. `start` and `end` bound the log times of the predictions to compare.
        """
        _need_spark()
        from leftfold.quality.drift import drifted, other_side, profile_of_set, profile_of_time

        declared = self.catalog.scorer(scorer if isinstance(scorer, str) else scorer.name)
        other = other_side(None if against is None else str(against), against_start, against_end)
        replay = self.replay(declared.to.name, start=start, end=end)
        if against is not None:
            profile = profile_of_set(str(against), self._deployment)
        else:
            past = self.replay(declared.to.name, start=against_start, end=against_end)
            profile = profile_of_time(past.frame(), declared)
        return drifted(replay.frame(), declared, profile, other, by=by)

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
        logged: bool = False,
        engine: Engine | None = None,
    ) -> TrainingSet:
        """Make a training set by a point-in-time join: for each label the features of the vector, from the log.

        The moment of a label is in its column `time`. Nothing is read until rows are asked for.

        `labels` is a Spark or pandas DataFrame, an Arrow table, the path of a .parquet, .csv or .jsonl file, or
        `Outcomes`. The moment of an outcome is in "scored_at".
        `keys` names the column that holds a view's key, if its name differs: keys={"user_id": "uid"}.
        `as_of` decides which events count as known at that moment: "event" takes all that had happened, "log" all that
        had been logged, "served" all that readers of the store could get.
        For "served", `batch` may name the column with the batch that a reader got (see `Row.provenance`), or map each
        view to such a column. `build` names the builds that readers followed, by view. With `logged`, features that
        were logged with a prediction, by a build of the same definition, are taken from it instead of computed.
        `engine` is "arrow" (in this process, without Java) or "spark". By default the one that is expected to be done
        first makes the set; its `choice` says which, and why. Both give the same values.
        """
        from leftfold.training.options import TrainingOptions, vector_of
        from leftfold.training.sets import TrainingSet

        outcomes = sys.modules.get("leftfold.quality.outcomes")  # its import takes a second, and needs Spark
        if outcomes is not None and isinstance(labels, outcomes.Outcomes):
            labels = labels.frame
        wanted = vector_of(vector, self.catalog)
        batches = dict.fromkeys(wanted.views, batch) if isinstance(batch, str) else dict(batch or {})
        options = TrainingOptions(time, dict(keys or {}), as_of, batches, dict(build or {}), logged)
        return TrainingSet(labels, wanted, options, self._deployment, engine=engine)

    def training_set_again(self, directory: str | Path, *, engine: Engine | None = None) -> TrainingSet:
        """Make the training set that was written to `directory` again, from the same offsets.

        Its `digest()` must equal its `expected`.
        """
        from leftfold.training.sets import again

        return again(str(directory), self._deployment, engine=engine)

    def skew(
        self,
        scorer: Scorer[Any, Any] | str,
        /,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        sample: int | None = None,
        most: int = 20,
        session: SparkSession | None = None,
    ) -> Skew:
        """Compute every logged value of a scorer's predictions again, at its own build and batch, and compare.

        Only predictions that were logged from `start` up to `end` are taken, and of these about `sample`: all of some
        entities. At most `most` values that differ are listed. A `session` that is passed in is not stopped.
        """
        from leftfold.quality.skew import skew

        declared = self.catalog.scorer(scorer if isinstance(scorer, str) else scorer.name)
        replay = self.replay(declared.to.name, start=start, end=end)
        return skew(self._deployment, declared, replay, sample=sample, most=most, session=session)

    def topics(self, topic: str | None = None) -> list[TopicStatus]:
        """The state of every topic of the cluster, or of one: leaders, replicas, offsets, bytes, rate, durability.

        `topic` is a declared name, or a name in the cluster. Kafka's own topics are shown only by name.
        """
        from leftfold.observe.topic_status import topic_statuses

        names = None if topic is None else [self._name_in_cluster(topic)]
        return topic_statuses(self.kafka, self.log[0], names, {name: t for t, name in self._names().items()})

    def groups(self, topic: str | None = None) -> list[GroupStatus]:
        """The state of every consumer group, or of those that read one topic: members, and lag in records and seconds.

        The position of a view is shown as a group without members.
        """
        from leftfold.observe.group_status import group_statuses
        from leftfold.settings import group_id

        names = None if topic is None else [self._name_in_cluster(topic)]
        views = {group_id(self.profile.namespace, view): view for view in self.catalog.views}
        return group_statuses(self.kafka, self.log[0], names, views)

    def read(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        start: datetime | None = None,
        key: str | bytes | None = None,
        most: int | None = 10,
        follow: bool = False,
    ) -> Iterator[LogRecord]:
        """Read records of a topic, decoded and judged. Needs no Spark, joins no group and commits nothing.

        Without `offset`, `start` and `key`, it reads the newest records; otherwise the first ones from there on. `key`
        is the text of a record's key. `most=None` has no limit. With `follow` it goes on with records that arrive.
        """
        from leftfold.observe.log_records import Records, Wanted

        name = self._name_in_cluster(topic)
        wanted = Wanted(partition, offset, _moment(start), key.encode() if isinstance(key, str) else key, most, follow)
        return Records(name, self.catalog.topics.get(topic), self.kafka, *self.log).read(wanted)

    def _names(self) -> dict[str, str]:
        """The names in the cluster of all declared topics."""
        return {n: self.profile.topic_name(n, external=t.external) for n, t in self.catalog.topics.items()}

    def _name_in_cluster(self, topic: str) -> str:
        """The name in the cluster of a declared topic, or of one that others own. Raises if it does not exist."""
        name = self._names().get(topic, topic)
        if name not in self.log[0].partitions([name]):
            declared = topic in self.catalog.topics
            raise LogError(
                "topic-missing",
                f"topic {name} does not exist",
                why="it is declared, and not applied yet"
                if declared
                else f"the cluster at {self.kafka.bootstrap} has no such topic",
                fix="leftfold apply" if declared else "leftfold topics lists those that exist",
            )
        return name

    def status(self) -> list[ViewStatus]:
        """The state of each view: which batches it has applied, and its lag behind the log."""
        from leftfold.run.status import view_statuses

        return view_statuses(self.catalog, self.profile, self.log[0], self.reader, self.standings)

    def consumer_status(self) -> list[ConsumerStatus]:
        """The state of the group of each declared consumer and stream scorer: its members, and its lag in records."""
        from leftfold.observe.consumer_status import consumer_statuses

        names = {name: self._consumer_names(consumer) for name, consumer in self.catalog.consumers.items()}
        groups = {name: of.group for name, of in names.items()}
        topics = {topic for of in names.values() for topic in (*of.sources, of.again)}
        return consumer_statuses(self.log[0], self.kafka, self.catalog, groups, sorted(topics))

    def wait(self, view: str, /, *, records: int | None = None, timeout: Duration = "60s") -> ViewStatus:
        """Wait until readers of a view follow a build of its declared definition that has read all of the log.

        With `records`, wait until it has applied that many. Raises if that takes longer than `timeout`.
        """
        from leftfold.run.status import view_status
        from leftfold.run.waiting import Goal, at_end_of, await_view

        declared, admin = self.catalog.view(view), self.log[0]
        look = partial(view_status, declared, self.profile, admin, self.reader, self.standings)
        goal = Goal(micros(timeout, option="timeout"), records)
        return await_view(declared, goal, look, at_end_of(declared, self.profile, self.kafka, admin))

    def describe(self, name: str) -> list[Description]:
        """Describe a declared name: its kind, what it holds, who reads it. Connects to nothing.

        There are several descriptions if a name stands for several things: a topic, and a view of it.
        """
        from leftfold.plan.describing import describe

        return describe(self.catalog, self.profile, name)

    def view_status(self, view: str) -> ViewStatus:
        """The state of one view."""
        from leftfold.run.status import view_status

        return view_status(self.catalog.view(view), self.profile, self.log[0], self.reader, self.standings)

    def connections(self) -> Iterator[Connection]:
        """Test the connection to each engine of the profile, and say which setting a failure is about."""
        from leftfold.run.connections import Addresses, connections

        addresses = Addresses(self.kafka, self.registry, self.online, self.checkpoints, self.lake)
        return connections(self.catalog, self.profile, addresses)

    def why(
        self, view: str, /, *, at: datetime | None = None, watch: Callable[[int, int], None] | None = None, **key: Any
    ) -> Why:
        """Explain the values of one entity by its tiles in the store and its events in the log. Needs no Spark.

        `watch` is called from time to time with the number of records read so far and the total.
        """
        from leftfold.run.why import Sources, why

        sources = Sources(self.reader, self.kafka, *self.log, self.profile)
        return why(self.catalog.view(view), key, _moment(at), sources, watch or (lambda _done, _total: None))

    @cached_property
    def reader(self) -> Reader:
        """The reader of the online store, which follows what other processes do there."""
        from leftfold.store.reader import Reader

        return Reader(self.online.address, self.profile.namespace)

    @overload
    def get(self, view: type[R], /, *, at: datetime | None = None, **key: Any) -> R: ...
    @overload
    def get(self, view: str | View, /, *, at: datetime | None = None, **key: Any) -> NamedRow: ...
    def get(self, view: type[R] | str | View, /, *, at: datetime | None = None, **key: Any) -> R | NamedRow:
        """Read the current row of one entity, or a vector.

        A read by class gives a typed row. A read by name uses only the manifest in the store. `at` asks for a past
        moment: it must be a whole step, and so recent that the store still has its tiles.
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
        """Read one row per key, in the order of the keys, in one round trip."""
        from leftfold.store.serving import rows_of, target_of

        return rows_of(view, self.reader.read(target_of(view), list(keys), _moment(at)))

    @overload
    async def aget(self, view: type[R], /, *, at: datetime | None = None, **key: Any) -> R: ...
    @overload
    async def aget(self, view: str | View, /, *, at: datetime | None = None, **key: Any) -> NamedRow: ...
    async def aget(self, view: type[R] | str | View, /, *, at: datetime | None = None, **key: Any) -> R | NamedRow:
        """Do the same as `get`, for an asyncio event loop."""
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
        """Do the same as `get_many`, for an asyncio event loop."""
        from leftfold.store.serving import rows_of, target_of

        return rows_of(view, await self.reader.aread(target_of(view), list(keys), _moment(at)))


def _need_spark() -> None:
    from leftfold.run.choice import need_spark

    need_spark()


def _moment(at: datetime | None) -> int | None:
    if at is None:
        return None
    if at.tzinfo is None:
        raise DeclarationError(
            "naive-datetime",
            "a read is asked for a time that has no time zone",
            why="without a zone it is a different time on every machine",
            fix="use datetime(..., tzinfo=timezone.utc)",
        )
    return to_micros(at)
