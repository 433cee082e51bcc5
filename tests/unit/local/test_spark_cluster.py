"""Spark's daemons: what they are started with, what counts as ready, and whose executors are left alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from leftfold.local import process, roster, spark_cluster
from leftfold.local.endpoints import HOST, Endpoints, Ports
from leftfold.local.service import Service

PORTS = Ports((1,), (2,), 3, 4, spark_master=(5, 6), spark_workers=((7, 8), (9, 10)))
ENDPOINTS = Endpoints("id", PORTS)


def service(tmp_path: Path, name: str) -> Service:
    return roster.service(tmp_path, ENDPOINTS, name=name, java_path="/opt/java/bin/java")


def test_the_master_listens_on_loopback_on_ports_of_ours(tmp_path: Path) -> None:
    master = service(tmp_path, "spark-master")
    assert master.argv[0].endswith("/pyspark/bin/spark-class")
    assert master.argv[1] == "org.apache.spark.deploy.master.Master"
    assert master.argv[2:] == ("--host", HOST, "--port", "5", "--webui-port", "6")
    assert master.environment["SPARK_LOCAL_IP"] == HOST
    assert master.environment["JAVA_HOME"] == "/opt/java"
    assert master.environment["SPARK_CONF_DIR"] == str(master.directory)
    assert Path(master.environment["SPARK_HOME"], "jars").is_dir()


def test_a_worker_has_room_for_two_drivers_and_keeps_its_files_in_the_project(tmp_path: Path) -> None:
    worker = service(tmp_path, "spark-worker-2")
    assert worker.argv[-1] == "spark://127.0.0.1:5"
    options = dict(zip(worker.argv[2:-1:2], worker.argv[3:-1:2], strict=True))
    assert options["--port"] == "9"
    assert options["--webui-port"] == "10"
    assert (options["--cores"], options["--memory"]) == ("2", "2g")
    assert Path(options["--work-dir"]).is_relative_to(tmp_path)
    assert Path(worker.environment["SPARK_LOCAL_DIRS"]).is_relative_to(tmp_path)


@contextmanager
def page(says: dict[str, Any]) -> Iterator[int]:
    """A web page of a daemon."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/json/" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(says).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the tests' output is for the tests."""

    server = HTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_worker_is_ready_once_the_master_counts_it_among_the_living() -> None:
    says = {"status": "ALIVE", "workers": [{"port": 7, "state": "ALIVE"}, {"port": 9, "state": "DEAD"}]}
    with page(says) as port:
        found = replace(ENDPOINTS, ports=replace(PORTS, spark_master=(5, port)))
        assert roster.ready(found, "spark-master")
        assert roster.ready(found, "spark-worker-1")
        assert not roster.ready(found, "spark-worker-2")


def test_a_worker_answers_for_itself() -> None:
    with page({"id": "worker-1"}) as port:
        found = replace(ENDPOINTS, ports=replace(PORTS, spark_workers=((7, port),)))
        assert roster.answers(found, "spark-worker-1")
        assert not roster.ready(found, "spark-worker-1")


def test_nobody_answers() -> None:
    assert not roster.answers(ENDPOINTS, "spark-master")
    assert not roster.answers(ENDPOINTS, "spark-worker-1")


def test_a_master_that_stands_by_is_not_ready() -> None:
    with page({"status": "STANDBY"}) as port:
        found = replace(ENDPOINTS, ports=replace(PORTS, spark_master=(5, port)))
        assert not roster.ready(found, "spark-master")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="marks are found through /proc")
def test_an_executor_is_a_stray_only_without_its_worker(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    worker = process.start(
        ["/bin/sh", "-c", "sleep 60 & echo $!; wait"],
        mark=f"{roster.mark(tmp_path)}spark-worker-1",
        directory=tmp_path,
        log=log,
        environment={},
    )
    try:
        assert process.wait_until(lambda: log.read_text().endswith("\n"), timeout_s=5)
        executor = process.identify(int(log.read_text()))
        found = ENDPOINTS.having("spark-worker-1", worker)
        assert roster.strays(tmp_path, found) == {}
        assert set(roster.strays(tmp_path, ENDPOINTS)) == {worker, executor}
        process.end([worker], grace_s=5)
        assert process.wait_until(lambda: not process.alive(executor), timeout_s=5)
    finally:
        process.end([worker], grace_s=0)


def test_names() -> None:
    assert [name for name in ("spark-master", "spark-worker-1", "redis") if spark_cluster.is_spark(name)] == [
        "spark-master",
        "spark-worker-1",
    ]
