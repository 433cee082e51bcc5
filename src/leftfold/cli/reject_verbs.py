"""The verb rejects: shows the records that a topic's intake did not accept, and re-drives them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.errors import DeclarationError
from leftfold.fold.expressions import from_micros

if TYPE_CHECKING:
    from leftfold.kafka.rejects import Entry, RecordPosition, Redriven

_NAMED_REFUSALS = 20  # fits a screen; --json shows all


@click.group()
def rejects() -> None:
    """Show and correct records that no view accepts."""


@rejects.command("list")
@click.argument("topic")
@click.option("--late", is_flag=True, help="List late records, instead of rejected ones and those from the future.")
@click.option(
    "--all/--open",
    "everything",
    default=False,
    help="All refused records: also those that were redriven. [default: --open]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=20,
    show_default=True,
    help="Maximum number of records to list.",
)
@profile_option
@json_option
def list_rejects(topic: str, late: bool, everything: bool, limit: int, profile: str | None, as_json: bool) -> None:
    """Count rejected records by reason, and list them. It shows where the records of TOPIC are."""
    import leftfold

    rejected = leftfold.open(profile=profile).rejects(topic).entries(late=late)
    entries = [e for e in rejected if everything or not e.redriven]
    counts = Counter(_kind(e.reason) for e in entries).most_common()
    if as_json:
        records = [_described(e) for e in entries[:limit]]
        document("rejects list", topic=topic, records=records, counts=dict(counts), total=len(entries))
        return
    noun = "late" if late else "refused"
    say(f"{topic}: {len(entries):,} records {noun}{'' if everything else ', open'}")
    for reason, number in counts:
        click.echo(f"  {number:>9,}  {reason}")
    width = max((len(str(e.position)) for e in entries[:limit]), default=0)
    for e in entries[:limit]:
        logged = f"{from_micros(e.log_us):%Y-%m-%d %H:%M:%S}"
        click.echo(f"  {e.position!s:{width}}  {_state(e):9}  {e.outcome:8}  {logged}  {e.reason}")
    if len(entries) > limit:
        say(f"  … and {len(entries) - limit:,} more (--limit)")
    if entries and limit:
        next_step(f"leftfold rejects show {topic} {entries[0].position}")


@rejects.command()
@click.argument("topic")
@click.argument("position")
@profile_option
@json_option
def show(topic: str, position: str, profile: str | None, as_json: bool) -> None:
    """Show all that is known of one rejected record. It is in TOPIC, at POSITION (PARTITION/OFFSET)."""
    import leftfold

    rejected = leftfold.open(profile=profile).rejects(topic)
    record, redriven = rejected.find(_position(position))
    decoded = None if record.value is None else rejected.decoded(record.value)
    facts = {
        "position": str(record.position),
        "state": "re-driven" if redriven else "open",
        "outcome": record.outcome,
        "reason": record.reason,
        "log_time": from_micros(record.log_us).isoformat(),
        "stamped_by": "broker" if record.by_broker else "producer",
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "value_hex": None if record.value is None else record.value.hex(),
        "decoded": decoded,
    }
    if as_json:
        document("rejects show", topic=topic, **facts)
        return
    for name, value in facts.items():
        text = json.dumps(value, ensure_ascii=False, default=repr) if isinstance(value, dict) else value
        click.echo(f"  {name:10}  {'–' if text is None else text}")
    if not redriven:
        next_step(f"leftfold rejects redrive {topic} {record.position}")


@rejects.command()
@click.argument("topic")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "everything", is_flag=True, help="All open records that are accepted by now.")
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help='File of corrected events: lines {"position": "0/17", "event": {…}}.',
)
@profile_option
@json_option
def redrive(
    topic: str, positions: tuple[str, ...], everything: bool, file: IO[bytes] | None, profile: str | None, as_json: bool
) -> None:
    """Put good records into the place of refused ones. Originals of TOPIC that are good by now, or corrected events."""
    import leftfold

    if (bool(positions), everything, file is not None).count(True) != 1:
        raise click.UsageError("give either positions (PARTITION/OFFSET), or --all, or --file FILE")
    rejected = leftfold.open(profile=profile).rejects(topic)
    if file is not None:
        done = rejected.correct(_corrections(topic, file))
    else:
        done = rejected.redrive(None if everything else [_position(p) for p in positions])
    if as_json:
        refused = [{"position": str(p), "reason": reason} for p, reason in done.refused]
        document("rejects redrive", topic=topic, sent=_texts(done.sent), already=_texts(done.already), refused=refused)
    else:
        _tell(topic, done)
    if done.refused and not everything:
        raise SystemExit(1)


def _tell(topic: str, done: Redriven) -> None:
    for position, reason in done.refused[:_NAMED_REFUSALS]:
        say(f"✗ {position} stays refused: {reason}")
    if len(done.refused) > _NAMED_REFUSALS:
        say(f"  … and {len(done.refused) - _NAMED_REFUSALS:,} more stay refused (--json names them)")
    if done.already:
        say(f"  {len(done.already):,} were re-driven before, and are left as they are")
    say(f"{'✓' if done.sent else '–'} {len(done.sent):,} records of {topic} re-driven")
    if done.sent:
        say("  each takes effect once its tile is closed; until then it is pending")
        next_step("leftfold status")


def _corrections(topic: str, file: IO[bytes]) -> dict[RecordPosition, str]:
    corrections: dict[RecordPosition, str] = {}
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            correction = json.loads(line)
            position, event = _parsed(correction["position"]), correction["event"]
        except (ValueError, KeyError, TypeError, AttributeError):
            position, event = None, None
        if position is None or not isinstance(event, dict) or set(correction) != {"position", "event"}:
            raise DeclarationError(
                "bad-correction",
                f"line {number} does not correct a record of {topic}",
                why="each line has a position in the log and the event that replaces the record there",
                fix='write {"position": "0/17", "event": {…}} in each line',
            )
        corrections[position] = json.dumps(event)
    return corrections


def _position(text: str) -> RecordPosition:
    position = _parsed(text)
    if position is None:
        raise click.UsageError(f"{text!r} is no position: write PARTITION/OFFSET, for example 0/17")
    return position


def _parsed(text: Any) -> RecordPosition | None:
    from leftfold.kafka.rejects import RecordPosition

    return RecordPosition.parse(text) if isinstance(text, str) else None


def _kind(reason: str) -> str:
    """The reason without its number of seconds, which differs from record to record."""
    return re.sub(r" by \d+ s$", "", reason)


def _state(entry: Entry) -> str:
    return "re-driven" if entry.redriven else "open"


def _described(entry: Entry) -> dict[str, Any]:
    return {
        "position": str(entry.position),
        "state": _state(entry),
        "outcome": entry.outcome,
        "reason": entry.reason,
        "log_time": from_micros(entry.log_us).isoformat(),
    }


def _texts(positions: Sequence[RecordPosition]) -> list[str]:
    return [str(p) for p in positions]
