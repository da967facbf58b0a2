"""Compacted topics: what the real log cleaner leaves is whole in the archive."""

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from tests.uploader.beside import ON_BOTH
from tests.uploader.conftest import ArchiveOf


@ON_BOTH
def test_u12_segments_that_the_cleaner_emptied_do_not_stop_the_run(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """A segment of zero bytes covers its offsets: compaction removed all of them, and shipping continues after it."""
    archive = archive_of("emptied")
    cluster.create_topic(
        "emptied",
        assignment=[[1]],
        config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "20000"},
    )
    # Not idempotent: the last batch of a living producer would keep its place.
    values = [Record(b"%06d" % n + b"x" * 200, key=b"k") for n in range(500)]
    cluster.produce("emptied", values, partition=0, config={"enable.idempotence": "false"})
    directory = cluster.brokers[1].partition_directory("emptied", 0)
    wait_for(
        lambda: any(path.stat().st_size == 0 for path in sorted(directory.glob("*.log"))[:-1]),
        "the cleaner to empty a segment",
        60,
    )
    archive.agent()
    end = archive.wait_until_shipped()
    assert end > 0
    assert archive.read() == archive.oracle(end=end)
