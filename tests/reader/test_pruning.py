"""Filters of timestamps: a `.timeindex` lets a read begin in the middle of a segment."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import batch, record
from tests.made_archive import batches, steps
from tests.made_indexes import timeindex_of
from tests.reader.archives import ScannedArchive
from ts_common.archive.object_keys import SegmentName
from ts_reader import Scan

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


@pytest.mark.parametrize("stored", [None, b"", "of another segment"])
def test_a_timeindex_that_the_agent_did_not_confirm_leaves_nothing_out(
    long: ScannedArchive, stored: bytes | str | None
) -> None:
    """One that is missing, or that is not the one of the metadata."""
    key = long.partition("t").segment(SegmentName(LONG), ".timeindex")
    if stored is None:
        long.store.delete([key])
    else:
        long.store.put(key, timeindex_of(batches((LONG, LONG + 10))) if isinstance(stored, str) else stored)
    assert offsets_read(long.scan(), timestamp >= at(1000 + 2 * LONG - 100)) == LONG


def test_the_end_of_a_segment_is_read_whatever_the_filter(long: ScannedArchive) -> None:
    """A `.timeindex` has no least timestamps, so a later record can be an early one."""
    assert offsets_read(long.scan(), timestamp < at(1100)) == 2 * LONG
    assert offsets_read(long.scan(mode="DROPMALFORMED"), timestamp >= at(1000 + 2 * LONG - 100)) == 2 * LONG
    assert offsets_read(long.scan(view="latest"), timestamp >= at(1000 + 2 * LONG - 100)) == 2 * LONG


def logs(base: int, end: int) -> st.SearchStrategy[bytes]:
    """Return segments of batches of some records, whose timestamps are in no order."""

    @st.composite
    def drawn(draw: st.DrawFn) -> bytes:
        log, offset = b"", base
        while offset < end:
            length = draw(st.integers(1, min(5, end - offset)))
            times = draw(st.lists(st.integers(-1, 40), min_size=length, max_size=length))
            records = [record(delta, timestamp_delta=time - times[0]) for delta, time in enumerate(times)]
            if draw(st.booleans()):
                log += batch(offset, records, base_timestamp=times[0], max_timestamp=max(times))
            offset += length
        return log or batch(base, [record(0)], base_timestamp=7, max_timestamp=7)

    return drawn()


SEGMENTS = (0, 60, 90)
ENDS = (60, 90, 120)
CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(st.integers(-2, 42), st.integers(0, 40)).map(
            lambda pair: (timestamp >= at(pair[0])) & (timestamp < at(pair[0] + pair[1]))
        ),
        st.integers(-2, 42).map(lambda time: timestamp >= at(time)),
        st.integers(-2, 42).map(lambda time: timestamp == at(time)),
        st.integers(0, 120).map(lambda offset: pc.field("offset") < offset),
    ),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] & t[1] if t[2] else t[0] | t[1]),
    max_leaves=3,
)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return names of topics, while small ranges are narrowed too."""
    monkeypatch.setattr("ts_reader.pruning._LEAST_OFFSETS", 1)
    return (f"topic-{number}" for number in count())


@pytest.mark.parametrize("examples", [15, pytest.param(1000, marks=pytest.mark.full)])
def test_narrowed_reads_have_the_rows_of_the_filter(
    archive: ScannedArchive, names: Iterator[str], examples: int
) -> None:
    """Whatever the order of timestamps, the density of the index and the copies: none is missing."""
    narrowed = 0

    @settings(max_examples=examples)
    @given(st.data(), st.integers(1, 3))
    def check(data: st.DataObject, every: int) -> None:
        nonlocal narrowed
        topic = next(names)
        for base, end in zip(SEGMENTS, ENDS, strict=True):
            log = data.draw(logs(base, end))
            archive.put_segment(topic, base, log, timeindex=timeindex_of(log, every), end=None)
            archive.commit(topic, 120, highest_base=base)
        copy = data.draw(logs(20, 100))
        archive.put_segment(topic, 20, copy, timeindex=timeindex_of(copy, every), variant=True)
        scan = archive.scan(topic, columns=["offset", "timestamp"], fail_on_data_loss=False)
        whole = scan.to_table()
        for chosen in data.draw(st.lists(CONDITIONS, min_size=1, max_size=4)):
            assert scan.dataset().to_table(filter=chosen) == whole.filter(chosen)
            narrowed += offsets_read(scan, chosen) < scan.estimate().offsets

    check()
    assert narrowed
