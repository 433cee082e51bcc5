"""What a person reads, of every hazard: here or word by word in the test that provokes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from leftfold.hazards.hazard import Hazard
from leftfold.hazards.rules import CODES
from leftfold.hazards.sizes import RULES as OF_SIZES
from tests.unit.hazards import test_cluster as cluster
from tests.unit.hazards import test_sampled as sampled
from tests.unit.hazards import test_sizes as sizes

GOLDEN = Path(__file__).parents[2] / "golden" / "hazards.txt"
WRITE = os.environ.get("LEFTFOLD_GOLDEN") == "write"


def provoked() -> Iterator[tuple[str, Hazard]]:
    for case, (make, _) in cluster.PROVOKED.items():
        yield from ((case, hazard) for hazard in cluster.hazards(make()))
    for case, (records, topic, rates, _) in sampled.PROVOKED.items():
        catalog = sampled.NOTHING if topic is None else sampled.catalog_of(topic)
        yield from ((case, hazard) for hazard in sampled.hazards(sampled.sample_of(records, topic, rates), catalog))
    for load, code, _, _ in sizes.PROVOKED:
        found = (hazard for rule in OF_SIZES for hazard in rule(sizes.sized(**load)))
        yield from ((f"a load: {code}", hazard) for hazard in found if hazard.code == code)


def text_of(hazard: Hazard) -> str:
    """Without the line of the declaration, which moves with every edit of a test."""
    return str(hazard).replace(f"   ({hazard.source})", "") if hazard.source else str(hazard)


def test_texts() -> None:
    text = "".join(f"# {case}\n{text_of(hazard)}\n\n" for case, hazard in provoked())
    if WRITE:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_every_hazard_has_a_text() -> None:
    here = {hazard.code for _, hazard in provoked()}
    others = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert {code for code in CODES if code not in here and f"[{code}]" not in others} == set()
