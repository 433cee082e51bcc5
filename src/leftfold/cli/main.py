"""The command line. It is thin: each verb calls one method of the project, then prints the result and the next step."""

from __future__ import annotations

import json
import os
import sys
import traceback

import click

from leftfold import __version__, clock, private
from leftfold.cli.adopt_verb import adopt
from leftfold.cli.archive_verbs import archive
from leftfold.cli.consumer_verbs import consume, pause, position, resume
from leftfold.cli.dead_verbs import dead
from leftfold.cli.declare_verbs import check, init
from leftfold.cli.evaluate_verbs import drift, evaluate
from leftfold.cli.local_verbs import COMMANDS as LOCAL
from leftfold.cli.log_verbs import groups, read, topics
from leftfold.cli.outcome_verbs import outcomes
from leftfold.cli.output import document, say
from leftfold.cli.plan_verbs import apply, plan
from leftfold.cli.rebuild_verbs import compare, promote, rebuild, rollback
from leftfold.cli.reject_verbs import rejects
from leftfold.cli.render_verbs import render
from leftfold.cli.replay_verb import replay
from leftfold.cli.score_verb import score
from leftfold.cli.send_verb import send
from leftfold.cli.serve_verb import serve
from leftfold.cli.skew_verbs import skew
from leftfold.cli.training_verb import training_set
from leftfold.cli.view_verbs import get, run
from leftfold.cli.why_verb import why
from leftfold.errors import LeftfoldError, ProjectError
from leftfold.project import find_root

INTERRUPTED = 130


class _Verbs(click.Group):
    """Lists verbs in the order in which a user meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="leftfold")
def cli() -> None:
    """Declare events and features once; keep every view true to the log."""


for command in (
    init,
    check,
    *LOCAL,
    adopt,
    plan,
    apply,
    render,
    send,
    topics,
    read,
    run,
    consume,
    serve,
    groups,
    get,
    why,
    training_set,
    score,
    outcomes,
    evaluate,
    skew,
    drift,
    rejects,
    dead,
    position,
    pause,
    resume,
    replay,
    archive,
    rebuild,
    compare,
    promote,
    rollback,
):
    cli.add_command(command)


def main() -> None:
    as_json = "--json" in sys.argv[1:]
    try:
        cli.main(standalone_mode=False)
    except LeftfoldError as error:
        _keep_trace(error)
        if as_json:
            document(_verb(), error=error.as_json())
        else:
            say(str(error))
        sys.exit(INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(INTERRUPTED)


def _verb() -> str:
    return next((a for a in sys.argv[1:] if a in cli.commands), "leftfold")


def _keep_trace(error: LeftfoldError) -> None:
    """Write the error's details and stack trace to the project's log directory. The terminal shows only the message."""
    try:
        root = find_root()
    except ProjectError:  # there is no project, or it belongs to another user
        return
    if not os.access(root, os.W_OK):
        return
    log = private.directory(root / private.STATE / "logs") / "errors.log"
    with log.open("a", encoding="utf-8") as file:
        file.write(f"--- {clock.now().isoformat()} {' '.join(sys.argv[1:])}\n{traceback.format_exc()}\n")
        if error.details:
            file.write(f"{json.dumps(error.details)}\n")
