"""Requests the high watermarks of the partitions that a broker leads (tail rule 1, clause 2).

The broker answers in the leader epoch that the request names: a broker that has another one answers with an error. A
new leader does not answer before its high watermark reached the offset where its leadership begins.

A partition costs the broker some three microseconds a request. So above `_FEW` partitions, those whose high watermark
has not moved lately are requested in turns, each again by the first request after `_TURN_SECONDS`, at the latest. That
delays the first records of a quiet partition, and no others. With a longer interval all are requested each time.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.failures import TOPIC_DENIED
from ts_common.broker_connection.list_offsets import LATEST, OffsetRequests
from ts_common.broker_connection.security import Security
from ts_common.model import TopicPartition

_ANSWER_SECONDS: Final = 5.0
_FEW: Final = 1000
_TURNS: Final = 3
_TURN_SECONDS: Final = 2.0
_MOVING_SECONDS: Final = 30.0  # after a move a partition is requested each time for so long, at most twice as long


class HighWatermarks:
    """The high watermarks of the same partitions, requested again and again over one connection.

    Ten thousand answers arrive each interval, and few differ from the last one. So requests are encoded once, and only
    differences become objects.

    Attributes:
        denied: topics that this identity may not describe, by the last answers.

    Args:
        security: returns how to connect to the broker.
        seconds: a monotonic clock.
    """

    def __init__(self, security: Callable[[], Security], seconds: Callable[[], float] = time.monotonic) -> None:
        self.denied: Set[str] = frozenset()
        self._security = security
        self._seconds = seconds
        self._connection: BrokerConnection | None = None
        self._is_closed = False
        self._epochs: Mapping[TopicPartition, int] = {}
        # When each was sent last, the oldest first; together they are of all partitions.
        self._turns: dict[OffsetRequests, float] = {}
        self._moving = _Moving()
        self._known: dict[str, dict[int, int]] = {}  # high watermarks by topic and number
        self._is_complete = False  # whether what is known is of all partitions, with the same rights

    def request(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the high watermarks that differ from the last answer, each in the leader epoch of its partition.

        Args:
            leader_epochs: an object that no caller changes later. With another one, all high watermarks are returned.

        Raises:
            NoAnswer, LoginRejected, CorruptData, UnsupportedRequest, ConfigurationError: as `BrokerConnection`. The
                next call connects again, and returns all.
        """
        now = self._seconds()
        if leader_epochs is not self._epochs or self._connection is None or not self._is_complete:
            self._begin(leader_epochs)
        try:
            if self._connection is None:
                self._connection = BrokerConnection(self._security(), _ANSWER_SECONDS, opening=self._opening)
            return self._differences(self._connection, self._due(now))
        except BaseException:
            self._drop()
            raise

    def close(self) -> None:
        """End a request soon, and prevent further ones; any thread may call it."""
        self._is_closed = True
        if (connection := self._connection) is not None:
            connection.close()

    def _begin(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        names, turns = sorted(leader_epochs), _TURNS if len(leader_epochs) > _FEW else 1
        shares = ({name: leader_epochs[name] for name in islice(names, at, None, turns)} for at in range(turns))
        self._turns = {OffsetRequests(share, LATEST): 0.0 for share in shares}
        self._epochs, self._known, self._is_complete = leader_epochs, {}, False
        self._moving.begin(leader_epochs)

    def _due(self, now: float) -> Sequence[OffsetRequests]:
        """Return the requests that are to be sent now."""
        moving = self._moving.among(now)
        if not self._is_complete or 2 * len(moving) > len(self._epochs):
            due = [*self._turns]
        else:
            oldest = next(iter(self._turns))
            due = [each for each, sent in self._turns.items() if each is oldest or now >= sent + _TURN_SECONDS]
        for each in due:
            del self._turns[each]
            self._turns[each] = now
        return due if len(due) == len(self._turns) else [*due, self._moving.requests()]

    def _differences(self, connection: BrokerConnection, due: Sequence[OffsetRequests]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        denied: set[str] = set()
        allowed: set[str] = set()
        for requests in due:
            for topic, rows in requests.send(connection):
                known, is_denied = self._known.setdefault(topic, {}), False
                for number, error, _, offset, epoch in rows:
                    if not error and known.get(number, -1) == offset:
                        continue
                    if error == TOPIC_DENIED:
                        is_denied = True
                        continue
                    name = TopicPartition(topic, number)
                    if error:
                        self._moving.note(name)  # it has no high watermark yet
                    elif self._epochs.get(name) == epoch:
                        if self._is_complete:
                            self._moving.note(name)
                        known[number] = found[name] = offset
                (denied if is_denied else allowed).add(topic)
        is_same = denied <= self.denied and not allowed & self.denied
        self.denied = self.denied | denied if self._is_complete else denied
        self._is_complete = is_same or not self._is_complete
        return found

    def _opening(self, connection: BrokerConnection) -> None:
        self._connection = connection
        if self._is_closed:
            connection.close()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Moving:
    """The partitions whose high watermark moved lately, or is awaited."""

    def __init__(self) -> None:
        self._epochs: Mapping[TopicPartition, int] = {}
        self._noted: set[TopicPartition] = set()
        self._noted_before: Set[TopicPartition] = frozenset()
        self._since = 0.0
        self._among: Set[TopicPartition] = frozenset()
        self._requests: OffsetRequests | None = None

    def begin(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Continue with other partitions or leader epochs."""
        self._epochs, self._requests = leader_epochs, None
        self._noted &= leader_epochs.keys()
        self._noted_before &= leader_epochs.keys()

    def note(self, name: TopicPartition) -> None:
        """Note that the high watermark of a partition moved, or is awaited."""
        if name in self._epochs:
            self._noted.add(name)

    def among(self, now: float) -> Set[TopicPartition]:
        """Return the partitions that are requested each time."""
        if now >= self._since + _MOVING_SECONDS:
            self._since, self._noted_before, self._noted = now, self._noted, set()
        among = self._noted | self._noted_before
        if among != self._among:
            self._among, self._requests = among, None
        return among

    def requests(self) -> OffsetRequests:
        """Return the requests of these, encoded after a change only."""
        if self._requests is None:
            self._requests = OffsetRequests({name: self._epochs[name] for name in self._among}, LATEST)
        return self._requests
