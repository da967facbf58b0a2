"""`verify` on archives with a live tail: it checks indexes and batches, and names what no index leads to."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import batches
from tests.made_tail import MadeTail, entry
from tests.spark.archives import Archive
from tests.tsctl.running import runner
from tests.tsctl.verify.verified import READING, codes, only, put, verify
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.high_watermarks import End, Ends
from ts_common.archive.object_keys import TAIL_DIRECTORY, pack_name
from ts_common.model import TopicPartition
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth

ALL_DEPTHS = pytest.mark.parametrize("depth", list(Depth))


def commit(archive: Archive, next_offset: int = 100, **fields: Any) -> None:
    """Commit with the log of broker 1."""
    live = Live("1", (), EpochHistory(((0, next_offset),)))
    archive.commit("t", next_offset, **{"live": live, **fields})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A closed segment `[0, 100)`, and its commit with a tail."""
    made = Archive(tmp_path / "store", entropy_bits=3)
    put(made, 0, 100)
    commit(made)
    return made


@pytest.fixture
def tail(archive: Archive) -> MadeTail:
    """A tail `[100, 130)` of a merged object and a pack."""
    made = MadeTail(archive)
    for start in (100, 110):
        made.put(entry(archive, "t", start, batches((start, start + 10))))
    made.merge()
    made.put(entry(archive, "t", 120, batches((120, 130))))
    return made


def break_byte(archive: Archive, key: str, position: int) -> None:
    """Change one byte of an object."""
    body = bytearray(archive.store.get(key)[0])
    body[position] ^= 1
    archive.store.put(key, bytes(body))


@ALL_DEPTHS
@pytest.mark.usefixtures("tail")
def test_an_intact_tail_has_no_finding(archive: Archive, depth: Depth) -> None:
    """The run ends at the next offset, and the tail behind it."""
    found = verify(archive, depth, in_flight_seconds=3600)
    assert found.all_findings == []
    (coverage,) = found.coverages
    assert (coverage.end, coverage.tail_end, coverage.held) == (100, 130, ((0, 100),))


@ALL_DEPTHS
def test_a_first_commit_without_a_run_has_no_finding(tmp_path: Path, depth: Depth) -> None:
    """Line 1 names an object that does not exist: nothing has closed yet."""
    archive = Archive(tmp_path / "store", entropy_bits=3)
    commit(archive, 40, log_start=40, epochs=(), epoch=3, highest_base=40)
    MadeTail(archive).put(entry(archive, "t", 40, batches((40, 50), epoch=3), epoch=3))
    commit(archive, 40, log_start=40, epochs=(), epoch=3, highest_base=40, live=Live("1", (), EpochHistory(((3, 40),))))
    found = verify(archive, depth)
    assert found.all_findings == []
    (coverage,) = found.coverages
    assert (coverage.start, coverage.end, coverage.tail_end, coverage.segments) == (40, 40, 50, 0)


@ALL_DEPTHS
def test_a_damaged_index_is_damage(archive: Archive, tail: MadeTail, depth: Depth) -> None:
    """Both the log and each partition that it continues have a finding; the view ends at the next offset."""
    break_byte(archive, tail.newest, 40)
    found = verify(archive, depth)
    assert codes(found) == ["tail-damaged", "tail-damaged"]
    assert {(each.where, each.key, each.start) for each in found.all_findings} == {
        ("tail/1", tail.newest, None),
        ("t-0", tail.newest, 100),
    }
    assert {each.severity for each in found.all_findings} == {Severity.DAMAGED}


@ALL_DEPTHS
@pytest.mark.usefixtures("tail")
def test_a_damaged_log_of_a_former_leadership_is_damage_of_the_partition_too(archive: Archive, depth: Depth) -> None:
    """Its entries are not shown; the leader's own ones are."""
    former = MadeTail(archive, "2")
    former.put(entry(archive, "t", 130, batches((130, 140))))
    break_byte(archive, former.newest, 40)
    commit(archive, live=Live("1", (("2", 0),), EpochHistory(((0, 100), (3, 140)))), epoch=3)
    found = verify(archive, depth, in_flight_seconds=3600)
    assert {(each.where, each.key, each.start) for each in found.all_findings} == {
        ("tail/2", former.newest, None),
        ("t-0", former.newest, 100),
    }


@pytest.mark.parametrize(("at", "least"), [(20, Depth.HEADERS), (80, Depth.FULL)])
def test_damaged_batches_are_found_by_the_depth_that_reads_them(
    archive: Archive, tail: MadeTail, at: int, least: Depth
) -> None:
    """A header by its leader epoch or offset, records by the CRC-32C."""
    place = tail.entries[1]
    offset_byte = 3 if at == 20 else at
    break_byte(archive, tail.key(place.object), place.position + offset_byte)
    depths = list(Depth)
    for depth in depths[: depths.index(least)]:
        assert codes(verify(archive, depth, in_flight_seconds=3600)) == []
    for depth in depths[depths.index(least) :]:
        found = only(verify(archive, depth, in_flight_seconds=3600))
        assert (found.kind.code, found.where, found.start, found.end) == ("tail-damaged", "t-0", 110, 120)


@READING
def test_a_missing_object_of_a_tail_is_damage(archive: Archive, tail: MadeTail, depth: Depth) -> None:
    """A lifecycle rule removed it: that is what versions of the bucket are for."""
    archive.store.delete([tail.key(tail.entries[0].object)])
    found = verify(archive, depth, in_flight_seconds=3600).all_findings
    assert [(each.kind.code, each.start, each.end) for each in found] == [
        ("tail-damaged", 100, 110),
        ("tail-damaged", 110, 120),
    ]


def test_objects_that_no_index_leads_to_are_named(archive: Archive, tail: MadeTail) -> None:
    """A killed merge leaves them; young ones can be of a merge in progress."""
    for name in ("merged/1-0badcafe", pack_name(1)):
        archive.store.put(tail.key(name), b"left")
    assert codes(verify(archive, Depth.LISTING, in_flight_seconds=3600)) == []
    found = only(verify(archive, Depth.LISTING))
    assert (found.kind.code, found.where, found.severity) == ("tail-left", "tail/1", Severity.INFORMATION)
    assert found.detail.startswith("3 objects")  # with the pack that the merge made unnecessary


@pytest.mark.parametrize(("days", "expected"), [(8, ["tail-left"]), (6, [])])
def test_the_log_of_a_removed_broker_is_named_after_a_week(
    archive: Archive, tmp_path: Path, days: int, expected: list[str]
) -> None:
    """No commit names it, but its newest pack leads to its objects. One that a commit names has no finding."""
    MadeTail(archive).put(entry(archive, "t", 100, batches((100, 110))))
    MadeTail(archive, log="7").put(entry(archive, "deleted", 0, batches((0, 10))))
    written = time.time() - days * 86400
    for info in archive.store.list(archive.keys.cluster_prefix + TAIL_DIRECTORY):
        os.utime(tmp_path / "store" / info.key, times=(written, written))
    found = verify(archive, Depth.LISTING).all_findings
    assert [(each.kind.code, each.where) for each in found] == [(code, "tail/7") for code in expected]


@pytest.mark.usefixtures("tail")
def test_a_name_that_no_agent_writes_is_foreign(archive: Archive) -> None:
    """Below a log, and as a log."""
    archive.store.put(archive.keys.tail("1") + "packs/readme", b"x")
    archive.store.put(archive.keys.tail("x") + pack_name(1), b"x")
    found = verify(archive, Depth.LISTING, in_flight_seconds=3600).all_findings
    assert sorted((each.kind.code, each.where) for each in found) == [
        ("foreign-object", "tail/1"),
        ("foreign-object", "tail/x"),
    ]


@pytest.mark.usefixtures("tail")
@pytest.mark.parametrize(("high_watermark", "age", "expected"), [(131, 7200, 1), (131, 60, 0), (130, 7200, 0)])
def test_a_tail_that_ends_below_an_old_high_watermark_is_behind(
    archive: Archive, high_watermark: int, age: int, expected: int
) -> None:
    """What lies between would be lost with the cluster; a young one can be on its way."""
    now = int(time.time() * 1000)
    ends = Ends(1, now, {TopicPartition("t", 0): End(high_watermark, now - age * 1000)})
    archive.store.put(archive.keys.ends_of(1), ends.encode())
    found = verify(archive, Depth.LISTING, in_flight_seconds=3600).all_findings
    assert [(each.kind.code, each.start, each.end) for each in found] == [("tail-behind", 130, 131)] * expected


@pytest.mark.usefixtures("tail")
def test_the_command_shows_the_end_of_the_tail(archive: Archive, capfd: pytest.CaptureFixture[str]) -> None:
    """As a field of each partition."""
    place = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", "3")
    ended = runner(capfd)("verify", *place, "--json", "--depth", "listing")
    assert ended.code == 0
    (part,) = ended.document["partitions"]
    assert (part["end"], part["tail_end"], part["tail_time"]) == (100, 130, "1970-01-01T00:00:00.001Z")


@pytest.mark.usefixtures("tail")
def test_the_report_shows_the_end_of_the_tail(
    archive: Archive, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In the row of the partition, behind its next offset."""
    page = tmp_path / "report.html"
    place = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", "3")
    assert runner(capfd)("report", *place, "--depth", "listing", "-o", page).code == 0
    assert "<td>t-0</td><td>0</td><td>100</td><td>130</td><td>1970-01-01T00:00:00.001Z</td>" in page.read_text()
