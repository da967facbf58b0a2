"""Filters of timestamps: a `.timeindex` lets a read begin in the middle of a segment."""

import struct
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import batches, steps
from tests.made_indexes import timeindex_of
from tests.reader.archives import ScannedArchive
from ts_common.archive.object_keys import SegmentName
from ts_reader import Scan

OF_ANOTHER = struct.pack(">qi", 1000, 5999)  # an index of earlier records
LONG = 6000  # offsets of a segment with more bytes than what narrowing is worth
timestamp = pc.field("timestamp")


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def offsets_read(scan: Scan, chosen: pc.Expression) -> int:
    """Return the number of offsets that a filter leaves of the plan."""
    splits = scan.dataset().splits_for(chosen)
    return sum(part.end - part.start for split in splits for part in split.ranges)


@pytest.fixture
def long(archive: ScannedArchive) -> ScannedArchive:
    """Return two long segments; the record at offset `o` has the timestamp 1000 + o."""
    for base in (0, LONG):
        log = batches(*steps(base, base + LONG), value=b"v" * 300)
        archive.put_segment("t", base, log, timeindex=timeindex_of(log))
    archive.commit("t", 2 * LONG, highest_base=LONG)
    return archive


def test_a_filter_of_times_begins_in_the_middle_of_a_segment(long: ScannedArchive) -> None:
    """Its bytes before are not read, also where another condition is joined; its rows are exact."""
    scan = long.scan(columns=["offset", "timestamp"])
    whole, bytes_of_all = scan.to_table(), scan.estimate().bytes
    for chosen, most in (
        (timestamp >= at(1000 + LONG - 100), LONG + 1200),
        ((timestamp >= at(1000 + 2 * LONG - 100)) & (timestamp < at(1000 + 2 * LONG - 50)), 1200),
        ((timestamp > at(1000 + LONG // 2)) & (pc.field("offset") < LONG - 100), LONG // 2 + 1200),
        (timestamp > at(999 + 2 * LONG), 0),
    ):
        assert scan.dataset().to_table(filter=chosen) == whole.filter(chosen)
        assert offsets_read(scan, chosen) <= most
    late = scan.dataset().splits_for(timestamp >= at(1000 + 2 * LONG - 100))
    assert scan._planned.estimate(late).bytes < bytes_of_all * 0.1


def test_pieces_of_a_segment_that_are_too_early_are_left_out(
    long: ScannedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among all pieces, however many they are, the metadata has the greatest timestamp of the segment only."""
    monkeypatch.setattr("ts_reader.query.splits.SPLIT_BYTES", 50_000)
    scan = long.scan(columns=["offset", "timestamp"])
    pieces = [part for split in scan.dataset().splits_for(timestamp > at(0)) for part in split.ranges]
    assert len(pieces) > 64
    late = timestamp >= at(1000 + 2 * LONG - 100)
    assert offsets_read(scan, late) < 500
    assert scan.dataset().count_rows(filter=late) == 100


@pytest.mark.parametrize("stored", [None, b"", "of another"])
def test_a_timeindex_that_the_agent_did_not_confirm_leaves_nothing_out(
    long: ScannedArchive, stored: bytes | str | None
) -> None:
    """One that is missing, or that is not the one of the metadata."""
    key = long.partition("t").segment(SegmentName(LONG), ".timeindex")
    if stored is None:
        long.store.delete([key])
    else:
        long.store.put(key, OF_ANOTHER if isinstance(stored, str) else stored)
    assert offsets_read(long.scan(), timestamp >= at(1000 + 2 * LONG - 100)) == LONG


def test_the_end_of_a_segment_is_read_whatever_the_filter(long: ScannedArchive) -> None:
    """A `.timeindex` has no least timestamps, so a later record can be an early one."""
    assert offsets_read(long.scan(), timestamp < at(1100)) == 2 * LONG
    assert offsets_read(long.scan(mode="DROPMALFORMED"), timestamp >= at(1000 + 2 * LONG - 100)) == 2 * LONG
    assert offsets_read(long.scan(view="latest"), timestamp >= at(1000 + 2 * LONG - 100)) == 2 * LONG


SEGMENTS = ((0, 60), (60, 90), (90, 120))


def some_log(chance: Random, base: int, end: int) -> bytes:
    """Return batches of some records, whose timestamps rise slowly and fall at any time."""
    log, offset = b"", base
    while offset < end:
        length = min(chance.randint(1, 5), end - offset)
        usual = max(0, offset // 4 - chance.choice([0, 0, 0, 15]))
        times = [usual + chance.randrange(4) - 1 for _ in range(length)]
        records = [record(delta, timestamp_delta=time - times[0]) for delta, time in enumerate(times)]
        if chance.randrange(4):
            log += batch(offset, records, base_timestamp=times[0], max_timestamp=max(times))
        offset += length
    return log or batch(base, [record(0)], base_timestamp=7, max_timestamp=7)


def some_filter(chance: Random) -> pc.Expression:
    """Return a condition on timestamps, most of them on late ones, alone or with another one."""
    time = chance.randrange(-2, 36)
    condition = chance.choice(
        [
            timestamp >= at(time),
            timestamp > at(time),
            timestamp == at(time),
            (timestamp >= at(time)) & (timestamp < at(time + chance.randrange(10))),
            pc.field("offset") < chance.randrange(120),
        ]
    )
    match chance.randrange(8):
        case 0:
            return condition & some_filter(chance)
        case 1:
            return condition | some_filter(chance)
    return condition


@pytest.mark.parametrize("examples", [10, pytest.param(2000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])])
def test_narrowed_reads_have_the_rows_of_the_filter(
    archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    """Whatever the order of timestamps, the density of the index and the copies: no row is missing."""
    monkeypatch.setattr("ts_reader.pruning._LEAST_OFFSETS", 1)
    narrowed = 0

    @settings(max_examples=examples)
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        nonlocal narrowed
        chance, topic = Random(seed), f"topic-{seed}"
        for base, end in SEGMENTS:
            log = some_log(chance, base, end)
            archive.put_segment(topic, base, log, timeindex=timeindex_of(log, chance.randint(1, 3)))
        if chance.randrange(2):
            copy = some_log(chance, 20, 100)
            archive.put_segment(topic, 20, copy, timeindex=timeindex_of(copy, 1), variant=True)
        archive.commit(topic, 120, highest_base=90)
        scan = archive.scan(topic, columns=["offset", "timestamp"], fail_on_data_loss=False)
        with capture_logs():
            whole = scan.to_table()
        for _ in range(8):
            chosen = some_filter(chance)
            assert scan.dataset().to_table(filter=chosen) == whole.filter(chosen)
            narrowed += offsets_read(scan, chosen) < scan.estimate().offsets
        archive.store.delete(info.key for info in list(archive.store.list()))  # else each scan lists all former topics

    check()
    assert narrowed
