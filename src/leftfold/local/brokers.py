"""Kafka brokers as local processes, in KRaft mode: each process is both broker and controller.

This module writes their settings and gives the command that formats their directories. All paths in the settings are
relative to the broker's own directory, so a project may be anywhere and may be moved while the cluster is down.
"""

from __future__ import annotations

from pathlib import Path

from leftfold import class_archive, jars, private
from leftfold.errors import LocalError
from leftfold.local import java, wire
from leftfold.local.endpoints import HOST, Endpoints
from leftfold.local.logfile import cause
from leftfold.local.service import Service

HEAP = ("-Xms128m", "-Xmx512m")
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
    """The content of one broker's server.properties. A pure function."""
    ports = endpoints.ports
    count = len(ports.brokers)
    copies, in_sync = (3, 2) if count >= 3 else (1, 1)
    voters = ",".join(f"{i}@{HOST}:{port}" for i, port in enumerate(ports.controllers, start=1))
    broker, controller = ports.brokers[node - 1], ports.controllers[node - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        # Static voters: a dynamic quorum stores its ports in the metadata log, where a lost port cannot be replaced.
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
        # The default is 50 partitions each. With three replicas, the first consumer would wait for 150 directories.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
        "share.coordinator.state.topic.num.partitions": "6",
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        # Consumers on one laptop start together or not at all. The default wait of 3 s for more only slows down tests.
        "group.initial.rebalance.delay.ms": "100",
        # A member that was killed keeps its partitions until its session ends, by default for 45 s.
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "300",
        # A killed broker can register again only after its old session has timed out: 9 s by default.
        "broker.session.timeout.ms": "6000",
        # After 60 s by default a broker that the controllers did not register ends itself. On a busy machine three
        # brokers that start together take longer to elect a controller.
        "initial.broker.registration.timeout.ms": "240000",
        "broker.heartbeat.interval.ms": "1000",
        # An idle controller writes a record twice a second by default, and three brokers work on each.
        "metadata.max.idle.interval.ms": "5000",
        # The default of 128 MB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def service(state: Path, endpoints: Endpoints, *, node: int, java_path: str) -> Service:
    """Describe one broker's process, and write its settings where it will look for them."""
    directory = state / f"broker-{node}"
    private.directory(directory)
    _write(directory / "server.properties", "".join(f"{k}={v}\n" for k, v in settings(endpoints, node).items()))
    _write(directory / "log4j2.properties", _LOG4J2)
    return Service(
        name=f"broker-{node}",
        argv=(
            *(java_path, *HEAP, *_archived(), *java.BRIEF, *java.FLAGS, *LOGGING),
            *("-cp", _classpath(), "kafka.Kafka", "server.properties"),
        ),
        directory=directory,
        log=state / "logs" / f"broker-{node}.log",
        port=endpoints.ports.brokers[node - 1],
    )


def serves(endpoints: Endpoints, node: int) -> bool:
    """Return whether the broker answers and reports itself as alive: registered and not fenced."""
    port = endpoints.ports.brokers[node - 1]
    return wire.live_brokers(port).get(node) == port


def sees_all(endpoints: Endpoints, node: int) -> bool:
    """Return whether the broker sees all brokers as alive. Once all do, a topic with three replicas can be created."""
    ports = endpoints.ports.brokers
    return wire.live_brokers(ports[node - 1]) == dict(enumerate(ports, start=1))


def formatted(service: Service) -> bool:
    """True if meta.properties exists. It is the last file that a format writes, and it is renamed into place."""
    return (service.directory / "data" / "meta.properties").exists()


def format_argv(*, cluster_id: str, java_path: str) -> tuple[str, ...]:
    """The command that formats the directory in which it runs. It takes a JVM about a second, so three run at once."""
    tool = ("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", "server.properties")
    return (java_path, *_archived(), *java.BRIEF, *LOGGING, "-cp", _classpath(), *tool)


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


def _archived() -> tuple[str, ...]:
    return class_archive.flags(jars.cache_home(), jars.ensure("kafka"))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(path)
