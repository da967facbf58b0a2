"""Recorded gaps whose offsets are shipped after all: the commit gets their epochs (protocol rule 10)."""

from dataclasses import replace

from tests.uploader.committing.gaps import ask, at_100, pass_gap
from tests.uploader.committing.stored_segments import LEADERSHIP, put_segment, shipped
from tests.uploader.local_directory import ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import open_view
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.tasks import FillGap


def test_a_filled_gap_gets_the_epochs_of_its_records(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A broker that holds the range ships it; with the epochs that were guessed, readers would drop its records."""
    pass_gap(commits, local, at_100(store, commits, local, 300, 400), 300)
    local.unlink(300, 400)
    local.segments(0, 150, 320)
    local.epochs((1, 0), (4, 150), (5, 300))
    position = ask(commits, local)
    run = (
        shipped(0, 150, (1, 0)),
        shipped(150, 320, (4, 150), (5, 300)),
    )
    put_segment(store, 150, 320, (4, 150), (5, 300))
    filled = commits.fill_gap(FillGap(TP, 0, LEADERSHIP, position, local.listing(), (100, 300), run))
    assert (filled.position.next_offset, filled.position.gaps) == (300, ())
    assert filled.position.epochs == EpochHistory(((1, 0), (4, 150), (5, 300)))
    commit = read_commit(store, KEYS)[0]
    assert isinstance(commit, Commit)
    assert commit.epochs == filled.position.epochs
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 300)
    assert [(step.start, step.end, type(step)) for step in steps] == [
        (0, 100, ReadRange),
        (100, 150, Hole),
        (150, 300, ReadRange),
    ]


def test_a_filled_gap_gets_epochs_that_retention_cut_from_the_brokers_list(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """What lies in it was shipped from `.deleted` files too, below the log start, where the list now begins."""
    pass_gap(commits, local, at_100(store, commits, local, 300, 400), 300)
    local.unlink(300, 400)
    local.segments(200, 320)
    local.epochs((3, 200), (4, 250), (5, 300))
    position = replace(ask(commits, local), gaps=((100, 300),))
    run = (
        shipped(100, 150, (1, 100), (2, 120)),
        shipped(150, 200, (2, 150), (3, 180)),
        shipped(200, 320, (3, 200), (4, 250), (5, 300)),
    )
    for done in run:
        put_segment(store, done.base, done.end, *done.epochs)
    filled = commits.fill_gap(FillGap(TP, 0, LEADERSHIP, position, local.listing(), (100, 300), run))
    assert filled.position.epochs == EpochHistory(((1, 0), (2, 120), (3, 180), (4, 250), (5, 300)))
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 300)
    assert not [step for step in steps if isinstance(step, Hole)]


def test_a_filled_gap_is_checked_by_whole_segments(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Shipped with the run's guess for offsets that compaction emptied; its later batches prove that it is live."""
    pass_gap(commits, local, at_100(store, commits, local, 300, 400), 300)
    local.unlink(300, 400)
    local.segments(100, 290, 320)
    local.epochs((1, 0), (4, 150), (5, 280))
    position = ask(commits, local)
    run = (
        shipped(100, 290, (1, 100), (4, 150), (5, 280)),
        shipped(290, 320, (1, 290), (5, 300)),
    )
    filled = commits.fill_gap(FillGap(TP, 0, LEADERSHIP, position, local.listing(), (100, 300), run))
    assert filled.position.epochs == EpochHistory(((1, 0), (4, 150), (5, 280)))


def test_the_epoch_of_a_filled_gap_does_not_continue_over_offsets_that_the_list_lacks(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list begins above the gap: in between are segments of epochs that only this log has."""
    put_segment(store, 100, 300, (2, 100), (3, 200))
    commit = Commit(300, 400, 4, EpochHistory(((4, 300),)), 400, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    store.put(KEYS.gap(0, 100), b"{}")
    local.segments(0, 100, 300, 500)
    local.epochs((1, 0), (2, 100), (3, 200), (4, 300), (5, 500))
    position = ask(commits, local)
    assert position.gaps == ((0, 100),)
    run = (shipped(0, 100, (1, 0)),)
    put_segment(store, 0, 100, (1, 0))
    commits.fill_gap(FillGap(TP, 0, LEADERSHIP, position, local.listing(), (0, 100), run))
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 300)
    assert not [step for step in steps if isinstance(step, Hole)]


def test_a_filled_gap_ends_a_later_epoch_that_the_list_names_in_it(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list gives the gap epoch 3, whose records were lost: this log has epoch 2 there, and epochs never fall."""
    put_segment(store, 0, 50, (3, 0))
    put_segment(store, 300, 400, (4, 300))
    commit = Commit(300, 400, 4, EpochHistory(((3, 0), (4, 300))), 400, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    local.segments(100, 300, 500)
    local.epochs((2, 100), (4, 300), (5, 500))
    position = replace(ask(commits, local), gaps=((0, 300),))
    put_segment(store, 100, 300, (2, 100))
    filled = commits.fill_gap(
        FillGap(TP, 0, LEADERSHIP, position, local.listing(), (0, 300), (shipped(100, 300, (2, 100)),))
    )
    assert filled.position.epochs == EpochHistory(((2, 0), (4, 300)))
    steps = open_view(store, read_catalog(store, KEYS)).plan(0, 400)
    assert [(step.start, type(step)) for step in steps] == [(0, Hole), (100, ReadRange), (300, ReadRange)]


def test_a_gap_whose_epochs_are_right_already_needs_no_commit(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Each taking over looks at the gaps again, and leaves the store as it is."""
    position = pass_gap(commits, local, at_100(store, commits, local, 300, 400), 300).position
    local.segments(0, 100)
    local.epochs((1, 0), (5, 300))
    run = (shipped(100, 300, (1, 100)),)
    position = replace(position, gaps=((100, 300),))
    before = store.get(KEYS.commit)[0]
    assert commits.fill_gap(FillGap(TP, 0, LEADERSHIP, position, local.listing(), (100, 300), run)).position.gaps == ()
    assert store.get(KEYS.commit)[0] == before
