"""Puts values into Feast's online store. Runs with Feast's Python. Usage: python store.py REPOSITORY VALUES.json REDIS.

VALUES.json holds, for each view, its key, and a list of rows: the key's value and the features.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Array, Float64, Int64, String

CONFIG = """\
project: bench
registry: registry.db
provider: local
online_store:
  type: redis
  connection_string: "{redis}"
offline_store:
  type: file
entity_key_serialization_version: 3
"""


def kind(values: list[Any]) -> Any:
    known = next(value for value in values if value is not None and value != [])
    return {int: Int64, float: Float64, str: String, list: Array(String)}[type(known)]


def main(repository: Path, values: Path, redis: str) -> None:
    (repository / "feature_store.yaml").write_text(CONFIG.format(redis=redis))
    store, now = FeatureStore(str(repository)), datetime.now(UTC)
    views = []
    for name, (key, rows) in json.loads(values.read_text()).items():
        pd.DataFrame(rows).assign(at=now).to_parquet(repository / f"{name}.parquet")
        entity = Entity(name=key, join_keys=[key], value_type=ValueType.STRING)
        view = FeatureView(
            name=name,
            entities=[entity],
            schema=[Field(name=f, dtype=kind([row[f] for row in rows])) for f in rows[0] if f != key],
            source=FileSource(path=str(repository / f"{name}.parquet"), timestamp_field="at"),
            ttl=timedelta(days=30),
        )
        store.apply([entity, view])
        views.append(view)
    store.apply([FeatureService(name="both", features=views)])
    for view in views:
        store.write_to_online_store(view.name, pd.read_parquet(repository / f"{view.name}.parquet"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
