"""Bytes with a correct CRC are read as Kafka's Java consumer reads them, and what it rejects is damage."""

from collections.abc import Iterator

import pytest

from tests.common.decode.decoded_rows import decoded_to_the_damage
from tests.common.decode.odd_bytes import ALL, FILES
from ts_local.consumed_logs import ConsumedRecord, Reading, consume
from ts_local.resident_jvm import ResidentJvm


@pytest.fixture(scope="module")
def readings() -> Iterator[dict[str, tuple[Reading, Reading]]]:
    jvm = ResidentJvm()
    found = consume(jvm, list(ALL.values()))
    yield {name: (each.uncommitted, each.committed) for name, each in zip(ALL, found, strict=True)}
    jvm.close()


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
    assert is_damaged == bool(uncommitted.refusal), uncommitted.message
    expected = [plain(record) for record in uncommitted.records]
    if is_damaged:  # a stream is decompressed whole, so records before damage of their own batch may be missing
        expected = expected[: len(rows)]
    assert rows == expected
    assert committed.records == uncommitted.records


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
