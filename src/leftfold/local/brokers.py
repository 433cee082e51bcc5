"""Kafka brokers as local processes: KRaft, each of them broker and controller.

Writes their settings and formats their directories. All paths in the settings are relative to the broker's own
directory, so a project may lie anywhere and may be moved while it is down.
"""

from __future__ import annotations

from pathlib import Path

from leftfold import jars
from leftfold.errors import LocalError
from leftfold.local import java, wire
from leftfold.local.endpoints import HOST, Endpoints
from leftfold.local.logfile import cause
from leftfold.local.service import Service

HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseG1GC")
LOGGING = ("-Dlog4j2.configurationFile=log4j2.properties", "-Dlog4j2.disable.jmx=true")
_LOG4J2 = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""


def settings(endpoints: Endpoints, node: int) -> dict[str, str]:
    """server.properties of one broker. Pure."""
    ports = endpoints.ports
    count = len(ports.brokers)
    copies, in_sync = (3, 2) if count >= 3 else (1, 1)
    voters = ",".join(f"{i}@{HOST}:{port}" for i, port in enumerate(ports.controllers, start=1))
    broker, controller = ports.brokers[node - 1], ports.controllers[node - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        # Static voters: a dynamic quorum keeps its ports in the metadata log, where a port that was taken stays taken.
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "data",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        # 50 partitions each by default, times three copies: a laptop's first consumer would wait for 150 directories.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.num.partitions": "6",
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        # Consumers of one laptop start together or not at all; 3 s of waiting for more only slows tests.
        "group.initial.rebalance.delay.ms": "100",
        # A killed broker may register again only when its old session is over: 9 s by default.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        # The default of 128 MB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def service(state: Path, endpoints: Endpoints, *, node: int, java_path: str) -> Service:
    """A broker, with its settings written where it will look for them."""
    directory = state / f"broker-{node}"
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "server.properties", "".join(f"{k}={v}\n" for k, v in settings(endpoints, node).items()))
    _write(directory / "log4j2.properties", _LOG4J2)
    return Service(
        name=f"broker-{node}",
        argv=(java_path, *HEAP, *java.FLAGS, *LOGGING, "-cp", _classpath(), "kafka.Kafka", "server.properties"),
        directory=directory,
        log=state / "logs" / f"broker-{node}.log",
        port=endpoints.ports.brokers[node - 1],
    )


def serves(endpoints: Endpoints, node: int) -> bool:
    """Whether the broker answers and counts itself among the living: registered and not fenced."""
    port = endpoints.ports.brokers[node - 1]
    return wire.live_brokers(port).get(node) == port


def sees_all(endpoints: Endpoints, node: int) -> bool:
    """Whether it counts everyone among the living. Once all do, a topic with three copies can be created."""
    ports = endpoints.ports.brokers
    return wire.live_brokers(ports[node - 1]) == dict(enumerate(ports, start=1))


def formatted(service: Service) -> bool:
    """meta.properties is the last file that a format writes, and it is renamed into place."""
    return (service.directory / "data" / "meta.properties").exists()


def format_argv(*, cluster_id: str, java_path: str) -> tuple[str, ...]:
    """Formats the directory it is run in. A second's work of a JVM, so three run at once."""
    tool = ("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", "server.properties")
    return (java_path, *java.BRIEF, *LOGGING, "-cp", _classpath(), *tool)


def unformatted(service: Service) -> LocalError:
    return LocalError(
        "broker-format-failed",
        f"the directory of {service.name} could not be formatted",
        why=f"{cause(service.log)}  ({service.log})",
        state="no broker was started; directories that were formatted stay so",
        fix="leftfold reset, then leftfold up",
    )


def _classpath() -> str:
    return f"{jars.ensure('kafka')}/*"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(path)
