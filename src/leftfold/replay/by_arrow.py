"""A replay to files that this process makes without Spark. What it cannot do raises `OnlySparkError`."""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leftfold.arrow import OnlySparkError
from leftfold.arrow.decode import WriterSchemas
from leftfold.arrow.rows import RowContent, read_rows, schema_of, sql_types
from leftfold.offsets import Ranges
from leftfold.replay.manifest import FILE, UNFINISHED, Format, Manifest
from leftfold.run.deployment import Deployment, TopicPlace


class ArrowReplay:
    """A frozen range of one topic. The ids in `rejected` have no schema; None if the registry is asked for all."""

    def __init__(
        self, place: TopicPlace, ranges: Ranges, deployment: Deployment, *, rejected: tuple[int, ...] | None = None
    ) -> None:
        self._place = place
        self._ranges = {r.partition: (r.start, r.end) for r in ranges}
        self._deployment = deployment
        ask = deployment.engines.registry.schema if rejected is None else None  # else a manifest names all ids
        self.schemas = WriterSchemas(place.schemas, ask)
        self.schemas.rejected.update(rejected or ())

    def write(
        self,
        directory: Path,
        format: Format,
        described: Callable[[RowContent, dict[str, str], ArrowReplay], Manifest],
        watch: Callable[[int, int], None],
    ) -> Manifest:
        """Write the records and the manifest to a new directory, which appears in one rename."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        for left in directory.parent.glob(f"{directory.name}{UNFINISHED}*"):
            shutil.rmtree(left)
        beside = directory.with_name(f"{directory.name}{UNFINISHED}{uuid.uuid4().hex[:8]}")
        records = beside / "records"
        records.mkdir(parents=True)
        try:
            written = self._to_parquet if format == "parquet" else self._to_json
            content, columns = written(records, watch)
            manifest = described(content, columns, self)
            (beside / FILE).write_text(manifest.as_text())
            beside.rename(directory)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return manifest

    def content(self, watch: Callable[[int, int], None]) -> tuple[RowContent, dict[str, str]]:
        """Read the records, and summarize them."""
        content = RowContent()
        for batch in self._batches(watch):
            content.add(batch)
        return content, sql_types(schema_of(self._place.topic))

    def _to_parquet(self, records: Path, watch: Callable[[int, int], None]) -> tuple[RowContent, dict[str, str]]:
        schema, content = schema_of(self._place.topic), RowContent()
        with pq.ParquetWriter(records / "part-00000.parquet", schema) as file:
            for batch in self._batches(watch):
                file.write_batch(batch)
                content.add(batch)
        return content, sql_types(schema)

    def _to_json(self, records: Path, watch: Callable[[int, int], None]) -> tuple[RowContent, dict[str, str]]:
        schema, content = schema_of(self._place.topic), RowContent()
        with (records / "part-00000.json").open("w") as file:
            for batch in self._batches(watch):
                content.add(batch)
                for row in _plain(batch):
                    kept = {name: _in_json(value) for name, value in row.items() if value is not None}
                    file.write(json.dumps(kept, separators=(",", ":"), ensure_ascii=False) + "\n")
        return content, sql_types(schema)

    def _batches(self, watch: Callable[[int, int], None]) -> Iterator[pa.RecordBatch]:
        place, engines = self._place, self._deployment.engines
        total = sum(end - start for start, end in self._ranges.values())
        yield from read_rows(
            place.topic, place.name, self._ranges, engines.kafka, self.schemas, lambda done: watch(done, total)
        )
        firsts = engines.admin.start_offsets(place.name, place.partitions)
        if any(start < min(firsts[p], end) for p, (start, end) in self._ranges.items()):
            raise OnlySparkError("the log deleted records before they were read")


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:  # of a record that is not valid
        raise OnlySparkError("a record has a moment that Python does not have") from error
    return rows


def _in_json(value: Any) -> Any:
    """Moments in ISO 8601 and bytes in base64, as Spark writes them."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [_in_json(one) for one in value] if isinstance(value, list) else value
