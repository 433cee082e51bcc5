"""The verb adopt: writes a declaration of a topic that exists already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leftfold.cli.output import document, json_option, next_step, profile_option, say
from leftfold.errors import ProjectError

if TYPE_CHECKING:
    from leftfold.adopt.adopting import Adopted

_FROM = {
    "avro": "its registered Avro schema",
    "json-schema": "its registered JSON Schema",
    "sample": "a sample of its JSON records",
}


@click.command()
@click.argument("topic")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="New file for the declaration, instead of stdout.",
)
@profile_option
@json_option
def adopt(topic: str, out: Path | None, profile: str | None, as_json: bool) -> None:
    """Write the declaration of an existing topic. It comes from its schema or its records, and from its settings.

    TOPIC is its name in the cluster. Nothing in the cluster is changed.
    """
    import leftfold

    if out is not None and out.exists():
        raise _exists(out)
    if out is not None and not out.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {out.parent}", param_hint="--out")
    adopted = leftfold.open(profile=profile).adopt(topic)
    if out is not None:
        _write(out, adopted.text)
    if as_json:
        document("adopt", **_content(adopted, out))
        return
    if out is None:
        click.echo(adopted.text, nl=False)
    _tell(adopted, out)


def _write(out: Path, text: str) -> None:
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _exists(out) from error


def _exists(out: Path) -> ProjectError:
    return ProjectError(
        "adopt-file-exists",
        f"{out} is there already",
        why="adopt never overwrites a file: it may hold what you decided",
        fix="name another file, or leave --out out and compare what is printed",
    )


def _content(adopted: Adopted, out: Path | None) -> dict[str, object]:
    return {
        "topic": adopted.topic,
        "event": adopted.event,
        "format": adopted.format,
        "from": adopted.source,
        "debezium": adopted.debezium,
        "sampled": adopted.sampled,
        "fields": [
            {"name": f.name, "kind": f.kind, "repeated": f.repeated, "optional": f.optional} for f in adopted.fields
        ],
        "left_out": [{"name": f.name, "what": f.what, "why": f.why} for f in adopted.left_out],
        "undecided": [{"what": u.what, "why": u.why, "fix": u.fix} for u in adopted.undecided],
        "file": None if out is None else str(out),
        "text": adopted.text,
    }


def _tell(adopted: Adopted, out: Path | None) -> None:
    fields = f"{len(adopted.fields):,} field{'' if len(adopted.fields) == 1 else 's'} of {adopted.event}"
    say(f"✓ {adopted.topic}: {fields}, from {_FROM[adopted.source]}; {adopted.sampled:,} records seen")
    if adopted.debezium:
        say("  Debezium's envelope: declared is the row in it, for when the connector writes rows alone")
    for field in adopted.left_out:
        say(f"  left out: {field.name} ({field.what}), because {field.why}")
    for choice in adopted.undecided:
        say(f"  ? {choice.what}: {choice.why}\n    fix: {choice.fix}")
    if out is None:
        next_step(f"leftfold adopt {adopted.topic} --out FILE.py")
        return
    if adopted.undecided:
        say(f"  until you decide, {out.name} does not load: each `undecided(...)` in it says what to write")
    say(f'  put "{out.name}" into declarations of leftfold.toml')
    next_step("leftfold check")
