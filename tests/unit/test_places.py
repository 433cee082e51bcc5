"""Which file systems may hold what commits: the list is short, and what is not on it is refused."""

from __future__ import annotations

import pytest

import leftfold as lf
from leftfold.errors import LeftfoldError
from leftfold.places import check_checkpoints, check_lake, scheme_of
from tests.unit.conftest import TOML, MakeProject

S3 = "spark.delta.logStore.s3a.impl"


@pytest.mark.parametrize(
    "location", ["/shared/c", "relative/c", "file:/c", "file:///c", "hdfs://names/c", "HDFS://n/c"]
)
def test_where_a_rename_is_a_rename(location: str) -> None:
    scheme = scheme_of(location, {})
    check_checkpoints(location, scheme)
    check_lake(location, scheme, {})


@pytest.mark.parametrize(
    "scheme", ["s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs", "o3fs"]
)
def test_object_stores_hold_no_checkpoints(scheme: str) -> None:
    with pytest.raises(LeftfoldError) as caught:
        check_checkpoints(f"{scheme}://bucket/c", scheme_of(f"{scheme}://bucket/c", {}))
    assert caught.value.code == "checkpoint-not-fenced"


def test_the_default_file_system_is_that_of_a_path() -> None:
    assert scheme_of("/c", {"spark.hadoop.fs.defaultFS": "s3a://bucket"}) == "s3a"
    assert scheme_of("file:/c", {"spark.hadoop.fs.defaultFS": "s3a://bucket"}) == "file"


@pytest.mark.parametrize("scheme", ["gs", "abfss", "wasbs"])
def test_delta_keeps_commits_apart_there(scheme: str) -> None:
    check_lake(f"{scheme}://bucket/lake", scheme, {})


@pytest.mark.parametrize("scheme", ["s3a", "s3", "oss"])
def test_and_not_there(scheme: str) -> None:
    with pytest.raises(LeftfoldError) as caught:
        check_lake(f"{scheme}://bucket/lake", scheme, {})
    assert caught.value.code == "lake-not-fenced"


def test_a_log_store_for_several_drivers() -> None:
    check_lake("s3a://lake", "s3a", {S3: "io.delta.storage.S3DynamoDBLogStore"})
    with pytest.raises(LeftfoldError):
        check_lake("s3a://lake", "s3a", {S3: "io.delta.storage.S3SingleDriverLogStore"})


@pytest.mark.parametrize("verb", ["supervisor", "rebuild"])
def test_nothing_is_started_there(make_project: MakeProject, verb: str) -> None:
    """Before any engine is asked for: there is none here."""
    app = lf.open(make_project(TOML + '[profile.p]\ncheckpoints = "s3a://bucket/c"\n'), profile="p")
    with pytest.raises(LeftfoldError) as caught:
        app.supervisor() if verb == "supervisor" else app.rebuild("user_activity")
    assert caught.value.code == "checkpoint-not-fenced"
