"""Verdicts on schemas against the registry itself: made-up histories and changes, each really registered or refused."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

from leftfold.declare.compatibility import verdict
from leftfold.declare.topic_options import COMPATIBILITIES
from leftfold.errors import LogError
from leftfold.kafka.registry import SchemaRegistry
from leftfold.settings import Registry
from tests.engine.conftest import Cluster
from tests.engine.schema_changes import cases

CASES = 200


def accepted(registry: SchemaRegistry, old: list[str], new: str, level: str) -> bool:
    """Whether the registry takes it: not asked, but tried."""
    subject = f"verdict-{uuid.uuid4().hex[:12]}-value"
    for number, schema in enumerate(old):
        registry.register(subject, schema)
        if number == 0:
            registry.set_compatibility(subject, "NONE")  # how the history came about is not the question
    registry.set_compatibility(subject, level)
    assert (registry.compatibility(subject) or "NONE") == level
    try:
        registry.register(subject, new)
    except LogError as refused:
        # A field that is two fields at once is not judged at all: the registry cannot process it.
        if refused.code not in ("schema-incompatible", "registry-refused"):
            raise
        return False
    return True


def test_200_of_200(cluster: Cluster, capsys: Any) -> None:
    registry = SchemaRegistry(Registry(url=cluster.endpoints.registry_url))
    wrong, seen = [], Counter[tuple[str, bool]]()
    kinds: Counter[str] = Counter()
    for change, old, new, level in cases(CASES, seed=6):
        mine, real = verdict(old, new, level), accepted(registry, old, new, level)
        seen[level, real] += 1
        kinds.update({b.kind for b in mine.breaks})
        if mine.compatible != real:
            wrong.append(f"{change} under {level}: the registry says {real}, {mine}\n  {old}\n  {new}")
    assert not wrong, f"{len(wrong)} of {CASES} differ:\n" + "\n".join(wrong[:5])
    # Both answers under every level that can refuse, and every reason there is: else the numbers would mean little.
    assert {level for level in COMPATIBILITIES if seen[level, False]} == {*COMPATIBILITIES} - {"NONE"}
    assert all(seen[level, True] for level in COMPATIBILITIES)
    assert set(kinds) == {"missing", "type", "branch", "symbols", "size", "name", "ambiguous"}
    with capsys.disabled():
        refused = sum(n for (_, real), n in seen.items() if not real)
        print(f"\n    {CASES} of {CASES} verdicts equal the registry's: {refused} refused, by {dict(kinds)}")


def of(kind: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]})


def test_what_a_registry_takes_and_the_verdict_warns_of(cluster: Cluster) -> None:
    """Avro's specification wants decimals of one scale; of the others it says nothing."""
    registry = SchemaRegistry(Registry(url=cluster.endpoints.registry_url))
    cents, mills = ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": s} for s in (2, 3))
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    nothing = json.dumps({"type": "record", "name": "R", "fields": []})
    for old, new in (
        ([of(cents)], of(mills)),
        ([of("long")], of(moment)),
        ([of(moment)], of({**moment, "logicalType": "timestamp-millis"})),
        ([nothing, of("string", default="EUR")], of("string", default="USD")),
    ):
        made = verdict(old, new, "FULL_TRANSITIVE")
        assert accepted(registry, old, new, "FULL_TRANSITIVE")
        assert made.compatible
        assert len(made.silent) == 1, str(made)
