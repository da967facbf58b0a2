"""Requests high watermarks over the raw connection, and through librdkafka with a SASL mechanism that it lacks.

For librdkafka a partition costs the agent some 50 microseconds a request, for the raw connection one. So librdkafka
requests a partition while its log grows or its high watermark moves, and some of the others in turn.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.broker_connection.connection import NoAnswer
from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.broker_settings import security_of_broker, settings_of_broker
from ts_uploader.messages.observations import Listing
from ts_uploader.tail.high_watermarks import HighWatermarks
from ts_uploader.tracking.backlog import Backlog

if TYPE_CHECKING:
    from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient

_MOVING: Final = 3  # requests without a change, until a partition waits for its turn
_IN_TURN: Final = 200  # partitions of a request: ten thousand are requested within 35 s at the usual interval
_AT_ONCE: Final = 1000
_ANSWER_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 2.0
_NAMED: Final = 3  # topics of a message


class ClientHighWatermarks:
    """High watermarks by librdkafka; `request` and `close` are as those of `HighWatermarks`.

    Args:
        client: makes a client of the broker.
        backlog: of every partition that this broker leads: its log is the newest file of the listing.
    """

    def __init__(
        self, client: Callable[[], "LibrdkafkaClient"], backlog: Callable[[], Mapping[TopicPartition, Backlog]]
    ) -> None:
        self.denied: Set[str] = frozenset()
        self._make_client, self._backlog = client, backlog
        self._client: LibrdkafkaClient | None = None
        self._epochs: Mapping[TopicPartition, int] = {}
        self._turns: Iterator[TopicPartition] = iter(())
        self._logs: dict[TopicPartition, tuple[Listing, str]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._moving: dict[TopicPartition, int] = {}  # requests that are left
        self._known: dict[TopicPartition, int] = {}

    def request(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the high watermarks that differ from the last answer, each in the leader epoch of its partition.

        Raises:
            NoAnswer: no broker answers.
            ConfigurationError: librdkafka rejects the settings.
        """
        if leader_epochs is not self._epochs:
            self._epochs, self._turns = leader_epochs, cycle(sorted(leader_epochs))
            self._known, self._sizes, self._logs, self._moving = {}, {}, {}, {}
        self._note_growth()
        wanted = [*{*self._moving, *islice(self._turns, min(_IN_TURN, len(leader_epochs)))}]
        found: dict[TopicPartition, int] = {}
        for first in range(0, len(wanted), _AT_ONCE):
            found |= self._request(wanted[first : first + _AT_ONCE])
        self._known |= found  # not before all have answered: after an error the caller gets none of them
        self._moving = {name: left - 1 for name, left in self._moving.items() if left > 1 or name in found}
        self._moving |= dict.fromkeys(found, _MOVING)
        return found

    def close(self) -> None:
        """Do nothing: librdkafka ends each request within its own time."""

    def _note_growth(self) -> None:
        backlog = self._backlog()
        for name in self._epochs:
            known = backlog.get(name)
            size = -1 if known is None else self._size(name, known.listing)
            if size != self._sizes.get(name):
                self._sizes[name], self._moving[name] = size, _MOVING

    def _size(self, name: TopicPartition, listing: Listing) -> int:
        of = self._logs.get(name)
        if of is None or of[0] is not listing:
            base = listing.bases[-1] if listing.bases else 0
            of = self._logs[name] = listing, f"{listing.directory}/{base:020d}{LOG_SUFFIX}"
        try:
            return os.stat(of[1]).st_size  # noqa: PTH116  (of ten thousand files: a Path costs as much again)
        except OSError:
            return -1

    def _request(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self._client is None:
            self._client = self._make_client()
        answer = self._client.latest(wanted)
        if answer.away:
            self._client.close(_CLOSE_SECONDS)
            self._client = None
            raise NoAnswer(f"no high watermarks by librdkafka: {answer.away}")
        self.denied = (self.denied - {name.topic for name in wanted}) | answer.denied
        return {
            name: offset
            for name, offset in answer.offsets.items()
            if answer.epochs[name] == self._epochs.get(name) and offset != self._known.get(name)
        }


class BrokerWatermarks:
    """High watermarks by the raw connection while it supports the settings, else by librdkafka.

    Args:
        config: returns the configuration that is in effect.
        backlog: as of `ClientHighWatermarks`.
    """

    def __init__(
        self,
        environment: Environment,
        config: Callable[[], ClusterConfig],
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
    ) -> None:
        def client() -> "LibrdkafkaClient":
            from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient  # noqa: PLC0415  (10 MB of memory)

            return LibrdkafkaClient(environment.broker_id, settings_of_broker(environment, config()), _ANSWER_SECONDS)

        # Each time: certificates and keys can be new, and a name service can need seconds.
        self._used: HighWatermarks | ClientHighWatermarks = HighWatermarks(
            lambda: security_of_broker(environment, config())
        )
        self._other = ClientHighWatermarks(client, backlog)

    @property
    def denied(self) -> Set[str]:
        """Topics that this identity may not describe, by the last answers."""
        return self._used.denied

    def request(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the high watermarks that differ from the last answer.

        Raises:
            NoAnswer, LoginRejected, CorruptData, UnsupportedRequest, ConfigurationError: as `HighWatermarks`.
        """
        try:
            return self._used.request(leader_epochs)
        except ConfigurationError:
            if self._used is self._other:
                raise
            found = self._other.request(leader_epochs)
            self._used = self._other
            return found

    def close(self) -> None:
        """End a request soon; any thread may call it."""
        self._used.close()


def denial(topics: Set[str]) -> str:
    """Return that the broker denies high watermarks of these topics; empty without one."""
    if not topics:
        return ""
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return f"the broker denies this identity DESCRIBE of {', '.join(sorted(topics)[:_NAMED])}{more}"
