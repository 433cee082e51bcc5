"""Usage: python -m bench NAME [--json] [--pairs N]. Starts its own engines, measures, prints the result, ends them.

`peers` also takes --records and --kills.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping

from bench import (
    consumer,
    feast,
    online,
    peers,
    producer,
    read,
    rebuild,
    replay,
    scans,
    scoring,
    training,
    view,
    waiting,
)
from bench.pairs import Case

BENCHES = {
    "producer": producer.measure,
    "read": read.measure,
    "consumer": consumer.measure,
    "view": view.measure,
    "online": online.measure,
    "replay": replay.measure,  # runs the three below
    "scans": scans.measure,
    "rebuild": rebuild.measure,
    "training": training.measure,
    "scoring": scoring.measure,
    "feast": feast.measure,
    "waiting": waiting.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("bench", choices=[*BENCHES, "peers"])
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--pairs", type=int, default=5, help="pairs per case (default 5)")
    parser.add_argument("--records", type=int, default=200_000, help="peers: records of the topic (default 200,000)")
    parser.add_argument("--kills", type=int, default=20, help="peers: kills of each process (default 20)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engines are stopped too
    cases: Mapping[str, Case | peers.Measured]
    if arguments.bench == "peers":
        cases = peers.measure(arguments.pairs, records=arguments.records, kills=arguments.kills)
    else:
        cases = BENCHES[arguments.bench](arguments.pairs)
    if arguments.json:
        print(json.dumps({"bench": arguments.bench, "cases": {name: case.as_json() for name, case in cases.items()}}))
    else:
        for name, case in cases.items():
            print(f"{name}: {case}")
    missed = [name for name, case in cases.items() if not case.reached]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
