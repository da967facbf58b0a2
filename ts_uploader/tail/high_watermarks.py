"""Requests the high watermarks of the partitions that a broker leads (tail rule 1, clause 2).

The broker answers in the leader epoch that the request names: a broker that has another one answers with an error. A
new leader does not answer before its high watermark reached the offset where its leadership begins.
"""

from collections.abc import Callable, Mapping, Set
from typing import Final

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.list_offsets import LATEST, TOPIC_AUTHORIZATION_FAILED, OffsetRequests
from ts_common.broker_connection.security import Security
from ts_common.model import TopicPartition

_ANSWER_SECONDS: Final = 5.0


class HighWatermarks:
    """The high watermarks of the same partitions, requested again and again over one connection.

    Ten thousand answers arrive each interval, and few differ from the last one. So requests are encoded once, and only
    differences become objects.

    Attributes:
        denied: topics that this identity may not describe, by the last answers.

    Args:
        security: returns how to connect to the broker.
    """

    def __init__(self, security: Callable[[], Security]) -> None:
        self.denied: Set[str] = frozenset()
        self._security = security
        self._connection: BrokerConnection | None = None
        self._is_closed = False
        self._epochs: Mapping[TopicPartition, int] = {}
        self._requests = OffsetRequests({}, LATEST)
        self._known: dict[str, dict[int, int]] = {}  # high watermarks by topic and number

    def request(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the high watermarks that differ from the last answer, each in the leader epoch of its partition.

        Args:
            leader_epochs: an object that no caller changes later. With another one, all high watermarks are returned.

        Raises:
            NoAnswer, LoginRejected, CorruptData, UnsupportedRequest, ConfigurationError: as `BrokerConnection`. The
                next call connects again, and returns all.
        """
        if leader_epochs is not self._epochs or self._connection is None:
            self._epochs = leader_epochs
            self._requests = OffsetRequests(leader_epochs, LATEST)
            self._known = {}
        try:
            if self._connection is None:
                self._connection = BrokerConnection(self._security(), _ANSWER_SECONDS, opening=self._opening)
            return self._differences(self._connection)
        except BaseException:
            self._drop()
            raise

    def close(self) -> None:
        """End a request soon, and prevent further ones; any thread may call it."""
        self._is_closed = True
        if (connection := self._connection) is not None:
            connection.close()

    def _differences(self, connection: BrokerConnection) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        denied = set()
        for topic, rows in self._requests.send(connection):
            known = self._known.get(topic, {})
            for number, error, _, offset, epoch in rows:
                if error == TOPIC_AUTHORIZATION_FAILED:
                    denied.add(topic)
                if error or known.get(number, -1) == offset:
                    continue
                name = TopicPartition(topic, number)
                if self._epochs.get(name) == epoch:
                    self._known.setdefault(topic, {})[number] = found[name] = offset
        self.denied = denied
        return found

    def _opening(self, connection: BrokerConnection) -> None:
        self._connection = connection
        if self._is_closed:
            connection.close()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
