"""Which `.deleted` files of before the agent's time are shipped (protocol rule 10), file by file."""

import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dev.local.waiting import wait_for
from tests.common.log_format import build
from tests.uploader.local_directory import ID, TP, LocalDirectory
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import SegmentChanged
from ts_uploader.log_dirs.hanging import look_below, lowest_held
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import LookBelow

LEADERSHIP = Leadership(6, ID, 0)


def batches(base: int, end: int, epoch: int) -> bytes:
    """Two batches that fill a segment."""
    middle = (base + end) // 2
    return b"".join(
        build.batch(start, [build.record(n) for n in range(stop - start)], epoch=epoch)
        for start, stop in ((base, middle), (middle, end))
    )


@pytest.fixture
def local(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path)


def tick(local: LocalDirectory) -> None:
    """Until a rename leaves another change time than the ones before; kernels count ticks of up to 10 ms."""
    probe = local.log_dir / "probe"
    probe.touch()
    before = probe.stat().st_ctime_ns

    def has_ticked() -> bool:
        os.utime(probe)
        return probe.stat().st_ctime_ns != before

    wait_for(has_ticked, "another change time", every=0.001)


def look(
    local: LocalDirectory, next_offset: int = 0, *pairs: tuple[int, int], seen: frozenset[int] = frozenset()
) -> list[tuple[int, int]]:
    """The files that hang: (base, end)."""
    task = LookBelow(TP, 0, LEADERSHIP, local.listing(), EpochHistory(pairs), next_offset, next_offset, seen)
    return [(file.base, file.end) for file in look_below(task).hanging]


@contextmanager
def one_descriptor_left() -> Iterator[None]:
    """The process may open one more file, and no second one at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_u39_files_that_retention_renamed_hang_on_the_lowest_live_segment(local: LocalDirectory) -> None:
    """A chain of whole segments, each ends where the next begins, down to the one that holds the next offset."""
    for base in (0, 100, 200, 300):
        local.write(base, batches(base, base + 100, 4))
    local.epochs((4, 300), (6, 390))
    local.rename(0, 100, 200)
    assert look(local, 150, (4, 0)) == [(100, 200), (200, 300)]


def test_u39_the_chain_need_not_reach_the_next_offset(local: LocalDirectory) -> None:
    """The lowest file was unlinked already; the files that hang are shipped, and the gap ends there."""
    for base in (100, 200, 300):
        local.write(base, batches(base, base + 100, 4))
    local.epochs((4, 300), (6, 390))
    local.rename(100, 200)
    assert look(local, 50, (4, 0)) == [(100, 200), (200, 300)]


def test_u39_a_file_hangs_on_one_that_was_listed_as_a_live_segment(local: LocalDirectory) -> None:
    """Compaction removed the tail of the middle one, so only its live listing proves that it belongs here."""
    local.write(0, batches(0, 100, 4))
    local.write(100, batches(100, 150, 4))
    local.write(200, batches(200, 300, 4))
    local.epochs((4, 200), (6, 290))
    local.rename(0, 100)
    assert look(local, 0) == []
    assert look(local, 0, seen=frozenset({100})) == [(0, 100)]


def test_a_file_whose_last_batch_ends_elsewhere_does_not_hang(local: LocalDirectory) -> None:
    """What a follower drops that is out of the leader's range ends below the new base."""
    local.write(0, batches(0, 90, 4))
    local.write(100, batches(100, 200, 6))
    local.epochs((6, 100))
    local.rename(0)
    assert look(local) == []


def test_a_dead_line_that_ends_at_the_lowest_live_segment_does_not_hang(local: LocalDirectory) -> None:
    """The log was truncated to 280 and filled in epoch 5; then retention removed that too: 280 was renamed last."""
    local.write(300, batches(300, 400, 4))
    local.write(400, batches(400, 500, 4))
    local.rename(300, 400)
    tick(local)
    local.write(280, batches(280, 500, 5))
    local.write(500, batches(500, 600, 5))
    local.epochs((5, 500), (6, 590))
    tick(local)
    local.rename(280)
    # The run ends at 300 in epoch 4, so what 280 holds below is not the run's; and 400 and 300 are dead.
    assert look(local, 300, (4, 0)) == []
    assert look(local, 280, (4, 0)) == [(280, 500)]


@pytest.mark.parametrize("data", [batches(250, 300, 5), b""])
def test_a_file_does_not_hang_where_one_that_begins_inside_it_was_renamed_later(
    local: LocalDirectory, data: bytes
) -> None:
    """Retention took 200 of a line that was then truncated to 250 and filled in epoch 5; then it took 250 and 300."""
    local.write(200, batches(200, 300, 4))
    local.rename(200)
    tick(local)
    local.write(250, data)
    local.write(300, batches(300, 400, 5))
    local.write(400, batches(400, 500, 5))
    local.epochs((5, 400), (6, 490))
    tick(local)
    local.rename(250, 300)
    assert look(local, 200, (4, 0)) == [(250, 300), (300, 400)][not data :]


def test_an_epoch_that_begins_between_two_files_needs_the_order_of_renames(local: LocalDirectory) -> None:
    """Idle topics roll right where an epoch begins. Retention renames the lowest first."""
    local.write(0, batches(0, 100, 4))
    local.write(100, batches(100, 200, 4))
    local.write(200, batches(200, 300, 5))
    local.epochs((5, 200), (6, 290))
    local.rename(0)
    tick(local)
    local.rename(100)
    assert look(local) == [(0, 100), (100, 200)]
    tick(local)
    (local.path / f"{0:020d}.log.deleted").rename(local.path / "aside")
    (local.path / "aside").rename(local.path / f"{0:020d}.log.deleted")
    assert look(local) == []


def test_files_of_old_magic_need_the_order_of_renames(local: LocalDirectory) -> None:
    """Without epochs that a batch ends where a live one begins proves nothing."""
    for base in (0, 10, 20):
        local.write(base, b"".join(build.message(1, offset, b"v") for offset in range(base, base + 10)))
    local.no_epochs()
    local.rename(0)
    tick(local)
    local.rename(10)
    assert look(local) == [(0, 10), (10, 20)]
    tick(local)
    (local.path / f"{0:020d}.log.deleted").rename(local.path / "aside")
    (local.path / "aside").rename(local.path / f"{0:020d}.log.deleted")
    assert look(local) == []


def test_an_epoch_that_falls_along_the_chain_ends_it(local: LocalDirectory) -> None:
    """What is of a later epoch than what it hangs on was cut off."""
    local.write(0, batches(0, 100, 5))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(0)
    assert look(local) == []


@pytest.mark.parametrize(("pairs", "hangs"), [(((4, 0),), True), (((3, 0),), False), ((), True)])
def test_below_the_next_offset_a_file_agrees_with_the_run(
    local: LocalDirectory, pairs: tuple[tuple[int, int], ...], *, hangs: bool
) -> None:
    """It is the segment that contains the next offset; offsets that the run lacks contradict nothing."""
    local.write(0, batches(0, 100, 4))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(0)
    assert bool(look(local, 50, *pairs)) is hangs


def test_a_live_segment_without_a_batch_begins_with_the_checkpoints_epoch(local: LocalDirectory) -> None:
    """The active segment is empty after a roll by time."""
    local.write(0, batches(0, 100, 4))
    local.write(100, b"")
    local.epochs((4, 100), (6, 100))
    local.rename(0)
    assert look(local) == [(0, 100)]  # by the order of renames: the checkpoint's epoch there is 6


def test_a_lying_index_costs_time_only(local: LocalDirectory) -> None:
    """The last batch is looked for from the beginning then."""
    local.write(0, batches(0, 100, 4))
    (local.path / f"{0:020d}.index").write_bytes(struct.pack(">ii", 50, 7))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(0)
    assert look(local) == [(0, 100)]


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, batches(0, 100, 4)[:-1]], ids=["empty", "no batch", "torn"])
def test_a_file_without_whole_batches_hangs_on_nothing(local: LocalDirectory, data: bytes) -> None:
    """It is passed over, and others are not."""
    local.write(0, data)
    local.write(50, batches(50, 100, 4))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(0, 50)
    assert look(local) == [(50, 100)]


def test_u39_a_file_that_cannot_be_opened_hangs_on_nothing(local: LocalDirectory) -> None:
    """A link in its place, for example: it is left out, and others are not."""
    local.write(50, batches(50, 100, 4))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(50)
    (local.path / f"{0:020d}.log.deleted").symlink_to(local.path / f"{100:020d}.log")
    assert look(local) == [(50, 100)]


def test_u39_what_passes_is_no_reason_to_pass_over_a_file(local: LocalDirectory) -> None:
    """The agent has no descriptors for a moment: the task fails and is retried, and no gap includes the file."""
    local.write(0, batches(0, 100, 4))
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (6, 190))
    local.rename(0)
    with one_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        look(local)
    assert look(local) == [(0, 100)]


def test_nothing_is_looked_at_in_another_leadership(local: LocalDirectory) -> None:
    """A follower may truncate at any time."""
    local.write(100, batches(100, 200, 4))
    local.epochs((4, 100), (7, 190))
    with pytest.raises(SegmentChanged, match="ends with 7"):
        look(local)


def test_the_lowest_offset_that_a_leader_holds_may_hang(local: LocalDirectory) -> None:
    """`log.start` of a new lineage begins there: what retention renamed can be shipped still."""
    for base in (0, 100, 200):
        local.write(base, batches(base, base + 100, 4))
    local.epochs((4, 0), (6, 290))
    local.rename(0, 100)
    listing = local.listing()
    assert lowest_held(listing, EpochHistory(((4, 0),)), 50, 50) == 50
    assert lowest_held(listing, EpochHistory(((4, 0),)), 150, 120) == 120
    local.unlink(0)
    assert lowest_held(local.listing(), EpochHistory(((4, 0),)), 50, 50) == 100
    assert lowest_held(local.listing(), EpochHistory(((3, 0),)), 150, 50) == 200
