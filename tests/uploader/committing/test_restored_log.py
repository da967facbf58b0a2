"""The archive of a restored log begins where the restored records end (protocol rule 15)."""

import time

import pytest

from tests.common.log_format import build
from tests.uploader.committing.lineages import ask, put_segment, rebuilt, stored, write_log_start
from tests.uploader.local_directory import KEYS, LocalDirectory
from ts_common.archive.catalog import read_commit, read_log_start
from ts_common.archive.commit import Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.restored import Restored, RestoredPartition, RestoredTopic
from ts_common.errors import CorruptData, DataLoss
from ts_common.store.contract import ObjectStore
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.restored_log import RestoredRecords

END = 100
PART = RestoredPartition(END, None, EpochHistory(((5, 10),)), ())
RECORD = Restored(1, "ops", {"t": RestoredTopic(None, "prod", 0, "t", {0: PART})}).encode()


@pytest.fixture(autouse=True)
def restored(store: ObjectStore, local: LocalDirectory) -> None:
    """A log of restored records from 10 to 99, in segments from 10, 60 and, with others, 90; leader epoch 2 is next."""
    store.put(KEYS.cluster.restored, RECORD)
    local.segments(10, 60)
    local.write(90, build.batch(90, [build.record(n) for n in range(12)]))
    local.epochs((0, 10), (2, END))


def log_start(store: ObjectStore) -> LogStart | None:
    found = read_log_start(store, KEYS.log_start)
    return None if found is None else found.content


@pytest.mark.parametrize("latest", [False, True])
def test_the_first_log_start_is_the_end_of_the_restored_records(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, latest: bool
) -> None:
    """Nothing below it is shipped again; OFFSET_RESET has no influence."""
    assert ask(commits, local, 2, latest=latest).position.next_offset == END
    assert log_start(store) == LogStart(END)


@pytest.mark.parametrize("latest", [False, True])
def test_an_agent_that_was_killed_after_it_does_not_go_back(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, latest: bool
) -> None:
    """The lowest live base is below, as in an archive whose commit went back."""
    write_log_start(store, END)
    assert ask(commits, local, 2, latest=latest).position.next_offset == END
    assert (read_commit(store, KEYS), log_start(store)) == ((None, None), LogStart(END))


def test_a_lost_commit_is_rebuilt_without_the_restored_records(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """It keeps the start, and the run above it."""
    write_log_start(store, END)
    put_segment(store, 90, 150, (0, 90), (2, END))
    local.segments(150)
    local.epochs((0, 10), (2, END), (5, 150))
    _, commit, start = rebuilt(commits, store, local)
    assert (commit.next_offset, start.offset) == (150, END)


@pytest.mark.parametrize(("epochs", "end"), [(((0, 10), (2, 95)), 95), (((0, 10), (2, 102)), 102)])
def test_an_election_that_lost_restored_records_lowers_log_start(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epochs: tuple[tuple[int, int], ...], end: int
) -> None:
    """Readers show the old place below it: other records have these offsets now."""
    write_log_start(store, END)
    local.epochs(*epochs)
    position = ask(commits, local, 2).position
    assert position.next_offset == min(end, END)
    if end < END:
        commit, start = stored(store)
        assert (commit.lineage, start.offset) == (Lineage(2, end, END), end)


@pytest.mark.parametrize("epochs", [((0, 10), (2, 95)), ((2, 0),)])
def test_a_log_without_the_restored_records_begins_no_archive(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epochs: tuple[tuple[int, int], ...]
) -> None:
    """An agent with an empty topic, or one whose restore is incomplete, writes nothing."""
    local.epochs(*epochs)
    with pytest.raises(DataLoss, match=r"up to offset (95|0); expected 100 by .*restored\.json; complete the restore"):
        ask(commits, local, 2)
    assert log_start(store) is None


def test_an_unreadable_record_begins_no_archive(commits: CommitLog, store: ObjectStore, local: LocalDirectory) -> None:
    """The agent reports the object, and begins no topic of the cluster."""
    store.put(KEYS.cluster.restored, b"x")
    with pytest.raises(CorruptData, match=r"restored\.json"):
        ask(commits, local, 2)
    assert log_start(store) is None


def test_the_record_is_read_once_for_tasks_that_were_made_before_and_again_for_later_ones(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A record that is written before a task exists always counts; ten thousand tasks of a start share one read."""
    store.delete([KEYS.cluster.restored])
    counts = StoreCounts()
    counted = CountedStore(store, counts)
    records = RestoredRecords()

    def asks(made_at: int | None) -> int | None:
        found = records.restored_log(counted, KEYS, local.listing(), made_at)
        return None if found is None else found.end

    made = time.monotonic_ns()
    assert [asks(made), asks(made), asks(made - 1)] == [None] * 3
    assert counts.requests["get"] == 1
    store.put(KEYS.cluster.restored, RECORD)
    assert asks(made) is None
    assert [asks(time.monotonic_ns()), asks(made), asks(None)] == [END] * 3
    assert counts.requests["get"] == 3


def test_another_partition_begins_at_its_lowest_base(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """The record does not name it."""
    store.put(KEYS.cluster.restored, Restored(1, "ops", {}).encode())
    assert ask(commits, local, 2, first=10).position.next_offset == 10
