"""What unit tests share: hypothesis settings, and a way to write a small project."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import configuration, settings

# No deadline: two cores are shared with whatever else runs. No example database: every run starts from nothing.
settings.register_profile("leftfold", database=None, deadline=None, max_examples=100)
settings.load_profile("leftfold")
configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / f"leftfold-hypothesis-{os.getuid()}")

STREAMS = """\
from datetime import datetime

import leftfold as lf


class Click(lf.Event):
    user_id: str
    item_id: str
    price: float
    at: datetime


clicks = lf.Topic("clicks", Click, key=Click.user_id, time=Click.at)


class UserActivity(lf.Features, of=clicks, by=Click.user_id):
    clicks_1h = lf.count("1h")
    spend_24h = lf.sum(Click.price, "24h")
"""
TOML = '[project]\nname = "shop"\ndeclarations = ["streams.py"]\n'

MakeProject = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_profile_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEFTFOLD_PROFILE", raising=False)


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """A project directory: `make_project(toml, **{"streams.py": text})`; without arguments, one that works."""

    def make(toml: str = TOML, files: dict[str, str] | None = None) -> Path:
        root = tmp_path / "shop"
        root.mkdir(exist_ok=True)
        (root / "leftfold.toml").write_text(toml)
        for name, text in (files if files is not None else {"streams.py": STREAMS}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    return make
