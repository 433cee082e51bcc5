"""How to provoke every error of the local Spark cluster, with stand-ins for Java and for Spark's own starter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest import mock

import leftfold
from leftfold.local import cluster, endpoints, ports, process, spark_cluster
from leftfold.local.endpoints import Endpoints, Ports
from leftfold.local.process import Identity
from tests.golden.causes import stand_in
from tests.golden.causes_local import JAVA_17, WAITS, fetched, machine, script


def spark_not_installed(tmp: Path) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None

    with mock.patch.object(importlib.util, "find_spec", find_spec):
        spark_cluster.find()


def spark_failed(tmp: Path) -> None:
    """Every other process is the test itself, and ready."""
    said = "26/01/01 ERROR Worker: Service 'sparkWorker' failed to bind on port 20007"
    script(tmp / "spark" / "bin" / "spark-class", f'case $1 in *Worker) echo "{said}"; exit 1;; *) {WAITS};; esac')
    chosen = ports.with_workers(ports.fresh(1), 1)
    known = {name: process.identify(os.getpid()) for name in ports.of(chosen) if not spark_cluster.is_spark(name)}
    endpoints.write(tmp, Endpoints("id", chosen, known))
    starter = mock.patch.object(spark_cluster, "find", return_value=tmp / "spark")
    with machine(tmp, java=JAVA_17, redis_server=WAITS), starter:
        fetched()
        try:
            cluster.up(tmp)
        finally:
            found = endpoints.last(tmp)
            assert found is not None
            process.end([one for name, one in found.processes.items() if spark_cluster.is_spark(name)], grace_s=5)


def _project(tmp: Path) -> leftfold.App:
    (tmp / "streams.py").write_text("")
    (tmp / "leftfold.toml").write_text(
        '[project]\nname = "shop"\ndeclarations = ["streams.py"]\n[profile.local]\nspark = { master = "standalone" }\n'
    )
    return leftfold.open(tmp)


def spark_cluster_down(tmp: Path) -> None:
    _ = _project(tmp).spark


def spark_cluster_dead(tmp: Path) -> None:
    asked = Ports((20001,), (20002,), 20003, 20004, spark_master=(20005, 20006), spark_workers=((20007, 20008),))
    endpoints.write(tmp, Endpoints("id", asked, {"spark-master": Identity(1, "before the last reboot")}))
    _ = _project(tmp).spark


def spark_died(code: int) -> Callable[[Path], None]:
    """A process that is gone when the next call is made; tests/engine/test_poison.py kills a JVM."""

    def cause(tmp: Path) -> None:
        from py4j.protocol import Py4JNetworkError

        from leftfold.spark.died import tell_of_death

        def broken(_: str) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

        client = stand_in(send_command=broken)
        ends = f"raise SystemExit({code})" if code > 0 else f"import os; os.kill(os.getpid(), {-code})"
        gone = subprocess.Popen([sys.executable, "-c", ends])
        gateway = stand_in(proc=gone, _gateway_client=client)
        context = stand_in(_gateway=gateway, getConf=lambda: {"spark.driver.memory": "1g"})
        tell_of_death(stand_in(sparkContext=context), tmp / "spark.log")
        client.send_command("m\n")

    return cause


CAUSES: dict[str, Callable[[Path], None]] = {
    "spark-not-installed": spark_not_installed,
    "spark-failed": spark_failed,
    "spark-cluster-down": spark_cluster_down,
    "spark-cluster-down/dead": spark_cluster_dead,
    "spark-died": spark_died(3),
    "spark-died/killed": spark_died(-9),
}
