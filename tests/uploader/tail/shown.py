"""What readers see of a topic whose live tail real agents ship."""

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, OracleRecord
from tests.archive import record_of
from tests.faults.leaders import PATIENCE
from tests.uploader.beside import PREFIX, Archive
from ts_common.errors import QueryError

TAIL = {PREFIX + "tail.interval.ms": "200"}
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}  # of a topic
LEVELS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")


def shown(archive: Archive, isolation: Isolation = "read_uncommitted") -> list[OracleRecord]:
    """Return what readers see, with the live tail."""
    try:
        opened = ts_reader.Archive(archive.location, archive.keys.cluster, workers=1)
        scan = opened.scan(archive.topic, include_headers=True, isolation_level=isolation)
        return [record_of(row) for row in scan.to_table().to_pylist()]
    except QueryError:
        return []  # the agent has not begun it yet


def shown_end(archive: Archive, partition: int = 0) -> int:
    """Return the end of what readers see, with the live tail; 0 before the agent has begun it."""
    try:
        found = ts_reader.Archive(archive.location, archive.keys.cluster, workers=1).partitions(archive.topic)
    except QueryError:
        return 0
    return next((each.end for each in found if each.partition == partition), 0)


def wait_shown(archive: Archive, end: int, partition: int = 0, seconds: float = PATIENCE) -> list[OracleRecord]:
    """Wait until readers see all offsets of a partition below an end; return what they see of the topic."""
    wait_for(
        lambda: shown_end(archive, partition) >= end,
        f"{archive.topic} to be shown up to {end}",
        seconds,
        state=lambda: "\n".join([str(archive.commit()), *(agent.tail(10) for agent in archive.agents)]),
    )
    return shown(archive)


def transact(cluster: LocalCluster, topic: str) -> None:
    """Produce a transaction that commits, and one that aborts."""
    producer = cluster.producer({"transactional.id": f"{topic}-t"})
    producer.init_transactions(PATIENCE)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"transaction-%d" % number, partition=0)
        producer.flush(PATIENCE)  # an abort would drop unsent records
        ends(PATIENCE)
