"""A leadership source for `ts.segment.uploader.leadership.watcher.class`: this broker leads every partition."""

import threading
import time
from collections.abc import Set

from tests.uploader.local_directory import ID
from ts_common.model import TopicPartition
from ts_uploader.leadership.contract import LeadershipSource
from ts_uploader.messages.observations import Leadership, Led

EPOCH = 5


class LedHere(LeadershipSource):
    """In leader epoch 5, from when a partition is first watched."""

    _ended: threading.Event

    @property
    def connected(self) -> bool:
        """Always."""
        return True

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Each is led here."""
        for partition in partitions:
            self.emit(Led(partition, Leadership(EPOCH, ID, time.time_ns())))

    def run(self) -> None:
        """Nothing is watched."""
        self._ended.wait()

    def stop(self) -> None:
        """End `run`."""
        self._ended.set()

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # as the contract's
        self._ended = threading.Event()
