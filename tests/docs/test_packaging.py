"""The package of docs/operate/packaging.md: its declarations are one catalog, whoever imports them first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "packaging.md"
FILES = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))
LOOK = "print(*app.catalog.topics, *app.catalog.views, app.catalog.topics['clicks'].event is Click)"
OPEN = "import leftfold as lf; app = lf.open('shop_events')"


@pytest.fixture
def packaged(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "shop_events" / "__init__.py").touch()
    return tmp_path


def python(at: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    secrets = dict.fromkeys(("KAFKA", "KAFKA_USER", "KAFKA_PASSWORD"), "x")
    urls = {"REGISTRY_URL": "http://registry", "REDIS_URL": "redis://redis"}
    path = os.pathsep.join((str(at), *filter(None, sys.path)))
    environment = {**os.environ, **secrets, **urls, "PYTHONPATH": path}
    called = [sys.executable, *arguments]
    return subprocess.run(called, cwd=at, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_page_has_its_files() -> None:
    assert set(FILES) == {
        *(f"shop_events/{name}" for name in ("clicks.py", "features.py", "declared.py", "leftfold.toml")),
        *("pyproject.toml", "service.py"),
    }


@pytest.mark.parametrize(
    "code",
    [
        f"from shop_events.clicks import Click; {OPEN}; {LOOK}",
        f"from shop_events.features import Click; {OPEN}; {LOOK}",
        f"{OPEN}; app.catalog; from shop_events.clicks import Click; {LOOK}",
        f"from service import Click, app; {LOOK}",
    ],
)
def test_every_order_of_imports_gives_the_same_catalog(packaged: Path, code: str) -> None:
    done = python(packaged, "-c", code)
    assert (done.stdout, done.stderr) == ("clicks user_activity True\n", "")


def test_the_command_line_finds_it(packaged: Path) -> None:
    done = python(packaged, "-m", "leftfold", "-C", "shop_events", "check")
    assert done.returncode == 0, done.stderr


def test_without_the_first_file_it_would_be_declared_twice(packaged: Path) -> None:
    project = packaged / "shop_events" / "leftfold.toml"
    project.write_text(project.read_text().replace('"declared.py", ', ""))
    done = python(packaged, "-m", "leftfold", "-C", "shop_events", "check")
    assert "duplicate-topic" in done.stderr


def test_a_project_of_its_own_takes_the_package(packaged: Path) -> None:
    mine = packaged / "notify"
    mine.mkdir()
    (mine / "shop.py").write_text("import shop_events.declared\n")
    (mine / "leftfold.toml").write_text('[project]\nname = "notify"\ndeclarations = ["shop.py"]\n')
    done = python(packaged, "-m", "leftfold", "-C", "notify", "check", "--json")
    assert '"clicks"' in done.stdout
    assert '"user_activity"' in done.stdout
