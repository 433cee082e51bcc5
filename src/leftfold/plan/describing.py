"""Describes one declared name in words: what it is, what it holds, and who reads it. Pure, from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.declare.consumer import Consumer
from leftfold.declare.event import Event, fields_of
from leftfold.declare.free import View
from leftfold.declare.outcome import OutcomeDefinition
from leftfold.declare.reasons import rule_text
from leftfold.declare.scorer import Scorer
from leftfold.declare.topic import Topic
from leftfold.declare.vector import Vector
from leftfold.errors import DeclarationError, SourceLine, name_known
from leftfold.fold.definition import Definition
from leftfold.fold.durations import text
from leftfold.plan.meaning import features_of, in_words
from leftfold.settings import Profile


@dataclass(frozen=True)
class DescribedValue:
    """A field, feature, column, value or label: its type, and what it means."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class Description:
    """A declared name. A name can be that of several things: a topic, and a view of it."""

    kind: str  # event, topic, features, table, function, vector, consumer, scorer, outcome
    name: str
    source: SourceLine | None
    doc: str | None  # what its docstring says
    facts: dict[str, str]
    values: tuple[DescribedValue, ...] = ()
    used_by: dict[str, tuple[str, ...]] = field(default_factory=dict)  # kind of the reader → names
    views: tuple[str, ...] = ()  # the views whose builds answer for it

    def as_json(self) -> dict[str, Any]:
        values = [asdict(value) for value in self.values]
        shown = {name: getattr(self, name) for name in ("kind", "name", "doc", "facts", "used_by")}
        return {**shown, "source": str(self.source) if self.source else None, "values": values}


def describe(catalog: Catalog, profile: Profile, name: str) -> list[Description]:
    """Return what the name stands for. Raises if nothing of that name is declared."""
    found = list(_found(catalog, profile, name))
    if not found:
        known = _names(catalog)
        raise DeclarationError(
            "unknown-name",
            f"this project declares nothing that is called {name!r}",
            why=f"it declares {', '.join(known) or 'nothing at all'}",
            fix=name_known(name, known, f"or declare {name} in a file that leftfold.toml lists"),
        )
    return found


def _names(catalog: Catalog) -> list[str]:
    events = [topic.event.__name__ for topic in catalog.topics.values()]
    kinds = (catalog.topics, catalog.views, catalog.vectors, catalog.consumers, catalog.scorers, catalog.outcomes)
    return list(dict.fromkeys([*(name for kind in kinds for name in kind), *events]))


def _found(catalog: Catalog, profile: Profile, name: str) -> Iterator[Description]:
    events = {topic.event.__name__: topic.event for topic in catalog.topics.values()}
    if name in events:
        yield _event(events[name], catalog)
    if name in catalog.topics:
        yield _topic(catalog.topics[name], catalog, profile)
    if name in catalog.views:
        yield _view(catalog.views[name], catalog)
    if name in catalog.vectors:
        yield _vector(catalog.vectors[name], catalog)
    if name in catalog.scorers:
        yield _scorer(catalog.scorers[name], catalog)
    elif name in catalog.consumers:
        yield _consumer(catalog.consumers[name])
    if name in catalog.outcomes:
        yield _outcome(catalog.outcomes[name])


def _event(event: type[Event], catalog: Catalog) -> Description:
    values = []
    for each in fields_of(event).values():
        rules = [*(["personal data"] if each.personal else []), *(["optional"] if each.optional else [])]
        rules += [] if each.required else [f"default {each.default!r}"]
        meaning = ", ".join([*rules, *map(rule_text, each.rules)])
        values.append(DescribedValue(each.name, _list_of(each.kind, repeated=each.repeated), meaning))
    topics = tuple(name for name, topic in catalog.topics.items() if topic.event is event)
    return Description(
        "event", event.__name__, event.__leftfold_source__, _doc(event), {}, tuple(values), _used(topics=topics)
    )


def _topic(topic: Topic[Any], catalog: Catalog, profile: Profile) -> Description:
    facts = {
        "in the cluster": profile.topic_name(topic.name, external=topic.external),
        "event": topic.event.__name__,
        "key": ", ".join(key.name for key in topic.key),
        "event time": "none" if topic.time is None else topic.time.name,
        "lateness": text(topic.lateness) if topic.lateness else "none",
        "log time": "the header's, else the broker's" if topic.log_time == "header" else f"the {topic.log_time}'s",
        "kept": "the newest record of each key" if topic.retention is None else text(topic.retention),
        "partitions": f"{topic.partitions}, {topic.replication} copies",
        "format": topic.format,
        "owner": "somebody else" if topic.external else "this project",
        "archive": "every record" if topic.archive else "none",
    }
    consumers = {name: c for name, c in catalog.consumers.items() if name not in catalog.scorers}
    return Description(
        "topic",
        topic.name,
        topic.source,
        None,
        facts,
        used_by=_used(
            views=tuple(name for name, view in catalog.views.items() if topic in view.reading.topics),
            consumers=tuple(name for name, consumer in consumers.items() if topic in consumer.topics),
            scorers=tuple(n for n, s in catalog.scorers.items() if s.on is not None and s.on.topic == topic),
            outcomes=tuple(n for n, o in catalog.outcomes.items() if topic in (o.topic, o.predictions)),
            writers=tuple(
                [name for name, consumer in consumers.items() if consumer.to == topic]
                + [name for name, scorer in catalog.scorers.items() if scorer.to == topic]
            ),
        ),
    )


def _view(view: DeclaredView, catalog: Catalog) -> Description:
    definition, read = view.definition, view.reading
    topics = ", ".join(topic.name for topic in read.topics)
    facts = {"of": f"{topics}, by the function {read.stream.name}" if read.stream else topics}
    facts |= {"fingerprint": view.fingerprint, "stores": ", ".join(sink.name for sink in view.sinks)}
    vectors = {n: v for n, v in catalog.vectors.items() if view.name in v.__leftfold_definition__.views}
    scorers = (n for n, s in catalog.scorers.items() if s.vector.__leftfold_definition__.name in vectors)
    used = _used(vectors=tuple(vectors), scorers=tuple(scorers))
    if isinstance(definition, View):
        facts |= {
            "key": ", ".join(definition.by),
            "kept": "for ever" if definition.ttl is None else text(definition.ttl),
        }
        what = _doc(definition.function)
        return Description("function", view.name, view.source, what, facts, used_by=used, views=(view.name,))
    facts["key"] = ", ".join(f"{key.name} ({key.kind})" for key in definition.keys)
    if isinstance(definition, Definition):
        facts["event time"] = definition.time
        facts["longest window"] = text(definition.longest_window) if definition.longest_window else "everything"
    values = _values(view)
    kind = "features" if isinstance(definition, Definition) else "table"
    return Description(kind, view.name, view.source, _doc(view.declared), facts, values, used, (view.name,))


def _values(view: DeclaredView) -> tuple[DescribedValue, ...]:
    definition = view.definition
    assert not isinstance(definition, View)
    aspects = features_of(definition)
    if isinstance(definition, Definition):
        columns = {f.name: definition.columns[f.columns[0]] for f in definition.windowed}
        listed = {name for name, column in columns.items() if column.aggregate == "last_n"}
        kinds = definition.kinds()
        types = {name: _list_of(kinds[name], repeated=name in listed) for name in aspects}
    else:
        types = {c.name: _list_of(c.kind, repeated=c.repeated) for c in definition.columns}
    return tuple(
        DescribedValue(name, types[name], in_words(of) + _default(of["default"].data, of["default"].words))
        for name, of in aspects.items()
    )


def _default(data: Any, words: str) -> str:
    return "" if data is None else f", else {words}"


def _vector(vector: type[Vector], catalog: Catalog) -> Description:
    definition = vector.__leftfold_definition__
    meanings = {
        part.name: f"{part.feature} of {part.view}" + _default(part.default, repr(part.default))
        for part in definition.parts
    }
    meanings |= {each.name: "given by the caller" for each in definition.inputs}
    kinds = vector.__leftfold_kinds__
    values = tuple(
        DescribedValue(name, _list_of(kinds[name].kind, repeated=kinds[name].repeated), meanings[name])
        for name in definition.order
    )
    facts = {"key": ", ".join(vector.__leftfold_keys__), "views": ", ".join(definition.views)}
    scorers = tuple(n for n, s in catalog.scorers.items() if s.vector.__leftfold_definition__.name == definition.name)
    used = _used(scorers=scorers)
    source = vector.__leftfold_source__
    return Description("vector", definition.name, source, _doc(vector), facts, values, used, definition.views)


def _scorer(scorer: Scorer[Any, Any], catalog: Catalog) -> Description:
    vector = scorer.vector.__leftfold_definition__
    facts = {
        "vector": vector.name,
        "predictions": f"{scorer.to.event.__name__} into {scorer.to.name}",
        "scores": "requests" if scorer.on is None else f"requests, and records of {scorer.on.topic.name}",
    }
    if scorer.consumer is not None:
        facts["delivery"] = scorer.consumer.delivery.replace("_", " ")
    outcomes = tuple(name for name, o in catalog.outcomes.items() if o.predictions == scorer.to)
    used = _used(outcomes=outcomes)
    return Description(
        "scorer", scorer.name, scorer.source, _doc(scorer.function), facts, used_by=used, views=vector.views
    )


def _consumer(consumer: Consumer[..., Any]) -> Description:
    facts = {
        "topics": ", ".join(topic.name for topic in consumer.topics),
        "delivery": consumer.delivery.replace("_", " "),
        "order": f"of each {consumer.order}" if consumer.order != "none" else "none",
        "starts at": str(consumer.start),
    }
    if consumer.to is not None:
        facts["writes to"] = consumer.to.name
    if consumer.into is not None:
        facts["writes to"] = "a database, in one transaction with its position"
    return Description("consumer", consumer.name, consumer.source, _doc(consumer.function), facts)


def _outcome(outcome: OutcomeDefinition) -> Description:
    facts = {
        "predictions": outcome.predictions.name,
        "events": outcome.topic.name,
        "joined on": ", ".join(f"{mine} = {theirs}" for mine, theirs in outcome.on),
        "within": text(outcome.within),
        "credit": f"{outcome.credit} prediction",
    }
    labels = tuple(
        DescribedValue(label.name, label.kind, " ".join([label.aggregate, *_column_fields(label.columns)]))
        for label in outcome.labels
    )
    return Description("outcome", outcome.name, None, None, facts, labels)


def _column_fields(columns: tuple[Any, ...]) -> list[str]:
    return list(dict.fromkeys(f"of {column.field}" for column in columns if column.field is not None))


def _used(**by: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {kind: names for kind, names in by.items() if names}


def _list_of(kind: str, *, repeated: bool) -> str:
    return f"list of {kind}" if repeated else kind


def _doc(declared: Any) -> str | None:
    """The first line of its own docstring: an inherited one is of a class of ours."""
    lines = (vars(declared).get("__doc__") if isinstance(declared, type) else declared.__doc__) or ""
    return lines.strip().partition("\n")[0] or None
