"""The command line. It is thin: each verb calls one method of the project, then prints the result and the next step."""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module

import click

from leftfold import __version__, clock, private
from leftfold.cli.output import document, say
from leftfold.errors import LeftfoldError, ProjectError

INTERRUPTED = 130


# Each verb with its module and what it does, in the order in which a user meets them. A module is loaded when its verb
# is called: the help needs none of them.
VERBS: dict[str, tuple[str, str]] = {
    "init": ("declare_verbs", "Make a new project from the clickstream example."),
    "check": ("declare_verbs", "Load the declarations and check them as a whole."),
    "up": ("local_verbs", "Start the local cluster: brokers, registry, store."),
    "down": ("local_verbs", "End every process of the local cluster."),
    "status": ("local_verbs", "Show the local cluster's processes and the views' progress."),
    "logs": ("local_verbs", "Show the logs of the cluster's processes."),
    "reset": ("local_verbs", "Delete the local cluster's data."),
    "doctor": ("local_verbs", "Check what this machine lacks: Java, jars, Redis, disk, ..."),
    "adopt": ("adopt_verb", "Write the declaration of a topic that exists."),
    "plan": ("plan_verbs", "Show what apply would change, and what could go wrong."),
    "apply": ("plan_verbs", "Create topics and register schemas: what plan shows."),
    "render": ("render_verbs", "Write Kubernetes manifests of topics and jobs."),
    "send": ("send_verb", "Send events to a topic: JSON lines, or made-up ones."),
    "topics": ("log_verbs", "Show topics, their partitions, replicas and offsets."),
    "read": ("log_verbs", "Read records of a topic, decoded and judged."),
    "run": ("view_verbs", "Run views on Spark until stopped."),
    "consume": ("consumer_verbs", "Run consumers and stream scorers until stopped."),
    "serve": ("serve_verb", "Answer requests for scores and features over HTTP."),
    "groups": ("log_verbs", "Show consumer groups: members, positions, lag."),
    "get": ("view_verbs", "Read the row of one entity, or a vector, now."),
    "why": ("why_verb", "Show the records behind the values of one entity."),
    "training-set": ("training_verb", "Join labels with the features known at their moments."),
    "score": ("score_verb", "Score labels with the features known at their moments."),
    "outcomes": ("outcome_verbs", "Join predictions with what happened after them."),
    "evaluate": ("evaluate_verbs", "Judge predictions by what happened: AUC, calibration, ..."),
    "skew": ("skew_verbs", "Compute each logged feature again from the log, and compare."),
    "drift": ("evaluate_verbs", "Compare what a scorer sees with a training set."),
    "rejects": ("reject_verbs", "Show and correct the records that no view accepts."),
    "dead": ("dead_verbs", "Show, hand over again or drop a consumer's dead letters."),
    "position": ("consumer_verbs", "Show or set the position of a consumer in the log."),
    "pause": ("consumer_verbs", "Let a consumer handle no more records until it is resumed."),
    "resume": ("consumer_verbs", "Let a consumer go on after a pause."),
    "replay": ("replay_verb", "Read a range of a topic again, to files or into a view."),
    "archive": ("archive_verbs", "Show and fill what the lake keeps beside the log."),
    "rebuild": ("rebuild_verbs", "Run a view's definition over all of history, beside the old."),
    "compare": ("rebuild_verbs", "Compare a view's staged build with the one that is read."),
    "promote": ("rebuild_verbs", "Move readers of a view to its staged build, all at once."),
    "rollback": ("rebuild_verbs", "Move readers of a view back to the build they left."),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"leftfold.cli.{VERBS[cmd_name][0]}")
        verb: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # it looks for names like this one among loaded verbs only
            raise click.NoSuchCommand(error.command_name, possibilities=VERBS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="leftfold")
def cli() -> None:
    """Declare events and features once; keep every view true to the log."""


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
    return next((a for a in sys.argv[1:] if a in VERBS), "leftfold")


def _keep_trace(error: LeftfoldError) -> None:
    """Write the error's details and stack trace to the project's log directory. The terminal shows only the message."""
    from leftfold.project import find_root

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
