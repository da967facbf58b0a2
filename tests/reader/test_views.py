"""What an archive shows where it is not whole: each engine has the rows, or the error, of the Spark tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.common.log_format.build import marker
from tests.made_archive import MadeArchive, batches, steps
from tests.made_damage import DAMAGES, LOG, raw_bytes
from tests.matrix import cases
from tests.reader.archives import ScannedArchive
from tests.reader.engines import ENGINES
from tests.reader.shapes import ABORT, COMMIT, transaction, txnindex_entry
from ts_common.archive.gap_records import Gap
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.restored import Ended, Outcome
from ts_common.model import TopicPartition
from ts_reader import Archive, Scan

JAVA: Final = (Path(__file__).parents[1] / "data/java-uploader/bucket-archive/kafka").as_uri()
IDS: Final = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g")
COMMITTED: Final[dict[str, Any]] = {"isolation_level": "read_committed", "fail_on_data_loss": False}
V: Final = b"v"


@dataclass(frozen=True)
class Case:
    """A topic `t`, and what a scan of it shows.

    Attributes:
        make: makes it.
        arguments: of the scan.
        rows: offset and value of each, in order.
        error: a pattern of the message, if the scan is an error instead.
    """

    make: Callable[[MadeArchive], None]
    rows: list[tuple[int, bytes | None]] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def each(*ranges: range, value: bytes = V) -> list[tuple[int, bytes | None]]:
    """Return rows of one value."""
    return [(offset, value) for offsets in ranges for offset in offsets]


def of_two_leaders(archive: MadeArchive) -> None:
    """Their segments have other boundaries."""
    for start, end in ((0, 100), (100, 200), (90, 250)):
        archive.put_segment("t", start, batches(*steps(start, end)))
    archive.commit("t", 250, highest_base=100)


def compacted_differently(archive: MadeArchive) -> None:
    """Each of two copies has records that the other one lacks."""
    archive.put_segment("t", 0, batches((0, 20), (30, 45), (70, 100)), end=100)
    archive.put_segment("t", 0, batches((10, 35), (40, 60)), end=100, variant=True)
    archive.commit("t", 100)


def with_dead_tail(archive: MadeArchive) -> None:
    """An unclean election lost the records from 80 on of one copy; two copies have the same base offset."""
    archive.put_segment("t", 0, batches(*steps(0, 60)))
    archive.put_segment("t", 60, batches(*steps(60, 80)) + batches(*steps(80, 130), value=b"dead"))
    archive.put_segment(
        "t", 60, batches(*steps(60, 80)) + batches(*steps(80, 110), epoch=2, value=b"live"), variant=True
    )
    archive.commit("t", 110, epochs=((0, 0), (2, 80)), highest_base=60)


def with_foreign_commit(archive: MadeArchive) -> None:
    """A Java uploader's commit has no epochs: those of the copies show what is dead."""
    archive.put_segment("t", 0, batches(*steps(0, 60)) + batches(*steps(60, 100), value=b"dead"))
    archive.put_segment("t", 60, batches(*steps(60, 90), epoch=1))
    archive.put_segment("t", 90, batches(*steps(90, 95), epoch=1))
    archive.store.put(archive.partition("t").commit, b"%020d" % 60)


def with_hole(archive: MadeArchive) -> None:
    """A gap is recorded at [20, 30), and the segment of [50, 60) was removed."""
    for start, end in ((0, 20), (30, 50), (50, 60), (60, 70)):
        archive.put_segment("t", start, batches((start, end)))
    archive.store.put(archive.partition("t").gap(20, 30), Gap(20, 30, "retention", 0, 1).encode())
    archive.commit("t", 70, highest_base=60)
    archive.store.delete([archive.partition("t").segment(SegmentName(50))])


def below_log_start(archive: MadeArchive) -> None:
    """`log.start` is 35: one segment is below it, one reaches over it."""
    for start in (0, 30, 60):
        archive.put_segment("t", start, batches(*steps(start, start + 30, 5)))
    archive.commit("t", 90, highest_base=60, log_start=35)


def cut_off(archive: MadeArchive) -> None:
    """The marker of [2, 10) is in a hole; the one behind the hole counts for [20, 25) only."""
    archive.put_segment("t", 0, batches((0, 2)) + transaction(2, 10))
    archive.store.put(archive.partition("t").gap(10, 20), Gap(10, 20, "retention", 0, 1).encode())
    archive.put_segment("t", 20, transaction(20, 25) + marker(25, 5, COMMIT) + batches((26, 30)))
    archive.commit("t", 30, highest_base=20, last_stable_offset=30)


def with_lost_marker(archive: MadeArchive) -> None:
    """The cleaner removed the aborted [4, 7) and its marker before the second, longer copy was shipped."""
    archive.put_segment("t", 0, batches((0, 4)) + transaction(4, 7) + batches((7, 10)))
    archive.put_segment("t", 0, batches((0, 2), (8, 9), (14, 15)), variant=True, late=True)
    archive.commit("t", 15, last_stable_offset=15)


def of_two_incarnations(archive: MadeArchive) -> None:
    """The topic was deleted and created again, with fewer records."""
    archive.put_segment("t", 0, batches((0, 9), value=b"first"))
    archive.commit("t", 9)
    archive.put_incarnations("t", *IDS)
    archive.put_segment("moved", 0, batches((0, 5), value=b"second"))
    archive.commit("moved", 5)
    source = archive.partition("moved")
    target = archive.keys.partition(TopicPartition("t", 0), f"t~{IDS[1]}")
    for info in list(archive.store.list(source.prefix)):
        data, held = archive.store.get(info.key)
        archive.store.put(info.key.replace(source.prefix, target.prefix), data, metadata=held.metadata)


def of_a_restored_cluster(archive: MadeArchive) -> None:
    """Cluster `old` was restored up to 39, which ended a transaction; the new broker appended to a restored segment."""
    old = MadeArchive(archive.location, cluster="old")
    old.put_segment("t", 10, batches(*steps(10, 30), epoch=5, value=b"old") + transaction(30, 35, epoch=5))
    old.put_segment("t", 35, batches((35, 40), epoch=7, value=b"old") + batches((40, 60), epoch=7, value=b"cut off"))
    old.commit("t", 60, highest_base=35, log_start=10, epochs=[(5, 10), (7, 35)], last_stable_offset=30)
    archive.put_restored(old.keys, 40, epochs=[(5, 10), (7, 35)], ended=[Ended(5, 0, 30, Outcome.ABORT)])
    restored = transaction(30, 35) + batches((35, 40), value=b"old") + marker(40, 5, ABORT)
    new = restored + batches((41, 50), epoch=2, value=b"new")
    archive.put_segment("t", 30, new, txnindex=txnindex_entry(5, 30, 40, 41))
    archive.commit("t", 50, highest_base=30, log_start=40, epochs=[(0, 30), (2, 41)], last_stable_offset=50)


def with_lost_list(archive: MadeArchive) -> None:
    """The list of incarnations has an older version: the newest one is unknown."""
    of_two_incarnations(archive)
    key = archive.keys.incarnations("t")
    archive.store.delete([key])
    archive.store.put(key, Incarnations("t").opened(IDS[0], 0, archive.keys).encode())


def removed(archive: MadeArchive) -> None:
    """The commit is there, and no segment."""
    archive.commit("t", 50)


OLD: Final = each(range(10, 30), value=b"old")
NEW: Final = each(range(41, 50), value=b"new")
HOLES: Final = "t-0: offsets 20 to 29 are lost: a gap record has the reason"
CASES: Final[dict[str, Case]] = {
    "u04 two leaders": Case(of_two_leaders, each(range(250))),
    "u04 two leaders, a part": Case(
        of_two_leaders, each(range(95, 245)), {"starting_offsets": {0: 95}, "ending_offsets": {0: 245}}
    ),
    "r05 two copies": Case(compacted_differently, each(range(60), range(70, 100))),
    "r05 dead tail": Case(with_dead_tail, each(range(80)) + each(range(80, 110), value=b"live")),
    "r05 foreign commit": Case(with_foreign_commit, each(range(90))),
    "r03 holes": Case(with_hole, error=HOLES),
    "r03 holes, allowed": Case(with_hole, each(range(20), range(30, 50), range(60, 70)), {"fail_on_data_loss": False}),
    "r03 behind the holes": Case(with_hole, each(range(60, 70)), {"starting_offsets": {0: 60}}),
    "r12c no segment": Case(removed, error="t-0: offsets 0 to 49 are lost: no object in the store contains them"),
    "log.start": Case(below_log_start, each(range(35, 90))),
    "r03 below log.start": Case(
        below_log_start,
        error="offsets 20 to 34 are lost: below the log's start 35",
        arguments={"starting_offsets": {0: 20}},
    ),
    "r14 cut off": Case(cut_off, each(range(2), range(20, 25), range(26, 30)), COMMITTED),
    "r14 cut off, an error": Case(
        cut_off,
        error="offsets 2 to 9 are not shown",
        arguments={"isolation_level": "read_committed", "ending_offsets": {0: 5}},
    ),
    "r02 lost marker": Case(with_lost_marker, each(range(4), range(7, 10), range(14, 15)), COMMITTED),
    "r02 lost marker, uncommitted": Case(with_lost_marker, each(range(10), range(14, 15))),
    "newest incarnation": Case(of_two_incarnations, each(range(5), value=b"second")),
    "oldest incarnation": Case(of_two_incarnations, each(range(9), value=b"first"), {"incarnation": "oldest"}),
    "incarnation by topic id": Case(of_two_incarnations, each(range(5), value=b"second"), {"incarnation": IDS[1]}),
    "no such incarnation": Case(
        of_two_incarnations, error=f"topic t: no incarnation 3; there are 1 {IDS[0]}", arguments={"incarnation": "3"}
    ),
    "restored": Case(of_a_restored_cluster, OLD + each(range(30, 35)) + each(range(35, 40), value=b"old") + NEW),
    "restored, committed": Case(of_a_restored_cluster, OLD + each(range(35, 40), value=b"old") + NEW, COMMITTED),
    "u30 list lost": Case(with_lost_list, error=rf"does not contain t~{IDS[1]}, but the store has objects of it"),
}


# Each reads the stream of batches, or the dataset, in another way; the others read one of these two with pyarrow.
DIFFERENT = ("duckdb dataset", "pandas", "polars")


@pytest.mark.parametrize("engine", cases(ENGINES, quick=DIFFERENT))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_engine_has_the_rows_or_the_error(archive: ScannedArchive, case: Case, engine: str) -> None:
    """In the order of offsets; of an error, the whole first line."""
    case.make(archive)
    scan = archive.scan("t", **case.arguments)
    if case.error is not None:
        raises(scan, engine, case.error)
    else:
        assert [(row["offset"], row["value"]) for row in ENGINES[engine](scan)] == case.rows


def raises(scan: Scan, engine: str, error: str) -> None:
    """Fail unless an engine raises the error that the scan raises in Python."""
    with pytest.raises(Exception, match=error) as expected:
        scan.to_table()
    with pytest.raises(Exception, match=error) as caught:
        ENGINES[engine](scan)
    assert str(expected.value).splitlines()[0] in str(caught.value)


@pytest.mark.parametrize("engine", cases(ENGINES, quick=DIFFERENT))
@pytest.mark.parametrize("how", DAMAGES)
def test_r04_damage_is_the_same_in_each_engine(archive: ScannedArchive, how: str, engine: str) -> None:
    """An error that names object and place; the rest of the rows; or one row with the bytes that were found."""
    damage, lost = DAMAGES[how]
    archive.put_segment("t", 0, LOG, body=damage(LOG))
    archive.commit("t", 50)
    whole = [offset for offset in range(50) if offset not in lost]
    raises(archive.scan(), engine, r"t-0: prod/t-0/0{20}\.log in file:///.*")
    rows = ENGINES[engine](archive.scan(mode="DROPMALFORMED"))
    assert [row["offset"] for row in rows] == whole
    rows = ENGINES[engine](archive.scan(mode="PERMISSIVE", include_headers=True))
    assert [row["offset"] for row in rows] == sorted([*whole, lost[0]])
    (corrupt,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert {name: value for name, value in corrupt.items() if value is not None} == {
        "topic": "t",
        "partition": 0,
        "offset": lost[0],
        "_corrupt_record": raw_bytes(how),
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bucket_of_the_java_uploader_is_read_up_to_its_commit(engine: str) -> None:
    """It has no metadata, and its commit names the segment at 200."""
    scan = Archive(JAVA, "my_test_kafka_cluster", prefix_entropy_bits=3, workers=1).scan("appendtime")
    rows = ENGINES[engine](scan)
    assert [row["offset"] for row in rows] == list(range(287))
    assert {row["timestampType"] for row in rows} == {1}
