"""The comparison of a consumer's records with rows of the archive."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from ts_common.model import TopicPartition
from tsctl.drill.comparing import Comparison, compare, rows_of
from tsctl.verify.kafka_cluster import KafkaRecord

PARTITION = TopicPartition("t", 3)


def records_of(count: int) -> list[KafkaRecord]:
    headers = [("a", b"x"), ("a", None)]
    return [
        KafkaRecord(
            offset, 1000 + offset, 0, b"k" if offset % 2 else None, b"%d" % offset, headers if offset % 3 else None
        )
        for offset in range(count)
    ]


def pieces(records: Sequence[KafkaRecord], length: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of a length."""
    for begin in range(0, len(records), length):
        yield from rows_of(PARTITION, records[begin : begin + length])


def compared(stored: Sequence[KafkaRecord], held: Sequence[KafkaRecord]) -> Comparison:
    found = compare(pieces(stored, 7), pieces(held, 5))
    assert compare(pieces(stored, 100), pieces(held, 3)) == found
    return found


def test_equal_records_are_equal_in_batches_of_any_length() -> None:
    """The digest is that of the records, and the newest time is theirs."""
    found = compared(records_of(40), records_of(40))
    assert (found.differing, found.differences, found.newest, found.held.rows) == (0, (), 1039, 40)
    assert compared([], []).newest is None
    assert compared(records_of(39), records_of(39)).held != found.held


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 5},
        {"timestamp_type": 1},
        {"key": b""},
        {"value": None},
        {"headers": None},
        {"headers": [("a", None), ("a", b"x")]},
        {"headers": [("a", b"x"), ("a", b"")]},
    ],
    ids=str,
)
def test_a_record_with_another_field_is_named(change: dict[str, object]) -> None:
    """Each field of a record, and of its headers the order."""
    held = records_of(40)
    held[22] = held[22]._replace(**change)  # type: ignore[arg-type]
    found = compared(records_of(40), held)
    assert [each.offset for each in found.differences] == [22]
    assert found.differences[0].what == "the broker has another record than the archive"


@pytest.mark.parametrize("gone", [0, 17, 39])
def test_a_record_of_one_side_alone_is_named(gone: int) -> None:
    """At the beginning, within and at the end; and all, if a side has none."""
    whole = records_of(40)
    lacking = [each for each in whole if each.offset != gone]
    (lost,) = compared(whole, lacking).differences
    assert (lost.offset, lost.what) == (gone, "the archive has a record, the broker none")
    (more,) = compared(lacking, whole).differences
    assert (more.offset, more.what) == (gone, "the broker has a record, the archive none")
    assert compared(whole, []).differing == compared([], whole).differing == 40


def test_only_the_first_differences_are_named() -> None:
    """The number is of all."""
    found = compare(pieces(records_of(250), 60), pieces([], 1))
    assert (found.differing, [each.offset for each in found.differences]) == (250, [*range(100)])
