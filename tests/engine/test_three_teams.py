"""examples/three_teams, with the commands of its README executed as they are written."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.test_tutorial import Shell

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_teams"
README = EXAMPLE / "README.md"
NAMESPACE = f"t{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    root = tmp_path / "three_teams"
    shutil.copytree(EXAMPLE, root)
    projects.name_engines(root, cluster.endpoints, NAMESPACE)
    shell = Shell(root)
    try:
        yield shell
    finally:
        shell.close()


def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    guides.check_read(README)
