"""The verb archive: shows what the lake keeps of topics, imports a past, and continues after a gap."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import click

from leftfold.cli.given import Moment, column_option
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.fold.expressions import from_micros, to_micros

if TYPE_CHECKING:
    from leftfold.replay.archives import Archive

_SPAN = re.compile(r"(\d+):(\d+)-(\d+)")
_DAYS = 10  # people look at the newest; --json shows all


@click.group()
def archive() -> None:
    """Show and fill what the lake keeps beside the log."""


@archive.command()
@click.argument("topic", required=False)
@profile_option
@json_option
def show(topic: str | None, profile: str | None, as_json: bool) -> None:
    """Show what is archived: offsets, dates, files. Of TOPIC, or of all topics; and where the log continues."""
    import leftfold

    with leftfold.open(profile=profile).archive() as archives:
        archived = archives.show(topic)
    if as_json:
        document("archive show", archives=[one.as_json() for one in archived])
        return
    if not archived:
        say("no topic of this project has archive=True")
    for one in archived:
        _tell(one)


def _tell(one: Archive) -> None:
    say(f"{one.topic}: {one.records:,} records in {one.files:,} files, {one.bytes:,} bytes; {one.table}")
    for r in one.holds:
        click.echo(f"  holds  {r}")
    for p, (first, end) in sorted(one.log.items()):
        archived = one.ends.get(p)
        upto = "nothing" if archived is None else f"up to {archived:,}"
        click.echo(f"  seam   {one.topic}/{p}: archived {upto}, the log has {first:,} up to {end:,}")
    for day in one.days[-_DAYS:]:
        click.echo(f"  date   {day.date}  {day.records:>12,} records  {day.files:>5,} files  {day.bytes:>14,} bytes")
    if len(one.days) > _DAYS:
        say(f"  … and {len(one.days) - _DAYS:,} dates before (--json)")
    if one.gap.ranges:
        spans = " ".join(f"{r.partition}:{r.start}-{r.end - 1}" for r in one.gap)
        say(f"✗ deleted before it was archived: {', '.join(map(str, one.gap))}")
        next_step(f"leftfold archive skip {one.topic} {spans}")
    elif one.behind:
        say(f"  {one.behind:,} offsets are in the log only")
        next_step("leftfold run")


@archive.command("import")
@click.argument("table")
@click.option("--topic", required=True, metavar="TOPIC", help="Topic whose past it is, declared with archive=True.")
@column_option("Column of a field. [default: the field's own name]")
@click.option(
    "--time",
    required=True,
    metavar="COLUMN",
    help="Column with the log time of each row: when it would have been logged.",
)
@click.option("--to", "end", type=Moment(), help="End of the import, exclusive, by log time. [default: all rows]")
@profile_option
@json_option
def import_(
    table: str,
    topic: str,
    columns: tuple[tuple[str, str], ...],
    time: str,
    end: datetime | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Import a table as the past of an archive. TABLE is a Delta table or a directory of Parquet files."""
    import leftfold

    before = None if end is None else to_micros(end)
    with leftfold.open(profile=profile).archive() as archives:
        done = archives.import_table(table, topic, columns=dict(columns), time=time, until=before)
    first, last = from_micros(done.first).isoformat(), from_micros(done.last).isoformat()
    logged = None if done.logged is None else from_micros(done.logged).isoformat()
    if as_json:
        seam = {"imported_from": first, "imported_to": last, "log_from": logged}
        document("archive import", topic=topic, table=table, records=done.records, new=done.new, seam=seam)
        return
    if done.new:
        say(f"✓ {done.records:,} records of {table} are the past of {topic}")
    else:
        say(f"– the archive of {topic} has these {done.records:,} records already")
    say(f"  seam: imported from {first} up to {last}, the log from {logged or 'its first record'}")
    next_step(f"leftfold archive show {topic}")


@archive.command()
@click.argument("topic")
@click.argument("spans", nargs=-1, required=True, metavar="PARTITION:FIRST-LAST...")
@profile_option
@json_option
def skip(topic: str, spans: tuple[str, ...], profile: str | None, as_json: bool) -> None:
    """Go on archiving after offsets that the log lost. The offsets of TOPIC are named exactly."""
    import leftfold

    named = dict(_span(text) for text in spans)
    with leftfold.open(profile=profile).archive() as archives:
        archives.skip(topic, named)
    if as_json:
        document("archive skip", topic=topic, skipped={str(p): list(span) for p, span in named.items()})
        return
    say(f"✓ the archive of {topic} goes on after {sum(end - start for start, end in named.values()):,} lost offsets")
    next_step("leftfold run")


def _span(text: str) -> tuple[int, tuple[int, int]]:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is no range: write PARTITION:FIRST-LAST, for example 0:100-199")
    return int(match[1]), (int(match[2]), int(match[3]) + 1)
