"""Every error a person can meet: its code has a cause here, its text stands in errors.txt, its meaning in the docs.

A code that is raised in several places, in other words, has other causes beside its first: "no-features/vector".

`LEFTFOLD_GOLDEN=write pytest tests/golden` writes errors.txt, docs/reference/errors.md and the file that
`leftfold explain` reads; read the diff.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from leftfold import errors
from leftfold.cli import explained
from leftfold.cli.main import cli
from leftfold.errors import LeftfoldError
from tests.golden.codes import PACKAGE, UnreadableError, error_classes, scan, unmatched

FILES = [import_module(f"tests.golden.{path.stem}").CAUSES for path in sorted(Path(__file__).parent.glob("causes*.py"))]
CAUSES = {name: cause for file in FILES for name, cause in file.items()}
CODES = {name.partition("/")[0] for name in CAUSES}
TEXTS = Path(__file__).with_name("errors.txt")
DOCS = PACKAGE.parents[1] / "docs" / "reference" / "errors.md"
HAZARDS = DOCS.with_name("hazards.md")
WRITE = os.environ.get("LEFTFOLD_GOLDEN") == "write"

# In the order in which a person meets them; the heading says what was being done.
KINDS: dict[type[LeftfoldError], str] = {
    errors.DeclarationError: "Declaring",
    errors.ProjectError: "The project",
    errors.LocalError: "The local cluster",
    errors.LogError: "Kafka and the registry",
    errors.StoreError: "The online store",
    errors.RunError: "Running",
}


@pytest.fixture(scope="session")
def raised() -> dict[str, Exception]:
    """What each cause raised, with whatever differs from run to run replaced."""
    return {name: _provoked(name) for name in sorted(CAUSES)}


def _provoked(name: str) -> Exception:
    with tempfile.TemporaryDirectory(prefix="leftfold-golden-") as directory:
        try:
            CAUSES[name](Path(directory))
        except LeftfoldError as error:
            for part in ("what", "why", "state", "fix"):
                setattr(error, part, _stable(getattr(error, part), directory))
            return error
        except Exception as error:  # noqa: BLE001 # anything else is a finding, reported by the test of this code
            return error
    return AssertionError(f"the cause of {name} raised nothing")


def _stable(text: str, directory: str) -> str:
    text = text.replace(str(Path(directory).resolve()), "<dir>").replace(directory, "<dir>")
    text = re.sub(r"\b[0-9a-f]{12}-[0-9a-f]{8}\b", "<build>", text)
    return re.sub(r"\b(port|pid) \d+", r"\1 <number>", text)


def known(raised: dict[str, Exception]) -> dict[str, LeftfoldError]:
    return {name: error for name, error in raised.items() if isinstance(error, LeftfoldError)}


# Codes --------------------------------------------------------------------------------------------------------------


def test_every_code_has_a_cause_and_every_cause_a_code() -> None:
    assert unmatched(scan(), CODES) == (set(), set())


def test_no_cause_hides_another() -> None:
    assert len(CAUSES) == sum(len(file) for file in FILES)


def test_codes_are_words_with_hyphens() -> None:
    assert [name for name in CAUSES if not re.fullmatch(r"[a-z]+(-[a-z]+)*(/[a-z]+)?", name)] == []


def test_every_code_has_a_first_cause() -> None:
    assert CODES - set(CAUSES) == set()


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_cause_raises_it(raised: dict[str, Exception], name: str) -> None:
    error = raised[name]
    assert isinstance(error, LeftfoldError), f"not an error of ours: {type(error).__name__}: {error}"
    assert error.code == name.partition("/")[0]
    assert all(text.strip() for text in (error.what, error.why, error.state, error.fix))
    for text in (error.what, error.why, error.state, error.fix):
        assert "\n" not in text
        assert not re.search(r"(?<!\| )(?<!window=)\bNone\b", text), f"an empty value shows through: {text!r}"
    if error.source is not None:
        assert error.source.file.endswith("streams.py"), f"blames {error.source}, not the declaration"


# Fixes --------------------------------------------------------------------------------------------------------------

# A fix starts with what to do: one of these words, or a command.
DO = (
    "add",
    "ask",
    "bring",
    "call",
    "cast",
    "cd",
    "change",
    "check",
    "choose",
    "combine",
    "compare",
    "correct",
    "create",
    "declare",
    "define",
    "delete",
    "export",
    "express",
    "flush",
    "free",
    "give",
    "grant",
    "group",
    "install",
    "keep",
    "join",
    "key",
    "leave",
    "leftfold",
    "let",
    "make",
    "name",
    "pass",
    "put",
    "python",
    "read",
    "remove",
    "rename",
    "return",
    "run",
    "see",
    "select",
    "send",
    "set",
    "start",
    "stop",
    "take",
    "use",
    "wait",
    "write",
)


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_fix_can_be_done(raised: dict[str, Exception], name: str) -> None:
    error = raised[name]
    assert isinstance(error, LeftfoldError)
    first = re.split(r"[\s,:]", error.fix, maxsplit=1)[0]
    assert first in DO, f"{error.fix!r} does not start with something to do"


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_commands_in_it_exist(raised: dict[str, Exception], name: str) -> None:
    """Every `leftfold VERB --option` that an error names is one of ours."""
    error = raised[name]
    assert isinstance(error, LeftfoldError)
    for text in (error.fix, error.state, error.why):
        for command in re.split(r"\bleftfold (?=[a-z])", text)[1:]:
            verb = re.match(r"[a-z-]*", command)[0]  # type: ignore[index] # the empty text matches too
            called = cli.get_command(click.Context(cli), verb)
            assert called is not None, f"there is no `leftfold {verb}`"
            if isinstance(called, click.Group) and (below := re.match(r"[a-z-]+ ([a-z]+)", command)):
                assert below[1] in called.commands, f"there is no `leftfold {verb} {below[1]}`"
                called = called.commands[below[1]]
            options = {"--help"} | {o for p in called.params for o in p.opts}
            assert set(re.findall(r"(?<= )--[a-z-]+", command)) <= options, f"`leftfold {command}`"


# Texts --------------------------------------------------------------------------------------------------------------


def test_texts(raised: dict[str, Exception]) -> None:
    text = "\n\n".join(str(error) for error in known(raised).values()) + "\n"
    if WRITE:
        TEXTS.write_text(text)
    assert text == TEXTS.read_text()


def test_docs(raised: dict[str, Exception]) -> None:
    text = _document(known(raised))
    if WRITE:
        DOCS.parent.mkdir(parents=True, exist_ok=True)
        DOCS.write_text(text)
    assert text == DOCS.read_text()


def test_docs_list_exactly_these_codes() -> None:
    rows = re.findall(r'^\| <a id="([a-z-]+)"></a>`([a-z-]+)` \|', DOCS.read_text(), flags=re.MULTILINE)
    assert sorted(code for code, _ in rows) == sorted(CODES)
    assert [anchor for anchor, _ in rows] == [code for _, code in rows]


def test_explained(raised: dict[str, Exception]) -> None:
    """What `leftfold explain` prints is what the references say."""
    content = {"errors": _explained(known(raised)), "hazards": _hazards()}
    text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    if WRITE:
        explained.DATA.write_text(text, encoding="utf-8")
    assert text == explained.DATA.read_text(encoding="utf-8")


def _explained(found: dict[str, LeftfoldError]) -> dict[str, Any]:
    """Each code with its messages, its first cause before the others, in the order of the reference."""
    codes: dict[str, Any] = {}
    for kind, heading in KINDS.items():
        for name, error in sorted(found.items()):
            if isinstance(error, kind):
                entry = codes.setdefault(
                    name.partition("/")[0],
                    {"kind": kind.__name__, "met": heading, "retriable": error.retriable, "examples": []},
                )
                example = {part: getattr(error, part) for part in ("what", "why", "state", "fix")}
                if example not in entry["examples"]:
                    entry["examples"].append(example)
    return codes


def _hazards() -> dict[str, str]:
    """Each code with its section, without links: a terminal has no other pages."""
    _, *parts = re.split(r"^## ", HAZARDS.read_text(), flags=re.MULTILINE)
    sections = (part.partition("\n") for part in parts)
    return {code: re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text.strip()) for code, _, text in sections}


def _document(found: dict[str, LeftfoldError]) -> str:
    lines = [
        "# Errors",
        "",
        "Every error says what happened, why, and what to do next. Without a line `state`, nothing was changed.",
        "With `--json` it always has a `state`, and its code is `error.code`. A code never changes its meaning.",
        "Retriable means that the same call may work later.",
        "The examples are real messages, provoked by `tests/golden/causes*.py` and written by",
        "`LEFTFOLD_GOLDEN=write pytest tests/golden`.",
        "",
    ]
    for kind, heading in KINDS.items():
        lines += [
            f"## {heading}",
            "",
            f"`{kind.__name__}`: {inspect.getdoc(kind)}",
            "",
            "| code | for example | why | what to do |",
            "|---|---|---|---|",
        ]
        for name, error in found.items():
            if isinstance(error, kind) and "/" not in name:
                cells = (error.what, error.why, error.fix + (" (retriable)" if error.retriable else ""))
                lines.append("| " + " | ".join([f'<a id="{name}"></a>`{name}`', *map(_cell, cells)]) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("_", r"\_").replace("*", r"\*")


def test_every_error_has_a_heading(raised: dict[str, Exception]) -> None:
    assert [name for name, error in known(raised).items() if sum(isinstance(error, kind) for kind in KINDS) != 1] == []


# The scan itself ----------------------------------------------------------------------------------------------------

TREE = (
    "class LeftfoldError(Exception): ...\nclass OwnError(LeftfoldError): ...\nclass Other(OwnError, ValueError): ...\n"
)


def _scanned(tmp_path: Path, source: str) -> set[tuple[str, bool]]:
    (tmp_path / "errors.py").write_text(TREE)
    (tmp_path / "room.py").write_text(source)
    return {(site.code, site.pattern) for site in scan(tmp_path)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise OwnError('a', 'b')", {("a", False)}),
        ("def f():\n    return errors.Other('a')", {("a", False)}),
        ("raise OwnError(code='a')", {("a", False)}),
        ("raise OwnError('a' if x else 'b' if y else 'c')", {("a", False), ("b", False), ("c", False)}),
        ("def f(k):\n    return OwnError(f'no-{k}')\nf('x')\nf(k='y')", {("no-x", False), ("no-y", False)}),
        ("def f(k):\n    return OwnError(k)\nf('x')", {("x", False)}),
        (
            "class A:\n    def f(self, k):\n        raise OwnError(f'{k}-x')\n    def g(self):\n        self.f('a')",
            {("a-x", False)},
        ),
        ("def f(k):\n    return OwnError(f'no-{k}')\nf(x)", {("no-[a-z-]+", True)}),
        ("raise OwnError(f'{x.y()}-failed')", {("[a-z-]+-failed", True)}),
        ("raise ValueError('a')\nNotError('b')", set()),
    ],
)
def test_scan(tmp_path: Path, source: str, expected: set[tuple[str, bool]]) -> None:
    assert _scanned(tmp_path, source) == expected


@pytest.mark.parametrize("source", ["raise OwnError(CODE)", "raise OwnError()", "raise OwnError('a' + x)"])
def test_scan_refuses_what_it_cannot_read(tmp_path: Path, source: str) -> None:
    with pytest.raises(UnreadableError, match=r"room\.py:1"):
        _scanned(tmp_path, source)


def test_scan_knows_the_whole_tree() -> None:
    from leftfold.declare.event import UnknownFieldError

    def tree(kind: type[LeftfoldError]) -> set[str]:
        return {kind.__name__}.union(
            *(tree(sub) for sub in kind.__subclasses__() if sub.__module__.startswith("leftfold"))
        )

    assert error_classes() == tree(LeftfoldError)
    assert UnknownFieldError.__name__ in error_classes()
