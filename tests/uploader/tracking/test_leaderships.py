"""What the tracker keeps when leaderships, topic ids and directories change."""

from dataclasses import replace

import pytest

from tests.uploader.tracking.led_partition import LedPartition
from tests.uploader.tracking.messages import LEADERSHIP, TP, listing, position_read, shipped, watermark, watermarks
from ts_common.config.cluster_config import OffsetReset
from ts_uploader.messages.observations import DirectoryGone, Led, Listing, NotLed
from ts_uploader.messages.results import Fenced
from ts_uploader.messages.tasks import ReadPosition
from ts_uploader.tracking.tracker import Tracker


def test_a_fenced_leadership_does_not_return() -> None:
    """After the store showed a later leader epoch, a leadership source that repeats itself changes nothing (U06)."""
    led = LedPartition(0, 100)
    assert led.tracker.conclude(Fenced(TP, led.read.generation, LEADERSHIP, "later")) == []
    led.tracker.observe(Led(TP, LEADERSHIP))
    assert watermarks(led.tracker, 10**6) == []
    led.tracker.observe(Led(TP, replace(LEADERSHIP, epoch=2)))
    assert watermarks(led.tracker, 10**6) != []


@pytest.mark.parametrize(
    "change",
    [NotLed(TP), Led(TP, replace(LEADERSHIP, epoch=2)), DirectoryGone(TP), listing(0, 100, 200, inode=9)],
    ids=["demoted", "new leader epoch", "directory gone", "directory replaced"],
)
def test_results_of_an_earlier_generation_do_not_count(change: NotLed | Led | DirectoryGone | Listing) -> None:
    """The result of a task that was under way when leadership or directory changed is dropped."""
    led = LedPartition(0, 100, 200)
    task = led.at(0)[0]
    led.tracker.observe(change)
    assert led.tracker.conclude(shipped(task)) == []  # type: ignore[arg-type]


def test_a_repeated_report_of_the_same_leadership_changes_nothing() -> None:
    """The source is level-triggered; tasks under way continue (fault U16)."""
    led = LedPartition(0, 100, 200)
    task = led.at(0)[0]
    assert led.tracker.observe(Led(TP, replace(LEADERSHIP, seen_at=999))) == []
    assert led.tracker.conclude(shipped(task)) != []  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [Led(TP, LEADERSHIP), NotLed(TP)])
def test_a_partition_that_the_source_never_reported_is_counted_separately(said: Led | NotLed) -> None:
    """This broker may lead it, and then no agent ships it. It counts after a while, until the source reports it."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(listing(0, 10, taken_at=100))
    assert tracker.unreported(100) == []
    assert tracker.unreported(101) == [TP]
    tracker.observe(said)
    assert tracker.unreported(101) == []
    tracker.observe(DirectoryGone(TP))
    assert tracker.unreported(101) == []


def test_a_partition_whose_directory_is_missing_is_forgotten_without_another_report() -> None:
    """The source no longer watches it, so it never reports that the broker does not lead it."""
    led = LedPartition(0, 100)
    led.tracker.observe(DirectoryGone(TP))
    for _ in range(2):
        led.tracker.forget_absent()
    led.tracker.observe(listing(0, 100, inode=2))
    assert watermarks(led.tracker, 100) == []
    led.tracker.observe(Led(TP, LEADERSHIP))
    assert watermarks(led.tracker, 100) != []


def test_a_partition_that_moves_to_another_disk_keeps_its_leadership() -> None:
    """For a moment no log dir has it, and the source has nothing new to report."""
    led = LedPartition(0, 100)
    led.tracker.forget_absent()
    led.tracker.observe(DirectoryGone(TP))
    led.tracker.forget_absent()
    led.tracker.observe(listing(0, 100, inode=2))
    led.tracker.forget_absent()
    assert watermarks(led.tracker, 100) != []


def test_results_do_not_count_for_a_partition_that_was_forgotten_and_appeared_again() -> None:
    """Uploads of a topic's first incarnation do not count for a topic that was re-created under its name (U09)."""
    led = LedPartition(0, 100, 200)
    task = led.at(0)[0]
    led.tracker.observe(NotLed(TP))
    led.tracker.observe(DirectoryGone(TP))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, topic_id="new")))
    led.tracker.observe(listing(0, 80, 160, topic_id="new", inode=2))
    led.tracker.observe(watermark(160))
    assert led.tracker.conclude(shipped(task)) == []  # type: ignore[arg-type]
    assert led.tracker.conclude(position_read(led.read, 0)) == []


def test_a_fence_holds_for_its_topic_id_only() -> None:
    """A re-created topic starts with low epochs again, and is shipped."""
    led = LedPartition(0, 100)
    assert isinstance(led.read, ReadPosition)
    led.tracker.conclude(Fenced(TP, led.read.generation, replace(LEADERSHIP, epoch=9), "later"))
    led.tracker.observe(Led(TP, replace(LEADERSHIP, topic_id="new")))
    led.tracker.observe(listing(0, 100, topic_id="new", inode=2))
    assert watermarks(led.tracker, 100) != []
