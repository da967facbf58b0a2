"""The assigned partitions, their states, and what each holds of the archive."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from enum import Enum, auto

import pyarrow as pa
from confluent_kafka import OFFSET_INVALID, Message

from ts_consumer.archive_tier import HistoryPlan
from ts_consumer.live import Key
from ts_consumer.messages import messages_of
from ts_consumer.prefetch import Prefetch, Reading
from ts_consumer.resolution import Resolution


class AssignedState(Enum):
    """The state of an assigned partition. `Transitions` has the arrows between them."""

    RESOLVE = auto()  # its next offset, and the tier that has it, are looked up
    HISTORY = auto()  # it is read from the archive, and the live part is silent
    JOIN = auto()  # the live part seeks to the next offset
    LIVE = auto()  # the live part reads it
    WAIT = auto()  # no tier has the next offset yet
    FAILED = auto()  # it stays where it is, until the application seeks


class Assigned:
    """One assigned partition.

    A new object is made at each assign and each seek. So no answer to a request of an earlier one counts.

    Attributes:
        wanted: the offset to begin with, or one of librdkafka's logical offsets.
        next: the first offset that is not ready for the application; None before it is known.
        position: what `position()` returns; None before the application got a record.
        position_epoch: the leader epoch of the record before the position; None if it is unknown.
        is_paused: whether the application paused it.
        resolving: the look-up that is under way.
        retry_at: the monotonic time of the next attempt.
        history: what was read last of the archive since the assign or the seek; None if nothing was.
        is_fresh: whether no live message was accepted since the live part joined.
        jumped_to: the offset of a first live message that was not the next one, until a second seek has confirmed it.
        is_dead: whether the live part's fetcher has ended by an error.
        joins_by: the monotonic time when a fetcher that has not started is started again.
        refusal: the brokers' reason, if they refused the next offset.
        epoch: the leader epoch of the record before `next`; None if it is unknown.
        failing_since: the monotonic time of the first of the last failures; None after a success.
        logged: the last error that was logged.
        reported: the last error that the application got.
    """

    def __init__(
        self, key: Key, wanted: int, epoch: int | None = None, *, is_paused: bool = False, is_dead: bool = False
    ) -> None:
        self.key = key
        self.wanted = wanted
        self.next: int | None = wanted if wanted >= 0 else None
        self.position: int | None = None
        self.position_epoch: int | None = None
        self.state = AssignedState.RESOLVE
        self.is_paused = is_paused
        self.resolving: Future[Resolution] | None = None
        self.reading: Reading | None = None
        self.retry_at = 0.0
        self.history: HistoryPlan | None = None
        self.is_dead = is_dead
        self.joins_by = 0.0
        self.is_fresh = True
        self.jumped_to: int | None = None
        self.refusal: str | None = None
        self.epoch = epoch
        self.failing_since: float | None = None
        self.logged: str | None = None
        self.reported: str | None = None
        self._rows: pa.RecordBatch | None = None
        self._row = 0  # of the first one that is not ready

    @property
    def is_settled(self) -> bool:
        """Whether it has no transition of its own: it reads Kafka, or has failed."""
        return (
            self.state is AssignedState.LIVE or self.state is AssignedState.FAILED
        )  # a set would hash both in each look

    @property
    def has_joined(self) -> bool:
        """Whether it reads Kafka, and a live message was accepted since the live part joined."""
        return self.state is AssignedState.LIVE and not self.is_fresh

    @property
    def offset_wanted(self) -> int:
        """The next offset, or the logical one that stands for it."""
        return self.wanted if self.next is None else self.next

    @property
    def position_or_invalid(self) -> int:
        """The position as librdkafka returns it."""
        return OFFSET_INVALID if self.position is None else self.position

    def take(self, prefetch: Prefetch, count: int) -> list[Message]:
        """Return the next messages of the archive, at most `count`; empty if none has arrived."""
        lot = self.take_rows(prefetch, count)
        if lot is None or self.reading is None:
            return []
        return messages_of(*self.key, lot, self.reading.plan.view.epochs)

    def take_rows(self, prefetch: Prefetch, count: int) -> pa.RecordBatch | None:
        """Return the next rows of the archive, at most `count`; None if none has arrived."""
        rows = self._rows_left(prefetch)
        if rows is None:
            return None
        taken = rows.slice(self._row, count)
        self._row += taken.num_rows
        self.next = _end_of(taken)
        return taken

    def end_reading(self) -> Reading:
        """Give up the reading, and return it. What follows it is compared with the leader epoch of its last offset."""
        reading = self.reading
        assert reading is not None  # noqa: S101  (a partition in HISTORY has one)
        if reading.error is None:
            self.next = reading.plan.end
        if self.next is not None and self.next > reading.plan.start:
            self.epoch = self.epoch_before(self.next)
        self.reading = None
        return reading

    def epoch_before(self, offset: int) -> int | None:
        """Return the leader epoch of the record before an offset; None if it is unknown."""
        return self.epoch if self.reading is None else self.reading.plan.view.epochs.at(offset - 1)

    def got(self, offset: int, epoch: int | None) -> None:
        """Note that the application has everything below an offset.

        Args:
            epoch: the leader epoch of the record before it; None if it is unknown.
        """
        self.position, self.position_epoch = offset, epoch
        self.failing_since = self.logged = self.reported = None

    @property
    def is_read(self) -> bool:
        """Whether all that the reading returned is ready, or its error is next."""
        is_taken = self._rows is None or self._row == self._rows.num_rows
        return is_taken and self.reading is not None and self.reading.is_over

    def _rows_left(self, prefetch: Prefetch) -> pa.RecordBatch | None:
        if self._rows is not None and self._row < self._rows.num_rows:
            return self._rows
        if self.reading is None:
            return None
        self._rows, self._row = prefetch.take(self.reading), 0
        return self._rows


def _end_of(rows: pa.RecordBatch) -> int:
    """Return the offset after the last row."""
    last: int = rows.column("offset")[rows.num_rows - 1].as_py()
    return last + 1


class Assignment:
    """All assigned partitions, by topic and number.

    Attributes:
        changes: how often a partition was added, replaced or removed.
    """

    def __init__(self) -> None:
        self._parts: dict[Key, Assigned] = {}
        self._turn = 0
        self.topics: set[str] = set()
        self.changes = 0

    def __iter__(self) -> Iterator[Assigned]:
        return iter(list(self._parts.values()))

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, key: Key) -> Assigned | None:
        """Return a partition; None if it is not assigned."""
        return self._parts.get(key)

    def put(self, part: Assigned) -> None:
        """Add a partition, or replace it."""
        self.changes += 1
        self._parts[part.key] = part
        self.topics.add(part.key[0])

    def remove(self, key: Key) -> Assigned | None:
        """Remove a partition, and return it."""
        self.changes += 1
        part = self._parts.pop(key, None)
        self.topics = {topic for topic, _ in self._parts}
        return part

    @property
    def keys(self) -> Sequence[Key]:
        """Topic and number of each, in the order of the assigns."""
        return list(self._parts)

    def in_turn(self, state: AssignedState) -> list[Assigned]:
        """Return the partitions with a state, another one first each time."""
        found = [part for part in self._parts.values() if part.state is state]
        if len(found) > 1:
            self._turn += 1
            at = self._turn % len(found)
            found = found[at:] + found[:at]
        return found
