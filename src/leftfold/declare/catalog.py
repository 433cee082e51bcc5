"""The catalog: everything that a project declares, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leftfold.declare.code import code_fingerprint
from leftfold.declare.consumer import Consumer
from leftfold.declare.event import fields_of
from leftfold.declare.features import Features
from leftfold.declare.free import View
from leftfold.declare.outcome import Outcome, OutcomeDefinition
from leftfold.declare.reading import Reading
from leftfold.declare.scorer import Scorer
from leftfold.declare.sinks import RESERVED_TABLES, Lake, Online, Sink
from leftfold.declare.table import Table
from leftfold.declare.topic import Topic
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError, SourceLine, name_known
from leftfold.fold.definition import Definition, Key
from leftfold.fold.latest import Latest


@dataclass(frozen=True)
class DeclaredView:
    """A view of any kind. The meaning of a free view is known only in a process that can run its function."""

    name: str
    reading: Reading
    definition: Definition | Latest | View
    source: SourceLine
    declared: Any  # the class or function that the user has
    sinks: tuple[Sink, ...] = (Online(),)

    @classmethod
    def of(cls, declared: type[Features] | type[Table] | View) -> DeclaredView:
        if isinstance(declared, View):
            return cls(declared.name, declared.reading, declared, declared.source, declared, declared.sinks)
        definition = declared.__leftfold_definition__
        return cls(
            definition.view,
            declared.__leftfold_reading__,
            definition,
            declared.__leftfold_source__,
            declared,
            declared.__leftfold_sinks__,
        )

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the view's meaning. For a free view, whose plan only Spark knows, that of its code."""
        if isinstance(self.definition, View):
            return code_fingerprint(self.definition.function, self.source)
        return self.definition.fingerprint

    @property
    def fields(self) -> frozenset[str]:
        """The fields of its topics' event that the view reads. A user's function may read any field."""
        if isinstance(self.definition, View) or self.reading.stream is not None:
            return frozenset(fields_of(self.reading.topics[0].event))
        return frozenset(self.definition.fields())

    @property
    def summary(self) -> str:
        """A description of the view in one line."""
        definition, read = self.definition, self.reading
        of = read.stream.name if read.stream else ", ".join(t.name for t in read.topics)
        if isinstance(definition, View):
            return f"function of {of} by {', '.join(definition.by)}"
        number = len(definition.visible)
        noun = "feature" if isinstance(definition, Definition) else "column"
        keys = ", ".join(k.name for k in definition.keys)
        return f"{number} {noun}{'' if number == 1 else 's'} of {of} by {keys}"


@dataclass(frozen=True)
class Catalog:
    topics: dict[str, Topic[Any]]
    views: dict[str, DeclaredView]
    vectors: dict[str, type[Vector]]
    consumers: dict[str, Consumer[..., Any]] = field(default_factory=dict)  # with those of scorers
    scorers: dict[str, Scorer[Any, Any]] = field(default_factory=dict)
    outcomes: dict[str, OutcomeDefinition] = field(default_factory=dict)

    @property
    def fills_lake(self) -> bool:
        """True if the project writes to Delta tables: rows of a view, or a topic's archive."""
        sinks = [sink for view in self.views.values() for sink in view.sinks]
        return any(isinstance(sink, Lake) for sink in sinks) or any(t.archive for t in self.topics.values())

    @classmethod
    def of(cls, declared: Iterable[Any]) -> tuple[Catalog, list[DeclarationError]]:
        """Make the catalog. Also return all problems found in it, not only the first."""
        topics: dict[str, Topic[Any]] = {}
        views: dict[str, DeclaredView] = {}
        vectors: dict[str, type[Vector]] = {}
        consumers: dict[str, Consumer[..., Any]] = {}
        scorers: dict[str, Scorer[Any, Any]] = {}
        outcomes: dict[str, OutcomeDefinition] = {}
        sources: dict[tuple[str, str], tuple[Any, SourceLine]] = {}
        problems: list[DeclarationError] = []
        for declaration in declared:
            kind, name, source = _described(declaration)
            first, where = sources.setdefault((kind, name), (declaration, source))
            if first is not declaration:
                problems.append(_duplicate(kind, name, source, where))
            elif isinstance(declaration, Topic):
                topics[name] = declaration
            elif isinstance(declaration, Consumer):
                consumers[name] = declaration
            elif isinstance(declaration, Scorer):
                scorers[name] = declaration
            elif isinstance(declaration, type) and issubclass(declaration, Outcome):
                outcomes[name] = declaration.__leftfold_outcome__
            elif isinstance(declaration, type) and issubclass(declaration, Vector):
                vectors[name] = declaration
            else:
                views[name] = DeclaredView.of(declaration)
        for scorer in scorers.values():
            vectors.setdefault(scorer.vector.__leftfold_definition__.name, scorer.vector)
            if scorer.consumer is not None:
                consumers[scorer.name] = scorer.consumer
        # A topic that was declared outside of the load is added by what reads or writes it.
        read = [topic for view in views.values() for topic in view.reading.topics]
        written: list[Topic[Any]] = [scorer.to for scorer in scorers.values()]
        written += [consumer.to for consumer in consumers.values() if consumer.to is not None]
        joined: list[Topic[Any]] = [t for outcome in outcomes.values() for t in (outcome.predictions, outcome.topic)]
        for topic in (*read, *(t for consumer in consumers.values() for t in consumer.topics), *written, *joined):
            topics.setdefault(topic.name, topic)
        problems += [
            _among_tables(view)
            for view in views.values()
            if view.name in RESERVED_TABLES and any(isinstance(sink, Lake) for sink in view.sinks)
        ]
        problems += [_group_taken(consumer, views[name]) for name, consumer in consumers.items() if name in views]
        return cls(topics, views, vectors, consumers, scorers, outcomes), problems

    def topic(self, name: str) -> Topic[Any]:
        if name not in self.topics:
            raise _unknown("topic", name, list(self.topics))
        return self.topics[name]

    def keys_of(self, topic: Topic[Any]) -> tuple[tuple[Key, ...], ...]:
        """The distinct keys by which the topic's records are keyed: the topic's own, and those of its views.

        Free views and views of a stream are left out: their keys are not fields of the topic's records.
        """
        views = [view.definition for view in self.views.values() if topic in view.reading.topics]
        keyed = [d.keys for d in views if isinstance(d, Latest) or (isinstance(d, Definition) and d.stream is None)]
        return tuple(dict.fromkeys((topic.keys, *keyed)))

    def consumer(self, name: str) -> Consumer[..., Any]:
        if name not in self.consumers:
            raise _unknown("consumer", name, list(self.consumers))
        return self.consumers[name]

    def scorer(self, name: str) -> Scorer[Any, Any]:
        if name not in self.scorers:
            raise _unknown("scorer", name, list(self.scorers))
        return self.scorers[name]

    def outcome(self, name: str) -> OutcomeDefinition:
        if name not in self.outcomes:
            raise _unknown("outcome", name, list(self.outcomes))
        return self.outcomes[name]

    def chosen_consumers(self, *names: str) -> list[Consumer[..., Any]]:
        """The named consumers, or all of them if none is named. Raises if the project declares none."""
        chosen = [self.consumer(name) for name in names] or list(self.consumers.values())
        if not chosen:
            raise DeclarationError(
                "no-consumers",
                "this project declares no consumer",
                why="a consumer is a function under @lf.consumer",
                fix="declare one in a file that leftfold.toml lists",
            )
        return chosen

    def view(self, name: str) -> DeclaredView:
        if name not in self.views:
            raise _unknown("view", name, list(self.views))
        return self.views[name]


def _described(declaration: Any) -> tuple[str, str, SourceLine]:
    """Return the kind, name and source of a declaration.

    A vector counts as a view: both are read by name, so their names must differ.
    """
    if isinstance(declaration, Topic):
        return "topic", declaration.name, declaration.source
    if isinstance(declaration, View):
        return "view", declaration.name, declaration.source
    if isinstance(declaration, Consumer | Scorer):
        return "consumer", declaration.name, declaration.source
    if issubclass(declaration, Outcome):
        return "outcome", declaration.__leftfold_outcome__.name, declaration.__leftfold_source__
    definition = declaration.__leftfold_definition__
    name = definition.name if issubclass(declaration, Vector) else definition.view
    return "view", name, declaration.__leftfold_source__


def _among_tables(view: DeclaredView) -> DeclarationError:
    return DeclarationError(
        "reserved-name",
        f"view {view.name} goes to a lake",
        why=f"its table would lie where {RESERVED_TABLES[view.name]} are, and a VACUUM of it would delete theirs",
        fix="give the view another name, or leave lf.Lake() out",
        source=view.source,
    )


def _group_taken(consumer: Consumer[..., Any], view: DeclaredView) -> DeclarationError:
    return DeclarationError(
        "group-taken",
        f"consumer {consumer.name} has the name of a view",
        why=f"the view at {view.source} shows its position as the group of that name",
        fix="rename the consumer or the view",
        source=consumer.source,
    )


def _unknown(kind: str, name: str, known: list[str]) -> DeclarationError:
    some = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
    return DeclarationError(
        f"unknown-{kind}",
        f"this project declares no {kind} {name!r}",
        why=f"it declares {some}" if known else f"it declares no {kind} at all",
        fix=name_known(name, known, f"or declare {kind} {name} in a file that leftfold.toml lists"),
    )


def _duplicate(kind: str, name: str, source: SourceLine, first: SourceLine) -> DeclarationError:
    return DeclarationError(
        f"duplicate-{kind}",
        f"{kind} {name!r} is declared twice",
        why=f"it is declared first at {first}, and a name means one thing",
        fix="rename one of them, or declare it once and import it",
        source=source,
    )
