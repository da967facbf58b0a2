"""What is ready for the application: messages and events, in the order of the calls that return them.

A call gets what is ready without a look at Kafka or the archive. So a loop of `poll` costs each record little, and what
a call had when a callback raised an error is there for the next call.

A partition that is revoked or sought meanwhile is another object, or none: what is ready of the former one is dropped.
What is ready of a paused partition stays until it is resumed.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from confluent_kafka import Message

from ts_consumer.live import Place, place_after
from ts_consumer.partitions import Assigned, Assignment


@dataclass(slots=True)
class _Run:
    """Consecutive messages, all of the archive, all of Kafka, or one event.

    Attributes:
        messages: none if only markers of transactions are left.
        ends: the place after the messages of each partition; empty for an event.
        is_archived: whether they are of the archive.
        part: the partition of all messages, or of the event; None if there are several, or none.
        at: the index of the first message that the application has not got.
    """

    messages: Sequence[Message]
    ends: dict[Assigned, Place]
    is_archived: bool
    part: Assigned | None
    at: int = 0

    @property
    def size(self) -> int:
        """The number of messages that are left."""
        return len(self.messages) - self.at

    @property
    def parts(self) -> Iterable[Assigned]:
        """The partitions of its messages, or of the event."""
        return self.ends if self.part is None else (self.part,)


@dataclass
class Taken:
    """What a call returns.

    Attributes:
        messages: with events.
        ends: the place after the messages of each partition.
        archived: the number of messages of the archive.
    """

    messages: list[Message] = field(default_factory=list)
    ends: dict[Assigned, Place] = field(default_factory=dict)
    archived: int = 0
    live: int = 0


class DeliveryQueue:
    """Messages and events that the application has not got."""

    def __init__(self, assignment: Assignment) -> None:
        self._find = assignment.find
        self._runs: deque[_Run] = deque()

    def settle(self) -> int:
        """Drop what is no longer assigned, and return how many messages and events a call can get now."""
        if not self._runs:
            return 0
        settled = deque[_Run]()
        for run in self._runs:
            if run.part is None and not self._is_free(run):
                settled.extend(each for each in self._split(run) if self._is_assigned(each))
            elif self._is_assigned(run):
                settled.append(run)
        self._runs = settled
        return sum(run.size for run in settled if self._is_free(run))

    def add(self, messages: Sequence[Message], ends: dict[Assigned, Place], *, is_archived: bool) -> None:
        """Add messages.

        Args:
            messages: in the order of each partition.
            ends: the place after the messages of each partition.
            is_archived: whether they are of the archive.
        """
        if messages:
            part = next(iter(ends)) if len(ends) == 1 else None
            self._runs.append(_Run(messages, ends, is_archived, part))

    def extend(self, part: Assigned, place: Place) -> bool:
        """Move the place after the last messages of a partition; return False if nothing of it is ready.

        Args:
            place: behind markers of transactions.
        """
        for run in reversed(self._runs):
            if part in run.ends:
                run.ends[part] = place
                return True
        return False

    def add_events(self, events: Iterable[Message]) -> None:
        """Add events."""
        self._runs.extend(_Run([event], {}, False, self._part_of(event)) for event in events)

    def one(self) -> tuple[Message, Assigned, Place, bool] | None:
        """Return the next message, if that needs no search.

        Its partition, the place after it, and whether it is archived follow it.
        """
        if not self._runs:
            return None
        run = self._runs[0]
        part = run.part
        if part is None or not (run.ends and run.size) or part.is_paused or self._find(part.key) is not part:
            return None
        message = run.messages[run.at]
        run.at += 1
        if run.size:
            return message, part, place_after(message), run.is_archived
        self._runs.popleft()
        return message, part, run.ends[part], run.is_archived

    def take(self, count: int, *, until_event: bool = False) -> Taken:
        """Return the next messages and events; `settle` was called before.

        Args:
            count: at most.
            until_event: whether an event is left for the next call.
        """
        taken, paused = Taken(), deque[_Run]()
        while self._runs and (left := count - len(taken.messages)) > 0:
            run = self._runs.popleft()
            if not self._is_free(run):
                paused.append(run)
            elif until_event and not run.ends:
                self._runs.appendleft(run)
                break
            elif run.part is None and run.size > left:
                self._runs.extendleft(reversed(self._split(run)))
            else:
                self._take_of(run, left, taken)
                if run.size:
                    self._runs.appendleft(run)
        self._runs.extendleft(reversed(paused))
        return taken

    def _take_of(self, run: _Run, count: int, taken: Taken) -> None:
        found = run.messages[run.at : run.at + count] if run.at or run.size > count else run.messages
        run.at += len(found)
        taken.messages += found
        taken.ends |= {run.part: place_after(found[-1])} if run.part is not None and run.size else run.ends
        if run.is_archived:
            taken.archived += len(found)
        elif run.ends:
            taken.live += len(found)

    def _split(self, run: _Run) -> list[_Run]:
        """Return a run of several partitions as runs of one each."""
        of_place = {part.key: part for part in run.ends}
        messages = run.messages[run.at :]
        places: Any = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        found, start = [], 0
        for place, group in groupby(places):
            end = start + sum(1 for _ in group)
            part = of_place[place]
            found.append(_Run(messages[start:end], {part: place_after(messages[end - 1])}, run.is_archived, part))
            start = end
        # The whole run may end behind markers, also of a partition without messages.
        last = {piece.part: piece for piece in found}
        for part, place in run.ends.items():
            if part in last:
                last[part].ends[part] = place
            else:
                found.append(_Run([], {part: place}, run.is_archived, part))
        return found

    def _is_free(self, run: _Run) -> bool:
        return all(not part.is_paused and self._find(part.key) is part for part in run.parts)

    def _is_assigned(self, run: _Run) -> bool:
        return all(self._find(part.key) is part for part in run.parts)

    def _part_of(self, event: Message) -> Assigned | None:
        topic, number = event.topic(), event.partition()
        return None if topic is None or number is None else self._find((topic, number))
