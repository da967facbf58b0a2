"""Handing out: archived records and live messages, in the order of each partition, until a call has enough.

A callback can run in any wait for the live part. It sees the positions of earlier calls. What this call holds already
of a partition that the callback revokes is dropped: another member of the group reads it again.

Only the application's calls poll the live part. Otherwise a stuck application would stay a member of its group, and
callbacks would run on another thread.
"""

from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaException, Message, TopicPartition

from ts_consumer.arrow_rows import EMPTY, live_rows, table_rows
from ts_consumer.live import is_reset
from ts_consumer.partitions import Assigned, State
from ts_consumer.parts import Parts

_SLICE_SECONDS: Final = 0.05  # of a wait for one tier while the other may have something
_LONG_SLICE_SECONDS: Final = 0.5  # of a wait for Kafka alone
_LIVE_ROWS: Final = 1000  # live messages that become rows at once


@dataclass
class _Held:
    """What a call has so far.

    Attributes:
        messages: with events.
        tables: of rows.
        rows: their number.
        nexts: the offset after what it has of each partition.
    """

    messages: list[Message] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    nexts: dict[Assigned, int] = field(default_factory=dict)


class HandOut:
    """Hands records out; one call at a time.

    Attributes:
        archive_records: that applications got from the archive.
        kafka_records: that they got from Kafka.

    Args:
        parts: of the consumer.
    """

    def __init__(self, parts: Parts) -> None:
        self.archive_records, self.kafka_records = 0, 0
        self._parts = parts
        self._events: list[Message] = []  # errors that the next call raises
        self._unstored: dict[Assigned, int] = {}
        self._current: Assigned | None = None  # the partition of the last message of the archive
        self._looked_at = 0.0  # when the live part was polled

    def messages(self, count: int, timeout: float) -> list[Message]:
        """Return up to `count` messages and events.

        Args:
            count: at least 0.
            timeout: seconds; below 0 without a limit.
        """
        held = _Held()
        deadline, wait = _deadline(timeout), 0.0
        while True:
            self._add_messages(held, count, wait)
            left = deadline - monotonic()
            if len(held.messages) >= count or left <= 0:
                break
            wait = min(left, self._slice())
        if self._hand_over(held):
            return held.messages
        return [each for each in held.messages if each.error() is not None or self._is_assigned(each, held)]

    def message(self, timeout: float) -> Message | None:
        """Return the next message or event; None if no one arrived in time.

        Args:
            timeout: seconds; below 0 without a limit.
        """
        part = self._current
        if part is not None and monotonic() < self._looked_at + _SLICE_SECONDS:
            is_same = (
                part.state is State.HISTORY and not part.is_paused and self._parts.assignment.find(part.key) is part
            )
            message = part.take_one() if is_same else None
            if message is not None:
                self._unstored[part] = offset = part.offset_wanted
                part.got(offset)
                self.archive_records += 1
                return message
        found = self.messages(1, timeout)
        self._current = self._part_of(found[0]) if found else None
        return found[0] if found else None

    def rows(self, count: int, timeout: float) -> pa.Table:
        """Return up to `count` rows, as soon as there are some; an empty table if none arrived in time.

        Args:
            count: at least 1.
            timeout: seconds; below 0 without a limit.

        Raises:
            KafkaException: an error of a partition, which `poll` would return as an event.
        """
        held = _Held()
        deadline, wait = _deadline(timeout), 0.0
        while True:
            if not self._events:
                self._add_rows(held, count, wait)
            left = deadline - monotonic()
            if held.rows or self._events or left <= 0:
                break
            wait = min(left, self._slice())
        if not held.rows and self._events:
            raise KafkaException(self._events.pop(0).error())
        is_whole = self._hand_over(held)
        table = pa.concat_tables(held.tables) if held.tables else EMPTY
        return table if is_whole else self._of_assigned(table, held)

    def _add_messages(self, held: _Held, count: int, wait: float) -> None:
        """Add what is there, after at most one wait."""
        parts = self._parts
        if self._events:
            held.messages += self._events
            self._events = []
        wait -= self._add_live(held, self._share(count - len(held.messages)), wait)
        held.messages += parts.transitions.advance()
        before = len(held.messages)
        for part in parts.assignment.in_turn(State.HISTORY):
            while len(held.messages) < count and not part.is_paused:
                taken = part.take(parts.prefetch, count - len(held.messages))
                if not taken:
                    break
                held.messages += taken
                self.archive_records += len(taken)
                held.nexts[part] = part.offset_wanted
        self._wait(wait, has_new=len(held.messages) > before)

    def _add_rows(self, held: _Held, count: int, wait: float) -> None:
        parts = self._parts
        wait -= self._add_live(held, min(self._share(count), _LIVE_ROWS), wait)
        self._events += [each for each in held.messages if each.error() is not None and not _is_end(each)]
        live = [each for each in held.messages if each.error() is None]
        if live:
            held.tables.append(live_rows(live))
            held.rows += len(live)
        held.messages = []
        self._events += parts.transitions.advance()
        before = held.rows
        for part in parts.assignment.in_turn(State.HISTORY):
            while held.rows < count and not part.is_paused:
                taken = part.take_rows(parts.prefetch, count - held.rows)
                if taken is None:
                    break
                held.tables.append(table_rows(*part.key, taken))
                held.rows += taken.num_rows
                self.archive_records += taken.num_rows
                held.nexts[part] = part.offset_wanted
        self._wait(wait, has_new=held.rows > before or bool(self._events))

    def _share(self, count: int) -> int:
        """Return how many live messages a step may add: a busy topic in Kafka does not stop the archive."""
        return count // 2 if count > 1 and self._parts.assignment.in_turn(State.HISTORY) else count

    def _add_live(self, held: _Held, count: int, wait: float) -> float:
        """Add live messages and events; return the seconds that the call could wait."""
        live, assignment = self._parts.live, self._parts.assignment
        self._looked_at = monotonic()
        if live is None:
            return 0.0
        has_live = any(part.state is State.LIVE for part in assignment)
        blocks = wait if has_live or not len(assignment) else 0.0
        if self._unstored:
            self.store()
        self._sort(live.consume(count, blocks), held)
        return blocks

    def _sort(self, messages: list[Message], held: _Held) -> None:
        """Keep the live messages that the application may get now.

        A message of a partition that is not live is dropped, and one below the next offset. Neither can be there once a
        message of each partition has passed this check, so whole lots are accepted then.
        """
        if messages and not self._accept_all(messages, held):
            for message in messages:
                self._sort_one(message, held)

    def _accept_all(self, messages: list[Message], held: _Held) -> bool:
        """Accept a lot if it has nothing but records of partitions that are live for a while."""
        if any(map(Message.error, messages)):
            return False
        assignment, keys = self._parts.assignment, list(map(Message.partition, messages))
        topics = list(map(Message.topic, messages)) if len(assignment.topics) > 1 else [messages[0].topic()]
        places = set(zip(topics, keys, strict=True)) if len(topics) > 1 else {(topics[0], key) for key in set(keys)}
        parts = [self._find(*place) for place in places]
        if not all(part is not None and part.state is State.LIVE and not part.is_fresh for part in parts):
            return False
        backwards = messages[::-1] if len(parts) > 1 else messages[-1:]
        for message in backwards:
            part = self._part_of(message)
            if part in parts:
                parts.remove(part)
                self._note(part, message, held)
                if not parts:
                    break
        self.kafka_records += len(messages)
        held.messages += messages
        return True

    def _sort_one(self, message: Message, held: _Held) -> None:
        transitions = self._parts.transitions
        part, offset = self._part_of(message), message.offset()
        if (error := message.error()) is not None:
            if is_reset(error):
                if part is not None:
                    transitions.leave_live(part, error.str())
            elif part is None or part.state is State.LIVE:
                held.messages.append(message)
        elif part is None or part.state is not State.LIVE or offset is None or offset < part.offset_wanted:
            transitions.passages.dropped += 1
        elif part.is_fresh and offset not in {part.next, part.jumped_to}:
            transitions.passages.dropped += 1
            transitions.seek_again(part, offset)
        else:
            part.is_fresh, part.jumped_to = False, None
            self._note(part, message, held)
            self.kafka_records += 1
            held.messages.append(message)

    def _note(self, part: Assigned | None, message: Message, held: _Held) -> None:
        offset = message.offset()
        if part is not None and offset is not None:
            part.next = held.nexts[part] = offset + 1
            part.epoch = message.leader_epoch()

    def _wait(self, seconds: float, *, has_new: bool) -> None:
        """Wait for the archive, unless something has arrived since the look."""
        if has_new or seconds <= 0 or self._has_arrived():
            return
        with self._parts.prefetch.arrived:
            self._parts.prefetch.arrived.wait(seconds)

    def _has_arrived(self) -> bool:
        for part in self._parts.assignment:
            reading, resolving = part.reading, part.resolving
            if reading is not None and not part.is_paused and (reading.buffered or reading.is_over):
                return True
            if resolving is not None and resolving.done():
                return True
        return False

    def _slice(self) -> float:
        settled = {State.LIVE, State.FAILED}
        is_live = all(part.state in settled for part in self._parts.assignment)
        return _LONG_SLICE_SECONDS if is_live else _SLICE_SECONDS

    def _hand_over(self, held: _Held) -> bool:
        """Move the positions; `store` stores them for the next commit.

        Returns:
            whether all partitions are still assigned; the records of others are dropped.
        """
        parts = self._parts
        assigned = {part: offset for part, offset in held.nexts.items() if parts.assignment.find(part.key) is part}
        for part, offset in assigned.items():
            part.got(offset)
        self._unstored |= assigned
        return len(assigned) == len(held.nexts)

    def store(self) -> None:
        """Store the positions for the next commit: before what can commit, and before the next look at Kafka."""
        unstored, self._unstored = self._unstored, {}
        live, assignment = self._parts.live, self._parts.assignment
        if live is None or not self._parts.configuration.stores_offsets:
            return
        stored = [_place(part, at) for part, at in unstored.items() if assignment.find(part.key) is part]
        if stored:
            live.consumer.store_offsets(offsets=stored)

    def _is_assigned(self, message: Message, held: _Held) -> bool:
        part = self._part_of(message)
        return part is not None and part in held.nexts

    def _of_assigned(self, table: pa.Table, held: _Held) -> pa.Table:
        """Return the rows of partitions that are still assigned."""
        keys = {part.key for part in held.nexts if self._parts.assignment.find(part.key) is part}
        places = zip(table.column("topic").to_pylist(), table.column("partition").to_pylist(), strict=True)
        return table.filter(pa.array([place in keys for place in places], pa.bool_()))

    def _part_of(self, message: Message) -> Assigned | None:
        return self._find(message.topic(), message.partition())

    def _find(self, topic: str | None, number: int | None) -> Assigned | None:
        return None if topic is None or number is None else self._parts.assignment.find((topic, number))


def _place(part: Assigned, offset: int) -> TopicPartition:
    """Return what is committed: with the leader epoch, so that the next member of the group notices a truncation."""
    epoch = part.epoch_before(offset)
    return TopicPartition(*part.key, offset) if epoch is None else TopicPartition(*part.key, offset, leader_epoch=epoch)


def _deadline(timeout: float) -> float:
    return inf if timeout < 0 else monotonic() + timeout


def _is_end(message: Message) -> bool:
    """Return whether an event is the end of a partition, which a table does not show."""
    error = message.error()
    return error is not None and error.name() == "_PARTITION_EOF"
