"""docs/reference/conformance.json in a real store of either engine: our reader makes of each row what the file says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from leftfold.errors import StoreError
from leftfold.store.engine import BuildPlace, MoveMark
from leftfold.store.layout import Build, definition_in, manifest
from leftfold.store.opening import open_store
from tests.engine import stores
from tests.unit.conformance import read_back
from tests.unit.store.held import ReaderThen
from tests.unit.test_conformance import KEPT

CASES = [(case, held) for case in KEPT["cases"] for held in ("held", "held_packed") if held in case]


def test_every_case(online_url: str) -> None:
    inside = stores.inside(online_url)
    with open_store(online_url) as store:
        for case, held in CASES:
            namespace = uuid.uuid4().hex
            build = Build(definition_in(KEPT["views"][case["view"]]), "generation")
            at = BuildPlace(namespace, case["view"], build.id)
            store.announce(at, manifest(build))
            store.move(at, MoveMark(3, True, 0, None, case["newest"], {}), [])
            row = case[held].items()
            packed = {name.encode(): bytes.fromhex(t) if name == "packed" else t.encode() for name, t in row}
            inside.fill(at, case["entity"], packed)
            check(ReaderThen(online_url, namespace), case, f"{case['name']}, {held}")


def check(reader: ReaderThen, case: dict[str, Any], name: str) -> None:
    if "refused" in case:
        with pytest.raises(StoreError) as caught:
            reader.read(case["view"], [case["key"]], case["at"])
        assert caught.value.code == case["refused"], name
        return
    (read,) = reader.read(case["view"], [case["key"]], case["at"])
    expected = {feature: read_back(value) for feature, value in case["expected"].items()}
    assert repr(read.values) == repr(expected), name
    assert read.found == case["found"], name
