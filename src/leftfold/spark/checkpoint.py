"""Checkpoints, wherever they are: a local directory or any file system that Spark can write to."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from leftfold import clock
from leftfold.errors import RunError
from leftfold.offsets import Offsets
from leftfold.spark.cutover import FrozenHistory, Past
from leftfold.spark.files import read_text, remove, write_text

# Leftfold's own files in a checkpoint, and the suffix of the directory that is renamed to the checkpoint.
_PAST = "leftfold-past.json"
_FROZEN = "leftfold-frozen.json"
_RECEIPTS = "leftfold-receipts.json"
_BESIDE = ".rebuild"


@dataclass(frozen=True)
class CheckpointState:
    """The progress of a checkpoint."""

    id: str
    committed: int  # the last batch that Spark counts as done; -1 if none
    planned: int  # the last batch whose offsets are stored: the same, or one more, which runs again


def standing(session: SparkSession, checkpoint: str) -> CheckpointState | None:
    """The progress of a checkpoint; None if there is no checkpoint yet."""
    files, path = _place(session, f"{checkpoint}/metadata")
    if not files.exists(path):
        return None
    return CheckpointState(
        json.loads(_text(session, f"{checkpoint}/metadata"))["id"],
        _last(session, f"{checkpoint}/commits"),
        _last(session, f"{checkpoint}/offsets"),
    )


def past_in(session: SparkSession, checkpoint: str) -> Past | None:
    """The part of the build that a scan of history made; None if the stream made all of it."""
    files, path = _place(session, f"{checkpoint}/{_PAST}")
    return Past.from_text(_text(session, f"{checkpoint}/{_PAST}")) if files.exists(path) else None


def frozen_in(session: SparkSession, checkpoint: str) -> FrozenHistory | None:
    """The bounds of a scan of history that was begun and not finished; None if there is none."""
    files, path = _place(session, f"{checkpoint}{_BESIDE}/{_FROZEN}")
    text = _text(session, f"{checkpoint}{_BESIDE}/{_FROZEN}") if files.exists(path) else ""
    try:
        return FrozenHistory.from_json(json.loads(text))
    except ValueError:  # there is none, or a crash cut it short: then nothing was done with it
        return None


def freeze(session: SparkSession, checkpoint: str, frozen: FrozenHistory) -> None:
    """Store the bounds of a scan that is about to begin, next to the later checkpoint: a run does not look there."""
    drop_frozen(session, checkpoint)
    _write(session, f"{checkpoint}{_BESIDE}/{_FROZEN}", json.dumps(frozen.as_json()))


def drop_frozen(session: SparkSession, checkpoint: str) -> None:
    files, path = _place(session, f"{checkpoint}{_BESIDE}")
    files.delete(path, True)


def create(session: SparkSession, checkpoint: str, id: str, past: Past | None = None) -> None:
    """Make a checkpoint without a batch, with an id that is known before Spark starts.

    One rename puts it in place: there is all of it, or nothing.
    """
    beside = f"{checkpoint}{_BESIDE}"
    if past is not None:
        _write(session, f"{beside}/{_PAST}", past.as_text())
    _write(session, f"{beside}/metadata", json.dumps({"id": id}))
    files, path = _place(session, beside)
    if not files.rename(path, _place(session, checkpoint)[1]):
        raise RunError(
            "checkpoint-not-made",
            f"{beside} cannot be renamed to {checkpoint}",
            why="something is there already, or the file system refuses it",
            state="all rows of history are written; the build has no checkpoint, so no run continues with it",
            fix=f"delete or rename {checkpoint}, then run the same command again",
        )


@dataclass(frozen=True)
class ReceiptsBookmark:
    """The place from which a start reads the receipts of the checkpoint's build. A hint: its reader verifies it.

    So a crash between removing the old bookmark and writing the new one does no harm, and neither does a damaged file.
    """

    session: SparkSession
    checkpoint: str

    def read(self) -> str | None:
        try:
            return read_text(self.session, self._place)
        except Py4JError:
            return None

    def write(self, text: str) -> None:
        with suppress(Py4JError):
            remove(self.session, self._place)
            write_text(self.session, self._place, text)

    @property
    def _place(self) -> str:
        return f"{self.checkpoint}/{_RECEIPTS}"


def _last(session: SparkSession, directory: str) -> int:
    files, path = _place(session, directory)
    if not files.exists(path):
        return -1
    names = [str(status.getPath().getName()) for status in files.listStatus(path)]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def batch_offsets(session: SparkSession, checkpoint: str, batch: int) -> Offsets:
    """The end offsets of a batch in each partition. Spark stored them before it started the batch.

    Batch -1 ends where the first one starts.
    """
    file = f"{checkpoint}/offsets/{batch}" if batch >= 0 else f"{checkpoint}/sources/0/0"
    offsets = json.loads(_text(session, file).splitlines()[-1])  # a version, settings, and the one source
    return {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in offsets.items()}


def drop_foreign_snapshots(session: SparkSession, checkpoint: str, committed: int) -> None:
    """Remove snapshots of state that no committed batch made. A run that died or was overtaken has left them.

    Spark deletes all files that are older than a snapshot, whoever made it. Then it lacks the state that the committed
    batches build on. Removing a snapshot loses nothing: Spark reads the snapshot before it, and the changes since.
    """
    files, pattern = _place(session, f"{checkpoint}/state/*/*/*_*.zip")
    valid: dict[int, Any] = {}  # by version: ids of the state that a committed batch made, by operator and partition
    for status in files.globStatus(pattern) or ():
        path = status.getPath()
        version, _, id = str(path.getName()).removesuffix(".zip").partition("_")
        partition, operator = int(path.getParent().getName()), str(path.getParent().getParent().getName())
        number = int(version)
        if number not in valid:
            valid[number] = _state_ids(session, checkpoint, number - 1) if number - 1 <= committed else {}
        ids = valid[number]  # None: the commit is so old that it is gone; an earlier start removed foreign ones
        if ids is not None and id not in ids.get(operator, {}).get(partition, ()):
            files.delete(path, False)
            files.delete(path.suffix(".crc"), False)


def _state_ids(session: SparkSession, checkpoint: str, batch: int) -> dict[str, dict[int, list[str]]] | None:
    files, path = _place(session, f"{checkpoint}/commits/{batch}")
    if not files.exists(path):
        return None
    commit = json.loads(_text(session, f"{checkpoint}/commits/{batch}").splitlines()[-1])
    return {operator: dict(enumerate(ids)) for operator, ids in commit.get("stateUniqueIds", {}).items()}


def set_aside(session: SparkSession, checkpoint: str) -> str | None:
    """Rename a checkpoint so that the next start makes a new one. Return its new name, or None if there was none."""
    files, path = _place(session, checkpoint)
    if not files.exists(path):
        return None
    aside = f"{checkpoint}.{clock.now_us()}"
    files.rename(path, _place(session, aside)[1])
    return aside


def _write(session: SparkSession, file: str, text: str) -> None:
    files, path = _place(session, file)
    stream = files.create(path, True)
    _jvm(session).org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
    stream.close()


def _text(session: SparkSession, file: str) -> str:
    files, path = _place(session, file)
    stream = files.open(path)
    text: str = _jvm(session).org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    stream.close()
    return text


def _place(session: SparkSession, location: str) -> tuple[Any, Any]:
    """Hadoop's file system and path for a location."""
    path = _jvm(session).org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()), path


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm
