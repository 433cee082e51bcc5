"""Rows of a frame with the answers of a model. Python scores them, one call for each Arrow batch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leftfold import private
from leftfold.errors import LeftfoldError, RunError, SourceLine
from leftfold.kafka.failures import in_java

# A function of the project's directory, columns by name, and the moment of each row (µs). It returns a list for each
# answer, with times in µs.
Score = Callable[[str, Mapping[str, Any], Any], Mapping[str, Sequence[Any]]]
_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": LongType(),
    "float": DoubleType(),
    "bool": BooleanType(),
    "datetime": TimestampType(),
    "bytes": BinaryType(),
}
_SAYS = "leftfold-scoring:"
_SAID = re.compile(rf"{_SAYS} (.*)")


@dataclass(frozen=True)
class ProjectPlace:
    """The project as an executor finds it: a directory of this machine, or an archive that was sent."""

    directory: str
    archive: str | None = None

    def found(self) -> str:
        if self.archive is None:
            return self.directory
        archive = Path(SparkFiles.get(self.archive))
        into = archive.with_suffix("")
        if not into.is_dir():  # processes of an executor may do it at the same time: the rename is atomic
            temporary = Path(tempfile.mkdtemp(prefix="project-", dir=archive.parent))
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
            try:
                temporary.rename(into)
            except OSError:
                shutil.rmtree(temporary)
                if not into.is_dir():
                    raise
        return str(into)


def sent(session: SparkSession, root: Path, files: Sequence[Path], directory: Path) -> ProjectPlace:
    """Send files of the project to all executors, once for each content. The archive is kept in `directory`."""
    digest = hashlib.sha256()
    inside = {file.relative_to(root).as_posix(): file for file in sorted(set(files))}
    for name, file in inside.items():
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    archive = private.directory(directory) / f"project-{digest.hexdigest()[:16]}.tar"
    if not archive.exists():
        descriptor, temporary = tempfile.mkstemp(dir=directory, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as opened, tarfile.open(fileobj=opened, mode="w") as tar:
                for name, file in inside.items():
                    tar.add(file, arcname=name, recursive=False)
            Path(temporary).replace(archive)
        finally:
            Path(temporary).unlink(missing_ok=True)
    session.sparkContext.addFile(str(archive))
    return ProjectPlace(str(root), archive.name)


def with_answers(
    frame: DataFrame,
    score: Score,
    place: ProjectPlace,
    *,
    names: Sequence[str],
    answers: Sequence[tuple[str, str, bool]],
    constants: Mapping[str, str],
) -> DataFrame:
    """Add the answers for each row, and columns with the same text in each row.

    `names` are the columns that are scored. The last column of `frame` is the moment of a row, in µs. It is left out.
    A row without a moment is not scored: its answers, and the constants, are null. `answers` are names, kinds, and
    whether it is a list.
    """
    kept = frame.columns[:-1]
    made = [StructField(name, _type_of(kind, repeated=repeated)) for name, kind, repeated in answers]
    made += [StructField(name, StringType()) for name in constants]
    schema = StructType([*frame.schema.fields[:-1], *made])
    scoring = _Scoring(
        score,
        place,
        {name: kept.index(name) for name in names},
        tuple(name for name, _, _ in answers),
        tuple(constants.values()),
        tuple(made),
        len(kept),
    )
    return frame.mapInArrow(scoring, schema)


@dataclass(frozen=True)
class _Scoring:
    """Runs on executors."""

    score: Score
    place: ProjectPlace
    places: dict[str, int]  # of the columns that are scored
    answers: tuple[str, ...]
    constants: tuple[str, ...]
    made: tuple[StructField, ...]  # the columns of answers and constants
    kept: int  # columns

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        directory = self.place.found()
        for batch in batches:
            if batch.num_rows:
                yield self._scored(batch, directory)

    def _scored(self, batch: Any, directory: str) -> Any:
        import pyarrow as pa

        scored = batch
        moments = batch.column(self.kept)
        timed = moments.is_valid() if moments.null_count else None
        if timed is not None:
            scored = batch.filter(timed)
        found: Mapping[str, Sequence[Any]] = dict.fromkeys(self.answers, ())
        if scored.num_rows:
            columns = {name: scored.column(place) for name, place in self.places.items()}
            try:
                found = self.score(directory, columns, scored.column(self.kept))
            except LeftfoldError as error:
                raise RuntimeError(f"{_SAYS} {error.what}; {error.why}; {error.fix}") from error
            except Exception as error:  # a person's function may raise anything
                said = " ".join(f"{type(error).__name__}: {error}".split())
                raise RuntimeError(f"{_SAYS} {said}") from error
        lists = [found[name] for name in self.answers] + [[text] * scored.num_rows for text in self.constants]
        if timed is not None:
            held = timed.to_pylist()
            lists = [_spread(values, held) for values in lists]
        made = [pa.array(values, _arrow(field)) for field, values in zip(self.made, lists, strict=True)]
        names = [*batch.schema.names[: self.kept], *(field.name for field in self.made)]
        return pa.RecordBatch.from_arrays([*batch.columns[: self.kept], *made], names)


def _arrow(field: StructField) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(field.dataType)


def _spread(values: Sequence[Any], held: list[bool]) -> list[Any]:
    """Return the values at the places that are held, and None elsewhere."""
    rest = iter(values)
    return [next(rest) if one else None for one in held]


def _type_of(kind: str, *, repeated: bool) -> DataType:
    return ArrayType(_TYPES[kind]) if repeated else _TYPES[kind]


@contextmanager
def scoring(scorer: str, source: SourceLine) -> Iterator[None]:
    """Turn what executors raise into one error, which tells why the rows of a frame could not be scored."""
    try:
        yield
    except PySparkException as error:
        said = _SAID.search(str(error))
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise in_java(str(error)) or RunError(
            "frame-not-scored",
            f"a frame could not be scored by {scorer}",
            why=said[1].strip() if said else (lines or [type(error).__name__])[0][:300],
            state="no manifest was written; files that are there without one are not a scored frame",
            fix="correct the cause and run it again; the log of Spark has the whole trace",
            source=source,
        ) from error
