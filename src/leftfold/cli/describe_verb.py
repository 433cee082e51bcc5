"""The verb describe: shows what a declared name is, who reads it, and its builds if the cluster can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from leftfold.cli.output import document, json_option, profile_option, say
from leftfold.errors import LeftfoldError

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.plan.describing import DescribedValue, Description
    from leftfold.run.status import ViewStatus


# The values of each kind of declaration, as a user calls them.
VALUES = {"event": "fields", "features": "features", "table": "columns", "vector": "values", "outcome": "labels"}


@click.command()
@click.argument("name")
@profile_option
@json_option
def describe(name: str, profile: str | None, as_json: bool) -> None:
    """Show what a declared name is, and who reads it. NAME is an event, topic, view, vector, consumer, scorer, outcome.

    Its builds are shown if the cluster can be reached. An event is named by its class.
    """
    import leftfold

    app = leftfold.open(profile=profile)
    found = app.describe(name)
    builds, unreachable = _builds(app, [view for each in found for view in each.views])
    if as_json:
        document(
            "describe",
            name=name,
            described=[each.as_json() for each in found],
            builds=None if builds is None else [build.as_json() for build in builds],
            unreachable=unreachable,
        )
        return
    for number, each in enumerate(found):
        if number:
            click.echo()
        _show(each)
    for build in builds or ():
        click.echo(f"  {_built(build)}")
    if unreachable is not None:
        say(f"  its builds are not known: {unreachable}")


def _builds(app: App, views: Sequence[str]) -> tuple[list[ViewStatus] | None, str | None]:
    """Return the builds of some views; or None, and why the cluster does not tell them."""
    try:
        return [app.view_status(view) for view in dict.fromkeys(views)], None
    except LeftfoldError as error:
        return None, error.what


def _show(described: Description) -> None:
    at = f"   ({described.source})" if described.source else ""
    click.echo(f"{described.kind} {described.name}{at}")
    if described.doc:
        click.echo(f"  {described.doc}")
    used = {"used by": "; ".join(f"{kind} {', '.join(names)}" for kind, names in described.used_by.items())}
    facts = {**described.facts, **(used if described.used_by else {})}
    width = max((len(name) for name in facts), default=0)
    for name, fact in facts.items():
        click.echo(f"  {name:{width}}  {fact}")
    if described.values:
        click.echo(f"  {VALUES[described.kind]}:")
        _show_values(described.values)


def _show_values(values: Sequence[DescribedValue]) -> None:
    names = max((len(value.name) for value in values), default=0)
    types = max((len(value.type) for value in values), default=0)
    for value in values:
        click.echo(f"    {value.name:{names}}  {value.type:{types}}  {value.meaning}".rstrip())


def _built(status: ViewStatus) -> str:
    if status.build is None:
        return f"builds of {status.view}: none yet"
    behind = "its topic is gone" if status.lag is None else f"{status.lag:,} behind"
    others = [f"staged {status.staged}"] if status.staged else []
    others += [f"previous {status.previous}"] if status.previous else []
    return "; ".join([f"builds of {status.view}: {status.build}, batch {status.batch}, {behind}", *others])
