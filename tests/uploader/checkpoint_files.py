"""High watermark checkpoints as a broker writes them: each another file than the one before."""

import itertools
from collections.abc import Mapping
from pathlib import Path

from ts_uploader.messages.observations import HighWatermarks
from ts_uploader.messages.tasks import AnyTask
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.tracking.high_watermarks import OTHER_FILES
from ts_uploader.tracking.tracker import Tracker

_INODES = itertools.count(1)


def written(log_dir: Path, offsets: Mapping[tuple[str, int], int]) -> HighWatermarks:
    """A reading of a file that no reading showed before."""
    return HighWatermarks(log_dir, ((next(_INODES), 1, 1), 1), offsets)


def until_they_count(
    tracker: Tracker | ContainedTracker, log_dir: Path, offsets: Mapping[tuple[str, int], int]
) -> list[AnyTask]:
    """The file that the agent finds, and those after it up to the first whose figures count."""
    tasks: list[AnyTask] = []
    for _ in range(1 + OTHER_FILES):
        assert tasks == []
        tasks = tracker.observe(written(log_dir, offsets))
    return tasks
