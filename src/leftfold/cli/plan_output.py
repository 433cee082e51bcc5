"""Prints a plan for people, from its steps to its guarantees, and converts it into one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from leftfold.cli.output import say

if TYPE_CHECKING:
    from leftfold.declare.guarantees import Guarantee
    from leftfold.hazards.hazard import Hazard
    from leftfold.plan.steps import Plan, Step


def show_steps(made: Plan, profile: str) -> None:
    if made.steps:
        say(f"profile {profile}:")
    for step in made.steps:
        say(f"  {step}")
        if step.danger:
            say(f"      ! {step.danger}; undo: {step.undo}")
    for problem in made.problems:
        say(str(problem))


def show_changes(made: Plan) -> None:
    """Show which views change. `apply` does not build them; `leftfold run` does."""
    changed = [change for change in made.changes if change.verdict != "continues"]
    if changed:
        say("views, built by leftfold run:")
    for change in changed:
        say("  " + str(change).replace("\n", "\n  "))


def show_hazards(hazards: Iterable[Hazard]) -> None:
    for hazard in hazards:
        say(str(hazard))


def count_of(hazards: Sequence[Hazard]) -> str:
    from leftfold.units import counted

    dangers = sum(hazard.level == "danger" for hazard in hazards)
    return f"{counted(dangers, 'danger')}, {counted(len(hazards) - dangers, 'warning')}"


def show_sizing(made: Plan, *, arithmetic: bool) -> None:
    if made.sizing is None or not (made.sizing.topics or arithmetic):
        return
    say("size:")
    if arithmetic:
        say(f"\n{made.sizing}\n")
        return
    for line in made.sizing.summary():
        say(f"  {line}")


def show_guarantees(promised: Sequence[Guarantee]) -> None:
    """Show the guarantees. Views with the same store, guarantee and conditions share one entry."""
    told: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for one in promised:
        told.setdefault((one.sink, one.promise.guarantee, one.conditions), []).append(one.view)
    if told:
        say("guarantees, and their conditions:")
    for (sink, guarantee, conditions), views in told.items():
        say(f"  {', '.join(views)} → {sink}: {guarantee}")
        for condition in conditions:
            say(f"      · {condition}")


def step_json(step: Step) -> dict[str, object]:
    return {"step": str(step), "danger": step.danger, "undo": step.undo}


def plan_json(made: Plan, promised: Sequence[Guarantee]) -> dict[str, Any]:
    return {
        "steps": [step_json(step) for step in made.steps],
        "problems": [problem.as_json() for problem in made.problems],
        "changes": [change.as_json() for change in made.changes],
        "hazards": [hazard.as_json() for hazard in made.hazards],
        "sizing": None if made.sizing is None else made.sizing.as_json(),
        "guarantees": [
            {"view": g.view, "sink": g.sink, "guarantee": g.promise.guarantee, "conditions": list(g.conditions)}
            for g in promised
        ],
    }
