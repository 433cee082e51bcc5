"""The verb replay: reads a range of a topic again, into files or into another topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import TextColumn, TimeRemainingColumn

from leftfold import clock
from leftfold.cli.given import Moment
from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.cli.progress import counted, end_on_signal

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.offsets import Ranges
    from leftfold.run.choice import Choice, Engine


@click.command()
@click.argument("topic")
@click.option("--from", "start", type=Moment(), help="Start of the range, by log time. [default: the oldest]")
@click.option("--to", "end", type=Moment(), help="End of the range, exclusive, by log time. [default: now]")
@click.option("--out", metavar="DIR", help="New directory for files and a manifest.")
@click.option(
    "--format",
    type=click.Choice(["parquet", "jsonl"]),
    default="parquet",
    show_default=True,
    help="Format of the files of --out.",
)
@click.option("--verify", metavar="DIR", help="Directory of an earlier replay, to read once more and compare.")
@click.option("--engine", type=click.Choice(["arrow", "spark"]), help="Engine that reads. [default: the faster one]")
@click.option("--into", metavar="TOPIC", help="Topic to copy to, declared with log_time='header'.")
@click.option("--follow", is_flag=True, help="Continue with new records until SIGTERM or Ctrl-C, with --into.")
@profile_option
@json_option
def replay(
    topic: str,
    start: datetime | None,
    end: datetime | None,
    out: str | None,
    format: str,
    verify: str | None,
    engine: Engine | None,
    into: str | None,
    follow: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Replay a range of a topic to files or to a topic.

    TOPIC is written to files (--out), copied to a topic (--into), or compared with earlier files (--verify).
    """
    import leftfold

    if sum(option is not None for option in (out, verify, into)) != 1:
        raise click.UsageError("give one of --out DIR, --verify DIR and --into TOPIC")
    if verify is not None and (start or end):
        raise click.UsageError("--verify takes its range from the manifest: leave out --from and --to")
    if follow and (into is None or end is not None):
        raise click.UsageError("--follow goes with --into, and has no --to")
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from must be before --to")
    app = leftfold.open(profile=profile)
    app.catalog.topic(topic)  # reports an undeclared name before any engine is asked
    if into is not None:
        _copy(app, topic, into, start, end, follow=follow, as_json=as_json)
    elif out is not None:
        _write(app, topic, _location(out), start, end, format, engine, as_json=as_json)
    else:
        assert verify is not None, "one of the three was given"
        _verify(app, topic, _location(verify), engine, as_json=as_json)


def _location(location: str) -> str:
    """The given location: a URL that Spark resolves by its scheme, or an absolute local path."""
    return location.rstrip("/") if "://" in location else str(Path(location).absolute())


def _write(
    app: App,
    topic: str,
    out: str,
    start: datetime | None,
    end: datetime | None,
    format: Any,
    engine: Engine | None,
    *,
    as_json: bool,
) -> None:
    started = clock.monotonic()
    prepared = app.replay(topic, start=start, end=end)
    choice = prepared.choice(out, engine)
    with _shown(f"replaying {topic}", _noun(choice), as_json=as_json) as watch:
        manifest = prepared.write(out, format, watch=watch, engine=engine)
    seconds = clock.monotonic() - started
    if as_json:
        document("replay", topic=topic, out=out, manifest=manifest.as_json(), seconds=round(seconds, 3))
        return
    _say_ranges(manifest.ranges)
    counts = ", ".join(f"{number:,} {outcome}" for outcome, number in manifest.outcomes.items()) or "none"
    say(f"✓ {manifest.records:,} records ({counts}) are in {out}, in {seconds:.1f} s")
    say(f"  digest {manifest.digest}")
    next_step(f"leftfold replay {topic} --verify {out}")


def _verify(app: App, topic: str, directory: str, engine: Engine | None, *, as_json: bool) -> None:
    started = clock.monotonic()
    prepared = app.replay(topic)
    manifest = prepared.manifest_of(directory)
    with _shown(f"replaying {topic}", _noun(prepared.choice(None, engine)), as_json=as_json) as watch:
        content = prepared.again(manifest, watch=watch, engine=engine)
    seconds = clock.monotonic() - started
    if as_json:
        document("replay", topic=topic, directory=directory, records=content.records, digest=content.digest, same=True)
        return
    _say_ranges(manifest.ranges)
    say(f"✓ {content.records:,} records, and the same digest {content.digest}, in {seconds:.1f} s")


def _copy(
    app: App, topic: str, into: str, start: datetime | None, end: datetime | None, *, follow: bool, as_json: bool
) -> None:
    stop = threading.Event()
    end_on_signal(stop.set)
    started = clock.monotonic()
    job = app.copy(topic, into, start=start, end=end, follow=follow)
    with _shown(f"copying {topic} to {into}", "records", as_json=as_json) as watch:
        copied = job.run(stop.is_set, lambda done, left: watch(done, None if left is None else done + left))
    seconds = clock.monotonic() - started
    if as_json:
        document(
            "replay",
            topic=job.source.name,
            into=job.target.name,
            records=copied,
            resumed=job.copier.resumed,
            stopped=stop.is_set(),
            seconds=round(seconds, 3),
        )
        return
    going_on = ", going on from where it had stopped" if job.copier.resumed else ""
    say(f"✓ {copied:,} records copied from {job.source.name} to {job.target.name}{going_on}, in {seconds:.1f} s")
    if stop.is_set():
        say("  stopped; the same command goes on from here")
    next_step("leftfold run" if not stop.is_set() else f"leftfold replay {topic} --into {into}")


def _noun(choice: Choice) -> str:
    """Return what is counted while the engine works."""
    return "records" if choice.engine == "arrow" else "tasks"


def _say_ranges(ranges: Ranges) -> None:
    for r in ranges:
        say(f"  {r}")


def _shown(title: str, noun: str, *, as_json: bool) -> AbstractContextManager[Callable[[int, int | None], None]]:
    return counted(title, TextColumn(noun), TimeRemainingColumn(), verb="replay", noun=noun, as_json=as_json)
