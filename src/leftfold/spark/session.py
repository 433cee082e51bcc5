"""The one Spark session builder. Every setting carries its reason; a profile's own `spark.conf` comes last."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftfold import class_archive, clock, jars, private
from leftfold.fold.durations import SECOND
from leftfold.settings import Spark
from leftfold.spark import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    __all__ = ["DataFrame", "SparkSession", "build_session"]

# The largest record a broker takes by default (max.message.bytes is 1 MiB). A corrupt length prefix would otherwise
# make Avro allocate up to 2 GB, and that error is not one that a query survives.
_LARGEST_VALUE = 1_048_588
_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={_LARGEST_VALUE}" for kind in ("string", "bytes", "collectionItems")
)
_DEFAULTS = " ".join(
    [
        "-Xss8m",  # stopping a query matches a recursive regular expression against a long message
        "-XX:+ExitOnOutOfMemoryError",  # after one, a JVM may lack threads it needs: it would neither work nor end
    ]
)
_BOTH = ("driver", "executor")
_LAUNCH = "launch-"  # prefix of the file with the settings of one start
_LAUNCHED_S = 600  # a JVM starts in seconds, on an overloaded machine in a minute
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",  # a port nobody asked for; `leftfold run` shows what matters
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # a day starts at the same moment everywhere
    "spark.speculation": "false",  # two copies of a task would write to the store at once
    "spark.sql.adaptive.enabled": "false",  # re-planning each small batch costs more than it gains
    "spark.scheduler.mode": "FAIR",  # views of one application share the cores
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",  # rows per call into the writer: bounds its memory
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",  # bounds it also if a row holds a text of a megabyte
    # State -----------------------------------------------------------------------------------------------------
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"  # state larger than the heap
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",  # a commit uploads what changed, not all
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",  # counting needs a lookup per write
    f"{_ROCKSDB}.boundedMemoryUsage": "true",  # RocksDB's memory lies outside the heap: cap it
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",  # a retried task writes files of its own name
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # eviction can wait for the next data
    "spark.sql.streaming.minBatchesToRetain": "20",  # enough to look back at; each batch leaves files
    # Aggregation: by default a hash aggregation of objects starts to sort after 128 groups.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Of a filter over n fields that a projection renames, Spark would derive the filter in each mixture of old and new
    # names: 2^n of them. With the 20 fields of a prediction that filled a heap of 1 GB.
    "spark.sql.constraintPropagation.enabled": "false",
    # Every batch makes a few plans. Spark writes each one out for its web page, which takes longer than to make it.
    "spark.sql.ui.explainMode": "simple",
    # Otherwise PySpark looks up the Python line of each column expression and sends it to Java, before every call.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
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
# Each query's pool of the scheduler is made when its first job comes, which is what we want.
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
"""


# Settings for a master on this machine. Elsewhere, executors can reach the address that Spark or the profile chooses.
LOOPBACK: dict[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def in_process(master: str) -> bool:
    """Return whether the driver's JVM does all the work itself: local, local[4], local[*,4]; not local-cluster[...]."""
    return master == "local" or master.startswith("local[")


def on_this_machine(master: str) -> bool:
    return master.startswith(("local", "spark://127.0.0.1:"))


def python_of(spark: Spark) -> str:
    """The Python interpreter of executors: the profile's choice, or a default.

    The default is this interpreter on this machine, and elsewhere one of the same version, which PySpark requires.
    """
    here = sys.executable if on_this_machine(spark.master) else f"python3.{sys.version_info.minor}"
    return spark.python or here


def shipped(spark: Spark) -> dict[str, str]:
    """Settings that bring this Python environment to executors. A local master has none: it runs in this process."""
    if in_process(spark.master):
        return {}
    return {
        "spark.archives": ",".join(f"{path}#{name}" for name, path in environment.archives().items()),
        "spark.executorEnv.PYTHONPATH": environment.PYTHONPATH,
    }


def java_options(spark: Spark, driver: str = "") -> dict[str, str]:
    """Java options of driver and executors: our defaults, then the options of the profile, then Avro's limits.

    If an option occurs twice, Java takes the last one. So a profile can set its stack size or its log, but cannot lift
    a limit.
    """
    driver_own, executor_own = (str(spark.conf.get(f"spark.{who}.extraJavaOptions", "")) for who in _BOTH)
    return {
        "spark.driver.extraJavaOptions": " ".join(filter(None, (_DEFAULTS, driver, driver_own, _LIMITS))),
        "spark.executor.extraJavaOptions": " ".join(filter(None, (_DEFAULTS, executor_own, _LIMITS))),
    }


def build_session(spark: Spark, *, application: str, log_file: Path, lake: bool = False) -> SparkSession:
    """Start the JVM. Its output, and that of Python workers, goes to `log_file`. With `lake` it can write Delta."""
    from pyspark.sql import SparkSession

    from leftfold.spark.died import tell_of_death
    from leftfold.spark.sinks.delta import delta_settings

    private.directory(log_file.parent)
    properties = log_file.with_suffix(".log4j2.properties")
    properties.write_text(_LOG4J.format(file=log_file))
    os.environ["PYSPARK_PYTHON"] = python_of(spark)
    if on_this_machine(spark.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark takes the address of another interface
    classes = shlex.join(class_archive.flags(jars.cache_home(), class_archive.spark_jars()))
    sets = ("spark", "lake") if lake else ("spark",)
    builder = SparkSession.builder.appName(application).master(spark.master)
    settings: dict[str, str | int | float | bool] = {
        **SETTINGS,
        **(LOOPBACK if on_this_machine(spark.master) else {}),
        **shipped(spark),
        **(delta_settings() if lake else {}),
        "spark.jars": ",".join(str(path) for name in sets for path in jars.paths(name)),
        **spark.conf,
        **java_options(spark, f"-Dlog4j2.configurationFile=file:{properties} {classes}".rstrip()),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    interrupt = signal.getsignal(signal.SIGINT)
    with _output_to(log_file):
        _launch({"spark.app.name": application, "spark.master": spark.master, **settings}, log_file.parent.resolve())
        session = builder.getOrCreate()
    _import_by_name(session)
    tell_of_death(session, log_file)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # PySpark sets its own handler, which cancels the running batch
    if "spark.sql.shuffle.partitions" not in spark.conf:
        # State has one partition per shuffle partition, forever. The default of 200 is ten times slower on a laptop.
        # A cluster's default parallelism is 2 until executors register, while spark.cores.max does not change.
        cores = spark.conf.get("spark.cores.max", session.sparkContext.defaultParallelism)
        session.conf.set("spark.sql.shuffle.partitions", int(cores))
    return session


def _import_by_name(session: SparkSession) -> None:
    """Import the class that most calls of PySpark name without its package.

    PySpark imports whole packages. To find the class, Java would look for it in each package before the right one, in
    all of its 300 jars, at every call.
    """
    from py4j.java_gateway import java_import

    gateway: Any = session.sparkContext._gateway
    java_import(gateway.jvm, "org.apache.spark.api.python.PythonUtils")


def _launch(settings: Mapping[str, str | int | float | bool], directory: Path) -> None:
    """Start the JVM, if this process has none.

    Its settings go through a file that only this user can read. The file is deleted once the JVM has read it. PySpark
    itself would put each setting on a command line, where every user of the machine sees it.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:  # a running JVM gets its settings over its own socket
        return
    for left in directory.glob(f"{_LAUNCH}*"):  # left by a start that was killed
        if clock.now_us() / SECOND - left.stat().st_mtime > _LAUNCHED_S:
            left.unlink(missing_ok=True)
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    descriptor, path = tempfile.mkstemp(prefix=_LAUNCH, dir=directory)  # with the mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(name)}={_escaped(str(value))}\n" for name, value in settings.items())
        # Without --load-spark-defaults the file would replace spark-defaults.conf, which rendered manifests bring.
        files = f"--properties-file {shlex.quote(path)} --load-spark-defaults"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{files} {before or 'pyspark-shell'}"
        SparkContext._ensure_initialized()
    finally:
        Path(path).unlink(missing_ok=True)
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(text: str) -> str:
    """Escape a text so that java.util.Properties reads it back."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(special.get(c) or (f"\\{c}" if c in " :=#!" else c) for c in text)


def session_at_hand(frame: object = None) -> SparkSession | None:
    """The session of a given DataFrame, or else the active session of this process; None if there is none."""
    from pyspark.sql import SparkSession

    own: SparkSession | None = getattr(frame, "sparkSession", None)
    return own or SparkSession.getActiveSession()


@contextmanager
def _output_to(log_file: Path) -> Iterator[None]:
    """Redirect stdout and stderr to the log file. The JVM inherits them when it starts in the `with` block."""
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
