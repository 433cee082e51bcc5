"""Makes the site: `python -m docs.website`. Any warning of the generator is a failure."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.website.navigation import as_toml
from docs.website.search_index import improve
from docs.website.tree import Tree, tree

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"


def main() -> int:
    began = time.monotonic()
    made = tree(ROOT)
    with tempfile.TemporaryDirectory(prefix="leftfold-docs-") as directory:
        staged = Path(directory)
        made.write(staged / "docs")
        (staged / "zensical.toml").write_text(settings(made))
        # The generator runs in the staged tree, so that its messages name pages by their place in the site.
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"],
            cwd=staged,
            check=False,
            capture_output=True,
            text=True,
        )
        print(done.stdout + done.stderr, end="")
        if done.returncode or "warning" in (done.stdout + done.stderr).lower():
            return 1
        improve(staged / "site" / "search.json", made.pages["glossary.md"])
        if SITE.exists():
            shutil.rmtree(SITE)
        shutil.move(staged / "site", SITE)
    print(f"{len(made.pages)} pages in {SITE.name}/, {time.monotonic() - began:.0f} s")
    return 0


def settings(made: Tree) -> str:
    """The settings beside this file, with the navigation and the source of docstrings."""
    text = (ROOT / "docs/website/zensical.toml").read_text()
    handler = f'[project.plugins.mkdocstrings.handlers.python]\npaths = ["{ROOT / "src"}"]\n'
    return text.replace("[project]\n", f"[project]\nnav = {as_toml(made.nav)}\n", 1) + handler


if __name__ == "__main__":
    sys.exit(main())
