"""Migrates a cluster of Kafka 3.9 from ZooKeeper to KRaft, by the steps of Kafka's documentation (KIP-866).

    with LocalCluster(brokers=2) as cluster, Migration(cluster) as migration:
        migration.begin()                  # 1. a KRaft controller in migration mode
        for broker in cluster.brokers:
            migration.join(broker)         # 2. each broker restarted, still in ZooKeeper mode; it registers there too
        migration.wait_taken_over()        # 3. the controller copied the metadata; it writes decisions to both
        for broker in cluster.brokers:
            migration.move(broker)         # 4. each broker restarted in KRaft mode
        migration.finalise()               # 5. the controller restarted without the way back: ZooKeeper is stale
        cluster.zookeeper.stop()           # 6. and not needed any more

`controller` is the one of step 1.
"""

from types import TracebackType
from typing import Self

from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.controller import Controller
from dev.local.waiting import wait_for

_MIGRATION_ENABLED = {"zookeeper.metadata.migration.enable": "true"}
_TAKEN_OVER = "Completed migration of metadata from ZooKeeper to KRaft"  # Kafka's `KRaftMigrationDriver`
_TAKEN_OVER_SECONDS = 120.0


class Migration:
    """The steps of a migration; see the module's docstring. Its controller ends with the block.

    Args:
        cluster: a running cluster in ZooKeeper mode.

    Raises:
        ValueError: the cluster runs without ZooKeeper.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        if cluster.zookeeper is None:
            raise ValueError("only a cluster with ZooKeeper can migrate")
        self._cluster = cluster
        properties = {
            **_MIGRATION_ENABLED,
            "zookeeper.connect": cluster.zookeeper.connect,
            "inter.broker.listener.name": "PLAINTEXT",  # of brokers that are still in ZooKeeper mode
        }
        directory = cluster.directory / "controller"
        self.controller = Controller(directory, cluster.logs, "3.9", cluster.cluster_id, properties)

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
        """Wait until the controller has all metadata and elects leaders."""
        wait_for(
            lambda: _TAKEN_OVER in self.controller.log.read_text(errors="replace"),
            "the controller to complete the migration of metadata",
            _TAKEN_OVER_SECONDS,
            state=self.controller.tail,
        )

    def move(self, broker: int) -> None:
        """Restart a broker in KRaft mode, with the same file and disks."""
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
        """Restart the controller without ZooKeeper: from now on it writes nothing there."""
        for key in ("zookeeper.connect", *_MIGRATION_ENABLED):
            del self.controller.properties[key]
        self.controller.restart()
