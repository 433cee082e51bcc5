"""Training sets: the features of a vector at the moment of each label (a point-in-time join).

Features are computed from the log, by the same definition as online. Nothing is read before rows are asked for. Then
offsets, schemas and builds are frozen, and written with the set, so that exactly the same set can be made again. A
process that dies while it writes leaves files without a manifest; these do not count as a training set.

A small set is made in this process, from Arrow tables. A large one is made by Spark, and so is one that only Spark can
make. Both give the same values, and the same digest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from leftfold.errors import ProjectError
from leftfold.fold.vector import VectorDefinition
from leftfold.run.choice import NO_ARROW, Choice, Engine, for_training, has_arrow, only_spark
from leftfold.run.deployment import Deployment
from leftfold.training.manifest import Basis, StoredRows, described, manifest_of
from leftfold.training.options import TrainingOptions, check_options
from leftfold.training.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

    from leftfold.spark.session import DataFrame, SparkSession
    from leftfold.training.by_arrow import ArrowSet
    from leftfold.training.by_spark import SparkSet


_WHAT = "this training set"


class TrainingSet:
    """A training set: one row for each label, with all columns of the labels and then the features.

    Use it in a `with` block, or call `release()`: what it was made from is kept in memory, or by Spark.
    """

    def __init__(
        self,
        labels: Any,
        vector: VectorDefinition,
        options: TrainingOptions,
        deployment: Deployment,
        *,
        frozen: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.vector = vector
        self.options = options
        self._given = labels
        self._deployment = deployment
        self._frozen = frozen
        self._wanted = engine
        self._views = {name: deployment.catalog.view(name) for name in vector.views}
        check_options(options, self._views)

    # For users -------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame, in no particular order."""
        return self._by_spark.frame()

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in the memory of this process."""
        by_arrow = self._by_arrow
        return self.frame.toArrow() if by_arrow is None else by_arrow.table()

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, in the memory of this process."""
        by_arrow = self._by_arrow
        return self.frame.toPandas() if by_arrow is None else by_arrow.table().to_pandas()

    def write(self, directory: str) -> dict[str, Any]:
        """Write Parquet files to a new directory, with a manifest of what they were made from. Return the manifest."""
        manifest = self._made_by.write(directory, self._described)
        _tag_mlflow(manifest, directory)
        return manifest

    @property
    def expected(self) -> str | None:
        """The digest that the set had when it was first made; None if this is not a repetition."""
        return None if self._frozen is None else str(self._frozen["digest"])

    def digest(self) -> str:
        """Return a digest of all rows and values, independent of their order. Equal sets have equal digests."""
        return self._made_by.digest()

    def report(self) -> Report:
        """Count missing values, labels beyond the history, and values that another rule of time would change."""
        from leftfold.arrow import OnlySparkError

        try:
            return self._made_by.report()
        except OnlySparkError as error:  # what was served is found out for the report alone
            self.__dict__["choice"] = only_spark(_WHAT, str(error), self._wanted)
            return self._made_by.report()

    @cached_property
    def choice(self) -> Choice:
        """The engine that makes the set, and why."""
        from leftfold.arrow import OnlySparkError

        if self._wanted == "spark" or "_spark_set" in self.__dict__:
            return Choice("spark", "it was asked for" if self._wanted else "rows were asked of Spark before")
        if not has_arrow():
            return only_spark(_WHAT, NO_ARROW, self._wanted)
        try:
            made = self._arrow_set
            made.check()
            records, labels = made.records, made.rows
        except OnlySparkError as error:
            return only_spark(_WHAT, str(error), self._wanted)
        if self._wanted == "arrow":
            return Choice("arrow", "it was asked for", records, labels)
        return for_training(records, labels)

    def release(self) -> None:
        """Forget the records that the set was made from. If rows are asked for later, they are read again."""
        for name in ("_spark_set", "_arrow_set", "choice"):
            made = self.__dict__.pop(name, None)
            if made is not None and name != "choice":
                made.release()

    def __enter__(self) -> TrainingSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # For those who add columns to the rows -------------------------------------------------------------------------

    def frame_with_moment(self, moment: str) -> DataFrame:
        """The rows, with one column more: the moment of each label, in µs."""
        return self._by_spark.frame(moment)

    def described(self, stored: DataFrame) -> dict[str, Any]:
        """Return the manifest of rows that were written with such columns beside them."""
        return self._described(self._by_spark.basis, self._by_spark.stored_rows(stored))

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._by_spark.label_names

    @property
    def session(self) -> SparkSession:
        return self._by_spark.session

    # The two ways -------------------------------------------------------------------------------------------------

    @property
    def _made_by(self) -> ArrowSet | SparkSet:
        return self._by_arrow or self._by_spark

    @property
    def _by_arrow(self) -> ArrowSet | None:
        """The way without Spark; None if Spark makes the set."""
        return self._arrow_set if self.choice.engine == "arrow" else None

    @property
    def _by_spark(self) -> SparkSet:
        """The way of Spark. If Arrow has made rows of this set already, it reads the same offsets."""
        return self._spark_set

    @cached_property
    def _arrow_set(self) -> ArrowSet:
        from leftfold.training.by_arrow import ArrowSet

        return ArrowSet(self._given, self.vector, self.options, self._deployment, frozen=self._frozen)

    @cached_property
    def _spark_set(self) -> SparkSet:
        from leftfold.training.by_spark import SparkSet

        made = self.__dict__.get("_arrow_set")
        positions = None if made is None or self._frozen is not None else made.positions or None
        return SparkSet(
            self._given, self.vector, self.options, self._deployment, frozen=self._frozen, positions=positions
        )

    def _described(self, basis: Basis, stored: StoredRows) -> dict[str, Any]:
        """Return the manifest. Kept are the distributions of features, of requests, and of what scorers answer."""
        scorers = self._deployment.catalog.scorers.values()
        answers = [name for scorer in scorers for name in scorer.prediction.__leftfold_answers__]
        profiled = list(dict.fromkeys([*self.vector.order, *answers]))
        return described(self.vector, self.options, self._views, profiled, basis, stored)


def again(directory: str, deployment: Deployment, *, engine: Engine | None = None) -> TrainingSet:
    """Return the training set of a directory, to be made again from the same offsets."""
    manifest = manifest_of(directory, deployment)
    vector = VectorDefinition.from_json(manifest["vector"])
    for name, frozen in manifest["views"].items():
        declared = deployment.catalog.view(name)
        if declared.fingerprint != frozen["fingerprint"]:
            columns = ", ".join(part.name for part in vector.parts if part.view == name)
            raise ProjectError(
                "definition-changed",
                f"{name} is declared differently from when {directory} was made",
                why=f"its fingerprint was {frozen['fingerprint']}, and is {declared.fingerprint} now: {columns} would "
                "have other values",
                fix="check out the declarations of that time, or make a new training set with another --out",
                source=declared.source,
            )
    options = TrainingOptions(**manifest["options"])
    return TrainingSet(directory, vector, options, deployment, frozen=manifest, engine=engine)


def _tag_mlflow(manifest: Mapping[str, Any], directory: str) -> None:
    """Tag the active MLflow run with the log positions that a model is trained from.

    Do nothing if no run is active. Then MLflow is not even imported, which takes a second.
    """
    mlflow = sys.modules.get("mlflow")
    if mlflow is None or mlflow.active_run() is None:
        return
    mlflow.set_tags(
        {
            "leftfold.training_set": directory,
            "leftfold.vector": manifest["vector"]["vector"],
            "leftfold.as_of": manifest["options"]["as_of"],
            "leftfold.rows": str(manifest["rows"]),
            "leftfold.digest": manifest["digest"],
            **{f"leftfold.view.{name}": view["fingerprint"] for name, view in manifest["views"].items()},
            **{
                f"leftfold.topic.{name}": ",".join(
                    f"{p}:{topic['starts'][p]}-{end}" for p, end in topic["ends"].items()
                )
                for name, topic in manifest["topics"].items()
            },
        }
    )
