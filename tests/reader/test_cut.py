"""`Archive.at`: an archive whose scans show one moment."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tests.common.log_format.build import TRANSACTIONAL, batch, record
from tests.made_archive import CLUSTER, batches
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import txnindex_entry
from tests.transactions import ABORT, data, ended
from ts_common.errors import ConfigurationError, QueryError
from ts_reader import Archive

NOON = 100_000_000
TIME = "1970-01-02T03:46:40Z"
LATER = NOON + 600_000  # proves that a cut at noon is complete


@pytest.fixture
def two(archive: ScannedArchive) -> ScannedArchive:
    """Topics `t` and `u` of two partitions: records before and at noon, a transaction around it, records after it."""
    for topic in ("t", "u"):
        for partition in range(2):
            log = batches((0, 3), time=NOON - 2) + data(3, NOON - 1) + ended(4, NOON + 1)
            archive.put_segment(topic, 0, log + batches((5, 9), time=LATER), partition=partition)
            archive.commit(topic, 9, partition=partition, last_stable_offset=9)
    return archive


def unproven(archive: ScannedArchive) -> None:
    """Add a topic `v`, whose records end before noon."""
    archive.put_segment("v", 0, batches((0, 3), time=0))
    archive.commit("v", 3, last_stable_offset=3)


def test_each_scan_of_a_cut_shows_the_moment(two: ScannedArchive) -> None:
    """Topics and partitions are those of the archive, and the archive itself stays as it is."""
    cut = two.opened.at(TIME)
    found = cut.scan(["t", "u"], columns=["topic", "partition", "offset"]).to_table()
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [
        (topic, partition, offset) for topic in ("t", "u") for partition in (0, 1) for offset in (0, 1, 2)
    ]
    assert cut.topics() == ["t", "u"]
    assert cut.partitions("t") == two.opened.partitions("t")
    assert two.offsets(partitions=[0]) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert repr(cut) == repr(two.opened) + ".at('1970-01-02T03:46:40.000Z')"


@pytest.mark.parametrize(
    "time",
    [
        datetime.fromtimestamp(NOON / 1000, UTC),
        datetime.fromtimestamp(NOON / 1000, timezone(timedelta(hours=5))),
        datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(microseconds=999),
        TIME,
        NOON,
    ],
)
def test_a_moment_is_the_last_millisecond_at_or_before_it(two: ScannedArchive, time: Any) -> None:
    """A record of the next one is later."""
    scan = two.opened.at(time).scan("t", partitions=[0], columns=["offset"])
    assert scan.to_table()["offset"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_cut_reads_committed_transactions(two: ScannedArchive, level: str) -> None:
    """Whatever the isolation level is: markers decide, not the last stable offset."""
    log = (
        data(0, 1)
        + ended(1, 2, kind=ABORT)
        + data(2, 3, 8)
        + batches((3, 4), time=NOON - 3)
        + batches((4, 6), time=LATER)
    )
    two.put_segment("w", 0, log, txnindex=txnindex_entry(7, 0, 1, 2))
    two.commit("w", 5, last_stable_offset=2)
    scan = two.opened.at(TIME).scan("w", isolation_level=level, columns=["offset"])
    assert scan.to_table()["offset"].to_pylist() == [3]


def test_engines_see_the_moment(two: ScannedArchive) -> None:
    """With a filter, without columns, and in a copy that was pickled."""
    cut = pickle.loads(pickle.dumps(two.opened.at(TIME)))  # made here
    assert isinstance(cut, Archive)
    views = cut.scan("t").dataset()  # noqa: F841  (DuckDB finds it by its name)
    counted: Any = duckdb.sql('select count(*), count(*) filter (where "offset" >= 2) from views')
    assert counted.fetchall() == [(6, 2)]
    filtered: Any = duckdb.sql('select count(*) from views where "offset" >= 2')
    assert filtered.fetchall() == [(2,)]
    assert pl.DataFrame(cut.scan("t", columns=["key"])).height == 6
    assert pa.table(cut.scan("t", columns=[])).num_rows == 6
    assert cut.scan("t", view="latest", partitions=[0]).to_table()["offset"].to_pylist() == [0, 1, 2]
    assert two.opened.at(NOON + 1).scan("t").dataset().count_rows() == 8


def test_a_corrupt_place_stays_in_a_cut(archive: ScannedArchive) -> None:
    """No time of it is known; it is below the last segment with times up to noon."""
    log = batches((0, 3), time=0) + batches((3, 6), time=0)
    archive.put_segment("t", 0, log, body=log[:80] + bytes([log[80] ^ 1]) + log[81:])
    archive.put_segment("t", 6, batches((6, 7), time=NOON - 6) + batches((7, 9), time=LATER))
    archive.commit("t", 9, highest_base=6, last_stable_offset=9)
    scan = archive.opened.at(NOON).scan("t", mode="PERMISSIVE", columns=["offset", "_corrupt_record"])
    rows = scan.to_table().to_pylist()
    assert [row["offset"] for row in rows] == [0, 3, 4, 5, 6]
    assert [row["offset"] for row in rows if row["_corrupt_record"] is not None] == [0]


def test_an_incomplete_cut_fails_or_warns(two: ScannedArchive) -> None:
    """The warning is logged and in `warnings`; the other topics are not concerned."""
    unproven(two)
    with pytest.raises(QueryError, match=r"missing in v-0: .* pass unproven=\"warn\" to at\(\)"):
        two.opened.at(TIME).scan(["t", "v"]).to_table()
    assert two.opened.at(TIME).scan("t").warnings == ()
    scan = two.opened.at(TIME, unproven="warn").scan(["t", "v"])
    with capture_logs() as logs:
        assert scan.to_table().num_rows == 9
    (warning,) = scan.warnings
    assert [entry["message"] for entry in logs if entry["event"] == "query_warning"] == [warning]
    assert warning.startswith("cut at 1970-01-02T03:46:40.000Z: records up to then can be missing in v-0: ")


def test_a_cut_names_the_topics_whose_transactions_are_whole(archive: ScannedArchive) -> None:
    """One transaction has a marker before noon in `t`, and after it in `u`."""
    for topic, time in (("t", NOON - 1), ("u", NOON + 1)):
        log = data(0, 5, epoch=3) + ended(1, time, epoch=4) + later(2)
        archive.put_segment(topic, 0, log)
        archive.commit(topic, 3, last_stable_offset=3)
    counts = {
        topics: archive.opened.at(NOON, topics=topics).scan("t").to_table().num_rows
        for topics in (None, ("t",), ("t", "u"))
    }
    assert counts == {None: 1, ("t",): 1, ("t", "u"): 0}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"time": "noon"}, "time='noon': expected a time such as 2026-11-22T06:00:00Z (UTC unless it has an offset)"),
        ({"time": None}, "time=None: expected a time"),
        ({"time": -1}, "time=-1: milliseconds since 1970 are not negative"),
        ({"time": 0, "unproven": "ignore"}, "unproven='ignore': accepted are error, warn"),
        ({"time": 0, "topics": ["a b"]}, "topics='a b': not a legal name of a topic"),
        ({"time": 0, "topics": [5]}, "topics=5: a name, several names"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    """When the cut is made."""
    with pytest.raises(ConfigurationError) as caught:
        Archive("s3://bucket/base", CLUSTER).at(**arguments)
    assert caught.value.source == "arguments of at"
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("ahead", "committed", "late"),
    [
        (400_000, 1_000, 1),
        (200_000, 360_000, 1),
        (290_000, 20_000, 1),
        (400_000, 500, 1_560_000),  # the leader of `b` was away for longer than a transaction may be open
        (0, 1_560_000, 1),
    ],
)
def test_a_producer_whose_clock_is_ahead_hides_no_part_of_its_transaction(
    archive: ScannedArchive, ahead: int, committed: int, late: int
) -> None:
    """The times of its records do not bound a transaction that producer id and epoch name."""
    archive.put_segment(
        "a", 0, data(0, NOON - 400_000, epoch=3, sequence=0) + ended(1, NOON - committed, epoch=4) + later(2)
    )
    archive.commit("a", 3, last_stable_offset=3)
    first = batch(
        0,
        [record(0), record(1, timestamp_delta=500 + ahead)],
        attributes=TRANSACTIONAL,
        producer_id=7,
        producer_epoch=3,
        sequence=0,
        base_timestamp=NOON - 500,
        max_timestamp=NOON + ahead,
    )
    archive.put_segment("b", 0, first + ended(2, NOON + late, epoch=4) + later(3))
    archive.commit("b", 4, last_stable_offset=4)
    assert archive.opened.at(NOON).scan(["a", "b"]).to_table().num_rows == 0


def later(offset: int) -> bytes:
    return batches((offset, offset + 1), time=LATER)
