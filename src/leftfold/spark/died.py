"""The error for a JVM that died, the same wherever in the process the death is noticed first.

Every call into the JVM goes through one client. A call that finds that the JVM is gone raises `spark-died` there,
instead of one of the many errors that py4j has for a broken connection.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import ERROR, Py4JError

from leftfold.errors import RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Exit codes: of a JVM that was told to exit at an OutOfMemoryError, and Spark's own for such an error in a task.
_OUT_OF_MEMORY = (3, 52)
# A JVM that ends runs its shutdown hooks first, and answers no calls meanwhile.
_ENDS_WITHIN_S = 15.0
_HEAP = "spark.driver.memory"


def tell_of_death(session: SparkSession, log_file: Path) -> None:
    """Make every call into the JVM of this session raise `spark-died` once the JVM has ended.

    This holds for the rest of the process.
    """
    gateway: Any = session.sparkContext._gateway
    known = vars(gateway)  # not getattr: the gateway answers to any name, as if it were one of the JVM's
    jvm: subprocess.Popen[bytes] | None = known.get("proc")
    if jvm is None or "leftfold_tells" in known:  # the JVM is our parent and ends us with it; or this is done already
        return
    client, heap = gateway._gateway_client, session.sparkContext.getConf().get(_HEAP, "1g")
    send = client.send_command

    def told(*arguments: Any, **options: Any) -> Any:
        try:
            answer = send(*arguments, **options)
        except (Py4JError, OSError) as error:
            if (code := _ended(jvm)) is not None:
                raise died(code, str(heap), log_file) from error
            raise
        if answer == ERROR and (code := _ended(jvm)) is not None:  # such a bare error is py4j's: no answer came
            raise died(code, str(heap), log_file)
        return answer

    client.send_command, gateway.leftfold_tells = told, True
    _log_to(log_file)


def _log_to(file: Path) -> None:
    """Send py4j's log to `file`, where the JVM's log is.

    py4j logs a stack trace for each call that fails, some of them with the root logger.
    """
    handler = logging.FileHandler(file, delay=True)
    log = logging.getLogger("py4j")
    log.addHandler(handler)
    log.propagate = False

    def is_of_others(record: logging.LogRecord) -> bool:
        if "py4j" not in Path(record.pathname).parts:
            return True
        handler.handle(record)
        return False

    logging.getLogger().addFilter(is_of_others)


def _ended(jvm: subprocess.Popen[bytes]) -> int | None:
    try:
        return jvm.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return None


def died(code: int, heap: str, log_file: Path) -> RunError:
    """The error for a JVM that ended with `code`. Not retriable in this process: all objects in the JVM are gone."""
    memory = code in _OUT_OF_MEMORY
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return RunError(
        "spark-died",
        "the JVM of Spark ran out of memory" if memory else f"the JVM of Spark {how}",
        why=f"its heap of {heap} did not hold what a batch needed"
        if memory
        else "the machine ran out of memory and its system chose this process, or a person or a fault ended it",
        state="batches that were committed are whole; the ones it was in run again, with the same records",
        fix=f'add spark = {{ conf = {{ "{_HEAP}" = "4g" }} }} to the profile in leftfold.toml; run the same again'
        if memory
        else f"see {log_file}; run the same command again",
    )
