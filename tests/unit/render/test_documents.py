"""Manifests as YAML, and as files that nobody's edits are lost in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from leftfold.errors import ProjectError
from leftfold.render.documents import as_yaml, file_name, write


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    "value",
    ["false", "2", "on", "1e3", "-1", "", "null", "0.0.0.0:9464", "a: b", "# no", "é", "a\nb\n", "a \n b", "'", "~"],
)
def test_text_stays_text(value: str) -> None:
    assert yaml.safe_load(as_yaml([manifest("a", value=value)]))["spec"] == {"value": value}


def test_keys_keep_their_order_and_lines_their_shape() -> None:
    text = as_yaml([manifest("a", z=1, conf="one 1\ntwo 2\n"), manifest("b")])
    assert text == (
        "---\napiVersion: v1\nkind: Thing\nmetadata:\n  name: a\nspec:\n  z: 1\n  conf: |\n    one 1\n    two 2\n"
        "---\napiVersion: v1\nkind: Thing\nmetadata:\n  name: b\nspec: {}\n"
    )


def test_nothing_is_an_empty_stream() -> None:
    assert as_yaml([]) == ""


def test_one_file_each(tmp_path: Path) -> None:
    made = [manifest("a"), manifest("b.c")]
    written, others = write(made, tmp_path / "k8s", force=False)
    assert [path.name for path in written] == ["thing-a.yaml", "thing-b.c.yaml"] == [file_name(one) for one in made]
    assert others == []
    assert yaml.safe_load((tmp_path / "k8s" / "thing-a.yaml").read_text()) == made[0]


def test_an_edited_file_is_not_lost(tmp_path: Path) -> None:
    write([manifest("a"), manifest("b")], tmp_path, force=False)
    edited = tmp_path / "thing-b.yaml"
    edited.write_text("edited")
    (tmp_path / "thing-a.yaml").unlink()
    with pytest.raises(ProjectError) as caught:
        write([manifest("a"), manifest("b")], tmp_path, force=False)
    assert caught.value.code == "manifest-differs"
    assert str(edited) in caught.value.what
    assert (edited.read_text(), (tmp_path / "thing-a.yaml").exists()) == ("edited", False)  # nothing was written
    write([manifest("a"), manifest("b")], tmp_path, force=True)
    assert edited.read_text() != "edited"


def test_the_same_may_be_written_again(tmp_path: Path) -> None:
    assert write([manifest("a")], tmp_path, force=False) == write([manifest("a")], tmp_path, force=False)


def test_what_is_no_longer_rendered_is_told_and_left(tmp_path: Path) -> None:
    write([manifest("a"), manifest("b")], tmp_path, force=False)
    (tmp_path / "README.md").write_text("mine")
    assert write([manifest("a")], tmp_path, force=False)[1] == [tmp_path / "thing-b.yaml"]
