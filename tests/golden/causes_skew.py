"""How to provoke errors of what is kept and compared for skew."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from leftfold.settings import Kafka
from tests.golden.causes import DEAD, Cause


def definition_not_kept(_: Path) -> None:
    from leftfold.kafka import document_log
    from leftfold.kafka.definition_log import DefinitionLog

    log = DefinitionLog(Kafka(bootstrap=DEAD), "leftfold.definitions")
    log.__dict__["_partitions"] = 1
    with mock.patch.object(document_log, "TIMEOUT_S", 0.1):
        log.keep("user_activity", "0123456789ab", {})


CAUSES: dict[str, Cause] = {"definition-not-kept": definition_not_kept}
