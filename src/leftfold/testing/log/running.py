"""All processes of one consumer in the model: which of them goes on, which dies, who joins and who leaves.

Every choice is made by the log's seed. Processes take turns step by step, so any interleaving of their steps can come.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from leftfold.declare.consumer import Consumer
from leftfold.testing.log.crashes import STEPS, Crash, call_half
from leftfold.testing.log.database import Database
from leftfold.testing.log.deliveries import IDLE, Process
from leftfold.testing.log.groups import GroupModel
from leftfold.testing.log.outcome import Consumed

if TYPE_CHECKING:
    from leftfold.testing.log.model import Log

_MOST_TURNS = 200_000  # a run of so many turns goes round in circles


class GroupRun:
    """Runs a consumer in several processes until all of them are idle."""

    def __init__(
        self,
        log: Log,
        consumer: Consumer[..., Any],
        *,
        group: GroupModel,
        into: Database | None,
        chance: random.Random,
        outcome: Consumed,
        crashes: Sequence[Crash],
        numbers: Iterator[int],
    ) -> None:
        for step, _ in crashes:
            if step not in STEPS:
                raise ValueError(f"{step!r} is no step of a delivery; the steps are {', '.join(STEPS)}")
        self._log = log
        self._consumer = consumer
        self._group = group
        self._into = into
        self._chance = chance
        self._outcome = outcome
        self._crashes = list(crashes)
        self._passed = 0  # how often the step of the next crash was passed
        self._numbers = numbers
        self._running: dict[Process, Iterator[str]] = {}
        self._ready: list[Process] = []  # those that may have something to do
        self._stopped: list[tuple[Process, Iterator[str]]] = []
        self._left_open: list[str] = []  # transactional ids of dead processes

    def until_caught_up(self, members: int, rebalances: int) -> None:
        first = self._group.generation
        for _ in range(members):
            self._start()
        due = sorted(self._chance.randrange(40) for _ in range(rebalances))
        for turn in range(_MOST_TURNS):
            while due and due[0] <= turn:
                due.pop(0)
                self._rebalance()
            if not self._turn() and not self._wake_up():
                break
        else:
            raise RuntimeError(f"{self._consumer.name} is not done after {_MOST_TURNS:,} steps")
        for process in self._running:
            self._group.leave(process.name)
        self._outcome.generations = self._group.generation - first

    def _start(self) -> None:
        process = Process(
            f"p{next(self._numbers)}",
            self._consumer,
            log=self._log,
            group=self._group,
            into=self._into,
            chance=self._chance,
            outcome=self._outcome,
        )
        self._running[process] = process.steps()
        self._all_ready()

    def _turn(self) -> bool:
        """Let one process do a step. Returns False if none has anything to do."""
        ready, group = self._ready, self._group
        process = ready[int(self._chance.random() * len(ready))]
        generation, rebalancing = group.generation, group.rebalancing
        step = next(self._running[process])
        if step is IDLE:
            ready.remove(process)
        # A rebalance that is due or done, or a database that is free again, gives others something to do.
        if generation != group.generation or rebalancing != group.rebalancing or step == "committed":
            self._all_ready()
        if step is IDLE:
            return bool(self._ready)
        if self._crashes and self._crashes[0][0] == step:
            self._passed += 1
            if self._passed >= self._crashes[0][1]:
                self._crashes.pop(0)
                self._passed = 0
                self._die(process, step)
        return True

    def _all_ready(self) -> None:
        self._ready = list(self._running)

    def _die(self, process: Process, step: str) -> None:
        """End a process, start another in its place, and let the group expire the dead one."""
        if step == "handler half done" and process.half_call is not None:
            works, call = process.half_call
            self._outcome.half.update(one.record.id for one in works)
            call_half(self._consumer.function, call, self._chance)
        self._outcome.crashes.append((process.name, step))
        process.die()
        del self._running[process]
        self._group.leave(process.name)
        self._left_open.append(process.transactional_id)
        self._start()

    def _rebalance(self) -> None:
        """Let a member join, leave, or be stopped for longer than its session."""
        kind = self._chance.choice(("join", "leave", "stop"))
        if kind == "join" or len(self._running) == 1:
            self._start()
            return
        process = self._chance.choice(list(self._running))
        steps = self._running.pop(process)
        if kind == "leave" and not process.has_work:
            self._group.leave(process.name)
            self._left_open.append(process.transactional_id)
        else:
            process.overtaken()
            self._stopped.append((process, steps))
        self._all_ready()

    def _wake_up(self) -> bool:
        """Let time pass: brokers abort what dead processes left open, and a stopped member goes on."""
        for name in self._left_open:
            self._log.transactions.expire(name)
        more = bool(self._left_open or self._stopped)
        self._left_open.clear()
        if self._stopped:
            process, steps = self._stopped.pop(self._chance.randrange(len(self._stopped)))
            self._running[process] = steps
        self._all_ready()
        return more
