"""Pages of the API reference: which public name stands where. mkdocstrings fills in signatures and docstrings."""

from __future__ import annotations

import inspect

import leftfold
from leftfold import api

OVERVIEW = "reference/api.md"
APP = "reference/api/app.md"

NAMES: dict[str, tuple[str, ...]] = {
    "Events and topics": ("Event", "Personal", "Topic"),
    "Features and views": (
        *("Features", "Feature", "count", "sum", "mean", "min", "max", "last", "last_n", "distinct"),
        *("Table", "latest", "Stream", "stream", "View", "view", "Vector", "request", "Row", "Provenance"),
    ),
    "Stores": ("Online", "Changelog", "Lake"),
    "Consumers": (
        *("Consumer", "consumer", "Record", "Batch", "Retry", "MostDead", "NotNow", "Unprocessable"),
        *("Sql", "SqlConnection"),
    ),
    "Models and predictions": (
        *("Prediction", "Predictions", "Scorer", "scorer", "each", "Rows", "Canary"),
        *("Model", "ModelFile", "MLflow", "Onnx", "OnnxModel", "Remote", "RemoteModel"),
        *("Outcome", "Label", "happened", "delay"),
    ),
    "Exceptions": (
        *("LeftfoldError", "DeclarationError", "ProjectError", "LocalError", "LogError", "DeliveryError"),
        *("StoreError", "RunError"),
    ),
}

VERBS: dict[str, tuple[str, ...]] = {
    "Plan and apply": (
        *("observe", "plan", "apply", "inspect", "adopt", "render", "probe", "constants"),
        *("describe", "connections"),
    ),
    "Send and read the log": ("send", "producer", "topics", "groups", "read", "rejects"),
    "Consume": ("consume", "crew", "consumer_status", "dead", "position", "pause", "resume"),
    "Run views": ("run", "supervisor", "status", "view_status", "wait", "why"),
    "Serve features": ("get", "get_many", "aget", "aget_many", "reader"),
    "Score": ("score", "score_many", "score_frame", "ascore", "scoring", "serving", "unlogged", "close"),
    "Judge predictions": ("outcomes", "append_outcomes", "evaluate", "drift", "skew"),
    "Train": ("training_set", "training_set_again"),
    "Replay and archive": ("replay", "copy", "archive"),
    "Rebuild and promote": ("rebuild", "compare", "promote", "rollback", "standings"),
    "Settings and places": (
        *("catalog", "problems", "kafka", "registry", "online", "spark", "log"),
        *("state", "log_directory", "checkpoints", "lake"),
    ),
}


def app_members() -> set[str]:
    """Every public method and property of App."""
    return {name for name in vars(leftfold.App) if not name.startswith("_")}


def missing() -> tuple[set[str], set[str]]:
    """Public names without a place here or places without a name, and the same of App's members."""
    names = {name for group in NAMES.values() for name in group} | {"open", "App"}
    members = {name for group in VERBS.values() for name in group}
    return names ^ set(api.__all__), members ^ app_members()


def place_of(name: str) -> str:
    """The page and anchor of a public name."""
    group = next((group for group, names in NAMES.items() if name in names), None)
    return f"{page(group) if group else APP}#leftfold.{name}"


def pages() -> dict[str, str]:
    """The overview, the page of App by verb group, and a page for each group of names."""
    unplaced = missing()
    if any(unplaced):
        raise ValueError(f"docs/website/api_pages.py and the code differ: {unplaced}")
    app = "# `open` and `App`\n\n" + _entry("open", 2) + _entry("App", 2, "members: false")
    for group, names in VERBS.items():
        app += f"\n## {group}\n\n" + "".join(_entry(f"App.{name}", 3) for name in names)
    groups = {
        page(group): f"# {group}\n\n" + "".join(_entry(name, 2) for name in names) for group, names in NAMES.items()
    }
    return {OVERVIEW: _overview(), APP: app, **groups}


def page(group: str) -> str:
    return f"reference/api/{group.lower().replace(' ', '-')}.md"


def _entry(name: str, level: int, *options: str) -> str:
    lines = ["::: leftfold." + name, "    options:", f"      heading_level: {level}", *(f"      {o}" for o in options)]
    return "\n".join(lines) + "\n\n"


def _overview() -> str:
    parts = [
        "# Python API\n\nEverything is `import leftfold as lf`. What declarations mean is in "
        "[declarations](declarations.md); this is each name with its signature.\n"
    ]
    for group, names in {"The project": ("open", "App"), **NAMES}.items():
        parts.append(f"\n## {group}\n\n| name | what |\n|---|---|\n")
        parts += [f"| [`{name}`]({place_of(name).removeprefix('reference/')}) | {_first(name)} |\n" for name in names]
    parts.append("\n## Methods of App\n\n| what | methods |\n|---|---|\n")
    for group, names in VERBS.items():
        linked = ", ".join(f"[`{name}`](api/app.md#leftfold.App.{name})" for name in names)
        parts.append(f"| {group} | {linked} |\n")
    return "".join(parts)


def _first(name: str) -> str:
    """The first sentence of the docstring."""
    text = inspect.getdoc(getattr(leftfold, name)) or ""
    return text.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".").replace("|", r"\|")
