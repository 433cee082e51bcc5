"""The models of one scorer: the live one, its canary and its shadows. They are swapped between batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leftfold.declare.prediction import Role
from leftfold.declare.scorer import Scorer
from leftfold.errors import LeftfoldError
from leftfold.infer.loaders import Loaded, Loader

_LOOK_S = 30.0


@dataclass(frozen=True)
class Roles:
    """The models that score one batch."""

    live: Loaded
    canary: Loaded | None
    shadows: tuple[Loaded, ...]

    @property
    def by_role(self) -> list[tuple[Role, Loaded]]:
        canaries = [] if self.canary is None else [self.canary]
        return [("live", self.live), *(("canary", m) for m in canaries), *(("shadow", m) for m in self.shadows)]


class Models:
    """Loads the models of a scorer, and looks from time to time whether other versions are there.

    `check` is called with a model before it is used; it raises if the model does not answer for the scorer's vector.
    A new version that cannot be loaded leaves the old one in use; `problem` says why.
    """

    def __init__(
        self, scorer: Scorer[Any, Any], root: Path, check: Callable[[Loaded], None], *, look_s: float = _LOOK_S
    ) -> None:
        sources: list[tuple[Role, Any]] = [("live", scorer.model)]
        if scorer.canary is not None:
            sources.append(("canary", scorer.canary.model))
        sources += [("shadow", source) for source in scorer.shadows]
        self.problem: LeftfoldError | None = None
        self.swaps = 0
        self._roles = [role for role, _ in sources]
        self._loaders = [Loader(source, scorer, root) for _, source in sources]
        self._check = check
        self._look_s = look_s
        self._loaded: list[Loaded] = []
        self._versions: list[str | None] = []
        self._now: Roles | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    @property
    def now(self) -> Roles:
        """The models to score a batch with. They are loaded at the first use."""
        if self._now is None:
            self.load()
        assert self._now is not None
        return self._now

    def load(self) -> None:
        """Load and check all models, and begin to look for other versions."""
        with self._lock:
            if self._now is not None:
                return
            self._versions = [loader.version() for loader in self._loaders]
            self._loaded = [self._checked(loader.load()) for loader in self._loaders]
            self._set()
        if any(version is not None for version in self._versions):
            threading.Thread(target=self._look, name="leftfold-models", daemon=True).start()

    def look(self) -> bool:
        """Load what has changed, check it, and swap it in. Returns whether there was something."""
        changed = False
        for number, loader in enumerate(self._loaders):
            try:
                version = loader.version()
                if version is None or version == self._versions[number]:
                    continue
                self._loaded[number] = self._checked(loader.load())
            except LeftfoldError as error:
                self.problem = error
                continue
            self._versions[number], self.problem, changed = version, None, True
        if changed:
            self.swaps += 1
            self._set()
        return changed

    def _set(self) -> None:
        by_role = list(zip(self._roles, self._loaded, strict=True))
        canaries = [loaded for role, loaded in by_role if role == "canary"]
        shadows = tuple(loaded for role, loaded in by_role if role == "shadow")
        self._now = Roles(self._loaded[0], canaries[0] if canaries else None, shadows)

    def _checked(self, loaded: Loaded) -> Loaded:
        self._check(loaded)
        return loaded

    def _look(self) -> None:
        while not self._closed.wait(self._look_s):
            self.look()

    def close(self) -> None:
        self._closed.set()
