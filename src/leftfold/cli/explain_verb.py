"""The verb explain: prints what an error or hazard code means, without a project and without a network."""

from __future__ import annotations

import click

from leftfold.cli.explained import ErrorText, HazardText, explanation, headings
from leftfold.cli.output import document, json_option, next_step, say
from leftfold.errors import is_change


@click.command()
@click.argument("code", required=False)
@json_option
def explain(code: str | None, as_json: bool) -> None:
    """Explain an error or hazard code. Without CODE, all codes are listed. Needs no project and no network."""
    if code is None:
        _list(as_json=as_json)
        return
    text = explanation(code)
    if as_json:
        document("explain", **text.as_json())
    elif isinstance(text, ErrorText):
        _show_error(text)
    else:
        _show_hazard(text)


def _list(*, as_json: bool) -> None:
    if as_json:
        document("explain", codes=headings())
        return
    for heading, codes in headings().items():
        click.echo(f"{heading}:")
        for code in codes:
            click.echo(f"  {code}")
    next_step("leftfold explain CODE")


def _show_error(error: ErrorText) -> None:
    again = "the same call may work later" if error.retriable else "the same call fails again until the cause is gone"
    click.echo(f"error {error.code}\n")
    click.echo(f"  met:    {error.met} ({error.kind})")
    click.echo(f"  again:  {again}")
    for number, example in enumerate(error.examples):
        click.echo(f"\n{'for example' if number == 0 else 'or'}: {example.what}")
        click.echo(f"  why:    {example.why}")
        if is_change(example.state):
            click.echo(f"  state:  {example.state}")
        click.echo(f"  fix:    {example.fix}")
    say("names and numbers in an example are not yours")


def _show_hazard(hazard: HazardText) -> None:
    click.echo(f"hazard {hazard.code}\n")
    click.echo(hazard.text)
    next_step("leftfold plan")
