"""Subscriptions and assignments, by the application or by the group's protocol.

A callback's first argument is the application's consumer: the binding's own would bypass this package. The binding
assigns by itself if a callback assigns nothing, so the callbacks here always do.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TopicPartition

from ts_common.model import TopicPartition as Partition
from ts_consumer.configuration import is_text
from ts_consumer.consumer_parts import ConsumerParts
from ts_consumer.errors import CONFLICT, NO_GROUP, WRONG_ARGUMENT, WRONG_STATE, refusal
from ts_consumer.live import Callback, Key, LivePart
from ts_consumer.partitions import Assigned, AssignedState
from ts_consumer.resolution import TAIL

_OF_GROUP: Final = (OFFSET_STORED, OFFSET_INVALID)  # the committed offset


class Assigning:
    """Changes the assignment; one call at a time.

    Args:
        owner: what callbacks get as their first argument.
    """

    def __init__(self, owner: Any, parts: ConsumerParts) -> None:
        self._owner = owner
        self._parts = parts
        self._has_assigned = False  # whether a callback of the application has
        self._is_subscribed = False
        self._is_eager = parts.configuration.is_eager

    def subscribe(
        self, topics: list[str], on_assign: Callback | None, on_revoke: Callback | None, on_lost: Callback | None
    ) -> None:
        """Subscribe to topics.

        Raises:
            TypeError: a callback is not callable.
            ValueError: a topic's name cannot be encoded.
            KafkaException: there is no group, or librdkafka refuses the topics.
        """
        if not is_text(*topics):
            raise ValueError("the name of a topic is no Unicode text")
        if not self._parts.configuration.live.get("group.id"):  # the binding would end the process
            raise refusal(NO_GROUP, "subscribe() needs group.id")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")

        live = self._parts.open_live()

        def assigned(_: Any, partitions: list[TopicPartition]) -> None:
            self._has_assigned = False
            if on_assign is not None:
                live.callback_errors.call(on_assign, self._owner, partitions)
            if not self._has_assigned:
                self._assign_by_protocol(partitions)

        def revoked(_: Any, partitions: list[TopicPartition]) -> None:
            self._revoke(live, partitions, on_revoke)

        def lost(_: Any, partitions: list[TopicPartition]) -> None:
            self._revoke(live, partitions, on_lost or on_revoke)

        live.consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        self._is_subscribed = True

    def unsubscribe(self) -> None:
        """End the subscription."""
        if self._parts.live is not None:
            # The group revokes them in a later call. Until then they are silent, as those of the plain client.
            self.set_paused([TopicPartition(*key) for key in self._parts.assignment.keys], is_paused=True)
            self._parts.live.consumer.unsubscribe()
            self._is_subscribed = False
        else:
            self.drop_all()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment; each partition begins at its offset, or at the group's.

        Raises:
            KafkaException: a number is no offset.
        """
        live, keys = self._parts.live, _keys_of(partitions)
        _check_offsets(partitions, _OF_GROUP)
        self._has_assigned = True
        self.drop_all()
        if live is not None:
            live.park(keys, live.consumer.assign)
        for each, key in zip(partitions, keys, strict=True):
            self._put(self._begin(key, each))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment.

        Raises:
            KafkaException: one of them is assigned, or the group's protocol is eager; or a number is no offset.
        """
        live, assignment = self._parts.live, self._parts.assignment
        keys = _keys_of(partitions)
        _check_offsets(partitions, _OF_GROUP)
        if again := [key for key in keys if assignment.find(key) is not None]:
            raise refusal(CONFLICT, f"{again[0][0]} [{again[0][1]}] is already part of the current assignment")
        if live is not None:
            live.park(keys, live.consumer.incremental_assign)
        self._has_assigned = True
        for each, key in zip(partitions, keys, strict=True):
            self._put(self._begin(key, each))

    def unassign(self) -> None:
        """End the assignment."""
        self._has_assigned = True
        self.drop_all()
        if self._parts.live is not None:
            self._parts.live.consumer.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment.

        Raises:
            KafkaException: one of them is not assigned, or the group's protocol is eager.
        """
        live, assignment = self._parts.live, self._parts.assignment
        if live is not None:
            live.consumer.incremental_unassign(partitions)
        elif missing := [each for each in partitions if assignment.find(key_of(each)) is None]:
            raise refusal(WRONG_ARGUMENT, f"{missing[0].topic} [{missing[0].partition}] is not assigned")
        self._has_assigned = True
        self._drop(map(key_of, partitions))

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset.

        Raises:
            KafkaException: it is not assigned, or the number is no offset.
        """
        _check_offsets([partition])
        part = self._parts.assignment.find(key_of(partition))
        if part is None:
            raise refusal(WRONG_STATE, f"{partition.topic} [{partition.partition}] is not assigned")
        if self._parts.live is not None and part.state is AssignedState.LIVE:
            self._parts.live.silence(part.key)
        self._parts.transitions.drop(part)
        again = Assigned(
            part.key, partition.offset, partition.leader_epoch, is_paused=part.is_paused, is_dead=part.is_dead
        )
        self._parts.assignment.put(again)

    def set_paused(self, partitions: list[TopicPartition], *, is_paused: bool) -> None:
        """Hand out nothing of partitions, or again; one that is not assigned changes nothing, as in the binding."""
        live = self._parts.live
        for each in partitions:
            part = self._parts.assignment.find(key_of(each))
            if part is None:
                continue
            part.is_paused = is_paused
            if part.state is AssignedState.LIVE and live is not None:
                change = live.consumer.pause if is_paused else live.consumer.resume
                change([TopicPartition(*part.key)])

    def drop_all(self) -> None:
        """Forget all partitions."""
        self._drop(self._parts.assignment.keys)

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            part = self._parts.assignment.remove(key)
            if part is not None:
                self._parts.transitions.drop(part)
                if self._parts.live is not None:
                    self._parts.live.leave(key)
                self._parts.archive.forget(Partition(*key))

    def _begin(self, key: Key, place: TopicPartition) -> Assigned:
        """Return a partition at its place.

        The plain client requests the group's offset after the commit of what it has just unassigned. Look-ups here are
        sent by another client, so that offset is kept here. A group's protocol waits for the commit itself.
        """
        live = self._parts.live
        left = None if live is None else live.left_at(key)
        is_of_group = place.offset in _OF_GROUP and not self._is_subscribed
        if left is not None and is_of_group and self._parts.configuration.commits:
            place = left
        return Assigned(key, place.offset, place.leader_epoch)

    def _put(self, part: Assigned) -> None:
        self._parts.assignment.put(part)
        if self._parts.brokers is not None:
            self._parts.brokers.forget_id(part.key[0])

    def _assign_by_protocol(self, partitions: list[TopicPartition]) -> None:
        if self._is_eager:  # it refuses incremental changes
            self.assign(partitions)
        else:
            self.incremental_assign(partitions)

    def _revoke(self, live: LivePart, partitions: list[TopicPartition], callback: Callback | None) -> None:
        self._has_assigned = False
        if callback is not None:
            live.callback_errors.call(callback, self._owner, partitions)
        if self._has_assigned:
            return
        if self._is_eager:
            live.consumer.unassign()
            self.drop_all()
        else:
            live.consumer.incremental_unassign(partitions)
            self._drop(map(key_of, partitions))


def key_of(partition: TopicPartition) -> Key:
    """Return the key of a partition of the binding."""
    return partition.topic, partition.partition


def _check_offsets(partitions: Iterable[TopicPartition], also: Collection[int] = ()) -> None:
    """Refuse numbers that are no offsets, as librdkafka does.

    Args:
        partitions: with offsets.
        also: further logical offsets.

    Raises:
        KafkaException: one of them has such a number.
    """
    for each in partitions:
        offset = each.offset
        if not (offset >= 0 or offset in {OFFSET_BEGINNING, OFFSET_END} or offset <= TAIL or offset in also):
            raise refusal(WRONG_ARGUMENT, f"{each.topic} [{each.partition}]: {offset} is no offset")


def _keys_of(partitions: Any) -> list[Key]:
    if not isinstance(partitions, list) or not all(isinstance(each, TopicPartition) for each in partitions):
        raise TypeError("expected list of TopicPartition")
    return [key_of(each) for each in partitions]
