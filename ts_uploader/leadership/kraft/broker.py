"""What the leadership source requests from the local broker, by either client.

`DirectClient` has a raw connection to the broker itself. `LibrdkafkaClient` is for mechanisms of SASL that it lacks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ts_common.errors import TransientError
from ts_common.model import TopicPartition


class BrokerAway(TransientError):
    """The local broker gave no answer, or another broker gave one."""


class AnsweredByAnother(TransientError):
    """Another broker of the cluster answered. A second later, after another request, this broker will answer."""


class Denied(Exception):
    """The broker denies this identity the request for a topic."""


class NotAvailable(Exception):
    """The broker has no answer about the topic at this moment."""


class Latest(NamedTuple):
    """What leaders answered for the latest offsets of partitions.

    Attributes:
        epochs: of each partition that has a leader; None while its leader does not answer with an offset.
        offsets: high watermarks, without those that are not available.
        denied: topics that this identity may not describe.
        away: why no leader answered at all; empty otherwise.
    """

    epochs: Mapping[TopicPartition, int | None]
    offsets: Mapping[TopicPartition, int]
    denied: frozenset[str]
    away: str = ""


class Broker(Protocol):
    """A client of one broker. Used by one thread."""

    @property
    def bootstrap(self) -> str:
        """The address of the first connection, `host:port`."""

    def leaders(self, topic: str) -> Mapping[int, int] | None:
        """Return the leader of each partition of a topic, -1 for a partition without one; None without such a topic.

        Raises:
            BrokerAway: no answer.
            AnsweredByAnother: only of `LibrdkafkaClient`.
            Denied: no permission to DESCRIBE the topic.
            NotAvailable: another error of the topic.
        """

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of these topics, as Kafka writes them, without those that are unknown at this moment."""

    def latest(self, partitions: Iterable[TopicPartition]) -> Latest:
        """Return the leader epoch and the high watermark of each of these partitions.

        The answer to a ListOffsets request for the latest offset has the epoch of the leading replica
        (`Partition.fetchOffsetForTimestamp`). Until the high watermark reaches the start of that epoch, the broker
        returns OFFSET_NOT_AVAILABLE, and this method the epoch None. The broker checks that under the same lock as the
        answer, and after it checked that the replica leads. So the replica leads, and has written its epoch to its
        checkpoint. Below min.insync.replicas the high watermark does not move, so this state can last.
        """

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Return the overrides of each topic, None if the broker denies them, without those that are unknown.

        Raises:
            BrokerAway: no answer.
        """

    def broker_settings(self) -> dict[str, str] | None:
        """Return this broker's dynamic settings, with those for all brokers; None if the broker denies them.

        Raises:
            BrokerAway: no answer.
        """

    def restart(self) -> None:
        """Connect again, by the settings alone.

        Raises:
            BrokerAway: a file that the settings name cannot be read at this moment.
        """

    def close(self, seconds: float) -> None:
        """Close the client, and wait for that at most this long."""
