"""The newest record of each key: two passes over the ranges of a partition."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive
from tests.made_views import ranges_of, view_of
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.archive.plan import ReadRange
from ts_reader.reading.newest_records import read_newest
from ts_reader.reading.rows import read_ranges

# Three segments of two records: (key, value).
SEGMENTS = (
    ((b"a", b"1"), (b"b", b"1")),
    ((b"a", b"2"), (None, b"-")),
    ((b"b", None), (b"c", b"1")),
)


def filled(archive: MadeArchive) -> list[ReadRange]:
    for number, records in enumerate(SEGMENTS):
        log = batch(2 * number, [record(delta, key, value) for delta, (key, value) in enumerate(records)])
        archive.put_segment("t", 2 * number, log)
    archive.commit("t", 6, highest_base=4)
    return ranges_of(view_of(archive))


def test_the_second_pass_reads_only_ranges_with_a_newest_record(archive: MadeArchive) -> None:
    """Key `b` ends with a tombstone, and a record without a key has no newest one: both are left out."""
    ranges = filled(archive)
    passes: list[tuple[list[tuple[int, int]], list[str], bool]] = []

    def read(parts: Sequence[ReadRange], names: Sequence[str], again: bool) -> Iterator[pa.RecordBatch]:
        passes.append(([(part.start, part.end) for part in parts], list(names), again))
        return read_ranges(archive.store, parts, names, erased=NOTHING_ERASED)

    with capture_logs() as logs:
        found = list(read_newest(ranges, ["value"], read))
    assert [batch.to_pylist() for batch in found] == [[{"value": b"2"}, {"value": b"1"}]]
    assert passes == [
        ([(0, 2), (2, 4), (4, 6)], ["key", "value", "offset"], False),
        ([(2, 3), (5, 6)], ["value", "offset"], True),
    ]
    without_key, read_line = logs
    assert (without_key["event"], without_key["records"], without_key["first_offset"]) == ("records_without_key", 1, 3)
    assert [read_line[name] for name in ("records", "keys", "kept", "deleted")] == [6, 3, 2, 1]


def test_headers_are_decoded_in_both_passes(archive: MadeArchive) -> None:
    """A record whose headers cannot be decoded must not be the newest of its key in the first pass."""
    ranges, named = filled(archive), []

    def read(parts: Sequence[ReadRange], names: Sequence[str], again: bool) -> Iterator[pa.RecordBatch]:
        named.append(list(names))
        return read_ranges(archive.store, parts, names, erased=NOTHING_ERASED)

    list(read_newest(ranges, ["offset", "headers"], read))
    assert named == [["key", "value", "offset", "headers"], ["offset", "headers"]]
