"""Rewritten ranges: the rows of `ts_reader`, in batches that are contiguous from the requested offset on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.common.log_format.build import batch, marker, message, record
from tests.endpoint.records.decoding import headers_of
from tests.made_archive import batches
from tests.made_damage import DAMAGES, LOG
from tests.made_views import ranges_of, view_of
from tests.matrix import cases, sampled
from tests.reader.archives import ScannedArchive
from tests.reader.decode.decoded_rows import Row, decoded
from tests.reader.test_views import compacted_differently, of_two_leaders, with_dead_tail, with_lost_marker
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange, with_spares
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import AbortedTransaction
from ts_endpoint.records.encoding import MOST_DELTA
from ts_endpoint.records.rewriting import BATCH_BYTES, Rewritten, rewrite

MADE = {one.__name__: one for one in (of_two_leaders, compacted_differently, with_dead_tail, with_lost_marker)}
TRANSACTIONAL, LOG_APPEND_TIME = 0x10, 0x08


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScannedArchive:
    """Return an empty archive in a directory; `Archive` configures no logs for later tests."""
    monkeypatch.setattr("ts_reader.archive.structlog.is_configured", lambda: True)
    return ScannedArchive(tmp_path / "store")


def rewritten(
    archive: ScannedArchive, view: PartitionView, part: ReadRange, start: int, end: int, **options: Any
) -> Iterator[Rewritten]:
    """Yield what a client gets that fetches `[start, end)` of a range step by step."""
    while start < end:
        found = rewrite(
            archive.store, part, start, end, view.epochs, erased=view.erased, **{"max_bytes": 1 << 30, **options}
        )
        headers = headers_of(found.data)
        assert [header.base_offset for header in headers] == [start, *(one.last_offset + 1 for one in headers[:-1])]
        assert found.end == headers[-1].last_offset + 1 <= end
        assert all(view.epochs.at(one.last_offset) in {one.leader_epoch, None} for one in headers)
        yield found
        start = found.end


def rows_of(archive: ScannedArchive, **options: Any) -> list[Row]:
    """Return the rows of all ranges of a topic, each rewritten."""
    view = view_of(archive)
    parts = with_spares(ranges_of(view), view.copies, view.epochs)
    found = (one for part in parts for one in rewritten(archive, view, part, part.start, part.end, **options))
    return [row for one in found for row in decoded(one.data)]


def rows_of_reader(archive: ScannedArchive, **arguments: Any) -> list[Row]:
    """Return the rows of `ts_reader`; a record without a timestamp has the create time -1 in a batch of magic 2."""
    return [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            max(row["timestampType"], 0),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in archive.rows(include_headers=True, **arguments)
    ]


@pytest.mark.parametrize("max_bytes", cases([1, 200, 1000, 1 << 20], quick=[200]))
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_each_range_has_the_rows_of_the_reader(archive: ScannedArchive, made: Any, max_bytes: int) -> None:
    """Overlapping copies, copies that lack records, a dead tail, a lost marker; whatever a client fetches at once."""
    made(archive)
    expected = rows_of_reader(archive)
    assert expected
    assert rows_of(archive, max_bytes=max_bytes) == expected
    assert rows_of(archive, max_bytes=max_bytes, tolerant=True) == expected


def test_a_range_is_read_from_any_offset_to_any_other(archive: ScannedArchive) -> None:
    """Inside batches, between them, and where no copy has a record."""
    compacted_differently(archive)
    expected, view = rows_of_reader(archive), view_of(archive)
    (part,) = ranges_of(view)
    assert len(part.copies) == 2
    for start in sampled(range(0, 100, 3), step=3):
        for end in range(start + 1, 101, 7):
            (found,) = rewritten(archive, view, part, start, end)
            assert decoded(found.data) == [row for row in expected if start <= row[0] < end]


def test_a_reply_has_at_most_max_bytes_but_one_record(archive: ScannedArchive) -> None:
    """And a batch a mebibyte, unless its only record is larger."""
    sizes = {3: 3_000_000, 40: 700_000, 41: 700_000}
    for variant in (False, True):
        kept = [offset for offset in range(100) if offset % 10 != (5 if variant else 6)]
        log = b"".join(batch(offset, [record(0, b"k", bytes(sizes.get(offset, 5000)))]) for offset in kept)
        archive.put_segment("t", 0, log, variant=variant)
    archive.commit("t", 100)
    view = view_of(archive)
    (part,) = ranges_of(view)
    found = list(rewritten(archive, view, part, 0, 100, max_bytes=100_000))
    assert [row[0] for one in found for row in decoded(one.data)] == list(range(100))
    large = [one for one in found if len(one.data) > 100_000]
    assert [[header.record_count for header in headers_of(one.data)] for one in large] == [[1]] * 3
    assert len(found) < 20
    (whole,) = rewritten(archive, view, part, 0, 100)
    counts = [(one.record_count, one.size_in_bytes > BATCH_BYTES) for one in headers_of(whole.data)]
    assert [is_large for _, is_large in counts] == [False, True, False, False]
    assert [count for count, _ in counts] == [3, 1, 37, 59]


def test_offsets_without_a_record_are_covered(archive: ScannedArchive) -> None:
    """By an empty batch if the range has no record, and by several if an int32 cannot count them."""
    far = 3 * (1 << 31)
    for key, variant in ((b"a", False), (b"b", True)):
        log = batch(0, [record(0, key)]) + batch(far + 7, [record(0, key)])
        archive.put_segment("t", 0, log, end=far + (1 << 33), variant=variant)
    archive.commit("t", far + (1 << 33))
    view = view_of(archive)
    (part,) = ranges_of(view)
    (found,) = rewritten(archive, view, part, 0, part.end)
    headers = headers_of(found.data)
    assert [one.record_count for one in headers] == [1, 0, 0, 1, 0, 0, 0]
    assert [row[0] for row in decoded(found.data)] == [0, far + 7]
    assert max(one.last_offset - one.base_offset for one in headers) == MOST_DELTA
    (found,) = rewritten(archive, view, part, 5, 1000)
    (only,) = headers_of(found.data)
    assert (only.base_offset, only.last_offset, only.record_count) == (5, 999, 0)
    several = list(rewritten(archive, view, part, 1, part.end, max_bytes=100))
    assert [len(headers_of(one.data)) for one in several] == [1] * len(several)
    assert [row[0] for one in several for row in decoded(one.data)] == [far + 7]


def test_no_batch_covers_an_offset_of_a_later_epoch(archive: ScannedArchive) -> None:
    """A client with a position behind it would find that its epoch ended before: a truncated log."""
    for key, variant in ((b"a", False), (b"b", True)):
        log = (
            batches((0, 4))
            + batches((6, 9), epoch=1)
            + batches((20, 22), epoch=4)
            + batch(24, [record(0, key)], epoch=4)
        )
        archive.put_segment("t", 0, log, end=40, variant=variant)
    archive.commit("t", 40, epochs=((0, 0), (1, 5), (2, 12), (4, 18)))
    view = view_of(archive)
    (part,) = ranges_of(view)
    (found,) = rewritten(archive, view, part, 0, 40)
    headers = headers_of(found.data)
    assert [(one.base_offset, one.last_offset, one.leader_epoch, one.record_count) for one in headers] == [
        (0, 4, 0, 4),
        (5, 11, 1, 3),
        (12, 39, 4, 3),
    ]
    (found,) = rewritten(archive, view, part, 7, 19)
    headers = headers_of(found.data)
    assert [(one.base_offset, one.last_offset, one.leader_epoch, one.record_count) for one in headers] == [
        (7, 11, 1, 2),
        (12, 18, 4, 0),
    ]


def test_the_epoch_is_unknown_where_the_view_has_none(archive: ScannedArchive) -> None:
    """A batch in front of the first epoch has the epoch -1."""
    compacted_differently(archive)
    view = replace(view_of(archive), epochs=view_of(archive).epochs.from_offset(50))
    (part,) = ranges_of(view_of(archive))
    (found,) = rewritten(archive, view, part, 0, 100)
    assert [(one.leader_epoch, one.last_offset) for one in headers_of(found.data)] == [(-1, 49), (0, 99)]


def test_timestamps_keys_values_and_headers_are_the_stored_ones(archive: ScannedArchive) -> None:
    """Create and append times, those that Arrow cannot show, none (magic 0); nulls; header names that repeat."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"h", b"1"), (b"h", None), ("\u00e9".encode(), b"")]
    log = (
        message(0, 0, b"old", b"k")
        + message(1, 1, None, timestamp=-1)
        + batch(2, [record(0, None, b"v", pairs), record(1, b"", None)], base_timestamp=5000, max_timestamp=5000)
        + batch(4, [record(0), record(1)], attributes=LOG_APPEND_TIME, base_timestamp=1, max_timestamp=7000)
        + batch(6, [record(0), record(1, b"x", b"", pairs)], attributes=LOG_APPEND_TIME, max_timestamp=7001)
        + batch(8, [record(0, timestamp_delta=-(2**61))], base_timestamp=2**62, max_timestamp=2**61)
    )
    for variant in (False, True):
        last = batch(10, [record(0, b"%d" % variant)])
        archive.put_segment("t", 0, log + last, end=12, variant=variant)
    archive.commit("t", 12)
    found = rows_of(archive)
    headers = (("h", b"1"), ("h", None), ("\u00e9", b""))
    assert [row[:2] + row[2:] for row in found[:10]] == [
        (0, -1, 0, b"k", b"old", ()),
        (1, -1, 0, None, None, ()),
        (2, 5000, 0, None, b"v", headers),
        (3, 5000, 0, b"", None, ()),
        (4, 7000, 1, b"k", b"v", ()),
        (5, 7000, 1, b"k", b"v", ()),
        (6, 7001, 1, b"k", b"v", ()),
        (7, 7001, 1, b"x", b"", headers),
        (8, 2**61, 0, b"k", b"v", ()),
        (10, 1000, 0, found[9][3], b"v", ()),
    ]


def test_aborted_records_and_markers_are_left_out(archive: ScannedArchive) -> None:
    """Their offsets are covered, and no batch is transactional."""
    for key, variant in ((b"a", False), (b"b", True)):
        aborted = batch(3, [record(0), record(1)], attributes=TRANSACTIONAL, producer_id=7)
        log = batches((0, 3)) + aborted + marker(5, 7, 0) + batch(6, [record(0, key)])
        archive.put_segment("t", 0, log, end=10, variant=variant)
    archive.commit("t", 10)
    view = view_of(archive)
    (part,) = ranges_of(view)
    (found,) = rewritten(archive, view, part, 0, 10, aborted=[AbortedTransaction(7, 3, 5, 3)])
    assert [row[0] for row in decoded(found.data)] == [0, 1, 2, 6]
    assert not any(header.is_transactional or header.is_control for header in headers_of(found.data))
    (found,) = rewritten(archive, view, part, 0, 10)
    assert [row[0] for row in decoded(found.data)] == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize("how", DAMAGES)
def test_an_intact_copy_is_read_where_one_is_damaged(archive: ScannedArchive, how: str) -> None:
    """With `tolerant`; otherwise the damage is an error."""
    archive.put_segment("t", 0, LOG, body=DAMAGES[how][0](LOG))
    archive.put_segment("t", 0, LOG, variant=True)
    archive.commit("t", 50)
    view = view_of(archive)
    damaged = [copy for copy in view.copies if not copy.segment.name.crc32c]
    (part,) = with_spares([ReadRange(0, 50, tuple(damaged))], view.copies, view.epochs)
    with pytest.raises(CorruptData, match=r"t-0: prod/t-0/0{20}\.log in file:///"):
        rewrite(archive.store, part, 0, 50, view.epochs, erased=view.erased, max_bytes=1 << 20)
    found = list(rewritten(archive, view, part, 0, 50, max_bytes=500, tolerant=True))
    assert [row[0] for one in found for row in decoded(one.data)] == list(range(50))


def test_damage_without_an_intact_copy_ends_the_batches_before_it(archive: ScannedArchive) -> None:
    """A fetch of the lost offset is an error that has the object, the offsets and the reason."""
    damage, lost = DAMAGES["flipped bit"]
    archive.put_segment("t", 0, LOG, body=damage(LOG))
    archive.commit("t", 50)
    view = view_of(archive)
    (part,) = ranges_of(view)
    options: dict[str, Any] = {"max_bytes": 1 << 20, "tolerant": True}
    found = rewrite(archive.store, part, 3, 50, view.epochs, erased=view.erased, **options)
    assert (found.end, [row[0] for row in decoded(found.data)]) == (20, list(range(3, 20)))
    for start in (20, 25):
        with pytest.raises(CorruptData, match=rf"t-0: .*0{{20}}\.log .*offsets {start} to 29 intact: .*CRC"):
            rewrite(archive.store, part, start, 50, view.epochs, erased=view.erased, **options)
    found = rewrite(archive.store, part, lost[-1] + 1, 50, view.epochs, erased=view.erased, **options)
    assert (found.end, len(decoded(found.data))) == (50, 20)
