"""docs/reference/conformance.json is what the code makes, and our own reader obeys it.

`LEFTFOLD_GOLDEN=write pytest tests/unit/test_conformance.py` writes it anew; read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from leftfold.errors import StoreError
from leftfold.store.layout import definition_in
from tests.unit.conformance import CASES, document, read_back
from tests.unit.store.held import HeldStore

FILE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.json"
if os.environ.get("LEFTFOLD_GOLDEN") == "write":
    FILE.write_text(document(), encoding="utf-8")
KEPT: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_file_is_what_the_code_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == document()


def test_most_rows_are_packed_too() -> None:
    assert sum("held_packed" in case for case in KEPT["cases"]) > len(CASES) / 3


def test_every_case_is_another() -> None:
    names = [case["name"] for case in KEPT["cases"]]
    assert len(set(names)) == len(names) == len(CASES)


def test_every_aggregate_is_in_it() -> None:
    definitions = [view["definition"] for view in KEPT["views"].values()]
    aggregates = {column["aggregate"] for d in definitions for column in d["columns"] if isinstance(column, dict)}
    assert aggregates == {"count", "sum", "min", "max", "last", "last_n", "distinct"}


@pytest.mark.parametrize(
    ("case", "held"),
    [(case, held) for case in KEPT["cases"] for held in ("held", "held_packed") if held in case],
    ids=lambda given: given if isinstance(given, str) else given["name"],
)
def test_our_reader_obeys_it(case: dict[str, Any], held: str) -> None:
    """Only what stands in the file is used, as by a reader in another language."""
    store = HeldStore()
    definition = definition_in(KEPT["views"][case["view"]])
    row = {name: bytes.fromhex(text) if name == "packed" else text.encode() for name, text in case[held].items()}
    store.publish(definition, {case["entity"]: row}, newest=case["newest"])
    if "refused" in case:
        with pytest.raises(StoreError) as caught:
            store.reader().read(case["view"], [case["key"]], case["at"])
        assert caught.value.code == case["refused"]
        return
    (read,) = store.reader().read(case["view"], [case["key"]], case["at"])
    expected = {name: read_back(value) for name, value in case["expected"].items()}
    assert repr(read.values) == repr(expected)
    assert read.found == case["found"]
