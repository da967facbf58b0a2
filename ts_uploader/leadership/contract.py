"""The contract of every leadership source: which partitions this broker leads, and the retention of their topics.

Leadership distributes the work; it does not keep data safe. So a source may be late or wrong for a while. It is
level-triggered: it reports the current state again and again, so a caller that missed one report receives the next.

A source may also report `TopicSettings` of the topics of the watched partitions, and `BrokerSettings`. These decide
which segment is shipped first and which counts as late, never which are shipped. If a source reports none, the settings
of the broker's file are used.

A class of your own (`module:Class`) is called with the arguments of `LeadershipSource.__init__`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Set

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, hint
from ts_uploader.messages.observations import Led, NotLed
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings

LeadershipEvent = Led | NotLed | TopicSettings | BrokerSettings


class LeadershipSource(ABC):
    """Reports for each watched partition whether this broker leads it.

    Args:
        emit: called with each report; any thread of the source may call it, and it does not block.
        poll_seconds: between two full reads, which are made in addition to watches.
    """

    def __init__(self, environment: Environment, emit: Callable[[LeadershipEvent], None], poll_seconds: float) -> None:
        self.environment = environment
        self.emit = emit
        self.poll_seconds = poll_seconds

    @abstractmethod
    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Watch these partitions and no others. The caller calls it again at each change."""

    def look_at(self, partition: TopicPartition) -> None:
        """Accept the hint that the directory of a partition changed; any thread may call it, and it does not block.

        Hints can be lost. A source that reads the broker's disk then need not look at all directories so often.
        """
        del partition

    @abstractmethod
    def run(self) -> None:
        """Connect and watch until `stop`; the caller gives it a thread.

        While the source is unavailable, it reports nothing, because "unknown" is not "not leader". It keeps retrying.
        """

    @abstractmethod
    def stop(self) -> None:
        """End `run`. Any thread may call it, also twice."""

    def examine(self, topics: Set[str]) -> list[Finding]:
        """Return the findings of `ts-uploader check`, which never calls `run`.

        They answer: is the source reached, may this identity read these topics from it, does it have the broker?
        """
        del topics
        return [hint("leadership", f"{type(self).__name__} has no check of its own")]

    def is_deleted(self, topic: str, topic_id: str) -> bool | None:
        """Return whether the cluster no longer has a topic id of a topic; None if that is unknown now.

        Any thread may call it, repeatedly until there is an answer; it does not wait for one. A source answers from
        metadata that no other broker delayed, or after it read the same twice at a distance. With a source that never
        answers, nothing of deleted topics is shipped.

        Args:
            topic: its name.
            topic_id: Kafka's, of a directory that the broker renamed to `-delete`.
        """
        del topic, topic_id
        return None

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether the source still watches what it last reported."""

    @property
    def broker_away(self) -> bool:
        """Whether the broker does not answer, or is not registered; False if the source has no such fact."""
        return False

    @property
    def trouble(self) -> str | None:
        """Why the source is not connected, for operators; None while it is connected, and if the reason is unknown."""
        return None
