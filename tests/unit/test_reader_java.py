"""The reader in Java, which was written from docs/reference/protocol.md, gives what conformance.json expects."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.java_reader import EXAMPLE, JavaReader, library_jars
from tests.unit import conformance
from tests.unit.conformance import AT, VIEWS, Case, D, Event, H, M, S, click

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "conformance.json"
TEXTS = (None, "", "a", "b", 'é"\\', "a\0b", "\U0001f600")
NUMBERS = (None, 0.0, -0.0, 0.1, -2.5, 1e10, 1e300, 5e-324, 123456789.125)
INTEGERS = (None, 0, 3, -7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> JavaReader:
    return JavaReader(tmp_path_factory.mktemp("classes"))


def plain(value: Any) -> Any:
    """A value of the document as the reader prints it: a datetime is a number."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value["micros"] if isinstance(value, dict) else value


def differences(java: JavaReader, document: Path) -> list[str]:
    """Rows of which the reader gives other values than the document expects."""
    cases = json.loads(document.read_text())["cases"]
    rows = [(case, held) for case in cases for held in ("held", "held_packed") if held in case]
    wrong = []
    for (case, held), read in zip(rows, java.of_document(document), strict=True):
        if "refused" in case:
            expected: dict[str, Any] = {"refused": case["refused"]}
        else:
            values = {name: plain(value) for name, value in case["expected"].items()}
            expected = {"found": case["found"], "values": values}
        got = {name: read.get(name) for name in expected}
        if repr(got) != repr(expected):  # repr: 1 is not 1.0, and 0.0 is not -0.0
            wrong.append(f"{case['name']}, {held}: {got}, not {expected}")
    return wrong


def test_it_reads_every_case(java: JavaReader) -> None:
    assert differences(java, DOCUMENT) == []


def test_a_wrong_expectation_is_noticed(java: JavaReader, tmp_path: Path) -> None:
    """Each case is made wrong by as little as possible, and the document has no case that nobody reads."""
    document = json.loads(DOCUMENT.read_text())
    rows = sum("held" in case for case in document["cases"]) + sum("held_packed" in case for case in document["cases"])
    document["cases"] = [another(case) for case in document["cases"]]
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    assert len(differences(java, tmp_path / "wrong.json")) == rows > len(conformance.CASES)


def another(case: dict[str, Any]) -> dict[str, Any]:
    """The case with one other expectation: a float's last bit, an int by 1, a text's sign, or an answer not refused."""
    if "refused" in case:
        return {**case, "refused": "another"}
    name, value = next((n, v) for n, v in reversed(case["expected"].items()) if v not in (None, []))
    other = math.nextafter(value, math.inf) if isinstance(value, float) else [value]
    return {**case, "expected": {**case["expected"], name: other}}


def test_it_reads_rows_of_random_events(java: JavaReader, tmp_path: Path) -> None:
    chance = random.Random(20)
    cases = [_random_case(chance, number) for number in range(300)]
    document = conformance.document(cases)
    (tmp_path / "random.json").write_text(document)
    assert differences(java, tmp_path / "random.json") == []
    assert document.count('"held_packed"') > 100


def _random_case(chance: random.Random, number: int) -> Case:
    view = chance.choice([view for view in VIEWS if view is not conformance.Item])
    events = tuple(_random_click(chance) for _ in range(chance.choice((1, 5, 60))))
    return Case(f"random {number}", view, events, at=AT + chance.choice((0, 1, M, 30 * M, H)))


def _random_click(chance: random.Random) -> Event:
    return click(
        1 + int(chance.choice((S, 10 * M, H, 26 * H, 8 * D)) * chance.random()),
        price=chance.choice((*NUMBERS, round(chance.uniform(-100, 100), 2))),
        pieces=chance.choice(INTEGERS),
        item=chance.choice((*TEXTS, f"item {chance.randrange(100)}")),
        gift=chance.choice((None, True, False)),
        seen=chance.choice((None, 0, AT - 1)),
    )


def test_its_libraries_are_those_of_the_pom() -> None:
    """So what is tested is what the pom gives."""
    pom = ElementTree.parse(EXAMPLE / "pom.xml").getroot()
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    pinned = {
        (found.findtext("m:artifactId", None, space), found.findtext("m:version", None, space))
        for found in pom.iterfind("m:dependencies/m:dependency", space)
    }
    assert pinned == {tuple(jar.stem.rsplit("-", 1)) for jar in library_jars()} & pinned
    assert {name for name, _ in pinned} == {"jackson-databind", "datasketches-java"}


def test_it_is_short() -> None:
    """An example that nobody reads to its end shows nothing."""
    for source in EXAMPLE.glob("*.java"):
        lines = source.read_text().splitlines()
        assert len(lines) <= 250, source.name
        assert max(map(len, lines)) <= 120, source.name
