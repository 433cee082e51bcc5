"""The id of a build: a definition under one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

_SHOWN = 8  # of a checkpoint's id, which is a UUID: enough to tell the checkpoints of one definition apart


@dataclass(frozen=True)
class BuildId:
    """As text, FINGERPRINT-GENERATION: in keys of the store, in receipts and in what users read."""

    fingerprint: str  # of the definition, and of the layout under which the build was made
    generation: str  # the beginning of the checkpoint's id

    @classmethod
    def of(cls, fingerprint: str, checkpoint: str) -> Self:
        return cls(fingerprint, checkpoint[:_SHOWN])

    @classmethod
    def parse(cls, text: str) -> Self:
        fingerprint, _, generation = text.partition("-")
        return cls(fingerprint, generation)

    def __str__(self) -> str:
        return f"{self.fingerprint}-{self.generation}"
