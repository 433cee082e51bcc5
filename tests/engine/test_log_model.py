"""Random histories of real brokers, each judged by the model of the log.

`make log-model` runs 500 histories; `make engine` runs 20. With LEFTFOLD_LOG_MODEL_CORPUS, the histories are written to
that file: tests/data/log-histories.json was made so.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from leftfold.testing.log.allowed import JudgedHistory, NotAllowed
from tests.engine.conftest import Cluster
from tests.engine.log_histories import histories

FULL = os.environ.get("LEFTFOLD_LOG_MODEL") == "full"
CORPUS = os.environ.get("LEFTFOLD_LOG_MODEL_CORPUS")
SEED = int(os.environ.get("LEFTFOLD_SEED", str(random.SystemRandom().randrange(10**6))))
ROUNDS, EACH = (10, 50) if FULL else (1, 20)
OPERATIONS = (4, 5, 2) if FULL or CORPUS else (2, 4, 1)


@pytest.mark.timeout(3_600 if FULL else 600)
def test_brokers_do_what_the_model_allows(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    refused, documents = [], []
    for number in range(ROUNDS):
        with histories(cluster, EACH, SEED + number, operations=OPERATIONS) as recorded:
            for one in recorded:
                documents.append(one.document)
                history = JudgedHistory(one.settings)
                for at, operation in enumerate(one.operations):
                    counts[operation[0]] += 1
                    try:
                        history.tell(operation)
                        counts["worlds"] = max(counts["worlds"], *(len(p.worlds) for p in history.partitions))
                    except NotAllowed as verdict:
                        refused.append((one.document, at, str(verdict)))
                        with capsys.disabled():
                            print(f"\nnot allowed: operation {at}, {verdict}, of {json.dumps(one.document)}")
                        break
        if CORPUS:
            text = ",\n".join(json.dumps(document, separators=(",", ":")) for document in documents)
            Path(CORPUS).write_text(f"[\n{text}\n]\n")
        with capsys.disabled():
            print(f"\nseed {SEED}: {len(documents)} histories, {len(refused)} not allowed; {dict(counts)}", end="")
    assert refused == [], f"seed {SEED}: {len(refused)} of {len(documents)}, the first: {refused[0]}"
