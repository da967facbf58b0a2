"""What readers see of a topic whose live tail real agents ship."""

import ts_reader
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, OracleRecord
from tests.archive import record_of
from tests.faults.leaders import PATIENCE
from tests.uploader.beside import PREFIX, Archive
from ts_common.errors import QueryError

TAIL = {PREFIX + "tail.interval.ms": "200"}


def shown(archive: Archive, isolation: Isolation = "read_uncommitted") -> list[OracleRecord]:
    """Return what readers see, with the live tail."""
    try:
        opened = ts_reader.Archive(archive.location, archive.keys.cluster, workers=1)
        scan = opened.scan(archive.topic, include_headers=True, isolation_level=isolation)
        return [record_of(row) for row in scan.to_table().to_pylist()]
    except QueryError:
        return []  # the agent has not begun it yet


def wait_shown(archive: Archive, end: int) -> list[OracleRecord]:
    """Wait until readers see all records below an offset."""
    wait_for(
        lambda: bool(seen := shown(archive)) and seen[-1].offset >= end - 1,
        f"{archive.topic} to be shown up to {end}",
        PATIENCE,
        state=lambda: "\n".join([str(archive.commit()), *(agent.tail(10) for agent in archive.agents)]),
    )
    return shown(archive)


def transact(cluster: LocalCluster, topic: str) -> None:
    """Produce a transaction that commits, one that aborts, and leave one open until the broker ends it."""
    producer = cluster.producer({"transactional.id": f"{topic}-t", "transaction.timeout.ms": 10_000})
    producer.init_transactions(PATIENCE)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"transaction-%d" % number, partition=0)
        ends(PATIENCE)
