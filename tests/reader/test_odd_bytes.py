"""Intact bytes of odd producers through the Python API: rows, counts, statistics and cuts agree with the decoder."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import cases
from tests.reader.decode.decoded_rows import decoded_to_the_damage
from tests.reader.decode.odd_bytes import ALL, FILES, OFFSETS, STREAMS, with_deltas
from ts_reader import Archive
from ts_reader.decode.segment_decoder import SegmentDecoder

Row = tuple[int, bytes | None]
Rows = dict[int, list[Row]]
_REAL = "kafka-4298-real-0.10.0.1"  # cleaned; its broker had the offsets up to 1400
WRONG = [
    *OFFSETS,
    "sarama-1.15-real-kafka-1.0.0",
    "absolute-above",
    "absolute-below",
    "inside-all-0",
    "inside-descending",
]


@cache  # not at the import: each process of the suite imports this module
def names() -> list[str]:
    """Return the names of intact bytes."""
    return [name for name, data in ALL.items() if not decoded_to_the_damage(data)[1]]


def end_of(name: str) -> int:
    """The offset after the last header's."""
    decoder = SegmentDecoder()
    for _ in decoder.decode([ALL[name]]):
        pass
    return 1400 if name == _REAL else decoder._last_offset + 1


@cache
def ends() -> list[int]:
    """Return the end of each partition."""
    return [end_of(name) for name in names()]


@cache
def expected() -> Rows:
    """Return the rows of each partition that has some."""
    return {
        number: rows
        for number, (name, end) in enumerate(zip(names(), ends(), strict=True))
        if (rows := [(row[0], row[4]) for row in decoded_to_the_damage(ALL[name])[0] if row[0] < end])
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """One topic, with a partition for each of `names`, and a topic for each codec's stream."""
    made = MadeArchive(tmp_path_factory.mktemp("odd"))
    for number, (name, end) in enumerate(zip(names(), ends(), strict=True)):
        made.put_segment("odd", 0, ALL[name], end=end, partition=number)
        made.commit("odd", end, partition=number, last_stable_offset=end)
    return Archive(made.location, cluster=CLUSTER, workers=1)


def rows_of(archive: Archive, **options: Any) -> Rows:
    """The rows of each partition."""
    table, found = pa.table(archive.scan("odd", columns=["partition", "offset", "value"], **options)), Rows()
    for partition, *row in zip(*(column.to_pylist() for column in table.columns[:3]), strict=True):
        found.setdefault(partition, []).append((row[0], row[1]))
    return found


def test_r17_intact_bytes_are_rows_and_no_mode_calls_one_corrupt(archive: Archive) -> None:
    """A scan warns once for each topic whose producer wrote wrong offsets, whatever its number of partitions."""
    assert len(names()) > 40
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        with capture_logs() as events:
            assert rows_of(archive, mode=mode) == expected()
        assert [event["event"] for event in events] == ["producer_wrote_wrong_offsets"]
    right = [names().index(name) for name in STREAMS if name in names()]
    with capture_logs() as events:
        assert rows_of(archive, partitions=right) == {number: expected()[number] for number in right}
    assert not events


def test_counts_and_statistics_are_those_of_the_rows(archive: Archive) -> None:
    """Also where a header counts other records than a consumer shows."""
    scan = archive.scan("odd")
    assert scan.count_rows() == sum(map(len, expected().values()))
    found = {each.partition: (each.rows, each.first_offset, each.last_offset) for each in scan.statistics()}
    assert found == {number: (len(rows), rows[0][0], rows[-1][0]) for number, rows in expected().items()}


def rows_and_count(archive: Archive, topic: str, **options: Any) -> tuple[list[int], int]:
    """The offsets of the rows, and their number by `count_rows`."""
    scan = archive.scan(topic, columns=["offset"], **options)
    return pa.table(scan)["offset"].to_pylist(), scan.count_rows()


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_records_above_a_segment_are_rows_and_hide_those_of_the_next_one(tmp_path: Path, mode: str) -> None:
    """A log has the same rows and counts from each offset on in one segment and in two; the last two are ordinary."""
    sarama = [with_deltas(0, range(7), 0), with_deltas(1, [0, 1], 0)]
    behind = [with_deltas(3, [0, 1], 1, 1), with_deltas(5, range(4), 3, 1)]
    made, parts = MadeArchive(tmp_path), (sarama + behind, sarama, behind)
    whole, first, second = (b"".join(batches) for batches in parts)
    made.put_segment("one", 0, whole, end=9)
    made.put_segment("two", 0, first, end=3)
    made.put_segment("two", 3, second, end=9)
    for topic, highest in (("one", 0), ("two", 3)):
        made.commit(topic, 9, last_stable_offset=9, highest_base=highest)
    archive = Archive(made.location, cluster=CLUSTER, workers=1)
    expected = [row[0] for row in decoded_to_the_damage(whole)[0]]
    assert expected == [*range(9)]
    values = {t: pa.table(archive.scan(t, columns=["value"], mode=mode))["value"].to_pylist() for t in ("one", "two")}
    assert values["one"] == values["two"] == [row[4] for row in decoded_to_the_damage(whole)[0]]
    for topic in values:
        for cut in (2, 4, 8):
            assert rows_and_count(archive, topic, starting_offsets={0: cut}, mode=mode) == (expected[cut:], 9 - cut)
            assert rows_and_count(archive, topic, ending_offsets={0: cut}, mode=mode) == (expected[:cut], cut)
        (found,) = archive.scan(topic, mode=mode).statistics()
        assert (found.rows, found.first_offset, found.last_offset) == (9, 0, 8)


@pytest.mark.parametrize("cut", cases([1, 2, 4, 8, 10], quick=[2, 8]))
def test_a_cut_at_any_offset_loses_and_doubles_no_row(archive: Archive, cut: int) -> None:
    """Records above the last offset of their header belong to the part with their own offset."""
    numbers = [names().index(name) for name in WRONG]
    bounds = [{n: min(place, ends()[n]) for n in numbers} for place in (0, cut, 1 << 40)]
    for mode in ("FAILFAST", "DROPMALFORMED"):
        parts = [
            rows_of(archive, partitions=numbers, starting_offsets=start, ending_offsets=end, mode=mode)
            for start, end in pairwise(bounds)
        ]
        assert {n: parts[0].get(n, []) + parts[1].get(n, []) for n in numbers} == {
            n: expected().get(n, []) for n in numbers
        }
        counts = [
            archive.scan("odd", partitions=numbers, starting_offsets=start, ending_offsets=end).count_rows()
            for start, end in pairwise(bounds)
        ]
        assert sum(counts) == sum(len(expected().get(n, ())) for n in numbers)


def test_each_file_of_a_bug_report_is_among_them() -> None:
    """None of them is damaged."""
    assert {*FILES} <= {*names()}
