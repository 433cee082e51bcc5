"""The one Spark session builder. Every setting carries its reason; a profile's own `spark.conf` comes last."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leftfold import jars
from leftfold.settings import Spark
from leftfold.spark import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    __all__ = ["DataFrame", "SparkSession", "build_session"]

# The largest record a broker takes by default (max.message.bytes is 1 MiB). A corrupt length prefix would otherwise
# make Avro allocate up to 2 GB, and that error is not one that a query survives.
_LARGEST_VALUE = 1_048_588
_JAVA_OPTIONS = " ".join(
    [
        *(
            f"-Dorg.apache.avro.limits.{kind}.maxLength={_LARGEST_VALUE}"
            for kind in ("string", "bytes", "collectionItems")
        ),
        "-Xss8m",  # stopping a query matches a regular expression against a long message, which recurses
    ]
)
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",  # a port nobody asked for; `leftfold run` shows what matters
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # a day starts at the same moment everywhere
    "spark.speculation": "false",  # two copies of a task would write to the store at once
    "spark.sql.adaptive.enabled": "false",  # re-planning each small batch costs more than it gains
    "spark.scheduler.mode": "FAIR",  # views of one application share the cores
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",  # rows per call into the writer: bounds its memory
    # State -----------------------------------------------------------------------------------------------------
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"  # state larger than the heap
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",  # a commit uploads what changed, not all
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",  # counting costs a look-up per write
    f"{_ROCKSDB}.boundedMemoryUsage": "true",  # RocksDB's memory lies outside the heap: cap it
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",  # a retried task writes files of its own name
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # eviction can wait for the next data
    "spark.sql.streaming.minBatchesToRetain": "20",  # enough to look back at; each batch leaves files
    # Aggregation: by default a hash aggregation of objects starts to sort after 128 groups.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Our messages name the class of the failure; Python's trace adds the line.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
# Every batch warns that adaptive execution does not apply to streams.
logger.adaptive.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.adaptive.level = error
"""


# Of a master on this machine. Elsewhere Spark's own choice, or the profile's, is an address that executors can reach.
LOOPBACK: dict[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def in_process(master: str) -> bool:
    """Whether the driver's JVM does all the work itself: local, local[4], local[*,4]; not local-cluster[…]."""
    return master == "local" or master.startswith("local[")


def on_this_machine(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:"))


def python_of(spark: Spark) -> str:
    """The interpreter of executors: here it is this one, elsewhere one of its version, which PySpark insists on."""
    here = sys.executable if on_this_machine(spark.master) else f"python3.{sys.version_info.minor}"
    return spark.python or here


def shipped(spark: Spark) -> dict[str, str]:
    """Settings that bring this environment to executors. A local master's are this process."""
    if in_process(spark.master):
        return {}
    return {
        "spark.archives": ",".join(f"{path}#{name}" for name, path in environment.archives().items()),
        "spark.executorEnv.PYTHONPATH": environment.PYTHONPATH,
    }


def build_session(spark: Spark, *, application: str, log_file: Path, lake: bool = False) -> SparkSession:
    """Start the JVM. Its words, and those of Python workers, go to `log_file`. With `lake` it can write Delta."""
    from pyspark.sql import SparkSession

    from leftfold.spark.fed import delta_settings

    log_file.parent.mkdir(parents=True, exist_ok=True)
    properties = log_file.with_suffix(".log4j2.properties")
    properties.write_text(_LOG4J.format(file=log_file))
    os.environ["PYSPARK_PYTHON"] = python_of(spark)
    if on_this_machine(spark.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark takes another interface's address
    sets = ("spark", "lake") if lake else ("spark",)
    builder = SparkSession.builder.appName(application).master(spark.master)
    settings: dict[str, str | int | float | bool] = {
        **SETTINGS,
        **(LOOPBACK if on_this_machine(spark.master) else {}),
        **shipped(spark),
        **(delta_settings() if lake else {}),
        "spark.jars": ",".join(str(path) for name in sets for path in jars.paths(name)),
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile=file:{properties}",
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        **spark.conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    interrupt = signal.getsignal(signal.SIGINT)
    with _output_to(log_file):
        session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # PySpark puts its own there, which cancels the batch at work
    if "spark.sql.shuffle.partitions" not in spark.conf:
        # State has one partition per shuffle partition, for ever; the default of 200 is ten times slower on a laptop.
        # A cluster's default parallelism is 2 until executors register; what was asked for does not hang on the moment.
        cores = spark.conf.get("spark.cores.max", session.sparkContext.defaultParallelism)
        session.conf.set("spark.sql.shuffle.partitions", int(cores))
    return session


def session_at_hand(given: object = None) -> SparkSession | None:
    """Of a DataFrame its own session, else the one that is active in this process, if there is one."""
    from pyspark.sql import SparkSession

    own: SparkSession | None = getattr(given, "sparkSession", None)
    return own or SparkSession.getActiveSession()


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """The JVM inherits our standard streams at its start: for that moment they are the log file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with log_file.open("ab") as log:
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            yield
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            os.close(saved[0])
            os.close(saved[1])
