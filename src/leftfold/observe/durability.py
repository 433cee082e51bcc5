"""States what happens to an acknowledged record of a topic when brokers are lost, and when writes stop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.settings import SETTING, number
from leftfold.units import counted

UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True)
class Durability:
    """The durability of a topic's records that are written with acks=all, as Leftfold's producers do.

    Brokers acknowledge a record once all in-sync replicas have it in memory; the disk follows later.
    """

    copies: int  # replicas of each partition
    in_sync: int  # min.insync.replicas: fewer in-sync replicas refuse writes
    unclean: bool = False  # a replica that was not in sync may become leader

    @property
    def survives(self) -> int:
        """The number of brokers that may be lost, whichever they are, before an acknowledged record can be lost."""
        return 0 if self.unclean else min(self.in_sync, self.copies) - 1

    @property
    def stops_at(self) -> int:
        """The number of brokers that must be away, at least, before writes stop. 0: writes are always refused."""
        return max(0, self.copies - self.in_sync + 1)

    def __str__(self) -> str:
        if self.stops_at == 0:
            return f"every write is refused: min.insync.replicas={self.in_sync}, with {counted(self.copies, 'replica')}"
        if self.copies == 1:
            return "an acknowledged record is on 1 broker, and is lost with it; writes stop while it is away"
        if self.unclean:
            lost = "may be lost with any one: a replica that was not in sync can become leader"
        elif self.survives == 0:
            lost = "is lost with it if no other replica was in sync"
        else:
            lost = f"survives the loss of any {self.survives}"
        away = "one is" if self.stops_at == 1 else f"{self.stops_at} are"
        return (
            f"an acknowledged record is on at least {self.in_sync} of {self.copies} brokers and {lost}; "
            f"writes stop while {away} away"
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "survives": self.survives, "stops_at": self.stops_at, "text": str(self)}


def durability_of(topic: ObservedTopic) -> Durability:
    """Return the durability of an existing topic, by the settings in force."""
    return Durability(topic.replication, number(topic.configs, SETTING) or 1, topic.configs.get(UNCLEAN) == "true")
