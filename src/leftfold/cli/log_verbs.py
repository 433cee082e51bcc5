"""The verbs topics, groups and read: what is in the log, and who reads it. They change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from leftfold.cli.given import Moment
from leftfold.cli.output import VERSION, document, json_option, next_step, profile_option, say
from leftfold.fold.durations import SECOND
from leftfold.units import counted, rough, size

if TYPE_CHECKING:
    from leftfold.observe.group_status import GroupStatus, GroupTopicStatus
    from leftfold.observe.log_records import LogRecord
    from leftfold.observe.topic_status import TopicStatus

_UNKNOWN = "–"


@click.command()
@click.argument("topic", required=False)
@profile_option
@json_option
def topics(topic: str | None, profile: str | None, as_json: bool) -> None:
    """Show topics: partitions, replicas, offsets. Of one TOPIC also leaders, bytes and rates."""
    import leftfold

    statuses = leftfold.open(profile=profile).topics(topic)
    if as_json:
        document("topics", topics=[status.as_json() for status in statuses])
    elif topic is None:
        _show_topics(statuses)
    else:
        _show_partitions(statuses[0])


def _show_topics(statuses: Sequence[TopicStatus]) -> None:
    if not statuses:
        say("the cluster has no topics")
        next_step("leftfold apply")
        return
    rows = [
        (
            status.topic,
            str(len(status.partitions)),
            str(status.durability.copies),
            f"{status.offsets:,}",
            _UNKNOWN if status.bytes is None else size(status.bytes),
            _rate(status.rate),
            status.kept,
            f"{status.short_of_replicas} short of replicas" if status.short_of_replicas else "",
        )
        for status in statuses
    ]
    _table(("topic", "partitions", "replicas", "offsets", "bytes", "rate", "kept", ""), rows, left=(0, 6, 7))
    next_step(f"leftfold topics {next((s.declared for s in statuses if s.declared), statuses[0].topic)}")


def _show_partitions(status: TopicStatus) -> None:
    say(f"{status.topic}: kept {status.kept}")
    say(f"  {status.durability}")
    rows = [
        (
            str(part.partition),
            _UNKNOWN if part.leader is None else str(part.leader),
            ",".join(map(str, part.replicas)),
            ",".join(map(str, sorted(part.in_sync))),
            f"{part.first:,}",
            f"{part.end:,}",
            _UNKNOWN if part.bytes is None else size(part.bytes),
            _rate(part.rate),
        )
        for part in status.partitions
    ]
    _table(("partition", "leader", "replicas", "in sync", "first", "end", "bytes", "rate"), rows)
    next_step(f"leftfold read {status.declared or status.topic}")


def _rate(per_second: float) -> str:
    return f"{per_second:,.1f}/s" if 0 < per_second < 10 else f"{per_second:,.0f}/s"


@click.command()
@click.argument("topic", required=False)
@profile_option
@json_option
def groups(topic: str | None, profile: str | None, as_json: bool) -> None:
    """Show consumer groups: members, positions, lag. All of the cluster, or those that read TOPIC.

    The position of a view is shown as a group without members.
    """
    import leftfold

    statuses = leftfold.open(profile=profile).groups(topic)
    if as_json:
        document("groups", groups=[status.as_json() for status in statuses])
        return
    if not statuses:
        say("no consumer group has read " + (topic or "a topic of this cluster"))
        return
    rows = [_group_row(status, of) for status in statuses for of in status.topics]
    _table(("group", "topic", "state", "members", "lag", "behind"), rows, left=(0, 1, 2))
    for status in statuses:
        if status.idle:
            have = "member has" if status.idle == 1 else "members have"
            say(f"{status.group}: {status.idle} {have} no partition to read; more members than partitions help nobody")


def _group_row(status: GroupStatus, of: GroupTopicStatus) -> tuple[str, ...]:
    members = "" if status.view is not None else f"{of.members} of {status.members}"
    state = f"view {status.view}" if status.view is not None else status.state
    behind = _UNKNOWN if of.lag_s is None else rough(round(of.lag_s * SECOND))
    return status.group, of.topic, state, members, f"{of.lag:,}", behind


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> None:
    """Print rows under their heads, in columns as wide as their widest text. `left` are columns aligned to the left."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.ljust(w) if c in left else text.rjust(w) for c, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        return f"  {'  '.join(cells)}".rstrip()

    say(line(heads))
    for row in rows:
        click.echo(line(row))


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), metavar="PARTITION", help="Partition to read. [default: all]")
@click.option("--offset", type=click.IntRange(min=0), metavar="OFFSET", help="First offset, with --partition.")
@click.option("--from", "start", type=Moment(), help="Start of the range, by log time. [default: the newest records]")
@click.option("--key", metavar="KEY", help="Key of the records, from the oldest on.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Maximum number of records to read. [default: 10, with --follow no limit]",
)
@click.option("--follow", is_flag=True, help="Continue with new records until Ctrl-C.")
@profile_option
@json_option
def read(
    topic: str,
    partition: int | None,
    offset: int | None,
    start: datetime | None,
    key: str | None,
    limit: int | None,
    follow: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Read records of a topic, decoded and judged. The newest ones of TOPIC, or from an offset, a time or of a key on.

    Joins no consumer group and commits nothing. Needs no Spark. With --json one document a record.
    """
    import leftfold

    if offset is not None and partition is None:
        raise click.UsageError("--offset is of one partition: add --partition")
    if sum(given is not None for given in (offset, start, key)) > 1:
        raise click.UsageError("give one of --offset, --from and --key")
    app = leftfold.open(profile=profile)
    show = _json_line if as_json else _line
    count = 0
    records = app.read(
        topic,
        partition=partition,
        offset=offset,
        start=start,
        key=key,
        most=limit if limit is not None or follow else 10,
        follow=follow,
    )
    try:
        for record in records:
            show(record)
            count += 1
    except KeyboardInterrupt:
        if not follow:
            raise
    if not as_json:
        say(f"{counted(count, 'record')} of {topic}")


def _json_line(record: LogRecord) -> None:
    click.echo(json.dumps({"version": VERSION, "verb": "read", **record.as_json()}, ensure_ascii=False, default=str))


def _line(record: LogRecord) -> None:
    key = _UNKNOWN if record.key is None else record.key.decode(errors="backslashreplace")
    outcome = "" if record.outcome is None else f"  {record.outcome}" + (f" ({record.reason})" if record.reason else "")
    place = f"{record.partition}/{record.offset}  {record.log_time:%Y-%m-%d %H:%M:%S.%f}"
    click.echo(f"{place}  {key}{outcome}  {_content(record)}")


def _content(record: LogRecord) -> str:
    if record.value is None:
        return "(tombstone)"
    if record.fields is None:
        return record.value.decode(errors="backslashreplace")
    return json.dumps(record.fields, ensure_ascii=False, default=_bytes_or_text)


def _bytes_or_text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
