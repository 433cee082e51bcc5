"""docs/guide/evolution.md, executed as it is written, in a project on the shared cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides
from tests.engine.conftest import Cluster
from tests.engine.pages import DOCS, Shell, check_read, patched

GUIDE = DOCS / "guide" / "evolution.md"
NAMESPACE = f"g{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    with guides.shop(tmp_path, cluster.endpoints, NAMESPACE) as shell:
        yield shell


# The longest guide. CI has the verdicts behind it (test_schema_verdicts.py, test_state_verdicts.py), not its commands.
@pytest.mark.nightly
def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(GUIDE, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_guide_is_read() -> None:
    check_read(GUIDE)
    assert patched("a\nb\nc\n", " a\n-b\n+x\n+y\n") == "a\nx\ny\nc\n"
    with pytest.raises(AssertionError, match="not there"):
        patched("a\n", "-b\n")
