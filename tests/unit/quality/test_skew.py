"""Pure parts of skew: the verdict, which history a build misses, what of an old build is still declared, the output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

import leftfold as lf
from leftfold.cli import skew_verbs
from leftfold.cli.main import cli
from leftfold.declare.catalog import Catalog, DeclaredView
from leftfold.fold.definition import Definition
from leftfold.quality.skew import (
    REASONS,
    FeatureSkew,
    NotCompared,
    Skew,
    SkewedValue,
    _BarredError,
    gone_from,
    read_by,
    verdict_on,
)
from leftfold.run.receipts import Receipt, summed
from leftfold.store.layout import Build, definition_document, definition_in, manifest
from leftfold.training.position import FrozenPosition
from leftfold.training.served import begins_of
from leftfold.training.topics import TopicPast


class Click(lf.Event):
    user_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)


class Activity(lf.Features, of=clicks, by=Click.user_id):
    n = lf.count("1h")
    spent = lf.sum(Click.price, "1h")


DECLARED = DeclaredView.of(Activity)
DEFINITION = Activity.__leftfold_definition__


def feature(name: str = "n", compared: int = 10, **wrong: int) -> FeatureSkew:
    counts = {"differs": 0, "only_then": 0, "only_now": 0, "not_log": 0, **wrong}
    return FeatureSkew(name, "activity", compared, **counts)


# The verdict --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "verdict"),
    [
        ([], "unknown"),
        ([feature()], "equal"),
        ([feature(not_log=9)], "equal"),  # the view's delay costs that; nothing is wrong
        ([feature(compared=0)], "unknown"),
        ([feature(), feature("spent", compared=0)], "unknown"),  # of one feature there is no evidence
        ([feature(), feature("spent", differs=1)], "differs"),
        ([feature(only_then=1)], "differs"),
        ([feature(only_now=1)], "differs"),
        ([feature(compared=0), feature("spent", only_now=1)], "differs"),
    ],
)
def test_no_evidence_is_not_a_pass(features: list[FeatureSkew], verdict: str) -> None:
    assert verdict_on(features) == verdict


# What a build was made of -------------------------------------------------------------------------------------------


def receipt(number: int, ranges: dict[int, tuple[int, int]]) -> Receipt:
    records = {"accepted": 1, "late": 0, "future": 0, "rejected": 0}
    return Receipt(number, number, {"clicks": "id"}, {"clicks": ranges}, records, 1, 0, (), {"online": 1}, {}, 0)


def test_a_build_begins_where_its_first_receipt_says() -> None:
    first, second = receipt(0, {0: (40, 50), 1: (-7, 3)}), receipt(1, {0: (50, 60), 1: (3, 4), 2: (0, 9)})
    began = {0: 40, 1: -7, 2: 0}  # partition 2 was added; records of partition 1 were imported
    assert begins_of([second, first], ["clicks"]) == began
    assert begins_of([summed([first, second]), second], ["clicks"]) == began
    assert begins_of([second], ["clicks"]) == {}, "the first is not known"
    assert begins_of([], ["clicks"]) == {}


def test_only_a_build_that_had_the_records_misses_them() -> None:
    position = FrozenPosition("clicks", "id", {0: 100, 1: 200}, {0: 900, 1: 900}, 0, (), ())
    read = TopicPast(position, mock.Mock(), (0, 1))
    assert gone_from(read, {0: 100, 1: 150}, 0) == [1]
    assert gone_from(read, {}, 0) == [0, 1]
    assert gone_from(TopicPast(position, mock.Mock(), ()), {}, 0) == []


def other(**changes: Any) -> Definition:
    return Definition.from_json({**DEFINITION.as_json(), **changes})


@pytest.mark.parametrize(
    "definition",
    [
        other(origins=[["orders", 0, "broker"]]),
        other(origins=[*DEFINITION.as_json()["origins"], ["orders", 0, "broker"]]),
        other(stream="0123456789ab"),
        other(time="happened"),
        other(keys=[["session", "string"]]),
    ],
)
def test_what_is_no_longer_declared_cannot_be_read(definition: Definition) -> None:
    catalog, _ = Catalog.of([clicks, Activity])
    with pytest.raises(_BarredError, match="declaration gone"):
        read_by(definition, DECLARED, catalog)


def test_an_older_definition_reads_what_is_still_declared() -> None:
    catalog, _ = Catalog.of([clicks, Activity])
    fewer = other(columns=DEFINITION.as_json()["columns"][:1], features=DEFINITION.as_json()["features"][:1])
    assert fewer.fingerprint != DEFINITION.fingerprint
    assert read_by(fewer, DECLARED, catalog) == DECLARED.reading


def test_a_kept_definition_is_that_of_the_manifest() -> None:
    build = Build(DEFINITION, "0123456789")
    kept = definition_document(DEFINITION)
    assert definition_in({**kept, "build": build.id}) == DEFINITION
    assert '"build": "' + build.id in manifest(build)


# Output -------------------------------------------------------------------------------------------------------------

MOMENT = datetime(2026, 3, 1, 12, 0, 0, 17, tzinfo=UTC)
VALUE = SkewedValue("p1", "n", "activity", "differs", 4, 3, {"user_id": "u 1"}, MOMENT, "0123-45", 7)


def made(*features: FeatureSkew, values: tuple[SkewedValue, ...] = ()) -> Skew:
    told = (NotCompared("fallback", 2, "p9"),)
    return Skew("fraud", "scores", 12, MOMENT, MOMENT, {"activity": ("0123-45",)}, features, told, values)


def test_people_see_both_numbers_and_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    skew_verbs.show(made(feature(differs=1, not_log=5), values=(VALUE,)))
    told = capsys.readouterr().err
    assert "12 predictions" in told
    assert ["n", "10", "1", "5", "(50.0%)", "0", "0"] in [line.split() for line in told.splitlines()]
    assert f"2 not compared: {REASONS['fallback']} (first: p9)" in told
    assert "p1  n: logged 4, its batch gives 3" in told
    assert "✗ 1 value is not what the log gives" in told
    assert told.splitlines()[-1] == "next: leftfold why activity 'user_id=u 1'"


def test_people_are_told_that_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    skew_verbs.show(made(feature(), feature("spent", compared=0)))
    assert capsys.readouterr().err.splitlines()[-1] == "? UNKNOWN: nothing of spent could be compared"


@pytest.mark.parametrize(("counted", "code"), [(feature(), 0), (feature(differs=1), 4), (feature(compared=0), 4)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_only_evidence_ends_with_0(counted: FeatureSkew, code: int, options: list[str]) -> None:
    app = mock.Mock(skew=mock.Mock(return_value=made(counted, values=(VALUE,))))
    with mock.patch("leftfold.open", return_value=app):
        done = CliRunner().invoke(cli, ["skew", "fraud", "--sample", "100", *options])
    assert done.exit_code == code, done.output
    app.skew.assert_called_once_with("fraud", start=None, end=None, sample=100, most=20)
    if options:
        assert '"verdict": ' in done.stdout


def test_a_range_without_a_length_is_refused() -> None:
    done = CliRunner().invoke(cli, ["skew", "fraud", "--from", "2026-03-01", "--to", "2026-03-01"])
    assert done.exit_code == 2
