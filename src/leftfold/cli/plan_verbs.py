"""The verbs plan and apply. plan shows what would change and what could go wrong; apply does exactly what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.cli.plan_options import asked, load_options
from leftfold.cli.plan_output import (
    count_of,
    plan_json,
    show_changes,
    show_consumers,
    show_durability,
    show_guarantees,
    show_hazards,
    show_sizing,
    show_steps,
    step_json,
)

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.plan.steps import DeleteTopic, Plan

HAS_CHANGES = 3

delete_option = click.option(
    "--delete", "delete", multiple=True, metavar="TOPIC", help="Topic to delete that is no longer declared."
)


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file for the plan, which `apply FILE` takes.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Return exit code 3 if there is something to change.")
@click.option("--sizing", is_flag=True, help="Show the arithmetic of sizes, line by line.")
@click.option("--probe", is_flag=True, help="Measure first what machines and engines can do, in about two minutes.")
@load_options
@delete_option
@profile_option
@json_option
def plan(
    out: Path | None,
    detailed_exitcode: bool,
    sizing: bool,
    probe: bool,
    delete: tuple[str, ...],
    profile: str | None,
    as_json: bool,
    **load: Any,
) -> None:
    """Show what apply would change and what could fail. Also whether it fits, and what each store then guarantees.

    Changes nothing: a probe makes topics of its own and removes them.
    """
    import leftfold
    from leftfold.declare.guarantees import consumer_guarantees, guarantees
    from leftfold.plan import saved

    app = leftfold.open(profile=profile)
    if probe:
        app.probe((lambda _: None) if as_json else say)
    wanted = asked(app, **load)
    observed = app.observe(also=delete, sample=True)
    planned = app.plan(observed, delete=delete, asked=wanted)
    if out is not None:
        saved.save(out, planned, observed, project=app.name, profile=app.profile.name)
    promised, consumers = list(guarantees(app.catalog)), list(consumer_guarantees(app.catalog))
    if as_json:
        document("plan", **plan_json(planned, promised, consumers))
    else:
        show_steps(planned, app.profile.name)
        show_changes(planned)
        show_hazards(planned.hazards)
        show_sizing(planned, arithmetic=sizing)
        show_durability(planned)
        show_guarantees(promised)
        show_consumers(consumers)
        _show_end(planned, out)
    if planned.problems:
        raise SystemExit(1)
    if planned.steps and detailed_exitcode:
        raise SystemExit(HAS_CHANGES)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@delete_option
@profile_option
@json_option
def apply(file: Path | None, yes: bool, delete: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """Create declared topics and register schemas. As plan shows them, or as saved in FILE. Shows each step first."""
    import leftfold

    if as_json and not yes:
        raise click.UsageError("--json asks no questions: add --yes")
    app = leftfold.open(profile=profile)
    planned = _plan_of(app, file, delete)
    if planned.problems:
        if not as_json:
            for problem in planned.problems[:-1]:
                say(str(problem))
        raise planned.problems[-1]
    if not as_json:
        show_steps(planned, app.profile.name)
        show_hazards(planned.hazards)
    if planned.steps and not _agreed(planned, app, yes=yes, typed=delete):
        say("nothing was changed")
        raise SystemExit(1)
    done = []
    for step in app.apply(planned):
        done.append(step_json(step))
        if not as_json:
            say(f"  ✓ {step}")
    if as_json:
        document("apply", steps=done, hazards=[hazard.as_json() for hazard in planned.hazards])
        return
    say(f"✓ applied {len(done)} steps" if done else "✓ nothing to do: topics and schemas are as declared")
    first = next(iter(app.catalog.topics), "TOPIC")
    next_step(f"leftfold send {first} --synthetic 200000 --seed 1" if done else "leftfold run")


def _plan_of(app: App, file: Path | None, delete: Sequence[str]) -> Plan:
    if file is None:
        return app.plan(delete=delete)
    from leftfold.plan import saved

    return saved.load(file, app.observe(also=saved.topics_in(file)), project=app.name, profile=app.profile.name)


def _agreed(planned: Plan, app: App, *, yes: bool, typed: Sequence[str]) -> bool:
    """Return whether the user agrees to the plan. A topic is deleted only if the user typed its name.

    The name is typed as --delete NAME, or as the answer to a question.
    """
    from leftfold.plan.steps import DeleteTopic

    for step in planned.steps:
        if isinstance(step, DeleteTopic) and step.name not in typed and not _typed(step, yes=yes):
            return False
    count = len(planned.steps)
    question = f"Apply {'this step' if count == 1 else f'these {count} steps'} to profile {app.profile.name}?"
    return yes or click.confirm(question, err=True)


def _typed(step: DeleteTopic, *, yes: bool) -> bool:
    if yes:
        raise click.UsageError(f"a topic is deleted only by its name: add --delete {step.name}")
    answer: str = click.prompt(
        f"{step.name} is deleted for good; type its name", err=True, default="", show_default=False
    )
    return answer == step.name


def _show_end(planned: Plan, out: Path | None) -> None:
    if planned.hazards:
        say(count_of(planned.hazards))
    if planned.problems:
        say(f"{len(planned.problems)} problem{'' if len(planned.problems) == 1 else 's'}: nothing can be applied")
    elif not planned.steps:
        say("✓ nothing to do: topics and schemas are as declared")
        if any(change.verdict != "continues" for change in planned.changes):
            next_step("leftfold run")
    else:
        say(planned.summary)
        next_step(f"leftfold apply {out}" if out else "leftfold apply")
