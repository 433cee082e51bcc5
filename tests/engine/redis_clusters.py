"""A real Redis Cluster of three masters and three replicas, which a test can break.

A test can make a replica lag, and let it take over: then its part of the store has gone back in time, and the rest has
not. It can move a slot from one master to another while clients use it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.cluster import RedisCluster

from leftfold.store.redis.cluster.buckets import BUCKETS, SLOTS, slot_of, tags
from tests.engine.projects import await_true

HOST = "127.0.0.1"
NODES = 6


class Node:
    """One server. It saves nothing: one that was killed comes back empty."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stopped = False
        with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
            self.port, self._bus = (int(probe.getsockname()[1]) for probe in (one, other))
        self.start()

    def start(self) -> None:
        directory = self._root / f"{self.port}"
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "port": self.port,
            "cluster-port": self._bus,
            "bind": HOST,
            "dir": directory,
            "save": "",
            "appendonly": "no",
            "cluster-enabled": "yes",
            "cluster-node-timeout": 1_000,
            "cluster-require-full-coverage": "no",
            "cluster-replica-validity-factor": 0,
            "repl-diskless-sync-delay": 0,
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", f"{value}")]
        self.process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        self.client: Any = redis.Redis(host=HOST, port=self.port, decode_responses=True)
        await_true(self._answers, timeout=60, what="redis-server")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        self._stopped = True

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)
        self._stopped = False

    def is_up(self) -> bool:
        return self.process.poll() is None and not self._stopped

    def role(self) -> str:
        return str(self.client.role()[0])

    def told(self, name: str) -> str:
        return str(self.client.cluster("info")[name])

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False


class RedisClusterNodes:
    def __init__(self, root: Path) -> None:
        self.nodes = {node.port: node for node in (Node(root) for _ in range(NODES))}
        addresses = [f"{HOST}:{port}" for port in self.nodes]
        create = ["redis-cli", "--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True, timeout=120)
        self.settle()
        self.url = "redis+cluster://" + ",".join(addresses)

    def settle(self) -> None:
        """Wait until every server knows one of each slot, and every master has a replica that has all it has."""
        await_true(self._settled, timeout=120, what="a whole Redis Cluster")

    def _settled(self) -> bool:
        try:
            if any(node.told("cluster_slots_ok") != f"{SLOTS}" for node in self.nodes.values()):
                return False
            for node in self.masters():
                told = node.client.info("replication")
                if told["connected_slaves"] < 1 or told["slave0"]["offset"] < told["master_repl_offset"]:
                    return False
            return len(self.masters()) == NODES // 2
        except redis.RedisError:
            return False

    def client(self) -> Any:
        """The library's own client: what a test sees must not pass through the code that is tested."""
        return RedisCluster(host=HOST, port=self.masters()[0].port, socket_timeout=5)

    def masters(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up() and node.role() == "master"]

    def owner(self, slot: int) -> Node:
        return self._owners()[slot]

    def buckets_of(self, master: Node) -> set[int]:
        owners = self._owners()
        return {bucket for bucket in range(BUCKETS) if owners[slot_of(tags()[bucket])] is master}

    def _owners(self) -> dict[int, Node]:
        ranges = self.masters()[0].client.execute_command("CLUSTER", "SLOTS")
        return {slot: self.nodes[int(at[1])] for first, last, at, *_ in ranges for slot in range(first, last + 1)}

    def replica_of(self, master: Node) -> Node:
        return self.nodes[int(master.client.info("replication")["slave0"]["port"])]

    def lag(self, master: Node) -> Node:
        """Stop the replica of a master: from now on it misses what is written. Returns the replica."""
        replica = self.replica_of(master)
        replica.stop()
        # Else the kernel would keep what the master sends, and the replica would read it when it goes on.
        master.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        return replica

    def fail_over(self, master: Node, replica: Node) -> None:
        """Kill a master, and let its replica take over with what it has."""
        master.kill()
        replica.go_on()
        await_true(lambda: self._is_master(replica), timeout=60, what="a replica that takes over")

    def _is_master(self, node: Node) -> bool:
        try:
            return node.role() == "master" and node.told("cluster_slots_ok") == f"{SLOTS}"
        except redis.RedisError:
            return False

    def replace(self, dead: Node) -> None:
        """Start a killed server again: it is now the replica of the one that took over from it."""
        dead.start()
        self.settle()

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()


@contextmanager
def redis_cluster_nodes(root: Path) -> Iterator[RedisClusterNodes]:
    nodes = RedisClusterNodes(root)
    try:
        yield nodes
    finally:
        nodes.close()
