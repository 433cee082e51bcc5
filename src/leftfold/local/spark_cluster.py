"""A standalone Spark cluster as local processes: one master and some workers, from the pip package of PySpark.

PySpark is located but never imported. Executors are children of their worker. They share its session and its mark, so
they are found with it and end with it.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
from pathlib import Path
from typing import Any

from leftfold import private
from leftfold.errors import LocalError
from leftfold.local import java
from leftfold.local.endpoints import HOST, Endpoints
from leftfold.local.service import PROBE_S, Service

MASTER = "spark-master"
_WORKER = "spark-worker-"
MOST_WORKERS = 8  # each has 2 GB; more workers need more than one machine
# A driver that is stopped (SIGSTOP) keeps its cores and memory, so a worker has enough for a second one.
WORKER_CORES = 2
WORKER_MEMORY = "2g"
DAEMON_HEAP = "256m"  # master and workers only do bookkeeping; executors do the work, with heaps of their own
# An application leaves its executors' directories, with jars and environment: some 350 MB each. They are kept for an
# hour, which is enough to read the log of an executor that failed. The default is a week.
_CLEANING = {"enabled": "true", "interval": "600", "appDataTtl": "3600"}
# For master and workers and, through the worker's directory, for executors. It is worth a line who registered and which
# executor came and went. At INFO, executors write a line for every read from Kafka, to a file that nobody rotates.
_LOG4J2 = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %m (%c{1})%n%ex
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""


def is_worker(name: str) -> bool:
    return name.startswith(_WORKER)


def is_spark(name: str) -> bool:
    return name == MASTER or is_worker(name)


def find() -> Path:
    """The directory of the pip package, for use as SPARK_HOME: it contains a complete Spark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError(
            "spark-not-installed",
            "Spark workers were asked for, and PySpark is not installed here",
            why="the package of PySpark brings the master and the worker",
            fix="install it: pip install 'leftfold[spark]'; or continue without: leftfold up --spark-workers 0",
        )
    return Path(spec.submodule_search_locations[0])


def service(state: Path, endpoints: Endpoints, *, name: str, java_path: str) -> Service:
    home = find()
    port, page = _ports(endpoints, name)
    directory = state / name
    private.directory(directory)
    (directory / "log4j2.properties").write_text(_LOG4J2, encoding="ascii")
    at = ("--host", HOST, "--port", str(port), "--webui-port", str(page))
    if name == MASTER:
        program: tuple[str, ...] = ("org.apache.spark.deploy.master.Master", *at)
    else:
        size = ("--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--work-dir", str(directory / "work"))
        program = ("org.apache.spark.deploy.worker.Worker", *at, *size, endpoints.spark_url or "")
    return Service(
        name=name,
        argv=(str(home / "bin" / "spark-class"), *program),
        directory=directory,
        log=state / "logs" / f"{name}.log",
        port=port,
        environment={
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(Path(java_path).resolve().parent.parent),
            # Ignores any other spark-env.sh or spark-defaults.conf: a port or an address set there would surprise.
            "SPARK_CONF_DIR": str(directory),
            # Without it, Spark uses the name of another network interface, and its web pages listen on all interfaces.
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(directory / "scratch"),  # for shuffles and state, instead of /tmp
            "SPARK_DAEMON_MEMORY": DAEMON_HEAP,
            "SPARK_DAEMON_JAVA_OPTS": " ".join((*java.BRIEF, *java.FLAGS)),
            "SPARK_WORKER_OPTS": " ".join(f"-Dspark.worker.cleanup.{key}={value}" for key, value in _CLEANING.items()),
        },
    )


def answers(endpoints: Endpoints, name: str) -> bool:
    """Return whether the process does its own work. It serves a web page itself, which gives its status or id."""
    page = _page(endpoints, name)
    return page.get("status") == "ALIVE" if name == MASTER else "id" in page


def ready(endpoints: Endpoints, name: str) -> bool:
    """Return whether an application can get executors there. A worker is ready once the master reports it as ALIVE."""
    if name == MASTER:
        return answers(endpoints, MASTER)
    port, _ = _ports(endpoints, name)
    workers: list[dict[str, Any]] = _page(endpoints, MASTER).get("workers", [])
    return any(worker["port"] == port and worker["state"] == "ALIVE" for worker in workers)


def _ports(endpoints: Endpoints, name: str) -> tuple[int, int]:
    ports = endpoints.ports
    pair = ports.spark_master if name == MASTER else ports.spark_workers[int(name.removeprefix(_WORKER)) - 1]
    return pair[0], pair[1]


def _page(endpoints: Endpoints, name: str) -> dict[str, Any]:
    link = http.client.HTTPConnection(HOST, _ports(endpoints, name)[1], timeout=PROBE_S)
    try:
        link.request("GET", "/json/")
        answer = link.getresponse()
        page: dict[str, Any] = json.loads(answer.read()) if answer.status == http.HTTPStatus.OK else {}
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        link.close()
    return page
