"""The table of retention: what shows again, what a deletion trusts, and when its grace begins."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.asked_store import AskedStore
from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import (
    GRACE,
    FixedRetention,
    Killed,
    bases,
    go_back,
    keep_last,
    later,
    run,
    run_in,
    run_killed_after_its_move,
    ship,
    start_of,
)
from ts_common.archive.cache_rewriting import cache_entry
from ts_common.archive.catalog import read_log_start
from ts_common.archive.commit import Lineage, LogStart, encode_log_start
from ts_common.archive.metadata_cache import encode_cache_object
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import DeleteOutcome, ObjectInfo
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.due import Rule
from tsctl.gc.retention import NeededFrom, Why

ALL = list(range(0, 100, 10))


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


@pytest.fixture
def retention(archive: MadeArchive) -> FixedRetention:
    """Ten segments are shipped, and the last three stay."""
    return keep_last(3, ship(archive, "t", 0, 100))


def content(archive: MadeArchive, *, copy: bool = False) -> LogStart:
    keys = archive.partition("t")
    found = read_log_start(archive.store, archive.keys.log_start_copy(keys) if copy else keys.log_start)
    assert found is not None
    return found.content


@pytest.mark.parametrize("when", ["before the first run", "in the grace", "after the grace"])
def test_a_hold_deletes_nothing_and_shows_what_is_hidden(
    archive: MadeArchive, retention: FixedRetention, when: str
) -> None:
    """Whenever it is set before the floor rises; what it shows has another grace once the hold is removed."""
    if when != "before the first run":
        run(archive, retention)
    retention.held.add("t")
    found = run(archive, retention, after=GRACE if when == "after the grace" else 0)
    assert {skipped.why for skipped in found.report.skipped} == {Why.HELD}
    assert (start_of(archive), bases(archive)) == (0, ALL)
    retention.held.clear()
    run(archive, retention, after=GRACE)
    assert (start_of(archive), bases(archive)) == (70, ALL)
    run(archive, retention, after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_each_write_of_a_run_carries_the_list_of_erased_offsets(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """The steps are: hide, show under a hold, hide again, release; the copy has it too."""
    key = archive.partition("t").log_start
    archive.store.put(key, LogStart(0, erased=4, written_by="erase-1").encode())
    starts = list[int]()
    for held in (False, True, False, False):
        retention.held = {"t"} if held else set()
        run(archive, retention, after=0 if held else GRACE)
        starts.append(start_of(archive))
        assert (content(archive).erased, content(archive, copy=True).erased) == (4, 4)
    assert (starts, bases(archive)) == ([70, 0, 70, 70], [70, 80, 90])


def test_a_run_that_was_halted_for_a_grace_keeps_the_floor_of_another_run(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """Both of its listings are from before: of the copies, and of the segments that the other run deleted since."""
    keys = archive.partition("t")
    named = [SegmentName(base) for base in ALL]
    entries = [cache_entry(archive.store, name, archive.store.head(keys.segment(name))) for name in named]
    cached = encode_cache_object(keys, entries)
    archive.store.put(keys.cache_object(0), cached)

    class Halted(WrappedStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            found = list(self._inner.list(prefix, start_after=start_after))
            if prefix == keys.prefix and bases(archive) == ALL:
                run(archive, retention)
                run(archive, retention, after=GRACE)
                archive.store.put(keys.cache_object(0), cached)  # the ETags of this store have the times
            return iter(found)

    run_in(Halted(archive.store, threads=1), archive, retention)
    assert bases(archive) == [70, 80, 90]
    assert (content(archive).floor, content(archive, copy=True).floor) == (70, 70)


@pytest.mark.parametrize("begin", [80, 50])
def test_a_hold_after_an_election_that_went_back_shows_what_a_run_hid(
    archive: MadeArchive, retention: FixedRetention, begin: int
) -> None:
    """The agent wrote log.start in the later lineage, and carried the floor."""
    run(archive, retention)
    go_back(archive, begin)
    retention.held.add("t")
    run(archive, retention, after=GRACE)
    assert start_of(archive) == 0


def test_a_hold_during_a_deletion_ends_it_before_the_next_32_objects(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """Records below the floor never show again, because some of them are removed; nothing more is."""
    ship(archive, "t", 100, 1000)
    run(archive, retention)

    class Holding(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            retention.held.add("t")
            return self._inner.delete_matching(etags)

    later(archive, GRACE)
    found = run_in(Holding(archive.store, threads=1), archive, retention)
    assert sum(found.report.outcomes.values()) == 32
    assert start_of(archive) == 970
    retention.held.clear()
    run(archive, retention, after=GRACE)
    assert bases(archive) == [970, 980, 990]


def test_a_reader_that_needs_more_shows_what_it_needs(archive: MadeArchive, retention: FixedRetention) -> None:
    """A table that was begun since; the rest is deleted after its grace."""
    run(archive, retention)
    retention.needs = {"t-0": NeededFrom(40, "table b.t", overdue=False)}
    found = run(archive, retention, after=GRACE)
    assert (start_of(archive), bases(archive)) == (40, ALL)
    assert [each.why for each in found.report.skipped] == [Why.WAITS]
    run(archive, retention, after=GRACE)
    assert bases(archive) == [40, 50, 60, 70, 80, 90]


def test_nothing_is_hidden_while_no_object_ends_below_the_target(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """A reader within the first segment: to hide a part of it deletes nothing, and its grace delays the rest."""
    retention.needs = {"t-0": NeededFrom(5, "group g", overdue=False)}
    assert run(archive, retention).found.candidates == []
    assert start_of(archive) == 0
    retention.needs = {"t-0": NeededFrom(15, "group g", overdue=False)}
    run(archive, retention)
    assert start_of(archive) == 15


def test_a_run_does_not_pass_a_hole_that_can_be_repaired(archive: MadeArchive) -> None:
    """What is due ends at 50, and [50, 90) is lost: verify still reports the loss afterwards."""
    size = ship(archive, "t", 0, 100)
    keys = archive.partition("t")
    archive.store.delete([keys.segment(SegmentName(base)) for base in (50, 60, 70, 80)])
    run(archive, keep_last(1, size))
    assert content(archive).offset == 50


def test_a_forged_log_start_is_shown_again_and_deletes_nothing(archive: MadeArchive, retention: FixedRetention) -> None:
    """With an agent's rights: a start and a floor above what the policy names. No agent may write the copy."""
    forged = LogStart(100, floor=100, since="gc-x", written_by="gc-x")
    archive.store.put(archive.partition("t").log_start, forged.encode())
    for _ in range(3):
        run(archive, keep_last(100, 1000), after=GRACE)
    assert (start_of(archive), bases(archive)) == (0, ALL)
    run(archive, retention, after=GRACE)
    archive.store.put(archive.partition("t").log_start, forged.encode())
    run(archive, retention, after=GRACE)
    assert bases(archive) == ALL  # inside its grace


def test_the_grace_begins_with_the_copy_of_the_write_that_hid(archive: MadeArchive, retention: FixedRetention) -> None:
    """An agent can write log.start with any old time; a run that was killed before the copy begins nothing."""
    run_killed_after_its_move(archive, retention)
    run(archive, retention, after=GRACE)
    assert bases(archive) == ALL
    run(archive, retention, after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_the_copy_of_an_earlier_write_with_the_same_start_begins_no_grace(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """Two runs are killed before their copy: one that shows, and a grace later one that hides again."""
    run(archive, retention)
    retention.held.add("t")
    run_killed_after_its_move(archive, retention)
    assert (start_of(archive), content(archive, copy=True).offset) == (0, 70)
    retention.held.clear()
    later(archive, GRACE)
    run_killed_after_its_move(archive, retention)
    run(archive, retention)
    assert (start_of(archive), bases(archive)) == (70, ALL)
    run(archive, retention, after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_a_forged_cache_object_deletes_nothing(archive: MadeArchive) -> None:
    """Agents write it. The metadata of each segment itself decides before it is removed, and the records show again."""
    now = int(time.time() * 1000)
    for base in ALL:
        archive.put_segment("t", base, batches((base, base + 10), time=now))
    archive.commit("t", 100, highest_base=90)
    by_age = FixedRetention(Rule(age=10 * 86_400_000))
    keys = archive.partition("t")

    def forge() -> None:
        names = [SegmentName(base) for base in ALL]
        entries = [cache_entry(archive.store, name, archive.store.head(keys.segment(name))) for name in names]
        old = [
            replace(each, metadata=replace(found, shipped=1, time_max=1))
            for each in entries
            if (found := each.metadata)
        ]
        archive.store.put(keys.cache_object(0), encode_cache_object(keys, old))

    forge()
    run(archive, by_age)
    assert start_of(archive) > 0
    later(archive, GRACE)
    forge()  # the ETags of this store have the times
    found = run(archive, by_age)
    assert (start_of(archive), bases(archive)) == (0, ALL)
    assert [each.why for each in found.report.skipped] == [Why.DOUBT]


def test_records_of_a_compacted_topic_stay_unless_the_rule_permits_it(archive: MadeArchive) -> None:
    """A record that is due can be the only one of its key."""
    size = ship(archive, "t", 0, 100)
    archive.put_segment("t", 0, batches((0, 5), (7, 10)))
    found = run(archive, keep_last(3, size))
    assert ([each.why for each in found.report.skipped], start_of(archive)) == ([Why.DOUBT], 0)
    run(archive, FixedRetention(Rule(size=3 * size, compacted=True)))
    assert start_of(archive) == 70


def test_a_lost_floor_hides_no_hole(archive: MadeArchive, retention: FixedRetention) -> None:
    """An agent of an earlier release drops the floor; the copy has it, so a hold shows nothing that was removed."""
    for _ in range(2):
        run(archive, retention, after=GRACE)
    archive.store.put(archive.partition("t").log_start, encode_log_start(70))
    retention.held.add("t")
    run(archive, retention)
    assert start_of(archive) == 70
    assert content(archive, copy=True).floor == 70


def test_what_a_killed_deletion_left_is_removed_after_another_grace(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """Indexes without their segments too. In between nothing of it shows."""

    class Killing(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            self._inner.delete_matching(dict(list(etags.items())[:3]))
            raise Killed

    run(archive, retention)
    later(archive, GRACE)
    with pytest.raises(Killed):
        run_in(Killing(archive.store, threads=1), archive, retention)
    assert bases(archive)[0] > 0
    run(archive, retention)
    assert len(bases(archive)) == 7
    run(archive, retention, after=GRACE)
    assert bases(archive) == [70, 80, 90]


def test_a_run_reads_no_copy_where_nothing_is_hidden_due_or_left(
    archive: MadeArchive, retention: FixedRetention
) -> None:
    """An index below the start, and a lineage that an agent began, need its content."""
    keys, reading = archive.partition("t"), AskedStore(archive.store)

    def reads() -> int:
        reading.opened.clear()
        later(archive, GRACE)
        run_in(reading, archive, retention)
        return reading.opened.count(archive.keys.log_start_copy(keys))

    assert [reads() for _ in range(3)] == [0, 1, 0]  # it hides, and writes the first copy; it deletes; nothing is due
    archive.store.put(keys.segment(SegmentName(60), ".index"), b"of an upload that ended early")
    assert reads() == 1
    archive.store.delete([keys.segment(SegmentName(60), ".index")])
    former = content(archive)
    go_back(archive, 80)
    archive.store.put(keys.log_start, former.in_lineage(Lineage(2, 80, 100), 70).encode())
    assert (reads(), content(archive, copy=True).lineage) == (1, Lineage(2, 80, 100))
