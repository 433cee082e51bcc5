"""Every command and sub-command of the command line, and every option of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from leftfold.cli.main import cli


def commands(command: click.Command = cli, name: str = "leftfold") -> Iterator[tuple[str, click.Command]]:
    """Every command and sub-command, by what is typed."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, f"{name} {each}")


@dataclass(frozen=True)
class Spelled:
    """An option of a command under one of its names."""

    command: str
    name: str
    option: click.Option

    @property
    def value(self) -> str:
        """What the help shows for its value; "" for a flag."""
        if self.option.is_flag or self.option.count:
            return ""
        return self.option.make_metavar(click.Context(ALL[self.command]))

    def __str__(self) -> str:
        return f"{self.command} {self.name}"


ALL = dict(commands())
OPTIONS = [
    Spelled(command, name, option)
    for command, of in ALL.items()
    for option in of.params
    if isinstance(option, click.Option)
    for name in (*option.opts, *option.secondary_opts)
]
