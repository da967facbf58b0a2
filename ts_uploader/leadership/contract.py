"""Which partitions this broker leads, and what their topics' retention is: the contract of every source.

Leadership shares the work out; it is not what keeps data safe. So a source may be late or wrong for a while, but it
is level-triggered: it says what is so again and again, and a caller that missed one saying hears the next.

A source may also say `TopicSettings` of the topics of the watched partitions, and `BrokerSettings`. They decide what is
shipped first and what is called late, never what is shipped; one that cannot know them says none, and the broker's file
counts.

A class of your own (`module:Class`) is called with the arguments of `LeadershipSource.__init__`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Set

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.events import Led, NotLed
from ts_uploader.findings import Finding, hint
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings

Said = Led | NotLed | TopicSettings | BrokerSettings


class LeadershipSource(ABC):
    """Says of each watched partition whether this broker leads it.

    Args:
        environment: the broker's surroundings.
        emit: takes what is `Said`; may be called from any thread of the source, and does not block.
        poll_seconds: between two safety re-reads of everything.
    """

    def __init__(self, environment: Environment, emit: Callable[[Said], None], poll_seconds: float) -> None:
        self.environment = environment
        self.emit = emit
        self.poll_seconds = poll_seconds

    @abstractmethod
    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Watch these partitions, and no longer those that are not among them. Called again whenever that changes."""

    @abstractmethod
    def run(self) -> None:
        """Connect and keep watching until `stop`; the caller gives it a thread.

        While the source cannot be reached nothing is said: not knowing is not "not leader". It keeps trying.
        """

    @abstractmethod
    def stop(self) -> None:
        """End `run`; may be called from another thread, and twice."""

    def examine(self, topics: Set[str]) -> list[Finding]:
        """What `ts-uploader check` tells of the source, which never runs then: is it reached, may this identity ask it
        for these topics, does it know the broker.
        """
        del topics
        return [hint("leadership", f"{type(self).__name__} has no check of its own")]

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether what was last said is still being watched."""

    @property
    def trouble(self) -> str | None:
        """Why the source is not connected, for operators; None while it is, and where nothing is known."""
        return None
