"""Watching real directories, some of them on disks that failed: absent, or no directory that could be read."""

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dev.local.kafka.cluster import wait_for
from ts_common.errors import OperatorError
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.log_dirs.inotify_hints import InotifyHints
from ts_uploader.log_dirs.leader_epoch import last_epoch_of
from ts_uploader.log_dirs.local_log import epochs_mark
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.messages.observations import (
    DirectoryGone,
    EpochFile,
    HighWatermarks,
    LastEpoch,
    Listing,
    Observation,
    SeveralDirectories,
)

SECONDS = 10.0
NEVER = 3600.0
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Watched:
    """A running watcher, and its observations; its timer never fires, so each observation was hinted."""

    def __init__(self, log_dirs: tuple[Path, ...]) -> None:
        self.said: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        self.topics = {"t"}  # that are shipped
        self._read_last = log_dirs[-1]
        self.watcher = LogDirectoryWatcher(log_dirs, lambda topic: topic in self.topics, self.said.put, NEVER)

    @contextmanager
    def running(self) -> Iterator["Watched"]:
        """Watch from the first scan to the end of the block."""
        with ExitStack() as stack:
            stack.callback(self.watcher.stop)
            self.watcher.start_watching()
            thread = threading.Thread(target=self.watcher.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(self.watcher.stop)
            self._wait_for_scan()
            yield self
            assert thread.is_alive()
            assert self.watcher.watching

    def wait_for(self, expected: Callable[[Observation], bool]) -> list[Observation]:
        """All observations up to the expected one."""
        heard = [self.said.get(timeout=SECONDS)]
        while not expected(heard[-1]):
            heard.append(self.said.get(timeout=SECONDS))
        return heard

    def wait_for_listing(self, partition: TopicPartition, *bases: int) -> list[Observation]:
        """All observations up to a partition's listing with these bases."""
        return self.wait_for(
            lambda said: isinstance(said, Listing) and (said.partition, said.bases) == (partition, bases)
        )

    def scan(self) -> list[Observation]:
        """All observations until everything has been scanned once more."""
        self.watcher.hint_all()
        return self._wait_for_scan()

    def _wait_for_scan(self) -> list[Observation]:
        return self.wait_for(lambda said: isinstance(said, HighWatermarks) and said.log_dir == self._read_last)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A log dir with one partition, and with a checkpoint."""
    log_dir = tmp_path / "healthy"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "replication-offset-checkpoint").write_text("0\n0\n")
    return log_dir


@pytest.fixture(params=["absent", "no directory"])
def failed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log dir that cannot be read, by any user."""
    path = tmp_path / "failed"
    if request.param == "no directory":
        path.touch()
    return path


def mend(log_dir: Path) -> None:
    """The disk is replaced."""
    log_dir.unlink(missing_ok=True)
    log_dir.mkdir()


def segment(log_dir: Path, partition: TopicPartition, base: int) -> None:
    (log_dir / str(partition) / f"{base:020d}.log").touch()


def test_a_roll_on_a_healthy_disk_is_seen_although_another_failed(healthy: Path, failed: Path) -> None:
    """The hint leads to the log dirs that can be read, in whatever order the broker's file names them."""
    with Watched((failed, healthy)).running() as watched:
        segment(healthy, ZERO, 7)
        watched.wait_for_listing(ZERO, 7)


def test_a_partition_is_reported_absent_only_if_all_log_dirs_could_be_read(healthy: Path, failed: Path) -> None:
    """It may have been moved to the unreadable disk; once that is back, its absence is reported."""
    with Watched((failed, healthy)).running() as watched:
        (healthy / "t-0").rmdir()
        (healthy / "t-1").mkdir()
        heard = watched.wait_for_listing(ONE)
        segment(healthy, ONE, 7)  # both hints may arrive at once, and in any order; this one is later than both
        heard += [*watched.wait_for_listing(ONE, 7), *watched.scan()]
        assert not any(isinstance(said, DirectoryGone) for said in heard)
        mend(failed)
        watched.watcher.hint(ZERO)
        watched.wait_for(lambda said: said == DirectoryGone(ZERO))


def test_a_topic_that_is_no_longer_shipped_is_reported_absent_also_while_a_disk_cannot_be_read(
    healthy: Path, failed: Path
) -> None:
    """Where its partitions are does not matter any more; one that is shipped from now on is listed."""
    (healthy / "other-0").mkdir()
    with Watched((failed, healthy)).running() as watched:
        watched.topics = {"other"}
        heard = watched.scan()
        assert DirectoryGone(ZERO) in heard
        assert {said.partition for said in heard if isinstance(said, Listing)} == {TopicPartition("other", 0)}


def test_a_directory_that_cannot_be_read_does_not_hide_the_one_that_can(
    healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed disk may still answer for the name of a directory that cannot be listed."""
    other = tmp_path / "other"
    (other / "t-0").mkdir(parents=True)

    def list_or_fail(partition: TopicPartition, log_dir: Path, *more: Any) -> Listing | None:
        if log_dir == other:
            raise OSError(errno.EIO, "Input/output error", str(log_dir))
        return list_partition(partition, log_dir, *more)

    monkeypatch.setattr("ts_uploader.log_dirs.watcher.list_partition", list_or_fail)
    with Watched((other, healthy)).running() as watched:
        segment(healthy, ZERO, 7)
        watched.wait_for_listing(ZERO, 7)
        (healthy / "t-0").rename(healthy / "t-1")
        heard = watched.wait_for_listing(ONE, 7)
        assert not any(isinstance(said, DirectoryGone) for said in [*heard, *watched.scan()])


def test_u42_a_directory_that_meets_a_defect_stops_no_other(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error ends no thread."""

    def list_or_fail(partition: TopicPartition, *arguments: Any) -> Listing | None:
        if partition == ZERO:
            raise ValueError("what nobody expects")
        return list_partition(partition, *arguments)

    monkeypatch.setattr("ts_uploader.log_dirs.watcher.list_partition", list_or_fail)
    with Watched((healthy,)).running() as watched:
        segment(healthy, ZERO, 7)
        (healthy / "t-1").mkdir()
        segment(healthy, ONE, 8)
        watched.wait_for_listing(ONE, 8)
        assert not any(isinstance(said, DirectoryGone) for said in watched.scan())


def test_a_second_look_at_a_directory_that_did_not_change_is_whole(healthy: Path) -> None:
    """The scan waits for nothing: it compares with what it saw of the directory the last time."""
    with Watched((healthy,)).running() as watched:
        segment(healthy, ZERO, 7)
        watched.wait_for_listing(ZERO, 7)
        heard = [said for _ in range(3) for said in watched.scan() if isinstance(said, Listing)]
        assert [said.whole for said in heard[-2:]] == [True, True]


def test_a_whole_listing_that_is_requested_is_reported(healthy: Path) -> None:
    """Without another event and without a scan: the first listing after a change is not whole."""
    with Watched((healthy,)).running() as watched:
        segment(healthy, ZERO, 7)
        watched.watcher.hint(ZERO, whole=True)
        watched.wait_for(lambda said: isinstance(said, Listing) and said.whole and said.bases == (7,))


def test_a_log_dir_that_failed_is_reported_once_and_watched_as_soon_as_it_is_back(healthy: Path, failed: Path) -> None:
    """Each scan tries it again; an operator reads of it once, and once that it works again."""
    with capture_logs() as logs, Watched((failed, healthy)).running() as watched:
        for _ in range(3):
            watched.scan()
        told = [(line["event"], line["log_level"]) for line in logs if line["log_dir"] == str(failed)]
        assert told[:2] == [("log_dir_not_watched", "error"), ("log_dir_unreadable", "error")]
        assert len(told) == len(set(told))
        mend(failed)
        (failed / "t-1").mkdir()
        watched.watcher.hint_all()
        watched.wait_for_listing(ONE)
        segment(failed, ONE, 7)
        watched.wait_for_listing(ONE, 7)
        again = [line["trouble"] for line in logs if line["event"] == "log_dir_recovered"]
        assert again[:2] == ["log_dir_not_watched", "log_dir_unreadable"]


def replace_epochs(directory: Path, text: str) -> None:
    """As Kafka replaces a `leader-epoch-checkpoint`: a file of another name, and a rename."""
    temporary = directory / "leader-epoch-checkpoint.tmp"
    temporary.write_text(text)
    temporary.rename(directory / "leader-epoch-checkpoint")


def test_u28_a_new_leader_epoch_on_the_disk_is_seen_at_once(healthy: Path) -> None:
    """From then on the broker's figures are the leader's; the timer never fires here, so the rename was the hint."""
    with Watched((healthy,)).running() as watched:
        replace_epochs(healthy / "t-0", "0\n2\n3 0\n6 40\n")
        now = LastEpoch(EpochFile.READ, 6)
        heard = watched.wait_for(lambda said: isinstance(said, Listing) and said.last_epoch == now)
    status = (healthy / "replication-offset-checkpoint").stat()
    assert isinstance(heard[-1], Listing)
    assert heard[-1].checkpoint == (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, LastEpoch(EpochFile.ABSENT)),
        ("0\n0\n", LastEpoch(EpochFile.READ, None)),
        ("0\n1\n7 ", EpochFile.UNREADABLE),
        ("", EpochFile.UNREADABLE),
    ],
    ids=["absent", "no entry", "torn", "empty"],
)
def test_an_unreadable_leader_epoch_checkpoint_is_listed_as_such(
    healthy: Path, text: str | None, expected: LastEpoch | EpochFile
) -> None:
    """It is not an absent one, which logs of magic 0 and 1 have."""
    if text is not None:
        replace_epochs(healthy / "t-0", text)
    found = list_partition(ZERO, healthy)
    assert found is not None
    assert expected in {found.last_epoch, found.last_epoch.file}
    assert bool(found.last_epoch.error) == (expected is EpochFile.UNREADABLE)


def test_a_leader_epoch_checkpoint_that_no_one_may_read_is_no_absent_one(healthy: Path) -> None:
    """The log has the system's reason; the next scan tries again."""
    path = healthy / "t-0" / "leader-epoch-checkpoint"
    path.mkdir()
    found = list_partition(ZERO, healthy)
    assert found is not None
    assert found.last_epoch.file is EpochFile.UNREADABLE
    assert "directory" in found.last_epoch.error


def test_a_directory_that_is_renamed_while_it_is_listed_does_not_count_as_old_magic(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint is not absent: it was deleted as a whole, or moved to another disk."""

    def rename_and_read(directory: str) -> LastEpoch:
        Path(directory).rename(healthy / "t-0.00000000000000000000000000000000-delete")
        return last_epoch_of(directory)

    monkeypatch.setattr("ts_uploader.log_dirs.directory_scan.last_epoch_of", rename_and_read)
    replace_epochs(healthy / "t-0", "0\n1\n3 0\n")
    assert list_partition(ZERO, healthy) is None


def test_a_leader_epoch_checkpoint_of_a_far_future_has_a_mark(tmp_path: Path) -> None:
    """A broker's clock was wrong: nanoseconds since 1970 are more than 63 bits hold from the year 2262 on."""
    replace_epochs(tmp_path, "0\n1\n3 0\n")
    before = epochs_mark(tmp_path)
    os.utime(tmp_path / "leader-epoch-checkpoint", (10**10, 10**10))
    assert epochs_mark(tmp_path) not in {before, None}


def test_u40_two_directories_are_reported_together_and_logged_once(healthy: Path, tmp_path: Path) -> None:
    """The watcher does not decide which one counts; if one checkpoint changed, all are read for the decision."""
    other = tmp_path / "other"
    (other / "t-0").mkdir(parents=True)
    (other / "replication-offset-checkpoint").write_text("0\n0\n")
    with capture_logs() as logs, Watched((other, healthy)).running() as watched:
        for _ in range(3):
            heard = watched.scan()
        segment(healthy, ZERO, 7)
        heard += watched.wait_for(
            lambda said: isinstance(said, SeveralDirectories) and [each.bases for each in said.listings] == [(), (7,)]
        )
        assert not any(isinstance(said, Listing) for said in heard)
        # In place, which causes no event; the other file causes one.
        (other / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
        (healthy / "new").write_text("0\n0\n")
        (healthy / "new").rename(healthy / "replication-offset-checkpoint")
        watched.wait_for(lambda said: isinstance(said, HighWatermarks) and said.offsets == {("t", 0): 7})
        (other / "t-0").rmdir()
        watched.wait_for_listing(ZERO, 7)
    assert [line["directories"] for line in logs if line["event"] == "partition_has_several_directories"] == [
        [str(other / "t-0"), str(healthy / "t-0")]
    ]


def test_an_error_is_raised_if_no_log_dir_can_be_watched(failed: Path, tmp_path: Path) -> None:
    """The agent cannot continue, and the message has the error of each."""
    watched = Watched((failed, tmp_path / "another"))
    with pytest.raises(OperatorError, match=f"{failed}.*{tmp_path / 'another'}.*No such file"), watched.running():
        pass


def test_a_limit_of_inotify_at_the_start_is_an_error_that_names_the_setting(
    healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other log dirs would work, but the operator has to raise the limit."""
    (tmp_path / "other").mkdir()
    log_dirs = (healthy, tmp_path / "other")
    monkeypatch.setattr("ts_uploader.log_dirs.watcher.InotifyHints", limited(tmp_path / "other"))
    with pytest.raises(OperatorError, match=r"other.*fs\.inotify\.max_user_watches"), Watched(log_dirs).running():
        pass
    monkeypatch.setattr("ts_uploader.log_dirs.watcher.InotifyHints", no_instance)
    with pytest.raises(OperatorError, match=r"fs\.inotify\.max_user_instances"), Watched(log_dirs).running():
        pass


def test_a_limit_of_inotify_when_a_log_dir_is_back_is_reported_and_the_others_continue(
    healthy: Path, failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are hints: the scan finds changes without an event, and an end of the process would not help."""
    monkeypatch.setattr("ts_uploader.log_dirs.watcher.InotifyHints", limited(failed))
    with capture_logs() as logs, Watched((failed, healthy)).running() as watched:
        watched.scan()
        mend(failed)
        (failed / "t-1").mkdir()
        watched.scan()
        wait_for(lambda: any("max_user_watches" in line.get("error", "") for line in logs), "the error", SECONDS)
        segment(failed, ONE, 7)
        segment(healthy, ZERO, 7)
        watched.wait_for_listing(ZERO, 7)
        watched.watcher.hint_all()
        watched.wait_for_listing(ONE, 7)


def limited(log_dir: Path) -> type[InotifyHints]:
    """Hints for which the kernel has no watches left at one log dir."""

    class Limited(InotifyHints):
        def watch(self, path: Path) -> None:
            if path == log_dir and path.is_dir():
                raise OSError(errno.ENOSPC, "inotify watch limit reached")
            super().watch(path)

    return Limited


def no_instance(*_: object) -> InotifyHints:
    raise OSError(errno.EMFILE, "inotify instance limit reached")


def test_a_linked_directory_is_an_error_once(tmp_path: Path) -> None:
    """It can stay for days, and each scan finds it; one that appears again is an error again."""
    (tmp_path / "t-0").mkdir()
    link = tmp_path / "t-1"
    with capture_logs() as logs, Watched((tmp_path,)).running() as watched:

        def times() -> int:
            watched.scan()
            return sum(entry["event"] == "partition_directory_is_symlink" for entry in logs)

        link.symlink_to(tmp_path / "t-0")
        assert [times(), times()] == [1, 1]
        link.unlink()
        assert times() == 1
        link.symlink_to(tmp_path / "t-0")
        assert times() == 2
