"""The command line. It is thin: each verb calls one method of the project, then prints the result and the next step."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from leftfold import __version__, clock, private
from leftfold.cli.output import document, say
from leftfold.errors import LeftfoldError, ProjectError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130
PROJECT_DIR = ("-C", "--project-dir")

# The verbs under the headings of the help: each with its module, and the first sentence of its own help. A module is
# loaded when its verb is called: the list needs none of them.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Declare": {
        "init": ("declare_verbs", "Make a new project from the clickstream example."),
        "check": ("declare_verbs", "Load the declarations and check them as a whole."),
        "describe": ("describe_verb", "Show what a declared name is, and who reads it."),
        "plan": ("plan_verbs", "Show what apply would change and what could fail."),
        "apply": ("plan_verbs", "Create declared topics and register schemas."),
        "adopt": ("adopt_verb", "Write the declaration of an existing topic."),
        "render": ("render_verbs", "Write Kubernetes manifests of topics and jobs."),
    },
    "Local cluster": {
        "up": ("local_verbs", "Start the local cluster, or repair it."),
        "down": ("local_verbs", "End every process of the local cluster."),
        "logs": ("local_verbs", "Show logs of the local cluster's processes."),
        "reset": ("local_verbs", "Delete the local cluster's data."),
    },
    "Look for trouble": {
        "status": ("status_verbs", "Show what runs, and how far behind it is."),
        "doctor": ("status_verbs", "Check this machine, or a profile's connections."),
        "inspect": ("inspect_verb", "Review a whole Kafka cluster for hazards."),
        "explain": ("explain_verb", "Explain an error or hazard code."),
    },
    "Topics and records": {
        "send": ("send_verb", "Send events: JSON lines, or made-up ones."),
        "topics": ("log_verbs", "Show topics: partitions, replicas, offsets."),
        "read": ("log_verbs", "Read records of a topic, decoded and judged."),
        "groups": ("log_verbs", "Show consumer groups: members, positions, lag."),
        "rejects": ("reject_verbs", "Show and correct records that no view accepts."),
    },
    "Views": {
        "run": ("view_verbs", "Run views on Spark until stopped."),
        "wait": ("wait_verb", "Wait until readers of a view are up to date."),
        "get": ("view_verbs", "Read the row of one entity, or a vector."),
        "why": ("why_verb", "Show the records behind the values of one entity."),
    },
    "Consumers": {
        "consume": ("consumer_verbs", "Run consumers and stream scorers until stopped."),
        "dead": ("dead_verbs", "Show, redrive or drop a consumer's dead letters."),
        "position": ("consumer_verbs", "Show or set the position of a consumer in the log."),
        "pause": ("consumer_verbs", "Pause a consumer until it is resumed."),
        "resume": ("consumer_verbs", "Let a paused consumer go on."),
    },
    "Models": {
        "training-set": ("training_verb", "Join labels with features of their moments."),
        "score": ("score_verb", "Score labels with features of their moments."),
        "serve": ("serve_verb", "Serve scores and features over HTTP."),
        "outcomes": ("outcome_verbs", "Join predictions with what happened after them."),
        "evaluate": ("evaluate_verbs", "Judge predictions: AUC, log loss, calibration."),
        "skew": ("skew_verbs", "Compare logged features with the log."),
        "drift": ("evaluate_verbs", "Compare what a scorer sees with a training set."),
    },
    "History": {
        "replay": ("replay_verb", "Replay a range of a topic to files or to a topic."),
        "archive": ("archive_verbs", "Show and fill what the lake keeps beside the log."),
    },
    "Change a view safely": {
        "rebuild": ("rebuild_verbs", "Backfill a view's definition beside the live one."),
        "compare": ("rebuild_verbs", "Compare a staged build with the live one."),
        "promote": ("rebuild_verbs", "Move readers of a view to its staged build."),
        "rollback": ("rebuild_verbs", "Move readers back to the build they left."),
    },
}
VERBS: dict[str, tuple[str, str]] = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}


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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LeftfoldError as error:
            from leftfold.cli.fixes import for_profile

            for_profile(error)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a verb, or an option before it, without loading any verb."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=what) for name, (_, what) in VERBS.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, VERBS))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), what) for name, (_, what) in verbs.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    *PROJECT_DIR,
    "directory",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Directory to start in, as if after `cd DIR`: the project is found from there.",
)
@click.version_option(__version__, prog_name="leftfold")
def cli(directory: str | None) -> None:
    """Declare events and features once; keep every view true to the log."""
    if directory is not None:
        os.chdir(directory)


def main() -> None:
    # Imports make many objects that stay. To look for garbage among them takes a fifth of the time of a short verb.
    gc.set_threshold(20_000, 20, 20)
    as_json = "--json" in sys.argv[1:]
    try:
        cli.main(prog_name="leftfold", standalone_mode=False)
    except LeftfoldError as error:
        _keep_trace(error)
        if as_json:
            document(_verb(), error=error.as_json())
        else:
            say(str(error))
        sys.exit(INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1)
    except click.ClickException as error:
        if as_json:
            from leftfold.cli.usage import usage_error

            document(_verb(), error=usage_error(error).as_json())
        else:
            error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(INTERRUPTED)


def _verb() -> str:
    """The verb on the command line. The value of an option before it, a directory, may have the name of a verb."""
    arguments = sys.argv[1:]
    while arguments and arguments[0].startswith("-"):
        del arguments[: 2 if arguments[0] in PROJECT_DIR else 1]
    return next((a for a in arguments if a in VERBS), "leftfold")


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
