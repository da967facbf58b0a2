"""The live part: a `confluent_kafka.Consumer` whose partitions are silent until this package lets them read.

librdkafka's and its binding's traps that this module handles:

- `pause` of a partition that the client has not seen does nothing, in silence. `position` adds it to the client.
- `pause` after an assign can prevent the start of the fetcher for ever: its request gets a later version than that of
  the start, which is then outdated (`rd_kafka_toppar_op_serve`). So partitions are paused before they are assigned.
- The flag outlives unassign and assign. So it is set at each assign.
- `seek` directly after an assign, or after an out-of-range error, fails with `_STATE`. The fetcher starts a little
  later in the first case. In the second case it has ended, and only another assign starts it.
- An assign validates no leader epoch; `seek` does.
- A logical offset is looked up after the assign. A `seek` meanwhile is accepted, and undone when the answer arrives
  (`rd_kafka_toppar_handle_Offset`): the partition continues at the log's end. So partitions are parked at a number.
- A call that waits for a broker inside a callback makes the binding forget the outer call. The next callback ends the
  process (`CallState_get`). No call here waits for a broker.
- Where a callback raises an error, the binding ends the call early (`rd_kafka_yield`). `rd_kafka_q_serve_rkmessages`
  then forgets the next message of its queue. So the message is lost, and `rd_kafka_destroy` waits for it for ever. The
  binding drops all other messages of the call too. So errors are kept, and raised when what the call returned is safe.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from time import monotonic
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

Key = tuple[str, int]  # topic and number of a partition
Callback = Callable[[Any, list[TopicPartition]], None]  # of a subscription
Place = tuple[int, int | None]  # a position, and the leader epoch of the record before it

_Stored = TopicPartition | Message  # an offset, or the message before it

# Nothing is fetched there: a paused partition is assigned, and the next offset is sought before it is resumed.
_PARKED: Final = 0
_COMMIT_SECONDS: Final = 5.0
_KEYS: Final = ("error_cb", "throttle_cb", "stats_cb", "on_commit")  # the binding handles the errors of oauth_cb itself

log = structlog.get_logger()


class LivePart:
    """Wraps librdkafka's consumer; used on the application's thread, except where a method has another rule.

    Attributes:
        consumer: librdkafka's.
        callback_errors: of the application's callbacks; raised when the call that ran them is over.

    Args:
        settings: librdkafka's configuration.
        options: further arguments of `confluent_kafka.Consumer`, as `logger`.
    """

    def __init__(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self.callback_errors = CallbackErrors()
        self._stored: dict[Key, _Stored] = {}  # since the partition was assigned
        self._left: dict[Key, tuple[float, _Stored]] = {}  # when it was unassigned: the monotonic time, what was stored
        self.consumer = Consumer(self.callback_errors.keep_of(settings), **options)

    def park(self, partitions: Iterable[Key], assign: Callable[[list[TopicPartition]], None]) -> None:
        """Assign partitions so that none of them fetches.

        Args:
            assign: librdkafka's `assign` or `incremental_assign`.

        Raises:
            KafkaException: from the assign.
        """
        parked = [TopicPartition(topic, number, _PARKED) for topic, number in partitions]
        self.consumer.position(parked)
        self.consumer.pause(parked)
        assign(parked)

    def join(self, partition: Key, offset: int, epoch: int | None, *, paused: bool) -> bool:
        """Continue a parked partition at an offset; return False if its fetcher does not run.

        Args:
            offset: the next one.
            epoch: of the record before the offset, which the broker compares; None if it is unknown.
            paused: whether the application paused it.

        Raises:
            KafkaException: of another kind.
        """
        place = place_of(partition, offset, epoch)
        if not self._seek(place):
            return False
        if not paused:
            self.consumer.resume([TopicPartition(*partition)])
            # A broker's thread notices a resume within a second, and a seek at once.
            self._seek(place)
        return True

    def silence(self, partition: Key) -> None:
        """Stop a partition; records that librdkafka has queued are dropped."""
        self.consumer.pause([TopicPartition(*partition)])

    def revive(self, partition: Key, all_assigned: Iterable[Key], next_of: Callable[[Key], int]) -> None:
        """Start the fetcher of a partition again, parked.

        An eager group refuses incremental changes. Then all partitions are assigned again, each at its next offset.
        librdkafka forgets the stored offset of a partition that it assigns, so what was stored is stored again.

        Args:
            partition: whose fetcher has ended.
            all_assigned: all partitions of the consumer.
            next_of: returns the next offset of a partition.
        """
        place = TopicPartition(*partition, _PARKED)
        try:
            self.consumer.pause([place])
            self.consumer.incremental_unassign([place])
            self.consumer.incremental_assign([place])
            assigned = [partition]
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            assigned = list(all_assigned)
            self.consumer.assign([TopicPartition(*each, next_of(each)) for each in assigned])
        if stored := [_as_place(each, self._stored[each]) for each in assigned if each in self._stored]:
            self.consumer.store_offsets(offsets=stored)

    def _seek(self, place: TopicPartition) -> bool:
        try:
            self.consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                return False
            raise
        return True

    def store(self, offsets: Sequence[TopicPartition]) -> None:
        """Store offsets for the next commit.

        Raises:
            KafkaException: a partition is not assigned.
        """
        self.consumer.store_offsets(offsets=list(offsets))
        self._stored.update({(each.topic, each.partition): each for each in offsets})

    def leave(self, partition: Key) -> None:
        """Note that a partition is no longer assigned."""
        if (stored := self._stored.pop(partition, None)) is not None:
            self._left[partition] = monotonic(), stored

    def left_at(self, partition: Key) -> TopicPartition | None:
        """Return the offset that librdkafka commits because a partition was unassigned just now; once."""
        at, stored = self._left.pop(partition, (0.0, None))
        return None if stored is None or monotonic() >= at + _COMMIT_SECONDS else _as_place(partition, stored)

    def store_after(self, message: Any) -> None:
        """Store the offset after a message of any tier; raise as `store`, or TypeError for another type."""
        self.consumer.store_offsets(message=message)
        self._stored[message.topic(), message.partition()] = message

    def places(self, partitions: Sequence[Key]) -> list[TopicPartition]:
        """Return for each partition the place after the last message or marker that `consume` has passed."""
        return self.consumer.position([TopicPartition(*each) for each in partitions])

    def consume(self, count: int, seconds: float) -> list[Message]:
        """Return messages and events; callbacks run in this call."""
        return self.consumer.consume(count, seconds)


def _as_place(partition: Key, stored: _Stored) -> TopicPartition:
    return stored if isinstance(stored, TopicPartition) else place_of(partition, *place_after(stored))


def place_after(message: Message) -> Place:
    """Return the place after a record."""
    offset = message.offset()
    assert offset is not None  # noqa: S101  (a record has one)
    return offset + 1, message.leader_epoch()


def place_of(partition: Key, offset: int, epoch: int | None) -> TopicPartition:
    """Return a place of librdkafka.

    Args:
        offset: the next one.
        epoch: leader epoch of the record before it; None if it is unknown.
    """
    if epoch is None:
        return TopicPartition(*partition, offset)
    return TopicPartition(*partition, offset, leader_epoch=epoch)


def is_reset(error: KafkaError) -> bool:
    """Return whether an error means that brokers do not have the next offset of a partition."""
    return error.code() == KafkaError._AUTO_OFFSET_RESET


class CallbackErrors:
    """Errors of the callbacks of one call of the application; used by one call at a time."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def keep_of(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration whose callbacks raise nothing. librdkafka refuses values that are not callable."""
        kept = {key: self._kept(given) for key in _KEYS if callable(given := settings.get(key))}
        return {**settings, **kept}

    def call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call a callback, and keep its error; then return None."""
        try:
            return callback(*arguments)
        except BaseException as error:  # noqa: BLE001  (an interrupt too: `raise_first` raises it)
            self._errors.append(error)
            return None

    def raise_first(self) -> None:
        """Raise the first error that was kept, and log the others: a call raises one."""
        if not self._errors:
            return
        first, *others = self._errors
        self._errors.clear()
        for each in others:
            log.warning("callback_failed", reason=f"{type(each).__name__}: {each}")
        raise first

    def _kept(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(callback)
        def kept(*arguments: Any) -> Any:
            return self.call(callback, *arguments)

        return kept
