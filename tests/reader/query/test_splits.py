"""Splits: large segments are cut, small ones packed, within the limits of a query; rows stay the same."""

import struct
from dataclasses import replace

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.made_indexes import index_of
from tests.made_views import ranges_of, view_of
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_reader.query.query import CorruptionMode, SplitLimits, Tolerance, View
from ts_reader.query.read_split import read_split
from ts_reader.query.splits import (
    NEAR_BYTES,
    PartitionRanges,
    Split,
    bytes_of,
    gets_of,
    make_splits,
    whole_partitions,
)

RECORDS = 1000
VALUE = bytes(200)
TOLERANT = Tolerance(CorruptionMode.DROPMALFORMED)


def put(archive: MadeArchive, records: int = RECORDS, *, partition: int = 0, index: bytes | None = None) -> bytes:
    """One segment, whose index the broker wrote unless another is given."""
    log = batches(*steps(0, records), value=VALUE)
    archive.put_segment("t", 0, log, partition=partition, index=index_of(log) if index is None else index)
    archive.commit("t", records, partition=partition)
    return log


def all_of(archive: MadeArchive, partition: int = 0) -> PartitionRanges:
    return PartitionRanges(tuple(ranges_of(view_of(archive, "t", partition))), erased=NOTHING_ERASED)


def offsets(archive: MadeArchive, splits: tuple[Split, ...]) -> list[int]:
    return [
        row["offset"]
        for split in splits
        for rows in read_split(archive.store, split, ["offset"])
        for row in rows.to_pylist()
    ]


def test_r13_a_segment_is_cut_at_batches_that_its_index_names(archive: MadeArchive) -> None:
    """At least as many splits as the query wants, and every row once."""
    log = put(archive)
    splits = make_splits(archive.store, [all_of(archive)], SplitLimits(least=8))
    assert 8 <= len(splits) <= 12
    named = {offset for offset, _ in struct.iter_unpack(">ii", index_of(log))}
    assert {split.ranges[0].start for split in splits[1:]} <= named
    assert offsets(archive, splits) == list(range(RECORDS))


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"\xff" * 80,
        struct.pack(">iiii", 500, 7, 501, 13),
        struct.pack(">iiii", 10, 200_000, 900, 250_000),
        b"".join(struct.pack(">ii", n, n) for n in range(1, 900)),
    ],
    ids=["empty", "damaged", "between batches", "too far", "dense lies"],
)
def test_r08_a_wrong_index_moves_cuts_and_loses_nothing(archive: MadeArchive, index: bytes) -> None:
    """A cut is an offset, and both sides respect it."""
    put(archive, index=index)
    assert offsets(archive, make_splits(archive.store, [all_of(archive)], SplitLimits(least=5))) == list(range(RECORDS))


def test_a_small_segment_without_an_index_is_cut_evenly(archive: MadeArchive) -> None:
    """To read it from its first byte costs less than a task."""
    archive.put_segment("t", 0, batches(*steps(0, RECORDS), value=VALUE))
    archive.commit("t", RECORDS)
    splits = make_splits(archive.store, [all_of(archive)], SplitLimits(least=4))
    assert [split.ranges[0].start for split in splits] == [0, 250, 500, 750]
    assert offsets(archive, splits) == list(range(RECORDS))


@pytest.mark.parametrize("most", [7, 10, 35])
def test_a_split_has_at_most_the_offsets_that_the_query_allows(archive: MadeArchive, most: int) -> None:
    """Also where neighbours would be packed, and where one segment has more."""
    for base in range(0, 100, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 100, highest_base=90)
    splits = make_splits(archive.store, [all_of(archive)], SplitLimits(most_offsets=most))
    assert all(sum(part.end - part.start for part in split.ranges) <= most for split in splits)
    assert offsets(archive, splits) == list(range(100))
    (packed,) = make_splits(archive.store, [all_of(archive)], SplitLimits())
    assert len(packed.ranges) == 10


def test_several_partitions_share_the_requested_splits_by_bytes(archive: MadeArchive) -> None:
    """The large partition is cut, the small one is not, and no split has ranges of both."""
    for partition, records in ((0, 900), (1, 100)):
        put(archive, records, partition=partition)
    splits = make_splits(archive.store, [all_of(archive, 0), all_of(archive, 1)], SplitLimits(least=5))
    by_partition = [{part.copies[0].keys.partition.partition for part in split.ranges} for split in splits]
    assert by_partition.count({1}) == 1
    assert by_partition.count({0}) == len(splits) - 1 >= 4
    assert offsets(archive, splits) == [*range(900), *range(100)]


def test_a_tolerant_query_cuts_only_if_its_limits_require_it(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its tasks checks the whole object."""
    put(archive)
    monkeypatch.setattr("ts_reader.query.splits.SPLIT_BYTES", 30_000)
    counts = [
        len(make_splits(archive.store, [all_of(archive)], limits, tolerance))
        for limits in (SplitLimits(), SplitLimits(least=4))
        for tolerance in (Tolerance(), TOLERANT)
    ]
    assert counts[1] == 1
    assert min(counts[0], counts[2], counts[3]) > 4


def test_a_split_has_only_the_aborted_transactions_that_overlap_it(archive: MadeArchive) -> None:
    """A split of a whole partition has all of them."""
    put(archive, index=b"")
    aborted = (
        AbortedTransaction(7, 10, 20, 21),
        AbortedTransaction(8, 490, 510, 511),
        AbortedTransaction(9, 600, 610, 611),
    )
    partition = PartitionRanges(all_of(archive).ranges, aborted, erased=NOTHING_ERASED)
    first, second = make_splits(archive.store, [partition], SplitLimits(most_offsets=500))
    assert (first.aborted, second.aborted) == (aborted[:2], aborted[1:])
    (whole,) = whole_partitions(archive.store, [partition, PartitionRanges((), erased=NOTHING_ERASED)], TOLERANT)
    assert (whole.aborted, whole.view, whole.tolerance) == (aborted, View.LATEST, TOLERANT)


@pytest.mark.parametrize(("start", "end"), [(0, RECORDS), (0, 40), (300, 340), (700, RECORDS)])
@pytest.mark.parametrize("has_index", [True, False])
def test_the_gets_of_a_range_are_those_that_its_reader_sends(
    archive: MadeArchive, start: int, end: int, has_index: bool
) -> None:
    """With their bytes, at most a fetch too many; by the storage class."""
    if has_index:
        put(archive)
    else:
        archive.put_segment("t", 0, batches(*steps(0, RECORDS), value=VALUE))
        archive.commit("t", RECORDS)
    (whole,) = all_of(archive).ranges
    part, counts = replace(whole, start=start, end=end), StoreCounts()
    split = Split(archive.location, (part,))
    for _ in read_split(CountedStore(archive.store, counts), split, ["offset"]):
        pass
    (((name, (requests, size)),),) = (gets_of([part]).items(),)
    assert (name, requests) == (None, counts.requests["get"])
    assert -5_000 <= size - counts.bytes_received <= NEAR_BYTES  # without the index and the batch before


def test_a_range_has_its_share_of_the_bytes_of_each_copy(archive: MadeArchive) -> None:
    """By offsets; a range of several copies reads all of them."""
    log = batches(*steps(0, 100))
    archive.put_segment("t", 0, log)
    archive.commit("t", 100)
    (whole,) = ranges_of(view_of(archive))
    assert bytes_of(whole) == len(log)
    assert bytes_of(replace(whole, start=25, end=50)) == len(log) // 4
    assert bytes_of(replace(whole, copies=whole.copies * 2)) == 2 * len(log)
