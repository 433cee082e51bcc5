"""Virtualenvs for what a bench compares with, so that its dependencies are not ours."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bench.pairs import note
from leftfold.jars import cache_home


def python_with(requirements: Path) -> Path:
    """Return the Python of a virtualenv with these requirements. It is made once for each text of them."""
    text = requirements.read_bytes()
    home = cache_home() / f"bench-{requirements.parent.name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if not (home / "made").exists():
        note(f"making {home}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(home / "bin" / "pip"), "install", "--quiet", "-r", str(requirements)]
        subprocess.run(install, check=True, stdout=sys.stderr)
        (home / "made").touch()
    return home / "bin" / "python"
