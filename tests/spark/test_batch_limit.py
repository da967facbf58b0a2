"""`maxBatchBytes`: one batch never exhausts a worker's memory, in any mode, and the error names the option."""

import cramjam
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import batches
from tests.spark.archives import Archive
from ts_common.errors import BatchTooLarge, CorruptData

MIB = 1 << 20
ZSTD = 4
SHOWN = batches((0, 10))
BOMB = batch(10, body=bytes(cramjam.zstd.compress(record(0, value=bytes(3 * MIB)), 3)), count=1, attributes=ZSTD)


@pytest.fixture
def bomb(archive: Archive) -> Archive:
    """`[0,10)`, and a batch of one record of 3 MiB at 10 that takes 200 bytes."""
    archive.put_segment("t", 0, SHOWN + BOMB)
    archive.commit("t", 11)
    return archive


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
def test_r15_a_batch_beyond_the_limit_ends_the_query_in_every_mode(bomb: Archive, mode: str) -> None:
    """It is not damaged, so it is not passed over: partition, offset, and the option that shows it."""
    place = rf"batch of base offset 10 at position {len(SHOWN)}: .*, and maxBatchBytes allows {2 * MIB} "
    with pytest.raises(BatchTooLarge, match=rf"^t-0: .*\.log in file://.*{place}"):
        bomb.offsets(subscribe="t", maxBatchBytes=str(2 * MIB), mode=mode)
    assert bomb.offsets(subscribe="t", maxBatchBytes=str(4 * MIB), mode=mode) == list(range(11))
    assert bomb.offsets(subscribe="t", mode=mode) == list(range(11))


def test_a_timestamp_is_looked_for_within_the_limit(bomb: Archive) -> None:
    """The search decompresses too."""
    with pytest.raises(BatchTooLarge, match="maxBatchBytes"):
        bomb.offsets(
            subscribe="t",
            maxBatchBytes=str(2 * MIB),
            startingTimestamp="1500",
            startingOffsetsByTimestampStrategy="latest",
        )


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_r15_72_bytes_of_markers_end_a_query_at_once(archive: Archive, mode: str) -> None:
    """A record of -1 bytes, two billion times: `read_committed` looked for its end for hours."""
    body = b"\1\0\0\0\10\0\0\0\0\0\0"
    evil = batch(0, body=body, count=2**31 - 1, last_offset_delta=0, attributes=0x30, producer_id=5)
    archive.put_segment("t", 0, batches((0, 10)), body=evil, end=10)
    archive.commit("t", 10, last_stable_offset=None)
    with pytest.raises(CorruptData, match=r"t-0/00000000000000000000.log.* 2,147,483,647 records in 11 bytes"):
        archive.offsets(subscribe="t", mode=mode, **{"kafka.isolation.level": "read_committed"})
