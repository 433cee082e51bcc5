"""Writes the Python text of a declaration.

Text from a cluster becomes a checked name, a quoted literal or a comment without line breaks, so it is never code.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leftfold.adopt.choices import Choice, Chosen
from leftfold.adopt.fields import FieldShape, Found, LeftOut, hides_a_type, typed
from leftfold.adopt.options import TopicOptions, can_say
from leftfold.declare.rows import RESERVED

_WIDTH = 118
_INDENT = "    "
_OTHER_NAMES = {"lf", "undecided", "Field", "datetime", "str", "int", "float", "bool", "bytes", "list"}
_DEFAULT_REPLICATION = 3


@dataclass(frozen=True)
class Declaration:
    """Everything that the text of a declaration is written from."""

    topic: str
    event: str
    shape: FieldShape
    format: Literal["avro", "json"]
    key: Choice
    time: Choice | None  # None if compacted
    options: TopicOptions
    remarks: tuple[str, ...]  # what was found in the cluster
    advice: tuple[str, ...] = ()  # what the user must do before the topic can be used
    likely_key: str | None = None  # a guess, for when `key` is undecided
    lateness_note: str = ""


def class_name(record: str | None, topic: str) -> str:
    """The name of the event class: the record's own name if Python allows it, because Avro readers may compare it.

    Otherwise the name is made of the words in the record's name, or else in the topic's name.
    """
    if record is not None and record.isidentifier() and record.isascii() and not _taken(record):
        return record
    words = re.findall(r"[A-Za-z0-9]+", record or "") or re.findall(r"[A-Za-z0-9]+", topic)
    name = "".join(word[0].upper() + word[1:] for word in words)
    return f"Event{name}" if not name or name[0].isdigit() or _taken(name) else name


def variable_name(topic: str, event: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
    if not name or name[0].isdigit():
        name = f"topic_{name}".rstrip("_")
    return f"{name}_topic" if _taken(name) or name == event else name


def _taken(name: str) -> bool:
    return keyword.iskeyword(name) or name in _OTHER_NAMES


def rendered(declaration: Declaration) -> str:
    body = [*_event(declaration), "", "", *_topic(declaration), *_table(declaration)]
    head = [
        '"""A topic of another owner. Written by `leftfold adopt`, from here on yours to edit."""',
        "",
        *_comments(["As it was found:", *(f"  {remark}" for remark in declaration.remarks)]),
        "",
        *_imports(declaration, "\n".join(body)),
        "",
        "",
    ]
    return "\n".join([*head, *body]) + "\n"


def _imports(declaration: Declaration, body: str) -> Iterator[str]:
    if any(field.kind == "datetime" for field in declaration.shape.found):
        yield "from datetime import datetime"
        yield ""
    yield "import leftfold as lf"
    if "=undecided(" in body:
        yield "from leftfold.adopt.undecided import undecided"
    if "= Field(" in body:
        yield "from pydantic import Field"


# The event ----------------------------------------------------------------------------------------------------------


def _event(declaration: Declaration) -> Iterator[str]:
    yield from _comments([declaration.shape.doc])
    yield f"class {declaration.event}(lf.Event):"
    for field in declaration.shape.fields:
        if isinstance(field, LeftOut):
            yield from _comments([field.doc, f"left out: {field.name} ({field.what}), because {field.why}"], _INDENT)
        else:
            yield from _comments([field.doc, *field.notes], _INDENT)
            yield f"{_INDENT}{field.name}: {_annotated(field)}"


def _annotated(field: Found) -> str:
    annotation = f"{typed(field)} | None" if field.optional else typed(field)
    if hides_a_type(field.name):
        return annotation  # without a default, an optional field still reads as None where it is absent
    if field.rules:
        arguments = ["default=None"] if field.optional else []
        return f"{annotation} = Field({', '.join([*arguments, *(f'{name}={limit!r}' for name, limit in field.rules)])})"
    if field.default is not None:
        return f"{annotation} = {_literal(field.default)}"
    return f"{annotation} = None" if field.optional else annotation


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_literal(v) for v in value)}]"
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


# The topic ----------------------------------------------------------------------------------------------------------


def _topic(declaration: Declaration) -> Iterator[str]:
    options = declaration.options
    yield from _comments(declaration.advice)
    yield f"{variable_name(declaration.topic, declaration.event)} = lf.Topic("
    yield f"{_INDENT}{_literal(declaration.topic)},"
    yield f"{_INDENT}{declaration.event},"
    yield f"{_INDENT}external=True,"
    yield from _choice("key", declaration.key, declaration.event)
    if declaration.time is not None:
        yield from _choice("time", declaration.time, declaration.event)
    if declaration.format == "json":
        yield f'{_INDENT}format="json",'
    if can_say(options.partitions):
        yield f"{_INDENT}partitions={options.partitions},"
    if options.replication != _DEFAULT_REPLICATION:
        yield from _option(f"replication={options.replication}", "of what Leftfold keeps beside it")
    if options.compacted:
        yield from _option("compacted=True", options.compacted_note)
    else:
        yield from _option(f'retention="{options.retention}"', options.retention_note)
        yield from _option('lateness="10m"', declaration.lateness_note)
    if options.log_time == "producer":
        yield from _option('log_time="producer"', options.log_time_note)
    yield ")"


def _option(text: str, note: str) -> Iterator[str]:
    if note and len(text) + len(note) > _WIDTH - 10:
        yield from _comments([note], _INDENT)
        note = ""
    yield f"{_INDENT}{text}," + (f"  # {note}" if note else "")


def _choice(option: str, choice: Choice, event: str) -> Iterator[str]:
    if isinstance(choice, Chosen):
        yield from _option(f"{option}={event}.{choice.field}", choice.note)
        return
    yield f"{_INDENT}{option}=undecided("
    for text in (choice.what, choice.why, choice.fix):
        yield from _argument(text)
    yield f"{_INDENT}),"


def _argument(text: str) -> Iterator[str]:
    """The lines of one text argument, split into as many string literals as it needs."""
    lines = textwrap.wrap(_one_line(text), _WIDTH - 20, break_long_words=False) or [""]
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        yield f"{_INDENT * 2}{_literal(line if last else line + ' ')}{',' if last else ''}"


def _table(declaration: Declaration) -> Iterator[str]:
    """A lf.Table of a compacted topic, as comments that the user can uncomment. Empty for other topics."""
    if not declaration.options.compacted:
        return
    key = declaration.key.field if isinstance(declaration.key, Chosen) else declaration.likely_key or "KEY"
    columns = [
        f.name for f in declaration.shape.found if f.kind != "bytes" and f.name != key and f.name not in RESERVED
    ]
    if columns:
        event, variable = declaration.event, variable_name(declaration.topic, declaration.event)
        lines = [f"class {event}Rows(lf.Table, of={variable}, by={event}.{key}):"]
        lines += [f"    {name} = {event}.{name}" for name in columns]
        yield ""
        yield ""
        yield "# The newest row of each key, as a view:"
        yield "#"
        yield from (f"# {line}" for line in lines)


# Comments -----------------------------------------------------------------------------------------------------------


def _comments(texts: Sequence[str], indent: str = "") -> Iterator[str]:
    for text in texts:
        line = _one_line(text)
        hanging = " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            line,
            _WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}# {hanging}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _one_line(text: str) -> str:
    """The text on one line. Unprintable characters become spaces: they could end a comment or fail to be written."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()
