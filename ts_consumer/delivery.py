"""Handing out: archived records and live messages, in the order of each partition, until a call has enough.

A callback can run in any wait for the live part. It sees the positions of earlier calls. What is ready already of a
partition that the callback revokes is dropped: another member of the group reads it again.

Only the application's calls poll the live part. Otherwise a stuck application would stay a member of its group, and
callbacks would run on another thread.
"""

from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import Final

import pyarrow as pa
import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from ts_consumer.arrow_rows import EMPTY, live_rows, table_rows
from ts_consumer.consumer_parts import ConsumerParts
from ts_consumer.delivery_queue import DeliveryQueue, Taken
from ts_consumer.live import Place, is_reset, place_after, place_of
from ts_consumer.partitions import Assigned, AssignedState
from ts_reader.decode.arrow_schema import count_far, far_warning

_SLICE_SECONDS: Final = 0.05  # of a wait for one tier while the other may have something
_LONG_SLICE_SECONDS: Final = 0.5  # of a wait for Kafka alone
_LOT: Final = 500  # messages that are made ready at once: few enough for caches, and for a seek to drop
_MESSAGES_OF_POSITION: Final = 20  # a partition's position costs as much as a look at these
_LIVE_ROWS: Final = 1000  # live messages that become rows at once

log = structlog.get_logger()


class Delivery:
    """Hands records out; one call at a time.

    Attributes:
        archive_records: that applications got from the archive.
        kafka_records: that they got from Kafka.
    """

    def __init__(self, parts: ConsumerParts) -> None:
        self.archive_records, self.kafka_records = 0, 0
        self._parts = parts
        self._ready = DeliveryQueue(parts.assignment)
        self._stores = parts.configuration.stores_offsets
        self._looked_at = 0.0  # when the live part was polled
        self._has_warned_of_times = False

    def messages(self, count: int, timeout: float) -> list[Message]:
        """Return up to `count` messages and events.

        Args:
            count: at least 0.
            timeout: seconds; below 0 without a limit.
        """
        self._gather(count, timeout)
        return self._hand_over(self._ready.take(count))

    def message(self, timeout: float) -> Message | None:
        """Return the next message or event; None if no one arrived in time.

        Args:
            timeout: seconds; below 0 without a limit.
        """
        found = self._ready.one() if monotonic() < self._looked_at + _SLICE_SECONDS else None
        if found is None:
            return next(iter(self.messages(1, timeout)), None)
        message, part, place, is_archived = found
        part.got(*place)
        if place[0] - 1 == message.offset():
            self._store_after(message)
        else:  # behind a marker
            self._store([part])
        if is_archived:
            self.archive_records += 1
        else:
            self.kafka_records += 1
        return message

    def rows(self, count: int, timeout: float) -> pa.Table:
        """Return up to `count` rows, as soon as there are some; an empty table if none arrived in time.

        Args:
            count: at least 1.
            timeout: seconds; below 0 without a limit.

        Raises:
            KafkaException: an error of a partition, which `poll` would return as an event.
        """
        deadline, wait = _deadline(timeout), 0.0
        while True:
            if not self._ready.settle():
                wait -= self._look(1 if wait else min(count, _LIVE_ROWS), wait)
            elif monotonic() >= self._looked_at + _SLICE_SECONDS:
                self._look(1, 0.0)  # callbacks run
            tables = self._tables(count)
            left = deadline - monotonic()
            if tables or left <= 0:
                return self._checked(pa.concat_tables(tables)) if tables else EMPTY
            self._wait(wait)
            wait = min(left, self._slice())

    def _checked(self, rows: pa.Table) -> pa.Table:
        """Return the rows, and warn once in the consumer's life of times that do not fit their column."""
        if not self._has_warned_of_times and (far := count_far(rows["timestamp"])):
            self._has_warned_of_times = True
            message = far_warning(far, "the column timestampMs has the times as stored; later rows are not counted")
            log.warning("query_warning", message=message)
        return rows

    def _gather(self, count: int, timeout: float) -> None:
        """Wait until `count` messages and events are ready."""
        size, deadline = self._ready.settle(), _deadline(timeout)
        if size >= count and monotonic() < self._looked_at + _SLICE_SECONDS:
            return
        # A lot that the call returns whole can wait for Kafka at once. Else a wait for it is one for fewer messages.
        waits = count >= _LOT and self._is_settled()
        wait = max(0.0, min(deadline - monotonic(), _LONG_SLICE_SECONDS)) if waits else 0.0
        while True:
            if size < count:
                size = self._fill(size, count, wait)
            else:
                self._look(1, 0.0)  # callbacks run
                size = self._ready.settle()
            left = deadline - monotonic()
            if size >= count or left <= 0:
                return
            wait = min(left, self._slice())

    def _fill(self, before: int, count: int, wait: float) -> int:
        """Make messages ready until there are `count`, and more if that needs no wait; after at most one wait.

        Return how many are ready.

        Args:
            before: how many are ready.
            wait: seconds.
        """
        parts, ready = self._parts, self._ready
        missing = count - before
        wait -= self._look(missing if wait else max(missing, _LOT), wait)
        size = ready.settle()
        for part in parts.assignment.in_turn(AssignedState.HISTORY):
            while size < count and not part.is_paused:
                taken = part.take(parts.prefetch, _LOT)
                if not taken:
                    break
                ready.add(taken, {part: place_after(taken[-1])}, is_archived=True)
                size += len(taken)
        if size == before:
            self._wait(wait)
        return size

    def _tables(self, count: int) -> list[pa.Table]:
        """Return the next rows: of what is ready, then of the archive.

        Raises:
            KafkaException: an error is next.
        """
        parts, tables, rows = self._parts, list[pa.Table](), 0
        if self._ready.settle():
            messages = self._hand_over(self._ready.take(count, until_event=True))
            if not messages:
                self._raise_next()
            else:
                tables.append(live_rows(messages))
                rows = len(messages)
        if self._ready.settle():  # an event, or more than this call returns
            return tables
        for part in parts.assignment.in_turn(AssignedState.HISTORY):
            while rows < count and not part.is_paused:
                taken = part.take_rows(parts.prefetch, count - rows)
                if taken is None:
                    break
                tables.append(table_rows(*part.key, taken))
                rows += taken.num_rows
                self.archive_records += taken.num_rows
                part.got(part.offset_wanted, part.epoch_before(part.offset_wanted))
                self._store([part])
        return tables

    def _raise_next(self) -> None:
        """Raise the error of the event that is next; a table does not show the end of a partition."""
        error = self._ready.take(1).messages[0].error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)

    def _look(self, count: int, wait: float) -> float:
        """Make live messages and events ready; return the seconds that the call could wait."""
        parts = self._parts
        live, assignment = parts.live, parts.assignment
        self._looked_at = monotonic()
        blocks = 0.0
        if live is not None:
            has_live = any(part.state is AssignedState.LIVE for part in assignment)
            blocks = wait if has_live or not len(assignment) else 0.0
            before = assignment.changes
            try:
                messages = live.consume(self._share(count), blocks)
            except BaseException:  # the binding has dropped what it had
                parts.transitions.join_again()
                raise
            self._sort(messages, is_same=assignment.changes == before)
            live.callback_errors.raise_first()
        self._ready.add_events(parts.transitions.advance())
        return blocks

    def _share(self, count: int) -> int:
        """Return how many live messages a look may add: a busy topic in Kafka does not stop the archive."""
        return count // 2 if count > 1 and self._parts.assignment.in_turn(AssignedState.HISTORY) else count

    def _sort(self, messages: list[Message], *, is_same: bool) -> None:
        """Keep the live messages that the application may get now.

        A message of a partition that is not live is dropped, and one below the next offset. Neither can be there once a
        message of each partition has passed this check, so whole lots are accepted then.

        Args:
            is_same: whether the assignment did not change in that call.
        """
        are_records = bool(messages) and not any(map(Message.error, messages))
        if are_records and is_same and self._is_steady(len(messages)):
            ends = self._moved(self._parts.assignment)
            if sum(offset - part.offset_wanted for part, (offset, _) in ends.items()) >= len(messages):
                self._accept(messages, ends)
                return
        if are_records and (ends_by_message := self._ends_of(messages)) is not None:
            self._accept(messages, ends_by_message)
        else:
            for message in messages:
                self._sort_one(message)
        self._pass_markers()

    def _accept(self, messages: list[Message], ends: dict[Assigned, Place]) -> None:
        for part, place in ends.items():
            part.next, part.epoch = place
        self._ready.add(messages, ends, is_archived=False)

    def _pass_markers(self) -> None:
        """Continue behind markers of transactions, which are no messages: also the group's offset reaches the end."""
        for part, place in self._moved([part for part in self._parts.assignment if part.has_joined]).items():
            part.next, part.epoch = place
            if not self._ready.extend(part, place):
                part.got(*place)
                self._store([part])

    def _moved(self, parts: Iterable[Assigned]) -> dict[Assigned, Place]:
        """Return the place that librdkafka has reached of each partition that it has moved."""
        live, wanted = self._parts.live, list(parts)
        if live is None or not wanted:
            return {}
        places = zip(wanted, live.places([part.key for part in wanted]), strict=True)
        return {part: (at.offset, at.leader_epoch) for part, at in places if at.offset > part.offset_wanted}

    def _is_steady(self, count: int) -> bool:
        """Return whether all partitions are live for a while, and few next to the messages of a call."""
        assignment = self._parts.assignment
        if len(assignment) * _MESSAGES_OF_POSITION > count:
            return False
        return all(part.has_joined and not part.is_paused for part in assignment)

    def _ends_of(self, messages: list[Message]) -> dict[Assigned, Place] | None:
        """Return the place after the messages of each partition, if all of them are live for a while."""
        assignment, numbers = self._parts.assignment, list(map(Message.partition, messages))
        topics = list(map(Message.topic, messages)) if len(assignment.topics) > 1 else [messages[0].topic()]
        places = set(zip(topics, numbers, strict=True)) if len(topics) > 1 else {(topics[0], at) for at in set(numbers)}
        ends: dict[Assigned, Place] = {}
        for message in reversed(messages):
            part = self._part_of(message)
            if part is None or not part.has_joined:
                return None
            if part not in ends:
                ends[part] = place_after(message)
            if len(ends) == len(places):
                break
        return ends

    def _sort_one(self, message: Message) -> None:
        transitions, ready = self._parts.transitions, self._ready
        part, offset = self._part_of(message), message.offset()
        if (error := message.error()) is not None:
            if is_reset(error):
                if part is not None:
                    transitions.leave_live(part, error.str())
            elif part is None or part.state is AssignedState.LIVE:
                ready.add_events([message])
        elif part is None or part.state is not AssignedState.LIVE or offset is None or offset < part.offset_wanted:
            transitions.passages.dropped += 1
        elif part.is_fresh and offset not in {part.next, part.jumped_to}:
            transitions.passages.dropped += 1
            transitions.seek_again(part, offset)
        else:
            part.is_fresh, part.jumped_to = False, None
            part.next, part.epoch = place_after(message)
            ready.add([message], {part: place_after(message)}, is_archived=False)

    def _wait(self, seconds: float) -> None:
        """Wait for the archive, unless something has arrived since the look."""
        if seconds <= 0 or self._has_arrived():
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

    def _is_settled(self) -> bool:
        """Return whether Kafka alone can have something."""
        return all(part.is_settled for part in self._parts.assignment)

    def _slice(self) -> float:
        return _LONG_SLICE_SECONDS if self._is_settled() else _SLICE_SECONDS

    def _hand_over(self, taken: Taken) -> list[Message]:
        """Move the positions, store them for the next commit, and return the messages."""
        for part, place in taken.ends.items():
            part.got(*place)
        self._store(taken.ends)
        self.archive_records += taken.archived
        self.kafka_records += taken.live
        return taken.messages

    def _store(self, parts: Iterable[Assigned]) -> None:
        """Store positions for the next commit, when the application gets what is before them, as librdkafka does.

        With the leader epoch, so that the next member of the group notices a truncation.
        """
        live = self._parts.live
        if live is None or not self._stores:
            return
        places = [place_of(part.key, part.position_or_invalid, part.position_epoch) for part in parts]
        if places:
            try:
                live.store(places)
            except KafkaException as error:  # the application must get its messages nevertheless
                log.warning("offsets_not_stored", reason=error.args[0].str())

    def _store_after(self, message: Message) -> None:
        """As `_store`, in less than half of the time: `poll` does it for each message."""
        live = self._parts.live
        if live is not None and self._stores:
            try:
                live.store_after(message)
            except KafkaException as error:
                log.warning("offsets_not_stored", reason=error.args[0].str())

    def _part_of(self, message: Message) -> Assigned | None:
        topic, number = message.topic(), message.partition()
        return None if topic is None or number is None else self._parts.assignment.find((topic, number))


def _deadline(timeout: float) -> float:
    return inf if timeout < 0 else monotonic() + timeout
