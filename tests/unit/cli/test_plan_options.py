"""What a person says of a load: read as meant, or refused as wrong usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import leftfold as lf
from leftfold.cli.plan_options import NamedTime, asked, load_options
from leftfold.hazards.hazard import DOWNTIME
from leftfold.plan.diff import PlanOptions
from tests.unit.conftest import TOML, MakeProject

TEMPLATE = Path(lf.__file__).parent / "template" / "clickstream"


def said(*arguments: str) -> PlanOptions:
    found: list[PlanOptions] = []

    @click.command()
    @load_options
    def verb(**load: Any) -> None:
        found.append(asked(lf.open(TEMPLATE), **load))

    result = CliRunner().invoke(verb, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_nothing_said() -> None:
    assert said() == PlanOptions()
    assert said().downtime == DOWNTIME


def test_all_of_it() -> None:
    load = said(
        *("--rate", "clicks=20k", "--rate", "items=5", "--bytes", "clicks=1.5k", "--entities", "user_activity=2M"),
        *("--entities", "items=300", "--consumer-rate", "25000", "--catch-up", "30m", "--downtime", "5d"),
    )
    assert load.rates == {"clicks": 20_000, "items": 5}
    assert load.sizes == {"clicks": 1_500}
    assert load.keys == {"user_activity": 2_000_000, "items": 300}
    assert (load.consumer_rate, load.catch_up_s, load.downtime) == (25_000, 1_800, 5 * 86_400_000_000)


def test_all_needs() -> None:
    needs = said(
        *("--no-replay", "clicks", "--no-replay", "items", "--queue", "items", "--answers", "clicks"),
        *("--largest", "clicks=5m", "--freshness", "user_activity=50ms"),
    ).needs
    assert needs.no_replay == {"clicks", "items"}
    assert needs.queues == {"items"}
    assert needs.answers == {"clicks"}
    assert (needs.largest, needs.freshness) == ({"clicks": 5e6}, {"user_activity": 0.05})


def test_the_time_of_a_record_in_a_handler(make_project: MakeProject) -> None:
    consumer = '\n\n@lf.consumer(clicks, start="now")\ndef notify(click: Click) -> None: ...\n'
    root = make_project(TOML)
    (root / "streams.py").write_text((root / "streams.py").read_text() + consumer)
    time = NamedTime("CONSUMER=DURATION").convert("notify=0.2ms", None, None)
    assert asked(lf.open(root), handlers=[time]).handlers == {"notify": pytest.approx(0.0002)}
    with pytest.raises(click.BadParameter):
        NamedTime("CONSUMER=DURATION").convert("notify=fast", None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rate", "clicks"),
        ("--rate", "=5"),
        ("--rate", "clicks=0"),
        ("--rate", "clicks=-3"),
        ("--rate", "clicks=inf"),
        ("--rate", "clicks=k"),
        ("--rate", "taps=5"),
        ("--bytes", "user_activity=5"),
        ("--entities", "nobody=5"),
        ("--handler", "nobody=5ms"),
        ("--handler", "nobody"),
        ("--catch-up", "soon"),
        ("--downtime", "0s"),
        ("--consumer-rate", "0"),
        ("--no-replay", "nobody"),
        ("--queue", "user_activity"),
        ("--answers", "nobody"),
        ("--largest", "nobody=5m"),
        ("--freshness", "clicks=1s"),
        ("--freshness", "user_activity=soon"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        said(*arguments)
