"""Definitions in their topic: what each build of each view meant. They are kept for ever.

A prediction names the build that it was made from, and a build's name holds the fingerprint of its definition. Redis
forgets a definition with its build, so this topic is where a value can still be explained years later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from leftfold.errors import LogError
from leftfold.kafka.document_log import DocumentLog


class DefinitionLog(DocumentLog):
    """The definitions of one namespace. The scope of a document is the view, its key the definition's fingerprint."""

    purpose: ClassVar[str] = "the definition of every build is kept there before readers can follow the build"

    def keep(self, view: str, fingerprint: str, document: Mapping[str, Any]) -> None:
        """Write a definition. Durable when this returns; the same definition again changes nothing."""
        self.append(view, [(fingerprint, dict(document))])

    def definitions(self, view: str) -> dict[str, dict[str, Any]]:
        """Return all definitions that a view ever had, by fingerprint."""
        return {key: kept.document for key, kept in self.read(view).items()}

    def _not_written(self, scope: str, why: str) -> LogError:
        return LogError(
            "definition-not-kept",
            f"the definition of {scope} was not acknowledged by {self._topic}",
            why=why,
            state="the build is as it was: Leftfold writes no batch before its definition is stored",
            fix="leftfold status shows whether the brokers run",
            retriable=True,
        )
