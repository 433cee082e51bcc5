"""examples/three_teams, with the commands of its README executed as they are written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides
from tests.engine.conftest import Cluster
from tests.engine.pages import Shell, check_read

README = guides.EXAMPLES / "three_teams" / "README.md"
NAMESPACE = f"t{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.example("three_teams", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.nightly
def test_readme(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(README, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_readme_is_read() -> None:
    check_read(README)
