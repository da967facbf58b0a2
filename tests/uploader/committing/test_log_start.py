"""A `log.start` that was lost, or whose commit goes back: it keeps what retention and erasure wrote."""

import re
from typing import Any

import pytest

from tests.uploader.committing.lineages import ask, put_segment, stored, write_commit, write_log_start
from tests.uploader.local_directory import CLUSTER, KEYS, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart, encode_log_start
from ts_common.archive.erased_list import erased_key
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.errors import NewerFormat
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.log_start import restore_log_start

Pairs = tuple[tuple[int, int], ...]

COPY = CLUSTER.log_start_copy(KEYS)
BACK = Lineage(3, 100, 250)
BY_AN_AGENT = re.compile(r"agent-\d{8}T\d{9}Z-[0-9a-f]{8}")


def write_copy(store: ObjectStore, offset: int, lineage: Lineage | None = None, **fields: Any) -> None:
    """Write the copy of `log.start` as the collector does; without `fields`, nothing is hidden."""
    given: dict[str, Any] = {"floor": offset, "written_by": "gc-1"} | fields
    store.put(COPY, LogStart(offset, lineage, **given).encode())


def put_lists(store: ObjectStore, *numbers: int) -> None:
    """Put lists of erased offsets; agents read only their names."""
    for number in numbers:
        store.put(erased_key(KEYS, number), b"TSER")


def restore(store: ObjectStore) -> LogStart:
    """Write `log.start` again, and return it."""
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    restore_log_start(store, CLUSTER, KEYS, commit)
    return stored(store)[1]


@pytest.mark.parametrize(
    ("copied", "lineage", "expected"),
    [(120, None, 120), (20, None, 20), (900, None, 300), (120, BACK, 120)],
    ids=["above the lowest segment", "below it", "above the end", "of a later lineage"],
)
def test_a_lost_log_start_is_written_from_its_copy(
    store: ObjectStore, copied: int, lineage: Lineage | None, expected: int
) -> None:
    """What was hidden stays hidden, and a hole that readers saw stays visible; the lineage is that of the commit."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    write_copy(store, copied, lineage)
    start = restore(store)
    assert (start.offset, start.floor, start.lineage) == (expected, expected, None)


@pytest.mark.parametrize(
    ("copied", "lineage", "expected"),
    [(120, None, 100), (120, Lineage(2, 0, 0), 100), (70, None, 70), (120, BACK, 120), (120, Lineage(4, 0, 0), 120)],
    ids=["above the begin", "of an older lineage", "below the begin", "of this lineage", "of a later lineage"],
)
def test_a_copy_of_an_older_lineage_counts_up_to_the_begin_of_this_one(
    store: ObjectStore, copied: int, lineage: Lineage | None, expected: int
) -> None:
    """When the commit goes back, `log.start` falls to no less than the lower of the two numbers."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0), (3, 100), lineage=BACK)
    write_copy(store, copied, lineage)
    start = restore(store)
    assert (start.offset, start.floor, start.lineage) == (expected, expected, BACK)


@pytest.mark.parametrize(("floor", "expected"), [(60, 60), (110, 100)], ids=["below the start", "above the start"])
def test_a_restored_log_start_has_the_floor_of_the_copy_and_no_grace_in_progress(
    store: ObjectStore, floor: int, expected: int
) -> None:
    """It carries `erased`, but never `since`: the grace of what is hidden begins again."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0), (3, 100), lineage=BACK)
    write_copy(store, 120, floor=floor, since="gc-1", erased=4)
    start = restore(store)
    assert (start.offset, start.floor, start.since, start.erased) == (100, expected, None, 4)
    assert BY_AN_AGENT.fullmatch(start.written_by or "")


@pytest.mark.parametrize(
    ("copied", "listed", "expected"),
    [(4, (), 4), (4, (5,), 5), (4, (1, 2), 4), (None, (2, 10), 10)],
    ids=["the copy's", "a later list", "earlier lists", "a copy without one"],
)
def test_a_lost_log_start_gets_the_greater_number_of_copy_and_listing(
    store: ObjectStore, copied: int | None, listed: tuple[int, ...], expected: int
) -> None:
    """The copy can be older than the last erasure, and a list can be lost too."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    write_copy(store, 40, erased=copied)
    put_lists(store, *listed)
    assert restore(store).erased == expected
    assert b'"version":3' in store.get(KEYS.log_start)[0]


def test_without_a_copy_the_listing_of_erased_offsets_counts(store: ObjectStore) -> None:
    """Releases without lists must refuse the partition as before."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    put_lists(store, 3)
    assert (restore(store).erased, stored(store)[1].offset) == (3, 40)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [([(40, 100), (100, 300)], 40), ([(40, 100), (120, 300)], 40), ([(120, 300)], 120), ([], 300)],
    ids=["whole", "a hole", "a hole below", "none"],
)
def test_without_a_copy_the_archive_begins_where_the_stored_run_does(
    store: ObjectStore, segments: list[tuple[int, int]], expected: int
) -> None:
    """Retention deleted nothing, so a hole above is a loss, and is shown; no floor is known, and no field written."""
    for base, end in segments:
        put_segment(store, base, end, (1, 0))
    write_commit(store, 300, (1, 0))
    restore(store)
    assert store.get(KEYS.log_start)[0] == encode_log_start(expected)


def test_without_a_copy_batches_that_an_election_removed_do_not_lower_it(store: ObjectStore) -> None:
    """A dead tail below the first living offset would be a hole."""
    put_segment(store, 20, 60, (2, 20))
    put_segment(store, 40, 300, (3, 40))
    write_commit(store, 300, (1, 0), (3, 30))
    assert restore(store) == LogStart(40)


@pytest.mark.parametrize("base", [40, 60])
def test_without_a_copy_a_damaged_segment_is_no_reason_to_stop(store: ObjectStore, base: int) -> None:
    """Its records can be the first living ones, so the archive begins at the lowest segment."""
    for low in (40, 60, 80):
        put_segment(store, low, low + 20, (1, 0))
    store.put(KEYS.segment(SegmentName(base)), b"x", metadata={"ts-end": "no number"})
    write_commit(store, 100, (1, 0))
    assert restore(store) == LogStart(40)


def test_a_damaged_copy_is_no_reason_to_stop(store: ObjectStore) -> None:
    """The archive is shown from its lowest segment on."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    store.put(COPY, b"x")
    assert restore(store) == LogStart(40)


def test_a_copy_of_a_later_release_stops_the_agent(store: ObjectStore) -> None:
    """What it would drop, it does not write."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    store.put(COPY, b'%020d\n{"version":2,"writtenBy":"gc-1","colour":"green"}\n' % 120)
    with pytest.raises(NewerFormat, match="colour"):
        restore(store)


def test_an_index_without_its_segment_does_not_lower_a_lost_log_start(store: ObjectStore) -> None:
    """The deletion of its segment was cut off; the archive is as long as readers see it without `log.start`."""
    put_segment(store, 40, 300, (1, 0))
    store.put(KEYS.segment(SegmentName(20), ".index"), b"i")
    write_commit(store, 300, (1, 0))
    shown = read_catalog(store, KEYS).start
    assert restore(store).offset == shown == 40


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        ((0, 30), ((1, 0), (2, 40))),
        ((30,), ((1, 30), (2, 40))),
        ((60, 70), ((2, 60),)),
        ((70,), ((2, 70),)),
        ((90,), ((2, 70),)),
        ((), ((2, 70),)),
    ],
    ids=["all", "some", "one below", "none below", "a hole", "none"],
)
def test_a_commit_keeps_the_epochs_of_what_is_stored_below_log_start(
    store: ObjectStore, commits: CommitLog, local: LocalDirectory, bases: tuple[int, ...], expected: Pairs
) -> None:
    """Retention cut the broker's list, and moved `log.start` up; the next leader's commit is the first one after it."""
    for base in bases:
        put_segment(store, base, base + 10, (1 if base < 40 else 2, base))
    store.put(KEYS.segment(SegmentName(0), ".index"), b"of a segment that was deleted")
    write_commit(store, 100, (1, 0), (2, 40))
    write_log_start(store, 70)
    local.segments(60, 100)
    local.epochs((2, 60), (3, 100))
    ask(commits, local, 3)
    assert stored(store)[0].epochs.pairs == expected


def test_records_that_are_shown_again_after_a_change_of_leader_are_no_lost_ones(
    store: ObjectStore, commits: CommitLog, local: LocalDirectory
) -> None:
    """An election lost 40 to 49 of the first leader; its copy ends in them, and retention had hidden it."""
    back = Lineage(2, 40, 50)
    put_segment(store, 0, 50, (1, 0))
    put_segment(store, 30, 100, (1, 30), (2, 40), name=SegmentName(30, 2, 7))
    write_commit(store, 100, (1, 0), (2, 40), lineage=back)
    write_log_start(store, 70, back)
    local.segments(60, 100)
    local.epochs((2, 60), (3, 100))
    ask(commits, local, 3)
    write_log_start(store, 0, back)
    view = open_view(store, read_catalog(store, KEYS))
    assert [(step.start, step.end) for step in view.plan(0, 100)] == [(0, 40), (40, 100)]


@pytest.mark.usefixtures("no_waits")
class TestCommitGoesBack:
    """An election lost what is above 100, and the agent begins a lineage: it writes `log.start` again."""

    LINEAGE = Lineage(5, 100, 300)

    def begin(self, store: ObjectStore, commits: CommitLog, local: LocalDirectory, before: LogStart) -> LogStart:
        """Let the commit go back to 100 under this `log.start`, and return the next one."""
        write_commit(store, 300, (1, 0))
        store.put(KEYS.log_start, before.encode())
        local.segments(0, 100)
        local.epochs((1, 0), (5, 100))
        ask(commits, local, 5)
        return stored(store)[1]

    @pytest.mark.parametrize(
        ("start", "floor", "expected", "since"),
        [(220, 90, (100, 90), "gc-1"), (80, 60, (80, 60), "gc-1"), (220, 150, (100, 100), None)],
        ids=["a start above", "a start below", "a floor above"],
    )
    def test_it_carries_what_retention_and_erasure_wrote(
        self,
        store: ObjectStore,
        commits: CommitLog,
        local: LocalDirectory,
        start: int,
        floor: int,
        expected: tuple[int, int],
        since: str | None,
    ) -> None:
        """The floor falls with the start; where nothing is hidden any more, no write has hidden it."""
        before = LogStart(start, floor=floor, since="gc-1", erased=4, written_by="gc-1")
        after = self.begin(store, commits, local, before)
        assert (after.offset, after.floor) == expected
        assert (after.since, after.erased, after.lineage) == (since, 4, self.LINEAGE)
        assert BY_AN_AGENT.fullmatch(after.written_by or "")

    @pytest.mark.parametrize("erased", [None, 4])
    def test_an_unknown_floor_stays_unknown(
        self, store: ObjectStore, commits: CommitLog, local: LocalDirectory, erased: int | None
    ) -> None:
        """An agent of an earlier release dropped it; the start is no proof of what was deleted."""
        before = LogStart(220, since="gc-1", erased=erased, written_by="gc-1")
        after = self.begin(store, commits, local, before)
        assert (after.offset, after.floor, after.since, after.erased) == (100, None, "gc-1", erased)

    @pytest.mark.parametrize("written_by", [None, "gc-1"], ids=["an agent wrote it", "an earlier collector wrote it"])
    def test_without_fields_of_retention_the_bytes_are_those_of_old(
        self, store: ObjectStore, commits: CommitLog, local: LocalDirectory, written_by: str | None
    ) -> None:
        """Agents and readers of earlier releases see no other object than before."""
        self.begin(store, commits, local, LogStart(0, written_by=written_by))
        assert store.get(KEYS.log_start)[0] == b'%020d\n{"version":2,"lineage":[5,100,300]}\n' % 0


@pytest.mark.usefixtures("no_waits")
class TestCommitLostToo:
    """`log.start` is lost together with the commit, so that its lineage is lost too."""

    @pytest.fixture
    def archive(self, store: ObjectStore) -> ObjectStore:
        """Segments up to 50, and a copy that hides those below 30."""
        for base in range(0, 50, 10):
            put_segment(store, base, base + 10, (1, 0))
        write_copy(store, 30, floor=10, since="gc-1")
        return store

    def test_what_was_hidden_stays_hidden(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory
    ) -> None:
        """The broker has no longer what was hidden; the commit is rebuilt as if it alone were lost."""
        local.segments(30, 40, 50)
        local.epochs((1, 30))
        ask(commits, local, 1, first=30)
        commit, start = stored(archive)
        assert (start.offset, start.floor, start.since) == (30, 10, None)
        assert (commit.next_offset, start.lineage) == (50, Lineage(1, 50, 50))

    def test_a_deletion_in_progress_leaves_no_hole(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory
    ) -> None:
        """The collector compared both objects before they were lost; the broker still has all records."""
        local.segments(0, 10, 20, 30, 40, 50)
        local.epochs((1, 0))
        ask(commits, local, 1)
        archive.delete([KEYS.segment(SegmentName(base)) for base in (0, 10, 20)])
        view = open_view(archive, read_catalog(archive, KEYS))
        assert not [step for step in view.plan(view.start, view.end) if isinstance(step, Hole)]

    @pytest.mark.parametrize("has_copy", [True, False])
    def test_lists_of_erased_offsets_count(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory, has_copy: bool
    ) -> None:
        """They count with a copy that is older than they are, and without one."""
        if not has_copy:
            archive.delete([COPY])
        put_lists(archive, 1, 2)
        local.segments(0, 10, 20, 30, 40, 50)
        local.epochs((1, 0))
        ask(commits, local, 1)
        assert stored(archive)[1].erased == 2

    def test_the_lineage_of_the_copy_counts(
        self, archive: ObjectStore, commits: CommitLog, local: LocalDirectory
    ) -> None:
        """A leader of an earlier epoch writes nothing, and the next lineage fences what the former one left."""
        write_copy(archive, 30, Lineage(4, 20, 80), floor=10)
        local.segments(30, 40, 50)
        local.epochs((1, 30), (5, 50))
        ask(commits, local, 5, first=30)
        assert stored(archive)[1].lineage == Lineage(5, 50, 80)
