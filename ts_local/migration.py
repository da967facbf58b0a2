"""A cluster of Kafka 3.9 goes over from ZooKeeper to KRaft, by the steps of Kafka's documentation (KIP-866).

    with LocalCluster(brokers=2) as cluster, Migration(cluster) as migration:
        migration.begin()                  # 1. a KRaft controller that is told to migrate
        for broker in cluster.brokers:
            migration.join(broker)         # 2. each broker restarted, in ZooKeeper mode still; it registers there too
        migration.wait_taken_over()        # 3. the controller copied the metadata; what it decides it writes to both
        for broker in cluster.brokers:
            migration.move(broker)         # 4. each broker restarted in KRaft mode
        migration.finalise()               # 5. the controller restarted without the way back: ZooKeeper is stale
        cluster.zookeeper.stop()           # 6. and not needed any more

`Controller` is the Server of step 1: `process.roles=controller` on a free port of its own.
"""

import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from ts_local.cluster import LocalCluster
from ts_local.jvm import java_command, temporary_files_in
from ts_local.ports import LOOPBACK, free_port
from ts_local.process import Server, ServerDiedError
from ts_local.waiting import wait_for
from ts_local.zookeeper import ZooKeeper

CONTROLLER_ID = 3000
_MIGRATION_ENABLED = {"zookeeper.metadata.migration.enable": "true"}
_TAKEN_OVER = "Completed migration of metadata from ZooKeeper to KRaft"  # Kafka's `KRaftMigrationDriver`
_TAKEN_OVER_SECONDS = 120.0


class Controller(Server):
    """A KRaft controller of Kafka 3.9, alone in its quorum; at first one that migrates.

    Args:
        directory: its data.
        logs: directory of its log.
        cluster_id: the migrating cluster's own.
        zookeeper: where that cluster's metadata are.

    Attributes:
        properties: as rendered at the next start.
    """

    def __init__(self, directory: Path, logs: Path, cluster_id: str, zookeeper: ZooKeeper) -> None:
        super().__init__("controller", directory, logs / "controller.log")
        self._cluster_id = cluster_id
        self._address = f"{LOOPBACK}:{free_port()}"
        self._data = directory / "data"
        self._file = directory / "controller.properties"
        self.properties = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": f"CONTROLLER://{self._address}",
            "inter.broker.listener.name": "PLAINTEXT",  # where it finds brokers that are in ZooKeeper mode still
            "log.dirs": str(self._data),
            **self.quorum(),
            **_MIGRATION_ENABLED,
            "zookeeper.connect": zookeeper.connect,
            "broker.session.timeout.ms": "6000",
        }

    def quorum(self) -> dict[str, str]:
        """What brokers need to find it."""
        return {
            "controller.quorum.voters": f"{CONTROLLER_ID}@{self._address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def prepare(self) -> None:
        """Write its file, and format its directory before the first start.

        Raises:
            ServerDiedError: the storage tool failed; the message holds what it said.
        """
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        if (self._data / "meta.properties").exists():
            return
        arguments = ["format", "--cluster-id", self._cluster_id, "--config", str(self._file)]
        command = java_command("3.9", "kafka.tools.StorageTool", arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerDiedError(f"{self.name} could not be formatted:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        """Kafka's own main."""
        return java_command("3.9", "kafka.Kafka", [str(self._file)], options=temporary_files_in(self.directory))

    def not_ready(self) -> str | None:
        """Listens; whether it leads its quorum of one, brokers find out."""
        host, _, port = self._address.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=0.5).close()
        except OSError as error:
            return f"{self._address}: {error}"
        return None


class Migration:
    """The steps of a migration; see the module's page. Its controller ends with the block.

    Args:
        cluster: up, in ZooKeeper mode.

    Raises:
        ValueError: the cluster runs without ZooKeeper.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        if cluster.zookeeper is None:
            raise ValueError("only a cluster with ZooKeeper can migrate")
        self._cluster = cluster
        self.controller = Controller(
            cluster.directory / "controller", cluster.logs, cluster.cluster_id, cluster.zookeeper
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.controller.tail())
        self.controller.kill()

    def begin(self) -> None:
        """Start the controller; it waits until every broker has joined."""
        self.controller.start()

    def join(self, broker: int) -> None:
        """Restart a broker, in ZooKeeper mode, so that it registers with the controller too."""
        joining = self._cluster.zookeeper_broker(broker)
        joining.properties |= {
            **_MIGRATION_ENABLED,
            **self.controller.quorum(),
            "inter.broker.protocol.version": "3.9",
        }
        joining.restart()

    def wait_taken_over(self) -> None:
        """Until the controller has all metadata, and is the one that elects leaders."""
        wait_for(
            lambda: _TAKEN_OVER in self.controller.log.read_text(errors="replace"),
            "the controller to take the cluster over",
            _TAKEN_OVER_SECONDS,
            state=self.controller.tail,
        )

    def move(self, broker: int) -> None:
        """Restart a broker in KRaft mode, with the same file on the same disks."""
        moving = self._cluster.zookeeper_broker(broker)
        moving.stop()
        for key in [*moving.properties]:
            if key.startswith("zookeeper.") or key in {"broker.id", "inter.broker.protocol.version"}:
                del moving.properties[key]
        moving.properties |= {
            "process.roles": "broker",
            "node.id": str(moving.id),
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "6000",
        }
        moving.start()

    def finalise(self) -> None:
        """Restart the controller without ZooKeeper: from now on nobody writes there."""
        for key in ("zookeeper.connect", *_MIGRATION_ENABLED):
            del self.controller.properties[key]
        self.controller.restart()
