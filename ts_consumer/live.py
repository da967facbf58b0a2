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
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ts_consumer.callbacks import CallbackErrors

Key = tuple[str, int]  # topic and number of a partition
Callback = Callable[[Any, list[TopicPartition]], None]  # of a subscription

# Nothing is fetched there: a paused partition is assigned, and the next offset is sought before it is resumed.
_PARKED: Final = 0


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
        self.consumer = Consumer(self.callback_errors.keep_of(settings), **options)

    def park(self, partitions: Iterable[Key], assign: Callable[[list[TopicPartition]], None]) -> None:
        """Assign partitions so that none of them fetches.

        Args:
            partitions: to assign.
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
            partition: topic and number.
            offset: the next one.
            epoch: of the record before the offset, which the broker compares; None if it is unknown.
            paused: whether the application paused it.

        Raises:
            KafkaException: of another kind.
        """
        topic, number = partition
        place = TopicPartition(topic, number, offset)
        if epoch is not None:
            place = TopicPartition(topic, number, offset, leader_epoch=epoch)
        if not self._seek(place):
            return False
        if not paused:
            self.consumer.resume([TopicPartition(*partition)])
        return True

    def silence(self, partition: Key) -> None:
        """Stop a partition; records that librdkafka has queued are dropped."""
        self.consumer.pause([TopicPartition(*partition)])

    def revive(self, partition: Key, all_assigned: Iterable[Key], next_of: Callable[[Key], int]) -> None:
        """Start the fetcher of a partition again, parked.

        An eager group refuses incremental changes. Then all partitions are assigned again, each at its next offset.

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
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self.consumer.assign([TopicPartition(*each, next_of(each)) for each in all_assigned])

    def _seek(self, place: TopicPartition) -> bool:
        try:
            self.consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() in {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}:
                return False
            raise
        return True

    def consume(self, count: int, seconds: float) -> list[Message]:
        """Return messages and events; callbacks run in this call."""
        return self.consumer.consume(count, seconds)


def is_reset(error: KafkaError) -> bool:
    """Return whether an error means that brokers do not have the next offset of a partition."""
    return error.code() == KafkaError._AUTO_OFFSET_RESET
