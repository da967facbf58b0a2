"""Leaderships for an agent without a cluster: a file names the partitions that the broker leads.

The agent loads `MadeLeadership` by `ts.segment.uploader.leadership.watcher.class`. Like the real sources it reports a
change at once, and everything again with each poll.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Final

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.messages.observations import Leadership, Led, NotLed

SOURCE: Final = f"{__name__}:MadeLeadership"
VARIABLE: Final = "BENCH_LEADERSHIP"  # names the file
_LOOK_SECONDS: Final = 0.5


def write_leaderships(file: Path, led: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Replace the file: the epoch and topic id of each partition that the broker leads."""
    replacement = file.with_suffix(".tmp")
    replacement.write_text("".join(f"{each.topic} {each.partition} {led[each][0]} {led[each][1]}\n" for each in led))
    replacement.replace(file)


class MadeLeadership(LeadershipSource):
    """Reports the content of the file that the variable names."""

    def __init__(self, environment: Environment, emit: Callable[[LeadershipEvent], None], poll_seconds: float) -> None:
        super().__init__(environment, emit, poll_seconds)
        self._file = Path(os.environ[VARIABLE])
        self._wanted: Set[TopicPartition] = frozenset()
        self._read = (0, 0)
        self._led: dict[TopicPartition, Leadership] = {}
        self._ended = threading.Event()

    @property
    def connected(self) -> bool:
        """Always."""
        return True

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Report these from the next look on."""
        self._wanted = partitions

    def run(self) -> None:
        """Look at the file twice a second."""
        reported: Set[TopicPartition] = frozenset()
        next_poll = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            wanted = self._wanted
            if self._reads() or time.monotonic() >= next_poll:
                reported = frozenset()
                next_poll = time.monotonic() + self.poll_seconds
            for partition in wanted - reported if wanted is not reported else ():
                leadership = self._led.get(partition)
                self.emit(NotLed(partition) if leadership is None else Led(partition, leadership))
            reported = wanted

    def stop(self) -> None:
        """End `run`."""
        self._ended.set()

    def _reads(self) -> bool:
        """Read the file if it is another one; return whether it is."""
        status = self._file.stat()
        if self._read == (status.st_ino, status.st_mtime_ns):
            return False
        self._read = (status.st_ino, status.st_mtime_ns)
        before, self._led = self._led, {}
        for line in self._file.read_text().splitlines():
            topic, number, epoch, topic_id = line.split()
            partition = TopicPartition(topic, int(number))
            known = before.get(partition)
            if known is None or (known.epoch, known.topic_id) != (int(epoch), topic_id):
                known = Leadership(int(epoch), topic_id, time.time_ns())
            self._led[partition] = known
        return True
