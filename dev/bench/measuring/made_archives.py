"""Archives without a broker: segments of any size that repeat one batch, with their indexes.

aiokafka encodes the batch; base offset, timestamps and CRC are set for each. The objects are put as the agent does it.
"""

import random
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from awscrt.checksums import crc32c

from dev.bench.measuring.records import json_value, key
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

CLUSTER: Final = "bench"
TIME: Final = 1_700_000_000_000
RECORDS_A_BATCH: Final = 51  # of 11 + 300 bytes and the fields around them: 16 KiB
NONE: Final = 0
LZ4: Final = 3  # Kafka's numbers of the codecs
ZSTD: Final = 4


def small_records(count: int, codec: int = NONE) -> bytes:
    """Return a batch of records of 300 bytes, without base offset and timestamps."""
    generator = random.Random(7)
    return batch_of([json_value(generator, index) for index in range(count)], codec)


def batch_of(values: Sequence[bytes], codec: int = NONE) -> bytes:
    """Return a batch of these values, without base offset and timestamps."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for index, value in enumerate(values):
        builder.append(index, TIME + index, key(index), value, [])
    return bytes(builder.build())


def template_segment(
    pattern: bytes, base: int, records: int, batches: int, first_ms: int, batch_ms: int
) -> tuple[bytes, ...]:
    """Return `.log`, `.index` and `.timeindex` of this many batches, consecutive in time."""
    log, index, timeindex = bytearray(), bytearray(), bytearray()
    for number in range(batches):
        batch = bytearray(pattern)
        offset, time = base + number * records, first_ms + number * batch_ms
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">qq", batch, 27, time, time + records - 1)
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
        if number:
            last = offset + records - 1 - base
            index += struct.pack(">ii", last, len(log))
            timeindex += struct.pack(">qi", time + records - 1, last)
        log += batch
    return bytes(log), bytes(index), bytes(timeindex)


def ship(
    store: ObjectStore,
    topic: str,
    segments: Sequence[tuple[int, tuple[bytes, ...]]],
    end: int,
    partition: int = 0,
) -> int:
    """Put a partition as the agent does, and return the bytes of its `.log` objects. An empty index is omitted."""
    keys = ClusterKeys(CLUSTER).partition(TopicPartition(topic, partition))
    store.put(keys.log_start, encode_log_start(0))

    def put(one: tuple[int, tuple[bytes, ...]]) -> int:
        base, (log, index, timeindex) = one
        name = SegmentName(base)
        for suffix, data in ((".index", index), (".timeindex", timeindex)):
            if data:
                store.put(keys.segment(name, suffix), data)
        times = TimeIndex(base, timeindex) if timeindex else None
        metadata = metadata_of(scan_segment(BytesIO(log), len(log), times), base, topic)
        store.put(keys.segment(name), log, metadata=metadata.encode())
        return len(log)

    with ThreadPoolExecutor(16) as pool:
        total = sum(pool.map(put, segments))
    commit = Commit(segments[-1][0], end, 0, EpochHistory(((0, 0),)), end, None, 1, 0, "nonce")
    store.put(keys.commit, commit.encode())
    return total
