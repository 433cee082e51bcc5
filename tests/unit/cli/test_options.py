"""The options of all commands: one name has one meaning, and the help says what to give."""

from __future__ import annotations

import re
from collections import defaultdict

import click
import pytest

from tests.unit.cli.commands import ALL, OPTIONS, Spelled

# Each option that several commands have: its value ("" for a flag), and how its help begins in all of them. An option
# that means something else has another name.
SHARED: dict[str, tuple[str, str]] = {
    "--against": ("DIR", "(Table|Training set) to compare with"),
    "--all": ("", "All "),
    "--as-of": ("[event|log|served]", "Time that decides what was known"),
    "--at": ("TIME", "Time of the values"),
    "--batch": ("VIEW=COLUMN", "Column with the batch"),
    "--build": ("VIEW=BUILD", "Build "),
    "--by": ("FIELD,FIELD", "Fields of the prediction to group by"),
    "--ca-secret": ("NAME", "Secret with the file"),
    "--column": ("NAME=COLUMN", "Column of "),
    "--cores": ("COUNT", "Maximum number of cores"),
    "--cpu": ("CORES", "Number of cores of each (node|pod)"),
    "--delete": ("TOPIC", "Topic to delete"),
    "--directory": ("PATH", "Directory of leftfold.toml in the image"),
    "--downtime": ("DURATION", "Longest outage to survive"),
    "--engine": ("[arrow|spark]", "Engine that "),
    "--explain": ("", "Say which engine "),
    "--follow": ("", "Continue with new "),
    "--force": ("", "Overwrite files"),
    "--from": ("TIME", "Start of the (history|predictions|range)"),
    "--image": ("IMAGE", "Image of "),
    "--json": ("", "Print one JSON document"),
    "--key": ("KEY", "Key of the (records|dead letters)"),
    "--kube-namespace": ("NAME", "Kubernetes namespace"),
    "--limit": ("COUNT", "Maximum number of (records|dead letters|differences) to (list|read)"),
    "--memory": ("SIZE", "Memory of each (node|pod)"),
    "--metrics": ("[HOST:]PORT", "Address of /metrics"),
    "--metrics-port": ("PORT", "Port of /metrics"),
    "--out": ("DIR|FILE", "(New|Output) (directory|file) for"),
    "--profile": ("NAME", "Profile of leftfold.toml"),
    "--secret": ("NAME", "Secret whose keys become environment variables"),
    "--time": ("COLUMN", "Column with the (log )?time of each (label|row)"),
    "--to": ("TIME", "End of the (import|predictions|range), exclusive"),
    "--until-caught-up": ("", "End when all that is in the log now"),
    "--verify": ("DIR", "Directory of an earlier (replay|training set)"),
    "--yes": ("", "Skip the confirmation"),
    "-n": ("COUNT", "(Maximum n|N)umber of (lines|records)"),
}

# With these words the help of a flag begins, and no other.
DOES = {
    *("Add", "All", "Continue", "Count", "End", "List", "Measure", "Move", "Overwrite", "Print", "Render", "Return"),
    *("Say", "Show", "Skip", "Start", "Take"),
}
# What a value may be called.
VALUES = {
    *("BUILD", "COLUMN", "CONSUMER", "CORES", "COUNT", "DIR", "DURATION", "FIELD", "FILE", "HOST", "IMAGE", "KEY"),
    *("NAME", "NUMBER", "OFFSET", "PARTITION", "PATH", "PORT", "PSI", "RECORDS", "SECONDS", "SIZE", "TIME", "TOPIC"),
    *("VERSION", "VIEW", "beginning", "caught-up", "now"),
}


def by_name() -> dict[str, list[Spelled]]:
    found: dict[str, list[Spelled]] = defaultdict(list)
    for each in OPTIONS:
        found[each.name].append(each)
    return found


def test_every_option_of_several_commands_has_one_meaning() -> None:
    assert {name for name, of in by_name().items() if len(of) > 1} == set(SHARED)


@pytest.mark.parametrize("each", [each for each in OPTIONS if each.name in SHARED], ids=str)
def test_an_option_of_several_commands_is_the_same_in_each(each: Spelled) -> None:
    value, help = SHARED[each.name]
    assert each.value in ((value,) if value.startswith("[") else value.split("|"))
    assert re.match(help, each.option.help or ""), each.option.help


def test_no_option_is_the_plural_of_another() -> None:
    names = by_name().keys()
    assert [name for name in names if f"{name}s" in names] == []


@pytest.mark.parametrize("each", OPTIONS, ids=str)
def test_the_help_of_an_option(each: Spelled) -> None:
    """It begins with what the option does if it is a flag, and else with what its value is."""
    text = each.option.help or ""
    first, second, *_ = text.split()
    assert text.endswith((".", "]")), text
    does = first in DOES and second != "of"  # "Start of the range" is a thing
    assert does == (each.value == ""), text
    assert re.fullmatch(r"[A-Z][a-z]+", first), text
    assert first not in ("Of", "So", "At", "Only", "With", "How", "For"), "begin with the thing"


@pytest.mark.parametrize("each", [each for each in OPTIONS if each.value], ids=str)
def test_a_value_says_what_to_give(each: Spelled) -> None:
    choices = getattr(each.option.type, "choices", ())
    assert set(re.findall(r"[\w-]+", each.value)) <= VALUES | set(choices), each.value


@pytest.mark.parametrize("name", ALL)
def test_common_options_stand_last(name: str) -> None:
    command = ALL[name]
    options = [p.opts[-1] for p in command.get_params(click.Context(command)) if isinstance(p, click.Option)]
    common = [option for option in ("--profile", "--json", "--help") if option in options]
    assert options[len(options) - len(common) :] == common
    assert "--help" in common
