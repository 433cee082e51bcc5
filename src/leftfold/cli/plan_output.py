"""Prints a plan for people, from its steps to its guarantees, and converts it into one JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from leftfold.cli.output import say
from leftfold.units import counted

if TYPE_CHECKING:
    from leftfold.declare.guarantees import ConsumerGuarantee, Guarantee
    from leftfold.hazards.hazard import Hazard
    from leftfold.plan.steps import Plan, Step


def show_steps(plan: Plan, profile: str) -> None:
    if plan.steps:
        say(f"profile {profile}:")
    for step in plan.steps:
        say(f"  {step}")
        if step.danger:
            say(f"      ! {step.danger}; undo: {step.undo}")
    for problem in plan.problems:
        say(str(problem))


def show_changes(plan: Plan) -> None:
    """Show which views change. `apply` does not build them; `leftfold run` does."""
    changed = [change for change in plan.changes if change.verdict != "continues"]
    if changed:
        say("views, built by leftfold run:")
    for change in changed:
        say("  " + str(change).replace("\n", "\n  "))


def show_hazards(hazards: Iterable[Hazard]) -> None:
    for hazard in hazards:
        say(str(hazard))


def count_of(hazards: Sequence[Hazard]) -> str:
    count = Counter(hazard.level for hazard in hazards)
    notes = f", {counted(count['note'], 'note')}" if count["note"] else ""
    return f"{counted(count['danger'], 'danger')}, {counted(count['warning'], 'warning')}{notes}"


def show_sizing(plan: Plan, *, arithmetic: bool) -> None:
    if plan.sizing is None or not (plan.sizing.topics or arithmetic):
        return
    say("size:")
    if arithmetic:
        say(f"\n{plan.sizing}\n")
        return
    for line in plan.sizing.summary():
        say(f"  {line}")


def show_durability(plan: Plan) -> None:
    """Show what an acknowledged record of each topic survives. Topics with the same answer share one line."""
    entries: dict[str, list[str]] = {}
    for topic, durability in plan.durability:
        entries.setdefault(str(durability), []).append(topic)
    if entries:
        say("durability, of records that are written with acks=all:")
    for text, topics in entries.items():
        say(f"  {', '.join(topics)}: {text}")


def show_guarantees(promised: Sequence[Guarantee]) -> None:
    """Show the guarantees. Views with the same store, guarantee and conditions share one entry."""
    entries: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for one in promised:
        entries.setdefault((one.sink, one.promise.guarantee, one.conditions), []).append(one.view)
    if entries:
        say("guarantees, and their conditions:")
    for (sink, guarantee, conditions), views in entries.items():
        say(f"  {', '.join(views)} → {sink}: {guarantee}")
        for condition in conditions:
            say(f"      · {condition}")


def show_consumers(promised: Sequence[ConsumerGuarantee]) -> None:
    """Show what each consumer promises, and how many of its members have work."""
    if promised:
        say("consumers, run by leftfold consume:")
    for one in promised:
        members = counted(one.members, "useful member")
        say(f"  {one.consumer}: {one.promise.guarantee}; {one.order}; at most {members}")
        for condition in one.conditions:
            say(f"      · {condition}")


def step_json(step: Step) -> dict[str, object]:
    return {"step": str(step), "danger": step.danger, "undo": step.undo}


def plan_json(plan: Plan, promised: Sequence[Guarantee], consumers: Sequence[ConsumerGuarantee]) -> dict[str, Any]:
    return {
        "steps": [step_json(step) for step in plan.steps],
        "problems": [problem.as_json() for problem in plan.problems],
        "changes": [change.as_json() for change in plan.changes],
        "hazards": [hazard.as_json() for hazard in plan.hazards],
        "sizing": None if plan.sizing is None else plan.sizing.as_json(),
        "durability": {topic: durability.as_json() for topic, durability in plan.durability},
        "guarantees": [
            {"view": g.view, "sink": g.sink, "guarantee": g.promise.guarantee, "conditions": list(g.conditions)}
            for g in promised
        ],
        "consumers": [
            {
                "consumer": g.consumer,
                "delivery": g.delivery,
                "guarantee": g.promise.guarantee,
                "mechanism": g.promise.mechanism,
                "order": g.order,
                "conditions": list(g.conditions),
                "members": g.members,
            }
            for g in consumers
        ],
    }
