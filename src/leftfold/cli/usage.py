"""Wrong usage of the command line as an error of the common shape. People get click's own text instead."""

from __future__ import annotations

import click

from leftfold.errors import ProjectError


def usage_error(error: click.ClickException) -> ProjectError:
    """Return an error with the code `usage` for what click refuses before a verb does anything."""
    context = getattr(error, "ctx", None) or click.Context(click.Command("leftfold"), info_name="leftfold")
    usage = " ".join(context.get_usage().removeprefix("Usage:").split())
    return ProjectError(
        "usage",
        " ".join(error.format_message().split()),
        why=f"the usage is: {usage}",
        fix=f"run {context.command_path} --help",
    )
