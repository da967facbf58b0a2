"""Bytes with a correct CRC are read as Kafka's Java consumer reads them, and what it rejects is damage."""

from collections import Counter
from random import Random

import pytest

from dev.local.consumed_logs import ConsumedRecord, Reading, consume
from dev.local.resident_jvm import resident_jvm
from tests.common.log_format.build import batch, record
from tests.reader.decode.decoded_rows import decoded_to_the_damage
from tests.reader.decode.odd_bytes import ALL, FILES, RECORDS, ZSTD, packed, zstd

# JDK 17 does not look for a member in the last 26 bytes of a stream, later ones do (JDK-7036144). The records before
# them are intact, so the decoder reads them, as with a stream whose second header is cut.
JDKS_DIFFER = {"gzip-short-second-member": "gzip-cut-second-header"}
ZSTD_HEAD = b"\x28\xb5\x2f\xfd\x24"  # a single segment with a checksum; the size of the content follows
ZSTD_EMPTY_RLE_BLOCK = b"\x03\0\0\0"  # the last one; more than the largest block of a frame without content


@pytest.fixture(scope="module")
def readings() -> dict[str, tuple[Reading, Reading]]:
    found = consume(resident_jvm(), list(ALL.values()))
    return {name: (each.uncommitted, each.committed) for name, each in zip(ALL, found, strict=True)}


def plain(record: ConsumedRecord) -> tuple[object, ...]:
    headers = tuple((name.decode(), value) for name, value in record.headers)
    return (record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers)


@pytest.mark.parametrize("name", ALL)
def test_r17_odd_bytes_are_read_as_the_java_consumer_reads_them(
    name: str, readings: dict[str, tuple[Reading, Reading]]
) -> None:
    """Each field of each record, in both isolation levels; where the consumer fails, the decoder does too."""
    rows, is_damaged = decoded_to_the_damage(ALL[name])
    uncommitted, committed = readings[name]
    if name in JDKS_DIFFER and uncommitted.refusal:
        uncommitted, committed = readings[JDKS_DIFFER[name]]
    assert is_damaged == bool(uncommitted.refusal), uncommitted.message
    expected = [plain(record) for record in uncommitted.records]
    if is_damaged:  # a stream is decompressed whole, so records before damage of their own batch may be missing
        expected = expected[: len(rows)]
    assert rows == expected
    assert committed.records == uncommitted.records


def test_r17_zstd_frames_that_are_cut_off_are_read_as_the_java_consumer_reads_them() -> None:
    """At each byte of a second frame, with each kind of block, and with a read of zstd-jni that no frame ends in."""
    half, large = len(RECORDS) // 2, record(0, b"k", Random(7).randbytes(140_000))
    streams = [(zstd(RECORDS), zstd(more)) for more in (b"", b"more", bytes(300))]
    streams += [(zstd(RECORDS[:at]), zstd(RECORDS[at:])) for at in (0, half, len(RECORDS) - 1)]
    streams += [(zstd(RECORDS), ZSTD_HEAD + size + ZSTD_EMPTY_RLE_BLOCK + bytes(4)) for size in (b"\0", b"\1")]
    logs = [packed(ZSTD, first + second[:size]) for first, second in streams for size in range(len(second) + 1)]
    for at in (9, len(large) - 9):
        stream = zstd(large[:at]) + zstd(large[at:])
        logs += [batch(0, body=stream[: len(stream) - cut], count=1, attributes=ZSTD) for cut in range(6)]
    counts: Counter[bool] = Counter()
    for log, consumed in zip(logs, consume(resident_jvm(), logs), strict=True):
        rows, is_damaged = decoded_to_the_damage(log)
        assert is_damaged == bool(consumed.uncommitted.refusal), (log.hex(), consumed.uncommitted.message)
        if not is_damaged:
            assert rows == [plain(each) for each in consumed.uncommitted.records]
        counts[is_damaged] += 1
    assert min(counts[True], counts[False]) > len(logs) // 5


def test_each_file_of_a_bug_report_has_its_records() -> None:
    """None of them is damaged."""
    counts = {name: decoded_to_the_damage(data) for name, data in FILES.items()}
    assert {name: (len(rows), is_damaged) for name, (rows, is_damaged) in counts.items()} == {
        "gzip-trailing-garbage": (3, False),
        "header-value-minus-2": (1, False),
        "kafka-4298-0-over-1": (3, False),
        "kafka-4298-1-over-0": (3, False),
        "kafka-4298-real-0.10.0.1": (960, False),
        "key-length-minus-2": (1, False),
        "lz4-trailing-zeros": (3, False),
        "lz4-wrong-content-sum-trailing": (3, False),
        "m1-gzip-trailing": (3, False),
        "sarama-1.15-real-kafka-1.0.0": (10, False),
        "snappy-two-streams": (3, False),
    }
    assert [row[0] for row in counts["sarama-1.15-real-kafka-1.0.0"][0]] == list(range(6, 70, 7))
