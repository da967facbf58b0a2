"""The archive of a restored cluster: agents ship what is new, and readers return the records of both places once."""

from dataclasses import replace

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from tests.archive import record_of
from tests.tsctl.restore.lost import OPEN, PLAIN, TOPICS, TRANSACTIONS, Lost, below, read_all
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.copies import describe
from ts_common.archive.object_keys import PartitionKeys
from ts_common.model import TopicPartition
from ts_reader import Archive as Reader
from tsctl.verify.kafka_cluster import KafkaCluster

_SECONDS = 60


def ship_on(lost: Lost, cluster: LocalCluster) -> Lost:
    """Start the agents of a restored cluster; compare what they ship, and what readers return then.

    The cleaner may have compacted the compacted topic, so its records are not compared. A transaction stays open.

    Returns:
        what is left if the cluster is lost too.
    """
    archive = lost.archive
    archive.cluster, archive.agents = cluster, []
    for topic in TOPICS:
        cluster.alter_config(topic, {"segment.bytes": "20000"})
    for broker in cluster.brokers:
        archive.agent(broker)
    producer = cluster.producer({"transactional.id": "open again", "transaction.timeout.ms": 600_000})
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.produce(TRANSACTIONS, OPEN, partition=0)
    producer.flush(_SECONDS)
    for partition in lost.ends:
        records = [Record(bytes(4000), key=b"%d" % number) for number in range(20)]
        cluster.produce(partition.topic, records, partition=partition.partition)
    ids = {name: topic.topic_id for name, topic in KafkaCluster(cluster.bootstrap, {}).topics().items()}
    places = {
        partition: archive.keys.partition(partition, f"{partition.topic}~{ids[partition.topic]}")
        for partition in lost.ends
    }
    for partition, end in lost.ends.items():
        _wait_for_commit(archive, places[partition], end + 10)
    for agent in archive.agents:
        agent.kill()  # the archive stays as it is
    ends: dict[TopicPartition, int] = {}
    for partition, end in lost.ends.items():
        catalog = read_catalog(archive.store, places[partition])
        assert isinstance(catalog.commit, Commit)
        assert catalog.log_start == end
        copies = describe(archive.store, catalog.keys, catalog.segments)
        assert min(copy.end for copy in copies) > end  # none has restored records alone
        ends[partition] = catalog.commit.next_offset
    found_by_kafka = read_all(cluster)
    for level, expected in found_by_kafka.items():
        for topic in (PLAIN, TRANSACTIONS):
            scan = Reader(archive.location, archive.keys.cluster).scan(
                topic, include_headers=True, isolation_level=level
            )
            rows = map(record_of, scan.to_table().to_pylist())
            found = {(each.topic, each.partition, each.offset): each for each in rows}
            shown = {
                key: each
                for key, each in expected.items()
                if key[0] == topic and key[2] < ends.get(TopicPartition(*key[:2]), 0)
            }
            assert sorted(found) == sorted(shown), level
            assert found == shown
    return replace(lost, ends=ends, records=below(cluster, found_by_kafka, ends))


def _wait_for_commit(archive: Archive, keys: PartitionKeys, least: int) -> None:
    """Wait for a commit whose next offset is at least this one."""

    def found() -> bool:
        commit, _ = read_commit(archive.store, keys)
        return isinstance(commit, Commit) and commit.next_offset >= least

    def state() -> str:
        return "\n".join(agent.tail(20) for agent in archive.agents)

    wait_for(found, f"{keys.prefix} shipped up to {least}", _SECONDS, state=state)
