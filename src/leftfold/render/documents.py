"""Writes manifests as YAML, into one stream or one file each. The same declarations give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from leftfold.errors import ProjectError

Manifest = dict[str, Any]


def as_yaml(manifests: Iterable[Manifest]) -> str:
    import yaml

    options = {"sort_keys": False, "default_flow_style": False, "allow_unicode": True, "width": 1_000_000}
    return "".join(f"---\n{yaml.dump(one, Dumper=_dumper(), **options)}" for one in manifests)


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the library ships no types
        """Writes a text of several lines as a block of these lines."""

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper


def file_name(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}.yaml"


def write(manifests: Sequence[Manifest], directory: Path, *, force: bool) -> tuple[list[Path], list[Path]]:
    """Write one file for each manifest. Return the written files, and other YAML files found there, which stay as is.

    A file with other content may have been edited by a user. Without `force`, such a file is an error, and nothing at
    all is written.
    """
    texts = {directory / file_name(one): as_yaml([one]) for one in manifests}
    differing = [path for path, text in texts.items() if path.exists() and path.read_text(encoding="utf-8") != text]
    if differing and not force:
        others = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise ProjectError(
            "manifest-differs",
            f"{differing[0]}{others} would be overwritten with other content",
            why="a person may have edited it",
            fix="compare it with what is rendered without --out, then write over it with --force",
        )
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts), sorted(set(directory.glob("*.yaml")) - set(texts))
