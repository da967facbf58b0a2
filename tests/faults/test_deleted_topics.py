"""Topics that are deleted before all of them is shipped: the tail is in the archive, or a gap record names it (U45)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord
from tests.archive import read_incarnation
from tests.faults.files import SECONDS, live_bases, records, text_of
from tests.uploader.beside import BUCKET, Archive
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import PartitionKeys
from ts_common.log_format.checkpoints import parse_offset_checkpoint
from ts_common.model import TopicPartition

SMALL = {"segment.bytes": "20000"}
# An agent that did not see its broker lead records a gap only once the directory is removed.
OFTEN = {"replica.high.watermark.checkpoint.interval.ms": "300", "log.segment.delete.delay.ms": "20000"}


pytestmark = pytest.mark.full  # without the mark: `tests/uploader/leadership/kraft/test_leadership.py`


@pytest.fixture(scope="module", params=["4.1", "3.9"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Run one broker, of Kafka 4.1 in KRaft mode or of Kafka 3.9 with ZooKeeper."""
    mode = "kraft" if request.param == "4.1" else "zookeeper"
    with LocalCluster(mode=mode, s3=True, buckets=[BUCKET], properties=OFTEN, name="deleted") as cluster:  # type: ignore[arg-type]
        cluster.create_topic("other")  # its entry makes the broker rewrite the checkpoint
        yield cluster


@dataclass
class Doomed:
    """A topic that is about to be deleted.

    Attributes:
        archive: its archive.
        records: those that Kafka's consumer read.
        keys: of its incarnation.
    """

    archive: Archive
    records: list[OracleRecord]
    keys: PartitionKeys


def filled(cluster: LocalCluster, archive: Archive, first: int, then: int) -> Doomed:
    """Ship some records of a topic, then produce others without an agent, up to the broker's next checkpoint."""
    topic = archive.topic
    cluster.create_topic(topic, config=SMALL)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(first), partition=0)
    agent = archive.agent()
    archive.wait_until_shipped()
    agent.stop()
    cluster.produce(topic, records(then, start=first), partition=0)
    wait_for(lambda: high_watermark(directory, topic) == first + then, "the high watermark", SECONDS)
    produced = archive.oracle()
    assert len(live_bases(directory)) > 3
    return Doomed(archive, produced, archive.partition_keys())


def high_watermark(directory: Path, topic: str) -> int | None:
    found = parse_offset_checkpoint((directory.parent / "replication-offset-checkpoint").read_bytes())
    return found.get((topic, 0))


def deleted(cluster: LocalCluster, topic: str) -> Path:
    """Delete a topic, and return its renamed directory."""
    log_dir = cluster.brokers[1].log_dirs[0]
    cluster.delete_topic(topic)
    found = lambda: next((each for each in log_dir.glob(f"{topic}-0.*-delete")), None)  # noqa: E731
    return wait_for(found, f"{topic} to be renamed", SECONDS) or Path()


def created_again(cluster: LocalCluster, topic: str) -> None:
    def created() -> bool:
        try:
            cluster.create_topic(topic, config=SMALL)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(created, f"{topic} to be created again", SECONDS)


def end_of(doomed: Doomed) -> int:
    commit, _ = read_commit(doomed.archive.store, doomed.keys)
    return commit.next_offset if isinstance(commit, Commit) else 0


def kept(doomed: Doomed) -> tuple[list[OracleRecord], tuple[tuple[int, int], ...]]:
    """Wait until the commit is at the log's end; return the records in the archive, and the recorded gaps."""
    end = len(doomed.records)

    def told() -> str:
        return "\n".join([str(end_of(doomed)), *(agent.tail(30) for agent in doomed.archive.agents)])

    wait_for(lambda: end_of(doomed) == end, "the commit at the log's end", SECONDS, state=told)
    found, holes = read_incarnation(doomed.archive.store, doomed.keys)
    assert tuple(holes) == read_catalog(doomed.archive.store, doomed.keys).gaps
    return found, tuple(holes)


def test_u45_a_deleted_topic_keeps_its_closed_and_its_active_segment(
    cluster: LocalCluster, archive_of: Callable[..., Archive]
) -> None:
    """The agent runs: every record below the last high watermark is in the archive, and nothing is a gap."""
    archive = archive_of("doomed")
    doomed = filled(cluster, archive, 300, 300)
    agent = archive.agent()
    archive.wait_until_shipped()
    deleted(cluster, "doomed")
    found, gaps = kept(doomed)
    assert found == doomed.records
    assert gaps == ()
    assert "deleted_topic_lost" not in text_of(agent)


def test_u45_a_topic_that_is_deleted_while_the_agent_is_down_is_shipped_from_its_directory(
    cluster: LocalCluster, archive_of: Callable[..., Archive]
) -> None:
    """Each record is in the archive, or in a gap record if the checkpoint no longer has the high watermark."""
    archive = archive_of("doomed-down")
    doomed = filled(cluster, archive, 300, 300)
    deleted(cluster, "doomed-down")
    archive.agent()
    found, gaps = kept(doomed)
    missing = {offset for low, high in gaps for offset in range(low, high)}
    assert found == [record for record in doomed.records if record.offset not in missing]


def test_u45_a_topic_created_again_while_the_agent_is_down_never_mixes_with_the_deleted_one(
    cluster: LocalCluster, archive_of: Callable[..., Archive]
) -> None:
    """The deleted topic's records are in its own incarnation, the new ones in the next; no record is lost silently."""
    archive = archive_of("reborn-down")
    doomed = filled(cluster, archive, 300, 300)
    deleted(cluster, "reborn-down")
    created_again(cluster, "reborn-down")
    cluster.produce("reborn-down", records(500, start=5000), partition=0)
    archive.agent()
    found, gaps = kept(doomed)
    missing = {offset for low, high in gaps for offset in range(low, high)}
    assert found == [record for record in doomed.records if record.offset not in missing]
    wait_for(lambda: len(read_incarnations(archive.store, archive.keys, archive.topic)[0].entries) == 2, "two", SECONDS)
    directory = cluster.brokers[1].partition_directory(archive.topic, 0)
    newest = read_incarnations(archive.store, archive.keys, archive.topic)[0].newest_directory
    keys = archive.keys.partition(TopicPartition(archive.topic, 0), newest)
    active = live_bases(directory)[-1]
    wait_for(lambda: end_of(Doomed(archive, [], keys)) >= active, "the new topic to be shipped", SECONDS)
    assert archive.read() == archive.oracle(end=active)
