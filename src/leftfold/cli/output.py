"""The output of every verb: people read stderr, and programs read one versioned document on stdout."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

VERSION = 1
SYMBOLS = {"ok": "[green]✓[/]", "wrong": "[red]✗[/]", "idle": "[dim]–[/]"}
PROFILE = "leftfold.profile"  # where a command's context keeps the profile that was asked for


def _asked(context: click.Context, _: click.Parameter, profile: str | None) -> str | None:
    context.meta[PROFILE] = profile
    return profile


# The options that nearly every verb has. They stand last in its help.
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else there."
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    callback=_asked,
    help="Profile of leftfold.toml. [default: $LEFTFOLD_PROFILE or local]",
)


def people() -> Console:
    return Console(stderr=True, highlight=False, emoji=False)  # a name such as User:a: is none


def document(verb: str, **content: Any) -> None:
    click.echo(json.dumps({"version": VERSION, "verb": verb, **content}, ensure_ascii=False, default=str))


def say(text: str) -> None:
    people().print(text, markup=False, soft_wrap=True)


def next_step(command: str) -> None:
    people().print(f"next: [bold]{command}[/]", soft_wrap=True)
