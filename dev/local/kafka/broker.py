"""Real Kafka brokers: ZooKeeper mode on 3.9, KRaft on 4.x or 3.9.

A broker's `server.properties` is rendered before each start from the dict `properties`. To change settings, change the
dict and restart. The agent reads that file (`server_properties`).

    Broker                 a Server (start, stop, kill, pause, resume, restart) and
      id, port, bootstrap  its id, its port, "127.0.0.1:<port>"
      server_properties    path of the file
      log_dirs             list of directories
      properties           dict[str, str], rendered at the next start
      heap_mb, options     of its JVM, from the next start on
      partition_directory(topic, partition)   the partition's directory, in any log dir
      cluster_id()         from meta.properties
    ZooKeeperBroker        also expire_session(): leadership moves now, not at the timeout of a lost broker's session;
                           `dev.local.kafka.migration` moves it to KRaft
    KRaftBroker            also controller_port; one without a controller is broker and controller
"""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AdminClient,
    BrokerMetadata,
    ClusterMetadata,
)

from dev.local.jars import Line
from dev.local.jvm import java_command, temporary_files_in
from dev.local.kafka.controller import IDLE_QUORUM, Controller
from dev.local.kafka.storage import format_storage
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

# Defaults for tests; each can be overridden. Times are milliseconds.
DEFAULTS: Mapping[str, str] = {
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The agent ships only below the high watermark in this checkpoint; the interval is 5 s in production.
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    # Tests need records with timestamps of years ago, and a week's retention would delete them at once. A topic may
    # still set its own retention.ms.
    "log.retention.ms": "-1",
    # In production, retention and the cleaner begin 30 s after the start, and run every 5 minutes and 15 s.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # 128 MB by default, of a heap of 256.
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}
_NO_LOGS = {"log_level": 0}  # librdkafka writes each refused connection to stderr


class Broker(Server):
    """The part that both modes share; see the module's docstring."""

    line: Line
    heap_mb = 384

    def __init__(self, node_id: int, directory: Path, logs: Path, properties: Mapping[str, str], log_dirs: int) -> None:
        super().__init__(f"broker-{node_id}", directory, logs / f"broker-{node_id}.log")
        self.id = node_id
        self.port = free_port()
        self.bootstrap = f"{LOOPBACK}:{self.port}"
        self.server_properties = directory / "server.properties"
        self.options: list[str] = []
        self.log_dirs = [directory / f"data-{number}" for number in range(log_dirs)]
        self.properties = {
            **DEFAULTS,
            **self.mode_properties(),
            "log.dirs": ",".join(map(str, self.log_dirs)),
            **properties,
        }

    @abstractmethod
    def mode_properties(self) -> dict[str, str]:
        """Return identity, listeners and the place of the metadata."""

    def prepare(self) -> None:
        """Write `server.properties`."""
        lines = [f"{key}={value}\n" for key, value in self.properties.items()]
        self.server_properties.write_text("".join(lines))

    def command(self) -> list[str]:
        """Return the command of Kafka's main class."""
        return java_command(
            self.line,
            "kafka.Kafka",
            [str(self.server_properties)],
            heap_mb=self.heap_mb,
            options=[*self.options, *temporary_files_in(self.directory)],
        )

    def not_ready(self) -> str | None:
        """Read the cluster's metadata from this broker; the broker itself must be in it."""
        try:
            metadata = self.metadata(1.0)
        except KafkaException as error:
            return f"{self.bootstrap}: {error.args[0]}"
        known: dict[int, BrokerMetadata] = metadata.brokers
        return None if self.id in known else f"{self.bootstrap} lists the brokers {sorted(known)}, without itself"

    def metadata(self, seconds: float = 10.0) -> ClusterMetadata:
        """Return the cluster's metadata from this broker.

        Raises:
            KafkaException: no answer within `seconds`.
        """
        # A new client has no other broker to send the request to.
        return AdminClient({"bootstrap.servers": self.bootstrap, **_NO_LOGS}).list_topics(timeout=seconds)

    def holds(self, topic: str, partition: int) -> bool:
        """Return whether this broker has a directory of the partition."""
        return any((log_dir / f"{topic}-{partition}").is_dir() for log_dir in self.log_dirs)

    def partition_directory(self, topic: str, partition: int) -> Path:
        """Return the partition's directory, in any log dir.

        Raises:
            FileNotFoundError: this broker has no such directory.
        """
        name = f"{topic}-{partition}"
        for log_dir in self.log_dirs:
            if (log_dir / name).is_dir():
                return log_dir / name
        raise FileNotFoundError(f"{self.name} has no {name} in {', '.join(map(str, self.log_dirs))}")

    def cluster_id(self) -> str:
        """Return the cluster's id, from `meta.properties` in the first log dir.

        Raises:
            LookupError: the file has no id.
            FileNotFoundError: the broker has never run.
        """
        meta = self.log_dirs[0] / "meta.properties"
        for text in meta.read_text().splitlines():
            key, _, value = text.partition("=")
            if key == "cluster.id":
                return value
        raise LookupError(f"{meta} names no cluster.id")


class ZooKeeperBroker(Broker):
    """A broker of Kafka 3.9 with its metadata in ZooKeeper, unless its `properties` have `process.roles`."""

    line: Line = "3.9"

    @property
    def migrated(self) -> bool:
        """Return whether it starts in KRaft mode."""
        return "process.roles" in self.properties

    def __init__(
        self,
        node_id: int,
        directory: Path,
        logs: Path,
        zookeeper: ZooKeeper,
        properties: Mapping[str, str],
        log_dirs: int = 1,
    ) -> None:
        self._zookeeper = zookeeper
        super().__init__(node_id, directory, logs, properties, log_dirs)

    def mode_properties(self) -> dict[str, str]:
        """Return identity, listener and ZooKeeper."""
        return {
            "broker.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "zookeeper.connect": self._zookeeper.connect,
            # A killed or paused broker keeps its leadership for this time.
            "zookeeper.session.timeout.ms": "6000",
        }

    def prepare(self) -> None:
        """Write `server.properties`, and free the broker's id if a killed process's session still holds it."""
        super().prepare()
        # Kafka does not start while its own dead registration exists.
        if self._process is not None and not self.migrated and self._zookeeper.answers:
            self.expire_session()

    def not_ready(self) -> str | None:
        """Check the broker, and in ZooKeeper mode its registration."""
        missing = super().not_ready()
        if missing is None and not self.migrated and self.id not in self._zookeeper.registered_brokers():
            missing = f"/brokers/ids/{self.id} is absent"
        return missing

    def expire_session(self) -> None:
        """End the broker's session after kill() or pause(), so that other brokers become leaders at once.

        Raises:
            RuntimeError: the broker answers, and would make another session.
            WaitTimedOutError: the session did not end.
        """
        if self.answers:
            raise RuntimeError(f"{self.name} answers; only a killed or paused broker's session can be ended")
        self._zookeeper.expire_session(self.id)


class KRaftBroker(Broker):
    """A broker in KRaft mode, of Kafka 4.x; without a `controller` it is the cluster's controller too."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        logs: Path,
        cluster_id: str,
        properties: Mapping[str, str],
        controller: "KRaftBroker | Controller | None" = None,
        log_dirs: int = 1,
        line: Line = "4",
    ) -> None:
        self.line = line
        self._format_id = cluster_id
        self._controller = controller
        if isinstance(controller, KRaftBroker):
            self.controller_port: int = controller.controller_port
        else:
            self.controller_port = free_port() if controller is None else controller.port
        super().__init__(node_id, directory, logs, properties, log_dirs)

    def mode_properties(self) -> dict[str, str]:
        """Return identity, roles, listeners and the controller."""
        listener = f"PLAINTEXT://{self.bootstrap}"
        controller = f"{LOOPBACK}:{self.controller_port}"
        leads = self._controller is None
        voter = self.id if self._controller is None else self._controller.id
        return {
            "node.id": str(self.id),
            "process.roles": "broker,controller" if leads else "broker",
            "listeners": f"{listener},CONTROLLER://{controller}" if leads else listener,
            "advertised.listeners": listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{voter}@{controller}",
            **IDLE_QUORUM,
            # A killed or paused broker keeps its leadership and its id for this time.
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "500",
            "group.coordinator.rebalance.protocols": "classic,consumer",
        }

    def prepare(self) -> None:
        """Write `server.properties`, and format the log dirs before the first start."""
        super().prepare()
        format_storage(self.line, self._format_id, self.id, self.log_dirs)
