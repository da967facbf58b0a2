"""Lineages: the commit goes back, `log.start` follows, and readers join the two (protocol rules 5 and 8)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.common.log_format import build
from tests.uploader.committing.dying_store import Dying
from tests.uploader.committing.lineages import (
    OLD,
    Settling,
    Unanswered,
    ask,
    empty_replica,
    put_segment,
    stored,
    write_commit,
    write_log_start,
)
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import StoredLogStart, read_catalog
from ts_common.archive.commit import Lineage, LogStart, decode_log_start, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import LineageUnsettled, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.going_back import settle_log_start
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Shipped, WriteCommit

pytestmark = pytest.mark.usefixtures("no_waits")


def test_u36_an_election_below_log_start_lowers_it(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A replica that returned empty leads: its records from 0 on are visible, though the archive began at 120."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    asked = ask(commits, local, 5)
    lineage = Lineage(5, 0, 300)
    commit, start = stored(store)
    assert (asked.lost, asked.position.next_offset, asked.position.lineage) == ((0, 300), 0, lineage)
    assert (commit.next_offset, commit.lineage, start) == (0, lineage, LogStart(0, lineage))
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.end) == (0, 0)


@pytest.mark.parametrize("key", [KEYS.commit, KEYS.log_start])
def test_u36_the_next_agent_completes_the_work_of_one_that_was_killed_before_either_write(
    store: ObjectStore, local: LocalDirectory, key: str
) -> None:
    """Readers in between see nothing false, and the commit goes back once."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    with pytest.raises(StoreUnavailable):
        ask(CommitLog(CLUSTER, 1, lambda _: Dying(store, key)), local, 5)
    view = open_view(store, read_catalog(store, KEYS))
    assert (view.start, view.end) == ((120, 300) if key == KEYS.commit else (0, 0))
    before = stored(store)[0]
    ask(CommitLog(CLUSTER, 1, lambda _: store), local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, start) == (0, LogStart(0, Lineage(5, 0, 300)))
    assert (commit == before) == (key == KEYS.log_start)


def test_u36_a_loss_is_reported_once_also_where_the_store_wrote_the_commit_and_did_not_answer(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The next attempt finds a commit that went back already, without its former offset."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    empty_replica(local, 5)
    unanswered, told = Unanswered(store), []
    commits = CommitLog(CLUSTER, 1, lambda _: unanswered, lost=lambda *loss: told.append(loss))
    with pytest.raises(StoreUnavailable):
        ask(commits, local, 5)
    unanswered.mended = True
    assert ask(commits, local, 5).position.next_offset == 0
    assert told == [(TP, (0, 300), False)]


def test_u36_a_late_agent_of_the_old_lineage_is_refused(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """What it read before is no condition any more, whatever of the two objects it writes."""
    write_commit(store, 300, (1, 120))
    write_log_start(store, 120)
    local.segments(120, 300)
    local.epochs((1, 120), (4, 300))
    late = CommitLog(CLUSTER, 2, lambda _: store)
    position = ask(late, local, 4).position
    data, info = store.get(KEYS.log_start)
    local.unlink(120, 300)
    empty_replica(local, 5)
    ask(commits, local, 5)
    after = stored(store)
    shipped = Shipped(TP, 0, Leadership(4, ID, 0), 300, 400, 400, ((4, 300),), 400, 1, 0, 0.0)
    with pytest.raises(FencedLeaderEpoch, match="is of leader epoch 5"):
        late.write(WriteCommit(TP, 0, Leadership(4, ID, 0), position, (shipped,)))
    read = StoredLogStart(decode_log_start(data, "log.start"), info.etag)
    with pytest.raises(PreconditionFailed):
        settle_log_start(store, KEYS, read, Lineage(4, 120, 300), 120)
    local.epochs((4, 0))
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 5"):
        ask(late, local, 4)
    assert stored(store) == after


def test_u36_log_start_gets_the_lineage_also_where_its_number_stays(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Other bytes, another ETag: a late write that retention has under way is refused."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 0)
    _, old = store.get(KEYS.log_start)
    local.segments(0, 100)
    local.write(100, build.batch(100, [build.record(n) for n in range(30)], epoch=1))
    local.epochs((1, 0), (5, 130))
    ask(commits, local, 5)
    assert stored(store)[1] == LogStart(0, Lineage(5, 130, 300))
    assert store.get(KEYS.log_start)[1].etag != old.etag


def test_u36_log_start_is_not_lowered_below_what_the_leader_holds(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention removed the offsets below from the leader: readers would get a report of a loss that did not happen."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 230)
    local.segments(220, 300)
    local.epochs((1, 220), (5, 300))
    ask(commits, local, 5)
    assert stored(store)[1] == LogStart(220, Lineage(5, 200, 230))


def test_u36_an_archive_that_shipped_nothing_begins_below_its_log_start(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Killed after `log.start`; then an empty replica leads: the commit is written first, and nothing is hidden."""
    write_log_start(store, 12)
    empty_replica(local, 5)
    local.segments(8)
    with pytest.raises(StoreUnavailable):
        ask(CommitLog(CLUSTER, 1, lambda _: Dying(store, KEYS.log_start)), local, 5)
    assert ask(commits, local, 5).position.next_offset == 0
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start) == (0, Lineage(5, 0, 12), LogStart(0, Lineage(5, 0, 12)))


@pytest.mark.parametrize(("records", "next_offset"), [(60, 50), (30, 0)])
def test_u34_with_latest_log_start_is_lowered_only_where_the_log_ends_below_it(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, records: int, next_offset: int
) -> None:
    """Another broker's active segment may begin lower and hold the offset all the same."""
    write_log_start(store, 50)
    local.write(0, build.batch(0, [build.record(n) for n in range(records)], epoch=5))
    local.epochs((5, 0))
    assert ask(commits, local, 5, latest=True).position.next_offset == next_offset


def test_u36_a_commit_that_a_late_agent_made_again_begins_another_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit was lost; an agent of epoch 1 that saw none long ago makes one, under the lineage of epoch 3."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 100, OLD)
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    with pytest.raises(LineageUnsettled, match="the lineage Lineage"):
        read_catalog(store, KEYS)
    assert ask(commits, local, 5).lost is None
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage) == (200, Lineage(5, 200, 250))
    assert start == LogStart(100, Lineage(5, 200, 250))
    read_catalog(store, KEYS)


def test_u36_a_log_start_above_the_next_offset_of_its_own_lineage_is_lowered(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Only a lost commit leaves that behind; what lies in between would never be shown."""
    write_commit(store, 200, (1, 0))
    write_log_start(store, 230)
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    ask(commits, local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start.offset) == (200, Lineage(5, 200, 230), 200)


def test_u36_a_log_start_of_an_older_lineage_above_the_third_element_is_lowered(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention moved it while the commit was lost, and may delete below it: plain names there are no longer used."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 280)
    local.segments(0, 300)
    local.epochs((3, 100), (5, 300))
    assert ask(commits, local, 5).lost is None
    commit, start = stored(store)
    assert commit.lineage == Lineage(5, 200, 280)
    assert start == LogStart(200, Lineage(5, 200, 280))


@pytest.mark.parametrize("name", [None, SegmentName(100, 6, 7)])
def test_u36_an_agent_below_the_epoch_of_a_stored_segment_rebuilds_no_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, name: SegmentName | None
) -> None:
    """A later leader shipped here: this agent would use its segment as its own."""
    write_log_start(store, 0)
    put_segment(store, 0, 100, (1, 0))
    put_segment(store, 100, 200, (6 if name is None else 1, 100), name=name or SegmentName(100))
    local.segments(0, 200)
    local.epochs((1, 0), (5, 200))
    with pytest.raises(FencedLeaderEpoch, match="a segment of leader epoch 6"):
        ask(commits, local, 5)


@pytest.mark.parametrize("other", [None, Lineage(2, 50, 60), Lineage(3, 90, 250)])
def test_u36_an_agent_that_reads_the_commit_writes_log_start_with_the_commits_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, other: Lineage | None
) -> None:
    """An agent was killed between the two; also if a second going back of the same epoch wrote nothing more."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 150, other)
    local.segments(0, 300)
    local.epochs((3, 100), (5, 300))
    position = ask(commits, local, 5).position
    assert stored(store)[1] == LogStart(100, OLD)
    assert (position.log_start, position.next_offset, position.lineage) == (100, 200, OLD)


def test_u36_an_agent_below_the_lineage_of_log_start_steps_back(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A later leader's agent moved the commit back: whatever the commit contains, this agent may not write."""
    write_log_start(store, 100, Lineage(6, 100, 250))
    local.segments(0, 200)
    local.epochs((5, 0))
    for stands in ("nothing", "a segment", "a commit"):
        if stands == "a segment":
            put_segment(store, 0, 200, (5, 0))
        elif stands == "a commit":
            write_commit(store, 9, (4, 0))
        with pytest.raises(
            FencedLeaderEpoch, match=r"log.start has a lineage of leader epoch 6, this broker leads in 5"
        ):
            ask(commits, local, 5)
    assert stored(store)[1].lineage == Lineage(6, 100, 250)


def test_each_commit_continues_the_lineage(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """Also with the one that makes the next leadership known; its third element only rises."""
    write_commit(store, 200, (3, 100), lineage=OLD)
    write_log_start(store, 100, OLD)
    local.segments(0, 200)
    local.epochs((3, 100), (5, 200))
    ask(commits, local, 5)
    assert stored(store)[0].lineage == OLD
    local.unlink(200)
    local.write(0, build.batch(0, [build.record(n) for n in range(150)], epoch=3))
    local.epochs((3, 100), (6, 150))
    ask(commits, local, 6)
    assert stored(store)[0].lineage == Lineage(6, 150, 250)


def test_the_commits_epochs_are_cut_at_log_start(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """Removed records need no epochs, and the list of a long-lived partition stays short."""
    write_commit(store, 300, (0, 0), (1, 100), (2, 150), (3, 250))
    write_log_start(store, 200)
    local.segments(200, 300)
    local.epochs((2, 200), (3, 250), (5, 300))
    ask(commits, local, 5)
    assert stored(store)[0].epochs == EpochHistory(((2, 200), (3, 250)))


def test_a_gap_below_log_start_is_not_filled(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """Retention hid it from readers: a broker that has it does not ship it, of another gap only the visible part."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 200)
    for start, end in ((50, 100), (150, 250)):
        store.put(KEYS.gap(start, end), b"{}")
    local.segments(0, 300)
    local.epochs((1, 0), (5, 300))
    assert ask(commits, local, 5).position.gaps == ((200, 250),)


def test_a_stretch_that_the_cleaner_emptied_before_older_records_is_not_compacted_away(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Two unclean elections, back to the first broker: its own dead records are above those that the other rewrote."""
    write_commit(store, 120, (0, 0), (1, 90))
    write_log_start(store, 0)
    batches = ((0, 0), (120, 0), (160, 2))
    local.write(0, b"".join(build.batch(offset, [build.record(0)], epoch=epoch) for offset, epoch in batches))
    local.segments(200)
    local.epochs((0, 0), (2, 160))
    assert ask(commits, local, 2).lost == (90, 120)


@pytest.mark.parametrize(
    ("of_commit", "of_log_start", "shown"),
    [
        (None, None, 150),
        (OLD, OLD, 150),
        (OLD, None, 100),
        (OLD, Lineage(2, 160, 170), 100),
        (OLD, Lineage(3, 90, 250), None),
        (OLD, Lineage(4, 90, 250), None),
        (None, OLD, None),
    ],
)
def test_u36_readers_join_commit_and_log_start_by_their_lineages(
    store: ObjectStore, of_commit: Lineage | None, of_log_start: Lineage | None, shown: int | None
) -> None:
    """Of an older lineage the view begins no higher than the commit went back to; of another, it is an error."""
    write_commit(store, 200, (3, 0), lineage=of_commit)
    write_log_start(store, 150, of_log_start)
    if shown is None:
        with pytest.raises(LineageUnsettled, match="repeat the query"):
            read_catalog(store, KEYS)
    else:
        assert open_view(store, read_catalog(store, KEYS)).start == shown


def test_u36_a_reader_between_the_two_writes_reads_again(store: ObjectStore) -> None:
    """It read the commit before, and `log.start` after: the commit that it reads next has that lineage."""
    write_commit(store, 200, (3, 0))
    write_log_start(store, 100, OLD)
    settling = Settling(store, lambda: write_commit(store, 120, (3, 0), lineage=OLD))
    catalog = read_catalog(settling, KEYS)
    assert (catalog.log_start, open_view(settling, catalog).end) == (100, 120)


def test_u36_refused_between_the_two_writes_an_agent_reads_both_again(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention moved `log.start` meanwhile: nothing is written over it, and the next question settles it."""
    write_commit(store, 300, (1, 0))
    write_log_start(store, 0)
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    moved = replace(LogStart(0), offset=90)

    class Moving(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if key == KEYS.log_start and "condition" in named and store.get(key)[0] == encode_log_start(0):
                store.put(key, moved.encode())
            return super().put(key, *arguments, **named)

    racing = CommitLog(CLUSTER, 1, lambda _: Moving(store, threads=1))
    with pytest.raises(PreconditionFailed):
        ask(racing, local, 5)
    assert stored(store)[1] == moved
    ask(racing, local, 5)
    assert stored(store)[1] == LogStart(90, Lineage(5, 100, 300))
