"""A local cluster for one bench, with a project applied to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

import leftfold
from bench.pairs import note
from leftfold.cli.declare_verbs import init
from leftfold.local import cluster


@contextmanager
def project(root: Path, streams: str) -> Iterator[leftfold.App]:
    """A project with the given declarations, applied to a cluster of three brokers."""
    (root / "streams.py").write_text(streams)
    (root / "leftfold.toml").write_text('[project]\nname = "bench"\ndeclarations = ["streams.py"]\n')
    try:
        yield _applied(root)
    finally:
        cluster.down(root)


def _applied(root: Path) -> leftfold.App:
    cluster.up(root, brokers=3, progress=note)
    app = leftfold.open(root)
    for step in app.apply(app.plan()):
        note(str(step))
    return app


@contextmanager
def shop() -> Iterator[leftfold.App]:
    """The project that `leftfold init` makes, applied to a cluster of three brokers."""
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory:
        root = Path(directory) / "shop"
        made = CliRunner().invoke(init, [str(root)])
        assert made.exit_code == 0, made.output
        try:
            yield _applied(root)
        finally:
            cluster.down(root)
