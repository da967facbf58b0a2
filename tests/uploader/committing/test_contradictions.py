"""Stored copies that contradict this broker's log below the last common epoch (protocol rule 5)."""

from dataclasses import replace

import pytest

from tests.common.log_format import build
from tests.uploader.committing.elections import (
    ask,
    committed,
)
from tests.uploader.local_directory import KEYS, LocalDirectory
from ts_common.archive.commit import encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog


def test_u32_a_commit_that_goes_back_is_compared_below_too(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The list joins two lines, since a leader whose own log began above moved it back; this log has both."""
    committed(store, 300, (1, 0), (2, 100), (3, 200))
    metadata = SegmentMetadata(200, ((1, 0), (2, 100)), 200, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(100, [build.record(0)], epoch=3))
    local.segments(220)
    local.epochs((1, 0), (3, 100), (5, 220))
    assert ask(commits, local).lost == (100, 300)


def test_u40_a_damaged_object_far_below_is_no_reason_to_end_the_comparison(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A Java uploader's segment, without metadata, whose bytes are no log: whole copies are compared all the same."""
    store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    test_u32_this_log_decides_what_an_earlier_leader_could_not_decide(commits, store, local, 200, (100, 300))


@pytest.mark.parametrize(
    ("base", "epochs", "records", "lost_from"),
    [
        pytest.param(0, ((1, 0),), 100, 50, id="an older leader epoch's, where compaction left nothing here"),
        pytest.param(60, ((1, 60),), 40, 60, id="one that begins further up"),
        pytest.param(0, ((3, 0),), 100, 0, id="a later leader epoch's"),
        pytest.param(0, ((1, 0), (2, 60)), 100, 50, id="both leader epochs'"),
        pytest.param(0, ((1, 0), (2, 50)), 100, None, id="this log's own"),
        pytest.param(0, ((1, 0),), 90, None, id="one that may have nothing there"),
    ],
)
def test_u32_where_the_list_is_silent_copies_are_compared(
    commits: CommitLog,
    store: ObjectStore,
    local: LocalDirectory,
    base: int,
    epochs: tuple[tuple[int, int], ...],
    records: int,
    lost_from: int | None,
) -> None:
    """A leader whose log began above moved the commit back, and could not see which of the copies below are dead."""
    committed(store, 300, (3, 200))
    metadata = SegmentMetadata(100, epochs, records, None, None, 0)
    store.put(KEYS.segment(SegmentName(base)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(80, [build.record(0)], epoch=2))
    local.segments(200, 300)
    local.epochs((1, 0), (2, 50), (3, 200), (5, 300))
    assert ask(commits, local).lost == (None if lost_from is None else (lost_from, 300))


def test_u32_a_copy_that_begins_further_up_is_compared_where_it_begins(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Where the lists begin to differ no copy is stored that could decide between them."""
    committed(store, 300, (1, 0), (3, 200))
    metadata = SegmentMetadata(100, ((1, 60),), 40, None, None, 0)
    store.put(KEYS.segment(SegmentName(60)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=1) + build.batch(50, [build.record(0)], epoch=2))
    local.segments(200, 300)
    local.epochs((1, 0), (2, 50), (3, 200), (5, 300))
    assert ask(commits, local).lost == (60, 300)


@pytest.mark.parametrize(
    ("epoch", "lost", "epochs"),
    [(2, (60, 100), ((1, 0), (2, 200), (3, 230), (5, 250))), (4, None, ((1, 0), (4, 60)))],
    ids=["a lower epoch", "the run's last epoch"],
)
def test_u32_what_deleted_files_hold_contradicts_a_later_epoch_below(
    commits: CommitLog,
    store: ObjectStore,
    local: LocalDirectory,
    epoch: int,
    lost: tuple[int, int] | None,
    epochs: tuple[tuple[int, int], ...],
) -> None:
    """Retention cut the broker's list above the next offset: only the files that hang show that epoch 4 was lost."""
    committed(store, 100, (1, 0), (4, 60))
    batches = [build.batch(200, [build.record(n) for n in range(30)], epoch=epoch)]
    batches.append(build.batch(230, [build.record(n) for n in range(20)], epoch=max(epoch, 3)))
    local.write(200, b"".join(batches))
    local.write(250, build.batch(250, [build.record(0)], epoch=5))
    local.rename(200)
    local.epochs((5, 250))
    asked = ask(commits, local)
    assert (asked.lost, asked.position.epochs) == (lost, EpochHistory(epochs))


@pytest.mark.parametrize(
    "epochs",
    [((200, 1), (230, 5)), ((200, 2), (220, 2), (210, 3), (230, 5))],
    ids=["one batch is of a lower epoch", "batches do not rise"],
)
def test_u32_a_deleted_file_with_a_flipped_bit_contradicts_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epochs: tuple[tuple[int, int], ...]
) -> None:
    """No CRC covers the epoch and the base offset of a batch, so one wrong batch must not move a commit back."""
    committed(store, 100, (1, 0), (4, 60))
    batches = [build.batch(offset, [build.record(n) for n in range(10)], epoch=epoch) for offset, epoch in epochs]
    local.write(200, b"".join(batches))
    local.write(240, build.batch(240, [build.record(0)], epoch=5))
    local.rename(200)
    local.epochs((5, 240))
    assert ask(commits, local).lost is None


def test_u32_a_dead_tail_below_the_log_start_contradicts_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """All elections were clean: a follower returned with a tail of epoch 2 that was never replicated.

    The leader's list began with epoch 4 at 260, above that tail, so the follower truncated to 260 only.
    """
    committed(store, 100, (1, 0), (3, 60))
    local.write(200, b"".join(build.batch(base, [build.record(n) for n in range(25)], epoch=2) for base in (200, 225)))
    tail = build.batch(250, [build.record(n) for n in range(10)], epoch=2)
    local.write(250, tail + build.batch(260, [build.record(n) for n in range(40)], epoch=4))
    local.segments(300)
    local.rename(200)
    local.epochs((4, 260), (5, 300))
    assert ask(commits, local).lost is None


def test_u32_a_run_that_a_later_leader_vouched_for_is_not_contradicted(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention renamed the whole dead tail, but the agent of epoch 4 wrote the commit, and kept the run."""
    commit = replace(committed(store, 100, (1, 0), (3, 60)), epoch=4)
    store.put(KEYS.commit, commit.encode())
    tail = [build.batch(base, [build.record(n) for n in range(25)], epoch=2) for base in (200, 225)]
    local.write(200, b"".join(tail) + build.batch(250, [build.record(n) for n in range(50)], epoch=4))
    local.write(300, build.batch(300, [build.record(0)], epoch=4))
    local.rename(200)
    local.epochs((4, 300), (5, 301))
    assert ask(commits, local).lost is None


def test_u32_a_copy_that_moving_the_commit_back_would_show_is_compared_too(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Seed 577: epoch 2 is dead below a list that begins with epoch 1, and would live below one that begins with 3."""
    committed(store, 300, (1, 60), (3, 200))
    for base, end, epoch in ((0, 50, 2), (60, 100, 1)):
        metadata = SegmentMetadata(end, ((epoch, base),), end - base, None, None, 0)
        store.put(KEYS.segment(SegmentName(base)), b"", metadata=metadata.encode())
    local.segments(0, 200, 300)
    local.epochs((3, 0), (5, 300))
    assert ask(commits, local).lost == (0, 300)


def test_u32_a_contradiction_at_the_lowest_offset_that_a_log_holds_ends_the_comparison(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Seed 538: the agent has nothing to compare below that offset, and once compared it without end."""
    committed(store, 300, (1, 0), (3, 90), (4, 200))
    metadata = SegmentMetadata(200, ((3, 95),), 105, None, None, 0)
    store.put(KEYS.segment(SegmentName(95)), b"", metadata=metadata.encode())
    local.segments(100, 200, 300)
    local.write(100, build.batch(100, [build.record(0)], epoch=2))
    local.epochs((2, 100), (4, 200), (5, 300))
    assert ask(commits, local).lost == (100, 300)


def test_u32_below_log_start_no_copy_is_compared(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """The list has no epoch there since the view was cut, and readers do not return those offsets."""
    committed(store, 300, (1, 0), (3, 200))
    store.put(KEYS.log_start, encode_log_start(100))
    metadata = SegmentMetadata(100, ((1, 0),), 100, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(0, build.batch(0, [build.record(0)], epoch=0) + build.batch(80, [build.record(0)], epoch=1))
    local.segments(200, 300)
    local.epochs((0, 0), (1, 80), (3, 200), (5, 300))
    assert ask(commits, local).lost is None


@pytest.mark.parametrize(("records", "lost"), [(200, (100, 300)), (150, None)])
def test_u32_this_log_decides_what_an_earlier_leader_could_not_decide(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, records: int, lost: tuple[int, int] | None
) -> None:
    """Dead records were accepted into the run below a shorter log; a segment with gaps may lack compacted records."""
    committed(store, 300, (1, 0), (2, 200))
    metadata = SegmentMetadata(200, ((1, 0),), records, None, None, 0)
    store.put(KEYS.segment(SegmentName(0)), b"", metadata=metadata.encode())
    local.write(100, build.batch(100, [build.record(0)], epoch=2))
    local.segments(320)
    local.epochs((2, 100), (5, 320))
    asked = ask(commits, local)
    assert asked.lost == lost
    if lost is not None:
        assert asked.position.epochs == EpochHistory(((1, 0), (2, 100), (5, 320)))
