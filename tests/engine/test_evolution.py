"""docs/guide/evolution.md, executed as it is written, in a project on the shared cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import guides, projects
from tests.engine.conftest import Cluster
from tests.engine.test_tutorial import Shell, blocks

GUIDE = guides.DOCS / "guide" / "evolution.md"
NAMESPACE = f"g{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """In the shop of the tutorial, with a profile that names the shared cluster."""
    shell = Shell(tmp_path)
    try:
        assert shell.run("leftfold init shop && cd shop").code == 0
        projects.name_engines(shell.directory, cluster.endpoints, NAMESPACE)
        yield shell
    finally:
        shell.close()


def test_guide(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    guides.follow(GUIDE, shell, namespace=NAMESPACE, capsys=capsys)


def test_the_guide_is_read() -> None:
    """A block that the pattern misses would be a block that is never run."""
    assert len(blocks(GUIDE)) == len(re.findall(r"^```\w+$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert guides.patched("a\nb\nc\n", " a\n-b\n+x\n+y\n") == "a\nx\ny\nc\n"
    with pytest.raises(AssertionError, match="not there"):
        guides.patched("a\n", "-b\n")
