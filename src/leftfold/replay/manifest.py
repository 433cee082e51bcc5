"""The manifest of a replay to files: a small JSON file with what the replay read and what its files hold.

It is enough to make the replay again, and to compare the two.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from leftfold.errors import RunError
from leftfold.offsets import Ranges
from leftfold.places import local_path
from leftfold.run.deployment import Deployment

FILE = "manifest.json"
UNFINISHED = ".unfinished-"  # in the name of a directory that a replay writes to, until it is whole
VERSION = 1
Format = Literal["parquet", "jsonl"]


@dataclass(frozen=True)
class Manifest:
    topic: str  # as declared
    name: str  # in the cluster
    topic_id: str
    ranges: Ranges
    schema_ids: tuple[int, ...]  # schemas that the records were read with, or could have been
    rejected_ids: tuple[int, ...]  # ids in records that the registry never gave out
    columns: dict[str, str]  # by name: the type, as Spark writes it
    format: Format
    records: int
    outcomes: dict[str, int]
    digest: str  # digest of all rows, independent of their order
    made_at: str

    def as_json(self) -> dict[str, Any]:
        plain = {**asdict(self), "ranges": self.ranges.as_json()}
        return {"version": VERSION, **plain}

    def as_text(self) -> str:
        return json.dumps(self.as_json(), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, directory: str) -> Manifest:
        try:
            document = json.loads(text)
            if document.pop("version") != VERSION:
                raise ValueError(document)
            document["ranges"] = Ranges.from_json(document["ranges"])
            for name in ("schema_ids", "rejected_ids"):
                document[name] = tuple(document[name])
            return cls(**document)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise not_a_replay(directory, f"its {FILE} is none of this version of Leftfold") from error


def not_a_replay(directory: str, why: str) -> RunError:
    return RunError(
        "not-a-replay",
        f"{directory} is not a finished replay",
        why=why,
        fix="name a directory that leftfold replay --out has made",
    )


def read_manifest(directory: str, deployment: Deployment) -> Manifest:
    path = local_path(directory, deployment.profile.spark.conf)
    if path is None:
        from leftfold.spark import files

        text = files.read_text(deployment.session(), f"{directory}/{FILE}")
    else:
        text = (path / FILE).read_text() if (path / FILE).is_file() else None
    if text is None:
        raise not_a_replay(directory, f"it has no {FILE}, which is written last")
    return Manifest.parse(text, directory)
