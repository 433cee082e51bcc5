"""The verb dead: shows what a consumer could not handle, hands it over again, or drops it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.fold.expressions import from_micros
from leftfold.units import counted

if TYPE_CHECKING:
    from leftfold.kafka.dead_letters import DeadLetter, DeadLetters, RecordPlace


@click.group()
def dead() -> None:
    """Show, redrive or drop a consumer's dead letters."""


@dead.command("list")
@click.argument("consumer")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=20,
    show_default=True,
    help="Maximum number of dead letters to list.",
)
@profile_option
@json_option
def list_dead(consumer: str, limit: int, profile: str | None, as_json: bool) -> None:
    """Count dead letters by reason, and list them. It shows where the records of CONSUMER are."""
    import leftfold

    letters = leftfold.open(profile=profile).dead(consumer).letters()
    counts = Counter(letter.reason for letter in letters).most_common()
    if as_json:
        shown = [_described(letter) for letter in letters[:limit]]
        document("dead list", consumer=consumer, letters=shown, counts=dict(counts), total=len(letters))
        return
    say(f"{consumer}: {counted(len(letters), 'dead letter')}")
    for reason, number in counts[:limit]:
        click.echo(f"  {number:>9,}  {reason}")
    width = max((len(str(letter.place)) for letter in letters[:limit]), default=0)
    for letter in letters[:limit]:
        logged = f"{from_micros(letter.log_us):%Y-%m-%d %H:%M:%S}"
        tries = counted(letter.attempts, "attempt")
        click.echo(f"  {letter.place!s:{width}}  {letter.outcome:8}  {tries:>11}  {logged}  {letter.reason}")
    if len(letters) > limit:
        say(f"  … and {len(letters) - limit:,} more (--limit)")
    if letters:
        next_step(f"leftfold dead show {consumer} {letters[0].place}")


@dead.command()
@click.argument("consumer")
@click.argument("position")
@profile_option
@json_option
def show(consumer: str, position: str, profile: str | None, as_json: bool) -> None:
    """Show all that is known of one dead letter. It is CONSUMER's, at POSITION (TOPIC/PARTITION/OFFSET)."""
    import leftfold

    (letter,) = leftfold.open(profile=profile).dead(consumer).find([_place(position)])
    facts = {
        **_described(letter),
        "key": None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        "headers": {n: None if v is None else v.decode(errors="backslashreplace") for n, v in letter.headers},
        "value_hex": None if letter.value is None else letter.value.hex(),
    }
    if as_json:
        document("dead show", consumer=consumer, **facts)
        return
    for name, value in facts.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
        click.echo(f"  {name:10}  {'–' if text is None else text}")
    next_step(f"leftfold dead redrive {consumer} {letter.place}")


@dead.command()
@click.argument("consumer")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "everything", is_flag=True, help="All dead letters of the consumer.")
@click.option("--key", metavar="KEY", help="Key of the dead letters.")
@profile_option
@json_option
def redrive(
    consumer: str, positions: tuple[str, ...], everything: bool, key: str | None, profile: str | None, as_json: bool
) -> None:
    """Hand dead letters to their consumer again. Those of CONSUMER at POSITIONs, or --all, or those of a --key."""
    import leftfold

    letters = leftfold.open(profile=profile).dead(consumer)
    number = letters.redrive(_chosen(letters, positions, everything, key))
    if as_json:
        document("dead redrive", consumer=consumer, redriven=number)
        return
    say(f"{'✓' if number else '–'} {counted(number, 'record')} of {consumer} re-driven")
    if number:
        next_step(f"leftfold consume --consumers {consumer}")


@dead.command()
@click.argument("consumer")
@click.argument("positions", nargs=-1, metavar="[POSITION]...")
@click.option("--all", "everything", is_flag=True, help="All dead letters of the consumer.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@profile_option
@json_option
def drop(
    consumer: str, positions: tuple[str, ...], everything: bool, yes: bool, profile: str | None, as_json: bool
) -> None:
    """Remove dead letters for ever. The records of CONSUMER stay in their topic."""
    import leftfold

    letters = leftfold.open(profile=profile).dead(consumer)
    chosen = _chosen(letters, positions, everything, None)
    if chosen and not yes and not click.confirm(f"drop {counted(len(chosen), 'dead letter')} for ever?", err=True):
        raise click.Abort
    number = letters.drop(chosen)
    if as_json:
        document("dead drop", consumer=consumer, dropped=number)
    else:
        say(f"{'✓' if number else '–'} {counted(number, 'dead letter')} of {consumer} dropped")


def _chosen(letters: DeadLetters, positions: tuple[str, ...], everything: bool, key: str | None) -> list[DeadLetter]:
    if (bool(positions), everything, key is not None).count(True) != 1:
        raise click.UsageError("give either positions (TOPIC/PARTITION/OFFSET), or --all, or a key")
    if positions:
        return letters.find(_place(p) for p in positions)
    return [letter for letter in letters.letters() if key is None or letter.key == key.encode()]


def _place(text: str) -> RecordPlace:
    from leftfold.kafka.dead_letters import RecordPlace

    place = RecordPlace.parse(text)
    if place is None:
        raise click.UsageError(f"{text!r} is no position: write TOPIC/PARTITION/OFFSET, for example payments/0/17")
    return place


def _described(letter: DeadLetter) -> dict[str, Any]:
    return {
        "position": str(letter.place),
        "outcome": letter.outcome,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "log_time": from_micros(letter.log_us).isoformat(),
    }
