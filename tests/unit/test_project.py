from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

import leftfold as lf
from leftfold.errors import DeclarationError, LeftfoldError, LocalError, ProjectError
from leftfold.fold.definition import Definition
from leftfold.observe.observation import ObservedStore
from leftfold.project import find_root
from leftfold.store.engine import MemoryInUse
from tests import clusters
from tests.unit.conftest import STREAMS, TOML, MakeProject


def wrong(root: Path) -> LeftfoldError:
    with pytest.raises(LeftfoldError) as caught:
        _ = lf.open(root).catalog
    return caught.value


# Finding and reading ------------------------------------------------------------------------------------------------


def test_the_nearest_project_upwards(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project()
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_root() == root.resolve()
    assert lf.open().root == root.resolve()
    assert lf.open(str(root)).name == "shop"


@pytest.mark.parametrize(
    ("owner", "user", "sudo", "taken"),
    [
        (1001, 1001, None, True),
        (0, 1001, None, True),  # an image's files are root's
        (1002, 1001, None, False),
        (1002, 0, None, False),
        (1002, 0, "1002", True),
        (1002, 1001, "1002", False),  # anybody can set a variable
    ],
)
def test_a_project_above_must_be_ones_own(
    owner: int,
    user: int,
    sudo: str | None,
    taken: bool,
    make_project: MakeProject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = make_project().resolve()
    below = root / "a"
    below.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr(Path, "lstat", lambda _: SimpleNamespace(st_uid=owner))
    monkeypatch.delenv("SUDO_UID", raising=False)
    if sudo is not None:
        monkeypatch.setenv("SUDO_UID", sudo)
    assert find_root(root) == root  # it was chosen
    if taken:
        assert find_root(below) == root
    else:
        with pytest.raises(ProjectError) as refused:
            find_root(below)
        assert refused.value.code == "project-not-yours"


def test_a_link_to_ones_own_file_is_not_ones_own(make_project: MakeProject, tmp_path: Path) -> None:
    """In a directory that all may write to, somebody may link to a file of yours, beside Python of theirs."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a link to another user")
    mine = make_project()
    shared = tmp_path / "shared"
    (shared / "below").mkdir(parents=True)
    (shared / "leftfold.toml").symlink_to(mine / "leftfold.toml")
    os.lchown(shared / "leftfold.toml", 12_345, -1)
    with pytest.raises(ProjectError) as refused:
        find_root(shared / "below")
    assert refused.value.code == "project-not-yours"


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        lf.open(tmp_path)
    assert caught.value.code == "no-project"
    assert str(tmp_path) in caught.value.what


@pytest.mark.parametrize(
    ("toml", "code"),
    [
        ("[project\n", "bad-toml"),
        ("name = shop\n", "bad-toml"),
        ("", "bad-project"),
        ('project = "shop"\n', "bad-project"),
        ('[project]\nname = "shop"\n', "bad-project"),
        ("[project]\ndeclarations = []\n", "bad-project"),
        ("[project]\nname = 3\ndeclarations = []\n", "bad-project"),
        ('[project]\nname = "shop"\ndeclarations = "streams.py"\n', "bad-project"),
        ('[project]\nname = "shop"\ndeclarations = []\ncolour = "red"\n', "bad-project"),
        ('[project]\nname = "shop"\ndeclarations = []\n[profiles.prod]\n', "bad-project"),
        ('[project]\nname = "shop"\ndeclarations = [1]\n', "bad-project"),
    ],
)
def test_a_wrong_file(make_project: MakeProject, toml: str, code: str) -> None:
    assert wrong(make_project(toml)).code == code


def test_a_file_that_is_not_utf8(make_project: MakeProject) -> None:
    root = make_project()
    (root / "leftfold.toml").write_bytes(TOML.encode() + b"# caf\xe9\n")
    assert wrong(root).code == "bad-toml"


def test_a_project_of_nothing(make_project: MakeProject) -> None:
    catalog = lf.open(make_project('[project]\nname = "shop"\ndeclarations = []\n')).catalog
    assert (catalog.topics, catalog.views) == ({}, {})


# Declarations -------------------------------------------------------------------------------------------------------


def test_declarations_are_loaded(make_project: MakeProject) -> None:
    app = lf.open(make_project())
    assert (list(app.catalog.topics), list(app.catalog.views)) == (["clicks"], ["user_activity"])
    assert app.problems == []
    assert str(app.catalog.topics["clicks"].source) == "streams.py:13"
    assert str(app.catalog.views["user_activity"].source) == "streams.py:16"


def test_opening_loads_no_declaration(make_project: MakeProject) -> None:
    app = lf.open(make_project(files={"streams.py": "raise SystemError('loaded')"}))
    assert app.profile.name == "local"


def test_a_second_load_sees_the_same(make_project: MakeProject) -> None:
    root = make_project()
    first, second = lf.open(root).catalog, lf.open(root).catalog
    assert list(first.views) == list(second.views)
    prints = {c.views["user_activity"].fingerprint for c in (first, second)}
    assert len(prints) == 1


def test_a_second_load_sees_an_edit(make_project: MakeProject) -> None:
    first = lf.open(make_project()).catalog
    edited = STREAMS.replace('"1h"', '"12h"')
    second = lf.open(make_project(files={"streams.py": edited})).catalog
    definitions = [c.views["user_activity"].definition for c in (first, second)]
    windows = [d.windowed[0].window for d in definitions if isinstance(d, Definition)]
    assert windows == [3_600_000_000, 12 * 3_600_000_000]


TWO = '[project]\nname = "shop"\ndeclarations = ["events.py", "views.py"]\n'
EVENTS, VIEWS = STREAMS.split("\n\nclass UserActivity", 1)


def test_files_import_each_other(make_project: MakeProject) -> None:
    views = f"import leftfold as lf\nfrom events import Click, clicks\n\n\nclass UserActivity{VIEWS}"
    for order in (TWO, TWO.replace('"events.py", "views.py"', '"views.py", "events.py"')):
        catalog = lf.open(make_project(order, {"events.py": EVENTS, "views.py": views})).catalog
        assert (list(catalog.topics), list(catalog.views)) == (["clicks"], ["user_activity"])


def test_the_path_is_left_as_it_was(make_project: MakeProject) -> None:
    before = list(sys.path)
    root = make_project()
    _ = lf.open(root).catalog
    (root / "streams.py").write_text("1 / 0")
    wrong(root)
    assert sys.path == before


def test_a_file_that_is_not_there(make_project: MakeProject) -> None:
    error = wrong(make_project(files={}))
    assert error.code == "no-declarations"
    assert "streams.py" in error.what


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        ("import leftfold as lf\n\nx = 1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("import leftfold as lf\n\n\nclass X(:\n", 4, "SyntaxError"),
        ("import nonsense_that_is_not_there\n", 1, "ModuleNotFoundError"),
        ("def f():\n    raise ValueError('deep')\n\n\nf()\n", 2, "ValueError: deep"),
    ],
)
def test_code_that_fails_is_blamed_on_its_line(make_project: MakeProject, code: str, line: int, what: str) -> None:
    error = wrong(make_project(files={"streams.py": code}))
    assert isinstance(error, DeclarationError)
    assert error.code == "declarations-failed"
    assert what in error.what
    assert str(error.source) == f"streams.py:{line}"


@pytest.mark.parametrize("code", ["import sys\nsys.exit(3)\n", "raise KeyboardInterrupt\n"])
def test_a_failed_file_leaves_no_half_made_module(make_project: MakeProject, code: str) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt, LeftfoldError)):
        _ = lf.open(make_project(files={"streams.py": code})).catalog
    assert "streams" not in sys.modules


def test_every_problem_is_there_and_the_first_is_raised(make_project: MakeProject) -> None:
    twice = STREAMS + '\nlf.Topic("clicks", Click, key=Click.user_id, time=Click.at)\n' * 2
    app = lf.open(make_project(files={"streams.py": twice}))
    assert [p.code for p in app.problems] == ["duplicate-topic"] * 2
    with pytest.raises(DeclarationError) as caught:
        _ = app.catalog
    assert caught.value is app.problems[0]


def test_a_view_of_a_topic_that_nobody_lists_is_a_problem(make_project: MakeProject, tmp_path: Path) -> None:
    """Else `check` says nothing is wrong, and `apply` never creates the topic."""
    (tmp_path / "elsewhere_streams.py").write_text(EVENTS)
    views = (
        f"import sys\nsys.path.append({str(tmp_path)!r})\nimport leftfold as lf\n"
        "import importlib\nfrom leftfold.declare.collector import collecting\n"
        "with collecting():\n    from elsewhere_streams import Click, clicks\n\n\n"
        f"class UserActivity{VIEWS}"
    )
    try:
        app = lf.open(make_project(files={"streams.py": views}))
        assert app.problems or "clicks" in app.catalog.topics
    finally:
        sys.path[:] = [p for p in sys.path if p != str(tmp_path)]
        sys.modules.pop("elsewhere_streams", None)


PACKAGE = {
    "__init__.py": "",
    "topics.py": EVENTS,
    "views.py": f"import leftfold as lf\nfrom .topics import Click, clicks\n\n\nclass UserActivity{VIEWS}",
    "everything.py": "from . import views",
}


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """An importable package with declarations, which is no part of a project."""
    home = tmp_path / "packages" / "a_shop"
    home.mkdir(parents=True)
    for name, text in PACKAGE.items():
        (home / name).write_text(text)
    sys.path.insert(0, str(home.parent))
    yield home
    sys.path.remove(str(home.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_shop"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("before", [(), ("a_shop.topics",), ("a_shop.views",), ("a_shop.everything",)])
@pytest.mark.parametrize(
    "line", ["import a_shop.everything", "from a_shop import everything", "from a_shop.views import *"]
)
def test_a_package_is_taken_in_whoever_imported_it_before(
    make_project: MakeProject, before: tuple[str, ...], line: str
) -> None:
    for name in before:
        importlib.import_module(name)
    for _ in range(2):  # a second load finds all of them imported
        catalog = lf.open(make_project(files={"streams.py": f"{line}\n"})).catalog
        assert (list(catalog.topics), list(catalog.views)) == (["clicks"], ["user_activity"])


@pytest.mark.usefixtures("package")
def test_a_package_that_nobody_imports_is_not_taken_in(make_project: MakeProject) -> None:
    importlib.import_module("a_shop.everything")
    assert not lf.open(make_project(files={"streams.py": "import leftfold as lf\n"})).catalog.topics


def test_a_file_that_is_also_imported_by_another_name_is_not_lost(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_project()
    first = lf.open(root).catalog
    monkeypatch.setitem(sys.modules, "the_same_file", sys.modules["streams"])
    os.utime(root / "streams.py", ns=(1, 1))  # it seems to have changed, so it is loaded once more
    assert list(lf.open(root).catalog.views) == list(first.views) == ["user_activity"]


# A script beside its declarations -----------------------------------------------------------------------------------


def _script(root: Path, body: str) -> str:
    (root / "score.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "score.py"], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_script_that_imports_its_declarations_shares_them_with_the_app(make_project: MakeProject) -> None:
    """`from streams import Click` and app.producer("clicks").send(Click(...)): one Click, not two."""
    body = (
        "import leftfold as lf\nfrom streams import Click, UserActivity\n"
        "app = lf.open()\n"
        "view = app.catalog.views['user_activity']\n"
        "print(app.catalog.topics['clicks'].event is Click, view.definition is UserActivity.__leftfold_definition__)\n"
    )
    assert _script(make_project(), body) == "True True"


def test_a_script_stays_main(make_project: MakeProject) -> None:
    """pickle and multiprocessing look it up."""
    body = "import sys\nimport leftfold as lf\n_ = lf.open().catalog\nprint('__main__' in sys.modules)\n"
    assert _script(make_project(), body) == "True"


def test_libraries_inside_the_project_directory_stay_loaded(make_project: MakeProject) -> None:
    """A virtual environment may have any name; unloading pydantic or leftfold itself would make a second copy of it."""
    root = make_project()
    packages = root / "env" / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "some_library.py").write_text("")
    body = (
        f"import sys\nsys.path.append({str(packages)!r})\nimport some_library\nimport leftfold as lf\n"
        "_ = lf.open().catalog\nprint(sys.modules.get('some_library') is some_library)\n"
    )
    assert _script(root, body) == "True"


# Where things are ---------------------------------------------------------------------------------------------------


def test_places(make_project: MakeProject) -> None:
    root = make_project(TOML + '[profile.p]\ncheckpoints = "s3a://c"\n').resolve()
    app = lf.open(root)
    assert app.checkpoints == str(root / ".leftfold" / "local" / "checkpoints")
    assert app.log_directory == root / ".leftfold" / "logs"
    assert lf.open(root, profile="p").checkpoints == "s3a://c"
    assert not (root / ".leftfold").exists()  # nothing was made by looking


def test_without_a_cluster_it_says_how_to_start_one(make_project: MakeProject) -> None:
    app = lf.open(make_project())
    for ask in (lambda: app.kafka, lambda: app.registry, lambda: app.online):
        with pytest.raises(LocalError) as caught:
            ask()
        assert (caught.value.code, caught.value.fix) == ("cluster-down", "leftfold up")


def test_engines_of_a_profile_need_no_cluster(make_project: MakeProject) -> None:
    engines = 'kafka = { bootstrap = "b:1" }\nregistry = { url = "http://r" }\nonline = { url = "redis://o" }\n'
    toml = f"{TOML}[profile.p]\n{engines}"
    app = lf.open(make_project(toml), profile="p")
    assert (app.kafka.bootstrap, app.registry.url, app.online.url.get_secret_value()) == (
        "b:1",
        "http://r",
        "redis://o",
    )


def test_a_read_of_a_moment_without_a_time_zone_is_refused(make_project: MakeProject) -> None:
    engines = 'kafka = { bootstrap = "b:1" }\nregistry = { url = "http://r" }\nonline = { url = "redis://o" }\n'
    app = lf.open(make_project(f"{TOML}[profile.local]\n{engines}"))
    asks: list[Callable[[datetime], object]] = [
        lambda at: app.get("user_activity", user_id="u", at=at),
        lambda at: app.get_many("user_activity", [{"user_id": "u"}], at=at),
        lambda at: asyncio.run(app.aget("user_activity", user_id="u", at=at)),
        lambda at: asyncio.run(app.aget_many("user_activity", [{"user_id": "u"}], at=at)),
    ]
    for ask in asks:
        with pytest.raises(DeclarationError) as caught:
            ask(datetime(2026, 1, 5, 12))
        assert caught.value.code == "naive-datetime"


# Looking ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "seen"),
    [(MemoryInUse(7, 9, "noeviction"), ObservedStore(7, 9, "noeviction")), (None, None)],
    ids=["told", "hidden"],
)
def test_the_memory_of_the_store_is_looked_at(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, told: MemoryInUse | None, seen: ObservedStore | None
) -> None:
    engines = 'kafka = { bootstrap = "b:1" }\nregistry = { url = "http://r" }\nonline = { url = "redis://o" }\n'
    app = lf.open(make_project(f"{TOML}[profile.local]\n{engines}"))
    monkeypatch.setattr("leftfold.store.builds.followed_builds", lambda *_: iter(()))
    monkeypatch.setattr("leftfold.store.builds.stored_builds", lambda *_: iter(()))
    monkeypatch.setattr("leftfold.store.memory.memory_in_use", {"redis://o": told}.__getitem__)
    monkeypatch.setattr("leftfold.observe.observation.observe_cluster", lambda *_: clusters.seen_cluster())
    registry = mock.Mock()
    registry.versions.return_value = {}
    app.log = (mock.Mock(), registry)
    assert app.observe().store == seen
