"""The one shape of everything a plan warns of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from leftfold.errors import Source

# danger: records, their order or the truth of a value can be lost, or personal data that is to go can stay.
# warning: it will hurt, and nothing is lost.
Level = Literal["danger", "warning"]


@dataclass(frozen=True)
class Hazard:
    """`code` never changes its meaning; it is a heading of docs/reference/hazards.md."""

    code: str
    level: Level
    subject: str  # "topic clicks", "view user_activity", "group billing", "broker 2", "cluster", "online store"
    what: str  # one sentence, with the numbers
    why: str  # at most two sentences
    fix: str
    source: Source | None = None

    def __str__(self) -> str:
        at = f"   ({self.source})" if self.source else ""
        sign = "!" if self.level == "danger" else "·"
        first = f"{sign} {self.level}[{self.code}] {self.subject}: {self.what}{at}"
        return f"{first}\n    why: {self.why}\n    fix: {self.fix}"

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "level": self.level,
            "subject": self.subject,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "source": str(self.source) if self.source else None,
        }
