"""A frame scored by a model: rows of a training set, with the answers of a scorer next to each.

The features are those of a training set, from the same frozen offsets. The model is the live one of the scorer, called
by the same function that answers requests. A process that dies while it writes leaves files without a manifest; these
do not count as a scored frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold.declare.scorer import Scorer
from leftfold.errors import DeclarationError
from leftfold.spark.quality.scored import ProjectPlace, Score, scoring, sent, with_answers
from leftfold.spark.session import on_this_machine
from leftfold.spark.training.assemble import check_free, digest_of, written
from leftfold.training.sets import TrainingSet

if TYPE_CHECKING:
    from leftfold.spark.session import DataFrame

# A file next to those of a scored frame. Spark and pandas skip a name with an underscore when they read a directory.
MANIFEST = "_scored_frame.json"
MODEL, MODEL_VERSION = "model", "version"
_MOMENT = "leftfold moment"  # of each row, on its way to the model


class Shipping:
    """The function that scores, and the files that it needs if executors are on other machines."""

    def __init__(self, score: Score, root: Path, files: Sequence[Path], archives: Path) -> None:
        self.score = score
        self.root = root
        self.files = files
        self.archives = archives  # a directory for the archives that are sent

    def place(self, session: Any, *, here: bool) -> ProjectPlace:
        return ProjectPlace(str(self.root)) if here else sent(session, self.root, self.files, self.archives)


class ScoredFrame:
    """Rows with the answers of a scorer. `frame` has the columns of a training set, the answers, `model` and `version`.

    Use it in a `with` block, or call `release()`: Spark keeps the records that the features were made from.
    """

    def __init__(
        self,
        rows: TrainingSet,
        scorer: Scorer[Any, Any],
        answers: Sequence[tuple[str, str, bool]],
        model: tuple[str, str],
        shipping: Shipping,
    ) -> None:
        self.scorer = scorer
        self.model, self.version = model
        self._rows = rows
        self._answers = answers
        self._shipping = shipping

    @property
    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame, in no particular order. A row without a moment has no answer."""
        return self._frame

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, in the memory of this process."""
        with scoring(self.scorer.name, self.scorer.source):
            return self.frame.toPandas()

    def write(self, directory: str) -> dict[str, Any]:
        """Write Parquet files to a new directory, with a manifest of model and features. Return the manifest."""
        check_free(self._rows.session, directory, what="a scored frame")
        with scoring(self.scorer.name, self.scorer.source):
            return written(self.frame, directory, self._described, MANIFEST)

    def digest(self) -> str:
        """Return a digest of all rows and values, independent of their order. Equal frames have equal digests."""
        with scoring(self.scorer.name, self.scorer.source):
            return digest_of(self.frame)

    def release(self) -> None:
        """Let Spark forget the records that the features were made from."""
        self.__dict__.pop("_frame", None)
        self._rows.release()

    def __enter__(self) -> ScoredFrame:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @cached_property
    def _frame(self) -> DataFrame:
        names = [name for name, _, _ in self._answers]
        for name in self._rows.label_names:
            if name in (*names, MODEL, MODEL_VERSION):
                added = ", ".join([*names, MODEL, MODEL_VERSION])
                raise DeclarationError(
                    "label-column-taken",
                    f"the labels have a column {name}, and so has what {self.scorer.name} answers",
                    why=f"a scored frame has {added} beside the columns of the labels, each name once",
                    fix=f"rename {name} in the labels, for example to label_{name}, or drop it: labels.drop({name!r})",
                )
        rows = self._rows.frame_with_moment(_MOMENT)
        session = rows.sparkSession
        return with_answers(
            rows,
            self._shipping.score,
            self._shipping.place(session, here=on_this_machine(str(session.sparkContext.master))),
            names=self.scorer.vector.__leftfold_names__,
            answers=self._answers,
            constants={MODEL: self.model, MODEL_VERSION: self.version},
        )

    def _described(self, stored: DataFrame) -> dict[str, Any]:
        return {
            **self._rows.described(stored),
            "scorer": self.scorer.name,
            "answers": [name for name, _, _ in self._answers],
            "model": self.model,
            "model_version": self.version,
        }
