"""A leadership source that dies, for `ts.segment.uploader.leadership.watcher.class`."""

from collections.abc import Set

from ts_common.model import TopicPartition
from ts_uploader.leadership.contract import LeadershipSource


class DyingLeadership(LeadershipSource):
    """Fails as soon as it runs."""

    connected = False

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Nothing is watched."""

    def run(self) -> None:
        """Die of an unexpected error."""
        raise ZeroDivisionError("unforeseen")

    def stop(self) -> None:
        """Nothing runs."""
