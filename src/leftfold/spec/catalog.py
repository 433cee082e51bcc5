"""The catalog: everything a project declares, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from leftfold.errors import DeclarationError, Source
from leftfold.spec.features import Features
from leftfold.spec.topic import Topic


@dataclass(frozen=True)
class Catalog:
    topics: dict[str, Topic[Any]]
    views: dict[str, type[Features]]

    @classmethod
    def of(cls, declared: Iterable[Any]) -> tuple[Catalog, list[DeclarationError]]:
        """The catalog and everything wrong with it: all of it, not only the first."""
        topics: dict[str, Topic[Any]] = {}
        views: dict[str, type[Features]] = {}
        problems: list[DeclarationError] = []
        for declaration in declared:
            if isinstance(declaration, Topic):
                if (first := topics.setdefault(declaration.name, declaration)) is not declaration:
                    problems.append(_duplicate("topic", declaration.name, declaration.source, first.source))
            else:
                name = declaration.__leftfold_definition__.view
                if (before := views.setdefault(name, declaration)) is not declaration:
                    source, earlier = declaration.__leftfold_source__, before.__leftfold_source__
                    problems.append(_duplicate("view", name, source, earlier))
        for view in views.values():  # a topic that was declared elsewhere belongs to whoever reads it
            topics.setdefault(view.__leftfold_topic__.name, view.__leftfold_topic__)
        return cls(topics, views), problems

    def topic(self, name: str) -> Topic[Any]:
        if name not in self.topics:
            raise _unknown("topic", name, list(self.topics))
        return self.topics[name]

    def view(self, name: str) -> type[Features]:
        if name not in self.views:
            raise _unknown("view", name, list(self.views))
        return self.views[name]


def _unknown(kind: str, name: str, known: list[str]) -> DeclarationError:
    some = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
    return DeclarationError(
        f"unknown-{kind}",
        f"this project declares no {kind} {name!r}",
        why=f"it declares {some}" if known else f"it declares no {kind} at all",
        fix=f"name one of these, or declare {name} in a file that leftfold.toml lists",
    )


def _duplicate(kind: str, name: str, source: Source, first: Source) -> DeclarationError:
    return DeclarationError(
        f"duplicate-{kind}",
        f"{kind} {name!r} is declared twice",
        why=f"it is declared first at {first}, and a name means one thing",
        fix="rename one of them, or declare it once and import it",
        source=source,
    )
