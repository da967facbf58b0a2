"""Segments that a real broker wrote in the formats of Kafka 0.9 and 0.10, against Kafka's Java consumer.

`make test` has messages that no producer sends. `tests/reader/test_oracle_topics.py` reads topics of the other kinds
too, of some codecs: `magic-0-gzip`, `of-old-1-lz4`, `compacted-1-none` and `upgraded`.
"""

import os
import struct
from collections.abc import Iterator
from functools import partial

import pytest
from awscrt.checksums import crc32

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import dump
from tests.common.log_format.build import message
from tests.common.log_format.legacy_messages import GZIP, packed
from tests.common.log_format.old_brokers import (
    CODECS,
    FORMATS,
    OLD_PROTOCOL,
    closed,
    headers,
    produce_as_of_old,
    produce_set,
    write_in,
)
from tests.every_field import TIME, every_field
from tests.reader.decode.decoded_rows import Row, rows_of
from ts_common.log_format.framing import Trailing
from ts_reader.decode.columns import BufferPool, Projection
from ts_reader.decode.segment_decoder import SegmentDecoder

SMALL = {"segment.bytes": "30000", "index.interval.bytes": "1000"}
COMPACTED = {
    "segment.bytes": "60000",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Start a broker of 3.9, which writes old formats if a topic's configuration requires them."""
    with LocalCluster(properties=OLD_PROTOCOL, name="old-formats") as cluster:
        yield cluster


def shown(segments: list[bytes], chunk: int) -> list[Row]:
    """Their rows; each segment is read to its end."""
    rows, pool = list[Row](), BufferPool(Projection(), 100, 1 << 20)
    for data in segments:
        decoder = SegmentDecoder(max_rows=100, max_bytes=1 << 20, pool=pool, size=len(data))
        for columns in decoder.decode(data[start : start + chunk] for start in range(0, len(data), chunk)):
            rows += rows_of(columns)
        assert (decoder.trailing, decoder.valid_bytes) == (Trailing.NONE, len(data))
    return rows


def consumed(cluster: LocalCluster, topic: str) -> dict[int, list[Row]]:
    """What Kafka's Java consumer shows, by partition."""
    found: dict[int, list[Row]] = {}
    for r in dump(cluster.bootstrap, topic):
        row = (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
        found.setdefault(r.partition, []).append(row)
    return found


def assert_equal_to_consumer(cluster: LocalCluster, topic: str, partitions: int) -> None:
    expected = consumed(cluster, topic)
    for partition in range(partitions):
        segments, end = closed(cluster, topic, partition)
        assert segments
        wanted = [row for row in expected[partition] if row[0] < end]
        for chunk in (1 << 20, 777):
            assert shown(segments, chunk) == wanted
        every = b"".join(segments)
        middle = wanted[len(wanted) // 2][0] + 1
        for start, stop in ((0, middle), (middle, end), (middle, middle + 1)):
            cut = [r for c in SegmentDecoder(start_offset=start, end_offset=stop).decode([every]) for r in rows_of(c)]
            assert cut == [row for row in wanted if start <= row[0] < stop]


@pytest.mark.full
@pytest.mark.parametrize(("magic", "kind"), [(0, "CreateTime"), (1, "CreateTime"), (1, "LogAppendTime")])
def test_r06_old_formats_of_a_real_broker_read_as_the_java_consumer_reads_them(
    cluster: LocalCluster, magic: int, kind: str
) -> None:
    """Each codec, written by the broker (it converts) and by a client of old."""
    topic = f"old-{magic}-{kind}"
    config = {**SMALL, "message.format.version": FORMATS[magic], "message.timestamp.type": kind}
    cluster.create_topic(topic, partitions=2 * len(CODECS), config=config)
    for partition, codec in enumerate(CODECS):
        cluster.produce(
            topic, every_field(1000, with_headers=False), partition=partition, config={"compression.type": codec}
        )
        produce_as_of_old(cluster, topic, partition + len(CODECS), magic, partition)
    for partition, codec in enumerate(CODECS * 2):
        found = headers(closed(cluster, topic, partition)[0])
        assert {header.magic for header in found} == {magic}
        assert CODECS.index(codec) in {header.codec for header in found}
        assert {header.is_log_append_time for header in found} == {kind == "LogAppendTime"}
    frame = b"\x04\x22\x4d\x18\x60\x40\x82"  # with the right header checksum, which magic 0 does not have (KAFKA-3160)
    assert (frame in closed(cluster, topic, CODECS.index("lz4"))[0][0]) == (magic == 1)
    assert_equal_to_consumer(cluster, topic, 2 * len(CODECS))


def test_r06_odd_messages_that_brokers_accepted_are_read_as_by_the_java_consumer(cluster: LocalCluster) -> None:
    """A part of a message at a set's end, bytes behind values, lengths below -1, any relative offsets."""

    def fields(tail: bytes) -> bytes:
        body = struct.pack(">bbq", 1, 0, TIME) + tail
        return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body

    def wrapped(inner: bytes, last: int) -> bytes:
        return message(1, last, packed(GZIP, inner), attributes=GZIP)

    one, two = message(1, 0, b"one"), message(1, 1, b"two")
    behind, below = fields(struct.pack(">ii", -1, 1) + b"ab"), fields(struct.pack(">ii", -5, -7))
    sets = [one, wrapped(one + two + two[:-3], 1), wrapped(one + two[:11], 0), wrapped(behind, 0), wrapped(below, 0),
            wrapped(message(1, 5, b"five") + message(1, 7, b"seven"), 7), behind, below]  # fmt: skip
    cluster.create_topic("odd", config={"segment.bytes": "1000", "message.format.version": "0.10.2"})
    for each in [*sets, message(1, 0, bytes(900)), message(1, 0, bytes(900))]:
        produce_set(cluster, "odd", 0, each)
    assert_equal_to_consumer(cluster, "odd", 1)


def _is_cleaned(cluster: LocalCluster, topic: str, partition: int) -> bool:
    return len(shown(closed(cluster, topic, partition)[0], 1 << 20)) < 900


@pytest.mark.full
@pytest.mark.parametrize("magic", [0, 1])
def test_r06_what_the_cleaner_left_of_old_formats_reads_as_the_java_consumer_reads_it(
    cluster: LocalCluster, magic: int
) -> None:
    """Wrappers with holes: of repeated keys only the last message is left."""
    topic, keys = f"compacted-{magic}", 600
    cluster.create_topic(topic, partitions=len(CODECS), config={**COMPACTED, "message.format.version": FORMATS[magic]})
    rows = [
        Record(None if n % 13 == 0 else b"%d" % n * 5, b"key-%d" % (n if n % 3 else n % keys // 50), timestamp=TIME + n)
        for n in range(2 * keys)
    ]
    filling = [Record(os.urandom(4000), b"filling-%d" % n, timestamp=TIME) for n in range(30)]
    for partition, codec in enumerate(CODECS):
        cluster.produce(topic, rows + filling, partition=partition, config={"compression.type": codec})

    checkpoint = cluster.brokers[1].log_dirs[0] / "cleaner-offset-checkpoint"
    wait_for(
        lambda: checkpoint.exists() and checkpoint.read_text().count(f"{topic} ") == len(CODECS),
        f"the cleaner to be done with {topic}",
        60,
    )
    for partition, codec in enumerate(CODECS):
        # The checkpoint can be of a first pass, over a part of the log.
        wait_for(
            partial(_is_cleaned, cluster, topic, partition), f"the cleaner to be done with {topic}-{partition}", 60
        )
        found = headers(closed(cluster, topic, partition)[0])
        assert {header.magic for header in found} == {magic}
        assert CODECS.index(codec) in {header.codec for header in found}
    assert_equal_to_consumer(cluster, topic, len(CODECS))


@pytest.mark.full
def test_r06_a_topic_that_was_upgraded_reads_as_the_java_consumer_reads_it(cluster: LocalCluster) -> None:
    """One segment in the formats of 0.9, 0.10 and 3.9, and back again."""
    cluster.create_topic(
        "upgraded", partitions=len(CODECS), config={"segment.bytes": "200000", "message.format.version": "0.9.0"}
    )
    for magic in (0, 1, 2, 1, 2):
        write_in(cluster, "upgraded", magic, len(CODECS))
        for partition, codec in enumerate(CODECS):
            cluster.produce(
                "upgraded",
                every_field(100, with_headers=False)[:100],
                partition=partition,
                config={"compression.type": codec},
            )
    for partition in range(len(CODECS)):
        cluster.produce("upgraded", [Record(os.urandom(9000)) for _ in range(30)], partition=partition)
        first = headers(closed(cluster, "upgraded", partition)[0][:1])
        assert {header.magic for header in first} == {0, 1, 2}
    assert_equal_to_consumer(cluster, "upgraded", len(CODECS))
