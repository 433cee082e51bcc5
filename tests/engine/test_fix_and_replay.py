"""docs/guide/fix-and-replay.md, executed as it is written, with the project of examples/fix_and_replay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides
from tests.engine.conftest import Cluster
from tests.engine.pages import DOCS, Shell, check_read

GUIDE = DOCS / "guide" / "fix-and-replay.md"
NAMESPACE = f"f{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.example("fix_and_replay", tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


@pytest.mark.nightly
def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(GUIDE, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_guide_is_read() -> None:
    check_read(GUIDE)
