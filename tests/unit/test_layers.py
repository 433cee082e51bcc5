"""Imports go downward only, and each third-party library is fenced in one room. The two tables are the whole truth."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "leftfold"

# Which room may import which; a room may always import itself. Nobody may import cli.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "offsets": set(),
    "settings": set(),
    "places": {"errors"},
    "private": set(),
    "fold": {"errors"},
    "units": {"fold"},
    "class_archive": {"errors", "private"},
    "jars": {"errors", "private", "class_archive"},
    "metrics_server": {"errors", "settings"},
    "declare": {"errors", "clock", "fold"},
    "loading": {"errors", "declare"},
    "kafka": {"errors", "clock", "fold", "settings", "declare"},
    "store": {"errors", "clock", "fold", "declare"},
    "local": {"errors", "clock", "private", "class_archive", "jars"},
    "observe": {"errors", "clock", "fold", "units", "settings", "declare", "kafka", "store"},
    "sizing": {"errors", "private", "fold", "units", "declare", "kafka"},
    "hazards": {"errors", "fold", "units", "settings", "declare", "kafka", "observe", "sizing"},
    # store: builds, as they were observed.
    "plan": {
        *("errors", "clock", "private", "fold", "units", "settings", "declare", "kafka", "store"),
        *("observe", "sizing", "hazards"),
    },
    "consume": {"errors", "clock", "fold", "settings", "declare", "kafka"},
    # Stream scoring is a consumer, which the app puts together with the function that scores.
    "infer": {"errors", "clock", "private", "fold", "settings", "declare", "loading", "kafka", "store"},
    "adopt": {"errors", "fold", "settings", "declare", "kafka"},
    "spark": {
        *("errors", "places", "clock", "offsets", "private", "fold", "settings", "class_archive", "jars", "declare"),
        *("kafka", "store"),
    },
    # A probe applies a plan of its own, and measures the constants of the sizing model.
    "run": {
        *("errors", "places", "clock", "offsets", "private", "fold", "settings", "declare", "kafka", "store", "spark"),
        *("observe", "sizing", "plan"),
    },
    "arrow": {"offsets", "fold", "settings", "declare", "kafka"},
    "replay": {
        *("errors", "places", "clock", "offsets", "fold", "settings", "declare", "kafka", "spark", "run", "arrow"),
    },
    "rebuild": {
        *("errors", "places", "clock", "offsets", "fold", "declare", "kafka", "store", "spark", "run", "arrow"),
    },
    "training": {
        *("errors", "places", "clock", "offsets", "fold", "declare", "store", "spark", "run", "arrow"),
    },
    "quality": {
        *("errors", "clock", "offsets", "fold", "declare", "kafka", "store", "spark", "run"),
        *("replay", "training"),
    },
    "render": {"errors", "places", "settings", "declare", "plan"},
    "project": {"errors", "settings"},
    "app": {
        *("errors", "places", "clock", "offsets", "private", "fold", "settings", "declare", "loading"),
        *("kafka", "store", "local", "observe", "sizing", "hazards", "plan", "adopt", "render", "consume", "infer"),
        *("spark", "run", "replay", "rebuild", "training", "quality", "project"),
    },
    "notebook": {"fold", "declare"},
    "api": {"errors", "declare", "app"},  # the public names
    "leftfold": {"api", "notebook"},  # the root's __init__
    # kafka: the partitioner alone. The model of the log judges the rest of that room, and must not share its code.
    "testing": {
        *("errors", "fold", "settings", "declare", "kafka", "local", "observe", "plan", "spark", "run", "app"),
        "project",
    },
    "cli": {
        *("errors", "clock", "offsets", "private", "fold", "units", "settings", "declare"),
        *(
            "kafka",
            "store",
            "local",
            "observe",
            "hazards",
            "plan",
            "adopt",
            "render",
            "metrics_server",
            "consume",
            "infer",
            "run",
        ),
        *("replay", "rebuild", "quality", "project", "app", "leftfold"),
    },
    "__main__": {"cli"},
}

# Which rooms may import a library, anywhere in a file: at the top, in a function, for type checking. A room may have
# rooms of its own.
CONFINED: dict[str, set[str]] = {
    "pyspark": {"spark"},
    "py4j": {"spark"},
    "confluent_kafka": {"kafka"},
    "kafka": {"kafka"},
    "redis": {"store/redis"},
    "rich": {"cli"},
    "click": {"cli"},
    "pytest": {"testing"},
    "datasketches": {"fold"},
    "xxhash": {"kafka", "arrow"},
    "pyarrow": {"arrow", "infer", "replay", "spark", "training"},
    "psycopg": {"consume", "store/postgres"},
    "mlflow": {"infer"},
    "onnxruntime": {"infer"},
    "starlette": {"infer"},
    "uvicorn": {"infer"},
    "prometheus_client": {"metrics_server", "consume", "infer", "run"},
    "yaml": {"render"},
    "jsonschema": {"render"},
}

STORES = ("leftfold.store.redis", "leftfold.store.postgres")

# `template` holds a project of its own: the files that `init` copies.
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "template" not in path.relative_to(PACKAGE).parts]


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return "leftfold" if first == "__init__.py" else first.removesuffix(".py")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("leftfold", cache_dir=None)


def test_every_room_is_in_the_table() -> None:
    assert {_room_of(path) for path in SOURCES} == set(MAY_IMPORT)


def test_the_table_has_no_cycle() -> None:
    """So that "downward" means something: there is an order in which every room imports only what stands before it."""
    placed: set[str] = set()
    while len(placed) < len(MAY_IMPORT):
        ready = {room for room, below in MAY_IMPORT.items() if room not in placed and below <= placed}
        assert ready, f"these import each other: {sorted(set(MAY_IMPORT) - placed)}"
        placed |= ready


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_go_downward(graph: grimp.ImportGraph, room: str) -> None:
    own = [m for m in graph.modules if _room(m) == room and not m.startswith("leftfold.template")]
    assert own
    arrows = {(importer, found) for importer in own for found in graph.find_modules_directly_imported_by(importer)}
    upward = sorted(
        f"{importer} -> {found}" for importer, found in arrows if _room(found) not in {room, *MAY_IMPORT[room]}
    )
    assert upward == []
    assert {_room(found) for _, found in arrows} >= MAY_IMPORT[room], "the table allows what nobody needs"


def _libraries(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("library", sorted(CONFINED))
def test_library_is_confined(library: str) -> None:
    importers = {path.relative_to(PACKAGE).with_suffix("") for path in SOURCES if library in _libraries(path)}
    assert importers or library == "py4j", f"nobody imports {library}: take it out of the table"
    rooms = [Path(room) for room in CONFINED[library]]
    assert {file for file in importers if not any(file.is_relative_to(room) for room in rooms)} == set()
    assert all(any(file.is_relative_to(room) for file in importers) for room in rooms) or library == "py4j"


def test_one_place_chooses_the_engine_of_a_store(graph: grimp.ImportGraph) -> None:
    """All others know only the interface."""
    for engine in STORES:
        inside = {module for module in graph.modules if f"{module}.".startswith(f"{engine}.")}
        importers = {importer for module in inside for importer in graph.find_modules_that_directly_import(module)}
        assert importers - inside == {"leftfold.store.opening"}, engine


def test_the_scan_sees_imports_inside_functions(tmp_path: Path) -> None:
    source = tmp_path / "probe.py"
    source.write_text("def f():\n    if True:\n        from redis.client import Redis\n    import click as c\n")
    assert _libraries(source) == {"redis", "click"}


HEAVY = (
    "pyspark",
    "confluent_kafka",
    "redis",
    "psycopg",
    "fastavro",
    "pyarrow",
    "pandas",
    "datasketches",
    "numpy",
    "yaml",
    "jsonschema",
)


def _loaded_by(code: str) -> set[str]:
    """Which heavy libraries a fresh interpreter holds after running `code`."""
    tell = f"import sys; print(*[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    script = f"{code}\n{tell}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.splitlines()[-1].split()) if done.stderr.strip() else set()


def test_importing_leftfold_loads_no_engine() -> None:
    assert _loaded_by("import leftfold.api") == set()


def test_the_pytest_plugin_loads_no_engine() -> None:
    assert _loaded_by("import leftfold.testing.plugin") == set()


def test_help_loads_no_engine() -> None:
    code = (
        "import sys; sys.argv = ['leftfold', '--help']\n"
        "from leftfold.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert _loaded_by(code) == set()


def test_the_probe_would_notice() -> None:
    assert _loaded_by("import redis") == {"redis"}
