"""A bucket that the Java uploader wrote is taken over (protocol rule 12)."""

import shutil
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from tests.uploader.beside import ON_BOTH
from tests.uploader.conftest import ArchiveOf
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import ForeignCommit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.takeover import walk_run

JAVA_BUCKET = Path(__file__).parents[2] / "data" / "java-uploader" / "bucket-archive" / "kafka"
ENTROPY_BITS = 3
COMMITTED_END = 287  # of the segment 200, which the Java uploader's watermark names; 287 itself is not committed


def test_the_run_of_a_java_bucket_ends_with_the_segment_that_its_commit_names(store: ObjectStore) -> None:
    """The next segment is in the bucket too, but no commit names it."""
    upload_java_bucket(store)
    keys = ClusterKeys("my_test_kafka_cluster", ENTROPY_BITS).partition(TopicPartition("appendtime", 0))
    catalog = read_catalog(store, keys)
    assert catalog.commit == ForeignCommit(200)
    assert COMMITTED_END in {each.name.base for each in catalog.segments}
    run = walk_run(store, catalog, 0)
    assert (run.next_offset, run.highest_base, run.holes) == (COMMITTED_END, 200, ())


# A broker starts again; `tests/faults/fleet` has agents that take over from a Java uploader.
@pytest.mark.full
@ON_BOTH
def test_a_java_bucket_is_taken_over_without_loss_or_repetition(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The run continues at the end of the Java uploader's, its objects stay as they are, and the agent's follow."""
    cluster.create_topic("appendtime", assignment=[[1]], config={"segment.bytes": "16384"})
    place_segments_of_the_java_broker(cluster)
    archive = archive_of("appendtime", cluster_id="my_test_kafka_cluster", entropy_bits=ENTROPY_BITS)
    upload_java_bucket(archive.store)
    before = archive.objects()
    foreign, _ = read_commit(archive.store, archive.partition_keys())
    assert foreign == ForeignCommit(200)
    cluster.produce("appendtime", [Record(b"new" * 50, key=b"%d" % n) for n in range(500)], partition=0)

    agent = archive.agent()
    end = archive.wait_until_shipped()

    assert end > COMMITTED_END
    commit = archive.commit()
    assert commit is not None
    assert commit.next_offset == end
    assert archive.read() == archive.oracle(end=end)
    after = archive.objects()
    assert {key: after[key] for key in before if not key.endswith("offset.wm")} == {
        key: etag for key, etag in before.items() if not key.endswith("offset.wm")
    }
    # 287 was in the bucket already, byte for byte, so even that is not sent again.
    assert agent.metrics()['ts_uploader_segments_total{outcome="found"}'] == 1


def place_segments_of_the_java_broker(cluster: LocalCluster) -> None:
    """Give the broker the very log that the Java uploader shipped, as its own."""
    broker = cluster.brokers[1]
    broker.stop()
    directory = broker.partition_directory("appendtime", 0)
    for path in directory.glob("0*"):
        path.unlink()
    for path in next(JAVA_BUCKET.rglob("appendtime-0")).glob("*.log"):
        shutil.copy(path, directory)
    broker.start()


def upload_java_bucket(store: ObjectStore) -> None:
    """Put the Java uploader's objects, as they are."""
    for path in JAVA_BUCKET.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(JAVA_BUCKET).as_posix(), path.read_bytes())
