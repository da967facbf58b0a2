"""Each two seconds, next to its gauges, the agent names the partitions that a checkpoint can still change."""

from pathlib import Path

from dev.local.waiting import wait_for
from tests.uploader.agent_of_files import Beside, segment
from tests.uploader.local_directory import LocalDirectory
from tests.uploader.tracking.led_here import EPOCH


def test_high_watermarks_of_an_idle_broker_count_although_no_entry_of_its_checkpoints_changes(tmp_path: Path) -> None:
    """The watcher looks for the directories of unsettled partitions, else only for those whose entry changed."""
    (tmp_path / "store").mkdir()
    local = LocalDirectory(tmp_path / "log")
    local.epochs((EPOCH, 0))
    local.write(0, segment(*range(10)))
    local.write(10, b"")
    beside = Beside(local, (tmp_path / "store").as_uri(), tmp_path / "conf")
    with beside.running():
        wait_for(lambda: beside.page("/healthz") and beside.next_offset == 10, "the commit", 60)
        wait_for(lambda: beside.page("/healthz") and beside.unsettled == set(), "its high watermark to count", 60)
