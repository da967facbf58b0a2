import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.common.log_format.build import SEGMENTS
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.index_files import (
    AbortedTransaction,
    IndexBuilder,
    TimeIndex,
    greatest_below,
    position_for_offset,
    read_offset_index,
    read_time_index,
    read_transaction_index,
    txnindex_is_complete,
)


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def transaction(producer: int, first: int, last: int, stable: int = 0, version: int = 0) -> bytes:
    return struct.pack(">hqqqq", version, producer, first, last, stable)


def test_built_indexes_are_those_of_the_broker() -> None:
    """Byte for byte, of each golden file; its topic had an entry for each 1,000 bytes."""
    for path in SEGMENTS:
        data, position = path.read_bytes(), 0
        builder = IndexBuilder(int(path.stem), interval=1000)
        while position < len(data):
            header = parse_header(data, position, len(data) - position)
            assert isinstance(header, BatchHeader)
            builder.add(header.last_offset, header.max_timestamp, header.size_in_bytes)
            position += header.size_in_bytes
        assert builder.finish() == tuple(path.with_suffix(each).read_bytes() for each in (".index", ".timeindex"))


def test_an_entry_of_aborted_transactions_is_read_as_it_was_encoded() -> None:
    """In the form of Kafka's `AbortedTxn`, version 0."""
    entry = AbortedTransaction(7, 100, 250, 90)
    assert (entry.encode(), read_transaction_index(entry.encode())) == (transaction(7, 100, 250, 90), (entry,))


def test_indexes_of_a_real_broker_point_at_batches() -> None:
    """In golden files, each entry's position is that of a batch that begins at or below its offset."""
    for path in SEGMENTS:
        data, base = path.read_bytes(), int(path.stem)
        entries = read_offset_index(path.with_suffix(".index").read_bytes())
        assert len(entries) * 8 == path.with_suffix(".index").stat().st_size
        for relative, position in entries:
            header = parse_header(data, position, len(data) - position)
            assert isinstance(header, BatchHeader)
            assert header.base_offset <= base + relative
        times = read_time_index(path.with_suffix(".timeindex").read_bytes())
        assert len(times) * 12 == path.with_suffix(".timeindex").stat().st_size
        assert all(1795226813000 < timestamp < 1795226814000 for timestamp, _ in times)


def test_r08_a_preallocated_tail_is_trimmed() -> None:
    """Zero entries after the last one are ignored, also if there are no others."""
    assert read_offset_index(offset_index((9, 4096), (20, 9000)) + bytes(800)) == ((9, 4096), (20, 9000))
    assert read_time_index(time_index((500, 3), (600, 9)) + bytes(1200)) == ((500, 3), (600, 9))
    assert read_offset_index(bytes(80)) == read_time_index(bytes(120)) == ()


def test_r08_damage_ends_an_index_at_the_damage() -> None:
    """Falling entries, negative entries and half an entry end an index."""
    assert read_offset_index(offset_index((9, 4096), (8, 9000), (30, 9999))) == ((9, 4096),)
    assert read_offset_index(offset_index((9, 4096), (10, 4000))) == ((9, 4096),)
    assert read_offset_index(offset_index((-9, 4096))) == ()
    assert read_offset_index(offset_index((9, 4096)) + b"\0\0\0") == ((9, 4096),)
    assert read_time_index(time_index((500, 3), (400, 9))) == ((500, 3),)
    assert read_time_index(time_index((500, 3), (600, 2))) == ((500, 3),)
    assert read_time_index(time_index((500, -3))) == ()


@given(st.binary(max_size=200))
def test_r08_any_bytes_are_some_index(data: bytes) -> None:
    """No bytes cause an error, and the entries are ordered."""
    entries = read_offset_index(data)
    assert list(entries) == sorted(set(entries))
    assert list(read_time_index(data)) == sorted(set(read_time_index(data)))
    markers = [entry.last_offset for entry in read_transaction_index(data)]
    assert markers == sorted(set(markers))


@pytest.mark.parametrize(
    ("offset", "position"), [(90, 0), (100, 0), (108, 0), (109, 4096), (115, 4096), (120, 9000), (10**12, 9000)]
)
def test_a_lookup_is_the_last_entry_at_or_below_the_offset(offset: int, position: int) -> None:
    """Before the first entry, the position is the beginning of the segment."""
    assert position_for_offset(((9, 4096), (20, 9000)), 100, offset) == position


def test_a_lookup_in_an_empty_index_is_the_beginning() -> None:
    """Without an index, the whole segment is read."""
    assert position_for_offset((), 100, 5000) == 0


def test_aborted_transactions_are_read() -> None:
    """Every field is read; an unknown version, half an entry and wrong order end the list."""
    good = transaction(7, 10, 20, 15) + transaction(8, 12, 30, 16)
    entries = (AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 12, 30, 16))
    assert read_transaction_index(good) == entries
    assert read_transaction_index(b"") == ()
    for damage in (transaction(9, 31, 40, 0, version=1), good[:20], transaction(9, 50, 40), transaction(9, 1, 30)):
        assert read_transaction_index(good + damage + transaction(1, 50, 60)) == entries


def test_u33_a_transaction_index_is_complete_only_if_each_marker_has_its_entry() -> None:
    """A recovering broker resets the file: a missing entry is detected, and an extra one has no effect."""
    entries = (AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 12, 30, 16))
    assert txnindex_is_complete(entries, ())
    assert txnindex_is_complete(entries, ((7, 20), (8, 30)))
    assert not txnindex_is_complete(entries, ((7, 20), (8, 31)))
    assert not txnindex_is_complete(entries, ((9, 20),))
    assert not txnindex_is_complete((), ((7, 20),))


def test_the_greatest_timestamp_below_an_offset_is_that_of_the_first_entry_that_reaches_it() -> None:
    """An entry covers its own offset too; beyond the last entry nothing is known."""
    claims = TimeIndex(100, time_index((1000, 9), (1005, 9), (2000, 19))).claims
    assert [greatest_below(claims, end) for end in (100, 101, 110, 111, 120, 121)] == [
        1000,
        1000,
        1000,
        2000,
        2000,
        None,
    ]
    assert greatest_below((), 5) is None
