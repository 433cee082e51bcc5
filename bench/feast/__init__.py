"""Features over HTTP: `leftfold serve` against Feast's feature server in Python, both with Redis.

Both answer with the same 48 values of two entities: ours out of the tiles of two views, Feast's as they were written,
which are the values that ours gave at one moment. So Feast computes nothing. Each server is one process. Feast runs as
its documentation advises: hiredis, a feature service, no access log; and it is not restarted in mid-run.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import leftfold
from bench.engines import project
from bench.environments import python_with
from bench.http_load import MANY
from bench.http_servers import LEFTFOLD, load, server
from bench.online import ENTITIES, SHOP, fill
from bench.pairs import Case, note
from leftfold.local import ports

HERE = Path(__file__).parent
LOAD_S = 8.0
TICK_S = 300  # the finest tiles: until the next one, values stay the same
KEYS = {"users": ("user_id", "u"), "items": ("item_id", "i")}
Values = dict[tuple[str, str], dict[str, Any]]  # by view and key


def measure(pairs: int) -> dict[str, Case]:
    python = python_with(HERE / "requirements.txt")
    with tempfile.TemporaryDirectory(prefix="leftfold-bench-") as directory, project(Path(directory), SHOP) as app:
        fill(app)
        bench = _Bench(app, python)
        with bench.ours() as ours, bench.feast() as feast:
            equal = bench.equal(ours, feast)
            return {
                "one": bench.compare("", 1, pairs, ours, feast, equal=equal),
                "many": bench.compare("many-", MANY, pairs, ours, feast, equal=equal),
            }


class _Bench:
    def __init__(self, app: leftfold.App, python: Path) -> None:
        self._app, self._python = app, python
        self._repository = app.root / "feast"
        self._repository.mkdir()
        self._redis = f"{urlsplit(app.online.url.get_secret_value()).netloc},db=1"

    @contextmanager
    def ours(self) -> Iterator[str]:
        command = [LEFTFOLD, "serve", "--port", "0"]
        with server(command, self._app.root, self._app.root / "serve.log", r"serving at http://([\d.:]+)") as address:
            yield address

    @contextmanager
    def feast(self) -> Iterator[str]:
        self._fill_feast()
        (port,) = ports.choose(1)
        command = [str(self._python.with_name("feast")), "serve", "--port", str(port), "--no-access-log"]
        command += ["--workers", "1", "--max-requests", "0", "--max-requests-jitter", "0"]
        log = self._app.root / "feast.log"
        with server(command, self._repository, log, r"Application startup complete()"):
            yield f"127.0.0.1:{port}"

    def _fill_feast(self) -> None:
        """Write the values of now into Feast's online store."""
        self._values = self._read()
        rows = {
            view: (key, [{key: k, **row} for (v, k), row in self._values.items() if v == view])
            for view, (key, _) in KEYS.items()
        }
        values = self._repository / "values.json"
        values.write_text(json.dumps(rows))
        command = [str(self._python), str(HERE / "store.py"), str(self._repository), str(values), self._redis]
        subprocess.run(command, check=True, stdout=sys.stderr)

    def _read(self) -> Values:
        numbers = range(ENTITIES)
        people = [{"user_id": f"u{n}", "item_id": f"i{n}"} for n in numbers]
        rows = self._app.get_many(self._app.catalog.vectors["both"], people)
        return {
            (view, f"{letter}{n}"): {name: getattr(row, name) for name in row.values if name.startswith(view)}
            for n, row in zip(numbers, rows, strict=True)
            for view, (_, letter) in KEYS.items()
        }

    def equal(self, ours: str, feast: str) -> bool:
        """Return whether both servers give the values that were written, within one tick of the tiles."""
        while True:
            tick = time.time() // TICK_S
            self._fill_feast()
            equal = [self._answers(ours, feast, n, (7 * n + 3) % ENTITIES) for n in range(ENTITIES)]
            if time.time() // TICK_S == tick:
                note(f"{sum(equal)} of {len(equal)} answers equal")
                return all(equal)
            note("the tiles changed meanwhile: compared again")

    def _answers(self, ours: str, feast: str, user: int, item: int) -> bool:
        wanted = {**self._values["users", f"u{user}"], **self._values["items", f"i{item}"]}
        keys = {"user_id": f"u{user}", "item_id": f"i{item}"}
        mine = _post(ours, "/features/both", [keys])[0]["values"]
        asked = {"feature_service": "both", "entities": {name: [key] for name, key in keys.items()}}
        told = _post(feast, "/get-online-features", asked)
        names = told["metadata"]["feature_names"]
        theirs = {name: one["values"][0] for name, one in zip(names, told["results"], strict=True)}
        return wanted == {name: mine[name] for name in wanted} == {name: theirs[name] for name in wanted}

    def compare(self, prefix: str, rows: int, pairs: int, ours: str, feast: str, *, equal: bool) -> Case:
        sides: dict[str, tuple[str, str]] = {"ours": (f"{prefix}features", ours), "feast": (f"{prefix}feast", feast)}
        most = {side: load(*place, None, LOAD_S)["per_s"] for side, place in sides.items()}
        rate = min(most.values()) / 2
        note(f"{rows} rows a request: most { {s: round(m) for s, m in most.items()} }/s; asked at {rate:.0f}/s")
        times: dict[str, list[float]] = {f"{side}_{p}": [] for side in sides for p in ("p50", "p99")}
        for number in range(pairs):
            for side in list(sides)[:: 1 if number % 2 else -1]:
                seen = load(*sides[side], rate, LOAD_S)
                for p in ("p50", "p99"):
                    times[f"{side}_{p}"].append(seen[p])
        ratios = tuple(a / b for a, b in zip(times["ours_p99"], times["feast_p99"], strict=True))
        figures = {f"{name}_ms": round(statistics.median(values), 2) for name, values in times.items()}
        figures |= {f"{side}_most_per_s": round(value) for side, value in most.items()}
        return Case(ratios, None, equal, lower_is_better=True, figures={**figures, "rate": round(rate)})


def _post(address: str, path: str, document: Any) -> Any:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == http.client.OK, body
    return json.loads(body)
