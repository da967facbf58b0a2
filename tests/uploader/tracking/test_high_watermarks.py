"""Which high watermark counts (protocol rule 1): the tracker compares files, and reads no clock."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.uploader.checkpoint_files import until_they_count, written
from tests.uploader.local_directory import TP, LocalDirectory
from tests.uploader.tracking.messages import LEADERSHIP, LOG_DIR, bases, listing, position_read, watermark, watermarks
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT, list_partition, read_high_watermarks
from ts_uploader.messages.observations import (
    NO_EPOCH_FILE,
    DirectoryGone,
    EpochFile,
    HighWatermarks,
    LastEpoch,
    Leadership,
    Led,
    Listing,
    NotLed,
)
from ts_uploader.messages.results import Changed, LookDue
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Ship
from ts_uploader.tracking.blocked import WaitReason
from ts_uploader.tracking.tracker import Tracker

NOW = LastEpoch(EpochFile.READ, LEADERSHIP.epoch)
BEFORE = LastEpoch(EpochFile.READ, LEADERSHIP.epoch - 1)
_HOUR = 3600 * 10**9


@pytest.fixture
def tracker() -> Tracker:
    """A tracker whose partition is led by the leadership source's report."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    return tracker


def epoch(last: LastEpoch, *, read: HighWatermarks | None = None) -> Listing:
    """Return a listing with one closed segment; `read` is the checkpoint of its log dir at that moment."""
    status = None if read is None or read.file is None else read.file[0]
    return replace(listing(0, 100), last_epoch=last, checkpoint=status)


def reason(tracker: Tracker) -> WaitReason | None:
    """Return what the partition waits for."""
    (backlog,) = tracker.backlog().values()
    return None if backlog.wait is None else backlog.wait.reason


def test_u28_the_first_other_file_is_not_trusted_but_the_second_is(tracker: Tracker) -> None:
    """The broker collects the values of all log dirs before it writes the first file, so one file can be older."""
    found = watermark(10**6)
    tracker.observe(found)
    tracker.observe(epoch(NOW, read=found))
    assert tracker.observe(found) == []  # read again by the timer
    assert tracker.observe(watermark(10**6)) == []
    assert reason(tracker) is WaitReason.HIGH_WATERMARK
    (ask,) = tracker.observe(watermark(50))
    assert bases(tracker.conclude(position_read(ask, 0))) == []
    assert bases(tracker.observe(watermark(100))) == [0]


@pytest.mark.parametrize("part", ["inode", "modified", "changed", "content"])
def test_u28_a_file_is_another_one_by_any_of_its_signs(tracker: Tracker, part: str) -> None:
    """Inodes alternate, because the broker renames a temporary file; an idle broker's values stay the same."""
    tracker.observe(epoch(NOW))

    def file(number: int) -> HighWatermarks:
        signs = {"inode": 1, "modified": 1, "changed": 1, "content": 1, part: number}
        status = (signs["inode"], signs["modified"], signs["changed"])
        return HighWatermarks(LOG_DIR, (status, signs["content"]), {("t", 0): 100})

    assert tracker.observe(file(1)) == tracker.observe(file(1)) == tracker.observe(file(2)) == []
    assert tracker.observe(file(2)) == []
    assert tracker.observe(file(1)) != []


def test_u28_a_file_written_before_the_epoch_and_read_after_it_is_neither_of_the_two(tracker: Tracker) -> None:
    """The agent had not read it, so it would count as another file; but the listing shows that it was there."""
    tracker.observe(watermark(10**6))
    unread = watermark(10**6)
    tracker.observe(epoch(NOW, read=unread))
    assert tracker.observe(unread) == []
    assert tracker.observe(watermark(10**6)) == []
    assert tracker.observe(watermark(100)) != []


@pytest.mark.parametrize("last", [BEFORE, LastEpoch(EpochFile.READ, None)], ids=["a lower epoch", "no entry"])
def test_u28_nothing_counts_or_is_requested_before_the_brokers_own_checkpoint_ends_with_the_epoch(
    tracker: Tracker, last: LastEpoch
) -> None:
    """The leadership source can be ahead of the broker, whose values are then those of a follower."""
    tracker.observe(epoch(last))
    for _ in range(5):
        assert tracker.observe(watermark(100)) == []
    assert reason(tracker) is WaitReason.EPOCH
    assert tracker.observe(epoch(NOW)) == []
    assert reason(tracker) is WaitReason.HIGH_WATERMARK
    assert until_they_count(tracker, LOG_DIR, {("t", 0): 100}) != []


def test_a_late_report_of_the_source_costs_no_more_files(tracker: Tracker) -> None:
    """The broker's epoch checkpoint already ended with the epoch, so later files are of this leadership."""
    tracker.observe(NotLed(TP))
    tracker.observe(epoch(NOW))
    for _ in range(5):
        tracker.observe(watermark(100))
    tracker.observe(Led(TP, LEADERSHIP))
    assert tracker.observe(watermark(100)) != []


def test_without_a_leader_epoch_checkpoint_files_count_from_the_report_of_the_source() -> None:
    """A log of magic 0 or 1 has no such file. Then an earlier listing does not show which file was there."""
    tracker = Tracker(OffsetReset.EARLIEST)
    for _ in range(5):
        found = watermark(100)
        tracker.observe(found)
        tracker.observe(epoch(NO_EPOCH_FILE, read=found))
    tracker.observe(Led(TP, LEADERSHIP))
    assert watermarks(tracker, 100) != []
    tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert watermarks(tracker, 100) != []


def test_a_directory_that_was_missing_counts_as_new(tracker: Tracker) -> None:
    """File systems reuse a removed directory's inode."""
    leading(tracker)
    tracker.observe(DirectoryGone(TP))
    tracker.observe(epoch(NOW))
    assert watermarks(tracker, 100) != []


def test_an_unreadable_leader_epoch_checkpoint_is_not_an_absent_one(tracker: Tracker) -> None:
    """Until it is readable, no position is read and nothing counts; the reason is shown."""
    tracker.observe(epoch(LastEpoch(EpochFile.UNREADABLE, error="Input/output error")))
    for _ in range(5):
        assert tracker.observe(watermark(100)) == []
    (backlog,) = tracker.backlog().values()
    assert reason(tracker) is WaitReason.EPOCH
    assert "Input/output error" in (backlog.waits_for or "")
    tracker.observe(epoch(NOW))
    assert watermarks(tracker, 100) != []


def leading(tracker: Tracker) -> Ship:
    """Write checkpoints until a segment is being shipped."""
    tracker.observe(epoch(NOW))
    (ask,) = watermarks(tracker, 100)
    (ship,) = tracker.conclude(position_read(ask, 0))
    assert isinstance(ship, Ship)
    return ship


def test_a_figure_that_counts_is_followed_by_every_later_one(tracker: Tracker) -> None:
    """An unreadable checkpoint changes nothing; one without an entry makes the high watermark unknown."""
    leading(tracker)
    further = replace(listing(0, 100, 200), last_epoch=NOW)
    tracker.observe(further)
    tracker.observe(HighWatermarks(LOG_DIR, None, None))
    tracker.observe(HighWatermarks(LOG_DIR, ((0, 0, 0), 0), None))
    assert reason(tracker) is WaitReason.UPLOAD
    tracker.observe(written(LOG_DIR, {}))
    assert reason(tracker) is WaitReason.HIGH_WATERMARK
    assert bases(tracker.observe(watermark(200))) == [100]


def test_a_repeated_report_restarts_nothing(tracker: Tracker) -> None:
    """The source repeats itself, and after a dropped listing one of the same directory follows."""
    ship = leading(tracker)
    tracker.conclude(Changed(TP, ship.generation, ship.leadership, ship.base, "replaced"))
    tracker.conclude(LookDue(TP, ship.generation))
    tracker.observe(Led(TP, LEADERSHIP))
    assert bases(tracker.observe(epoch(NOW))) == [0]


@pytest.mark.parametrize(
    "other",
    [{"last_epoch": BEFORE}, {"identity": (1, 9)}, {"topic_id": "new"}],
    ids=["another epoch", "another directory", "another topic in a directory of the same inode"],
)
def test_a_figure_counts_for_its_directory_and_epoch_only(tracker: Tracker, other: dict[str, Any]) -> None:
    """A leadership begins without a high watermark, even if the source repeats the same one."""
    leading(tracker)
    tracker.observe(replace(epoch(NOW), **other))
    if "topic_id" in other:
        tracker.observe(Led(TP, replace(LEADERSHIP, topic_id="new")))
    assert tracker.observe(watermark(100)) == []
    assert reason(tracker) in {WaitReason.EPOCH, WaitReason.HIGH_WATERMARK}


@pytest.mark.parametrize("jump", [_HOUR * 720, -_HOUR * 720], ids=["set forward", "set back"])
def test_u38_a_clock_that_is_set_while_running_neither_stops_a_partition_nor_lets_an_old_file_count(jump: int) -> None:
    """File times jump before, at the start of and during the leadership; shipping continues."""
    for set_at in range(6):
        times = [_HOUR * 1000 + n + (jump if n >= set_at else 0) for n in range(20)]
        files = [HighWatermarks(LOG_DIR, ((n % 2, time, time), 1), {("t", 0): 100 * n}) for n, time in enumerate(times)]
        tracker = Tracker(OffsetReset.EARLIEST)
        tracker.observe(files[0])
        tracker.observe(Led(TP, replace(LEADERSHIP, seen_at=times[1])))
        tracker.observe(replace(epoch(NOW, read=files[1]), bases=tuple(range(0, 2000, 100))))
        tasks = [tracker.observe(file) for file in files[1:4]]
        assert tasks[:2] == [[], []]
        ((ask,), shipped) = tasks[2], set[int]()
        assert isinstance(ask, ReadPosition)
        assert max(bases(tracker.conclude(position_read(ask, 0)))) < 300
        for file in files[4:]:
            shipped |= set(bases(tracker.observe(file)))
        (backlog,) = tracker.backlog().values()
        assert backlog.lag == 1900


class Broker:
    """Writes the checkpoints of two log dirs as a broker does: it collects all values, then writes the files.

    Args:
        directory: parent of the log dirs.
    """

    def __init__(self, directory: Path) -> None:
        self.local = LocalDirectory(directory / "one")
        self.other = directory / "two"
        self.other.mkdir()
        self.high_watermark = 0

    def collect(self) -> Mapping[Path, bytes]:
        """Collect the current values."""
        entry = f"0\n1\n{TP.topic} {TP.partition} {self.high_watermark}\n".encode()
        return {self.other: b"0\n0\n", self.local.log_dir: entry}

    def write(self, log_dir: Path, data: bytes) -> None:
        """Write a temporary file and rename it, as Kafka does."""
        path = log_dir / HIGH_WATERMARK_CHECKPOINT
        path.with_suffix(".tmp").write_bytes(data)
        path.with_suffix(".tmp").rename(path)

    def begin_epoch(self, epoch: int) -> None:
        """Write what the broker writes first when it becomes the leader."""
        path = self.local.path / "leader-epoch-checkpoint"
        path.with_suffix(".tmp").write_text(f"0\n1\n{epoch} 0\n")
        path.with_suffix(".tmp").rename(path)


def test_u28_figures_collected_before_the_leadership_and_written_late_are_not_trusted(tmp_path: Path) -> None:
    """The other log dir's disk hangs in between: its file is written, then this one, with values from before."""
    broker = Broker(tmp_path)
    broker.local.segments(0, 100)
    broker.high_watermark = 1000  # of the log that an election ends
    for log_dir, data in broker.collect().items():
        broker.write(log_dir, data)
    tracker = Tracker(OffsetReset.EARLIEST)

    def look() -> list[AnyTask]:
        seen = list_partition(TP, broker.local.log_dir)
        assert seen is not None
        read = read_high_watermarks(broker.local.log_dir)
        return [*tracker.observe(seen), *tracker.observe(read)]

    look()
    hanging = broker.collect()
    broker.write(broker.other, hanging[broker.other])
    broker.high_watermark = 50
    broker.begin_epoch(7)
    tracker.observe(Led(TP, Leadership(7, broker.local.listing().topic_id, 0)))
    assert look() == []
    broker.write(broker.local.log_dir, hanging[broker.local.log_dir])
    assert look() == []
    collected = broker.collect()
    broker.write(broker.local.log_dir, collected[broker.local.log_dir])
    (ask,) = look()
    assert bases(tracker.conclude(position_read(ask, 0))) == []
    (backlog,) = tracker.backlog().values()
    assert backlog.lag == 50


def test_u38_the_age_of_a_listing_is_not_of_the_clock_that_is_set(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two listings a checkpoint interval apart agree on a gap, even if the clock was set back in between."""
    before = local.listing().taken_at
    monkeypatch.setattr("time.time_ns", lambda: 0)
    monkeypatch.setattr("time.time", lambda: 0.0)
    os.utime(local.path, (0, 0))
    assert before < local.listing().taken_at < before + _HOUR
