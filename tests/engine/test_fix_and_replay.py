"""docs/guide/fix-and-replay.md, executed as it is written, with the project of examples/fix_and_replay."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.test_tutorial import Shell

EXAMPLE = Path(__file__).parents[2] / "examples" / "fix_and_replay"
GUIDE = guides.DOCS / "guide" / "fix-and-replay.md"
NAMESPACE = f"f{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    root = tmp_path / "fraud"
    shutil.copytree(EXAMPLE, root)
    projects.name_engines(root, cluster.endpoints, NAMESPACE)
    shell = Shell(root)
    try:
        yield shell
    finally:
        shell.close()


def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(GUIDE, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_guide_is_read() -> None:
    guides.check_read(GUIDE)
