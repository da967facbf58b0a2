"""Java uploaders on brokers."""

from dev.local.kafka.cluster import wait_for
from tests.faults.leaders import (
    PATIENCE,
)
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import ForeignCommit


def wait_java_shipped(archive: Archive, above: int, partition: int = 0) -> int:
    """Wait until a Java uploader's commit names a segment above an offset; return that name."""

    def named() -> int | None:
        found, _ = read_commit(archive.store, archive.partition_keys(partition))
        return found.highest_base if isinstance(found, ForeignCommit) and found.highest_base > above else None

    return wait_for(named, f"a Java uploader's commit above {above}", PATIENCE) or 0
