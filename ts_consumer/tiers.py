"""The consumer over both tiers: it hands out archived records and live messages, and keeps every partition's position.

Only the application's calls poll the live part. Otherwise a stuck application would stay a member of its group, and
callbacks would run on another thread.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import monotonic
from typing import Any, Final

import structlog
from confluent_kafka import OFFSET_INVALID, KafkaException, Message, TopicPartition

from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition as Partition
from ts_consumer.archive_tier import ArchiveTier
from ts_consumer.brokers import Brokers
from ts_consumer.configuration import Configuration
from ts_consumer.errors import NO_GROUP, TIMED_OUT, WRONG_ARGUMENT, WRONG_STATE, kafka_error, refusal
from ts_consumer.live import Key, LivePart, is_reset
from ts_consumer.modes import Mode
from ts_consumer.partitions import Assigned, Assignment, State
from ts_consumer.prefetch import Prefetch
from ts_consumer.resolution import Resolver
from ts_consumer.transitions import Transitions

_MOST_MESSAGES: Final = 1_000_000
_LOOK_UPS: Final = 8  # threads; each waits for a broker or the store
_SLICE_SECONDS: Final = 0.05  # of a wait for one tier while the other may have something
_LONG_SLICE_SECONDS: Final = 0.5  # of a wait for Kafka alone
_QUESTION_SECONDS: Final = 30.0  # of a call without a timeout of its own

log = structlog.get_logger()

Callback = Callable[[Any, list[TopicPartition]], None]


class Tiers:
    """What `TieredConsumer` does in the modes that read the archive.

    Attributes:
        live: the live part; None without one.
        records: handed out, by tier.

    Args:
        owner: what callbacks get as their first argument.
        configuration: of the consumer.
        options: further arguments of `confluent_kafka.Consumer`.
    """

    def __init__(self, owner: Any, configuration: Configuration, options: Mapping[str, Any]) -> None:
        self._owner = owner
        self._configuration = configuration
        self._options = options
        self._executor = ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="look-ups")
        self.live: LivePart | None = None
        self.records = {"archive": 0, "kafka": 0}
        if configuration.mode.reads_kafka:
            self.live = LivePart(configuration.live_part, options)
        self._archive = ArchiveTier(configuration)
        self._prefetch = Prefetch(configuration.buffered_bytes)
        self._assignment = Assignment()
        self._brokers: Brokers | None = None
        if configuration.mode.reads_kafka:
            self._brokers = Brokers(configuration.live, read_committed=configuration.read_committed)
        resolver = Resolver(configuration, self._archive, lambda: self._brokers)
        self._resolver = resolver
        self.transitions = Transitions(
            configuration, self._assignment, self._prefetch, resolver, self._executor, lambda: self.live
        )
        self._is_closed = False
        self._has_assigned = False  # whether a callback of the application has
        self._is_eager = False

    # -- records ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message or event; None if no one arrived in time."""
        found = self._gather(1, -1.0 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages and events, as many as there are in time."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES} (1M)")
        return self._gather(num_messages, timeout)

    def _gather(self, count: int, timeout: float) -> list[Message]:
        self._check_open()
        deadline = inf if timeout < 0 else monotonic() + timeout
        found: list[Message] = []
        nexts: dict[Key, int] = {}
        try:
            wait = 0.0
            while True:
                self._step(found, nexts, count, wait)
                left = deadline - monotonic()
                if len(found) >= count or left <= 0:
                    return found
                wait = min(left, _SLICE_SECONDS if self._waits_for_archive() else _LONG_SLICE_SECONDS)
        finally:
            self._store(nexts)

    def _step(self, found: list[Message], nexts: dict[Key, int], count: int, wait: float) -> None:
        """Add what is there to `found`, after at most one wait."""
        reads_both = bool(self._assignment.in_turn(State.HISTORY))
        share = count - len(found)
        if reads_both and share > 1:
            share //= 2  # a busy topic in Kafka does not stop the archive, and not the other way round
        has_live = any(part.state is State.LIVE for part in self._assignment)
        if self.live is not None:
            blocks = wait if has_live or not len(self._assignment) else 0.0
            self._sort(self.live.consume(share, blocks), found, nexts)
            wait -= blocks
        found += self.transitions.advance()
        before = len(found)
        self._from_archive(found, nexts, count)
        if len(found) == before and wait > 0 and not self._can_go_on():
            with self._prefetch.arrived:
                self._prefetch.arrived.wait(wait)

    def _waits_for_archive(self) -> bool:
        return any(part.state is not State.LIVE and part.state is not State.FAILED for part in self._assignment)

    def _can_go_on(self) -> bool:
        """Return whether something arrived since the last look, so that a wait would be too long."""
        for part in self._assignment:
            reading, resolving = part.reading, part.resolving
            if reading is not None and not part.is_paused and (reading.buffered or reading.is_over):
                return True
            if resolving is not None and resolving.done():
                return True
        return False

    def _from_archive(self, found: list[Message], nexts: dict[Key, int], count: int) -> None:
        for part in self._assignment.in_turn(State.HISTORY):
            while len(found) < count and not part.is_paused:
                taken = part.take(self._prefetch, count - len(found))
                if not taken:
                    break
                found += taken
                self.records["archive"] += len(taken)
                nexts[part.key] = part.offset_wanted

    def _sort(self, messages: Iterable[Message], found: list[Message], nexts: dict[Key, int]) -> None:
        """Keep the live messages that the application may get now."""
        for message in messages:
            error = message.error()
            topic, number, offset = message.topic(), message.partition(), message.offset()
            part = None if topic is None or number is None else self._assignment.find((topic, number))
            if error is not None:
                if is_reset(error):
                    if part is not None:
                        self.transitions.leave_live(part)
                elif part is None or part.state is State.LIVE:
                    found.append(message)
                continue
            is_wanted = part is not None and part.state is State.LIVE and part.next is not None
            if part is None or not is_wanted or offset is None or offset < part.offset_wanted:
                self.transitions.passages.dropped += 1
                continue
            part.got(offset + 1)
            nexts[part.key] = offset + 1
            self.records["kafka"] += 1
            found.append(message)

    def _store(self, nexts: Mapping[Key, int]) -> None:
        """Store the offsets of what the application gets, for the next commit."""
        if not nexts or self.live is None or not self._configuration.stores_offsets:
            return
        assigned = [TopicPartition(*key, offset) for key, offset in nexts.items() if self._assignment.find(key)]
        if assigned:
            self.live.consumer.store_offsets(offsets=assigned)

    # -- assignment ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics; callbacks get the owner."""
        self._check_open()
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        if self.live is None:  # TIERED_STORAGE_ONLY: the group assigns, and no record is read from brokers
            self.live = LivePart(self._configuration.live_part, self._options)
            configuration = self._configuration
            self._brokers = Brokers(configuration.live, read_committed=configuration.read_committed)

        def assigned(_: Any, partitions: list[TopicPartition]) -> None:
            self._has_assigned = False
            if on_assign is not None:
                on_assign(self._owner, partitions)
            if not self._has_assigned:
                self._assign_by_protocol(partitions)

        def revoked(_: Any, partitions: list[TopicPartition]) -> None:
            self._revoke(partitions, on_revoke)

        def lost(_: Any, partitions: list[TopicPartition]) -> None:
            self._revoke(partitions, on_lost or on_revoke)

        self.live.consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._check_open()
        if self.live is not None:
            self.live.consumer.unsubscribe()
        self._drop_all()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment; each partition begins at its offset, or at the group's offset."""
        self._check_open()
        self._has_assigned = True
        paused = {part.key for part in self._assignment if part.is_paused}
        self._drop_all()
        keys = [_key_of(each) for each in partitions]
        if self.live is not None:
            self.live.park(keys, self.live.consumer.assign)
        for each, key in zip(partitions, keys, strict=True):
            self._assignment.put(Assigned(key, each.offset, is_paused=key in paused))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._check_open()
        keys = [_key_of(each) for each in partitions]
        if again := [key for key in keys if self._assignment.find(key) is not None]:
            raise refusal(WRONG_STATE, f"{again[0][0]} [{again[0][1]}] is already part of the current assignment")
        if self.live is not None:
            self.live.park(keys, self.live.consumer.incremental_assign)
        self._has_assigned = True
        for each, key in zip(partitions, keys, strict=True):
            self._assignment.put(Assigned(key, each.offset))

    def unassign(self) -> None:
        """End the assignment."""
        self._check_open()
        self._has_assigned = True
        self._drop_all()
        if self.live is not None:
            self.live.consumer.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._check_open()
        if self.live is not None:
            self.live.consumer.incremental_unassign(partitions)
        elif missing := [each for each in partitions if self._assignment.find(_key_of(each)) is None]:
            raise refusal(WRONG_ARGUMENT, f"{missing[0].topic} [{missing[0].partition}] is not assigned")
        self._has_assigned = True
        self._drop(map(_key_of, partitions))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        self._check_open()
        return [TopicPartition(*key) for key in self._assignment.keys]

    def _assign_by_protocol(self, partitions: list[TopicPartition]) -> None:
        if not self._is_eager:
            try:
                self.incremental_assign(partitions)
            except KafkaException as error:
                self._is_eager = _is_refused(error)  # an eager group refuses incremental changes
            else:
                return
        self.assign(partitions)

    def _revoke(self, partitions: list[TopicPartition], callback: Callback | None) -> None:
        self._has_assigned = False
        if callback is not None:
            callback(self._owner, partitions)
        if self._has_assigned or self.live is None:
            return
        if not self._is_eager:
            try:
                self.live.consumer.incremental_unassign(partitions)
            except KafkaException as error:
                self._is_eager = _is_refused(error)
            else:
                self._drop(map(_key_of, partitions))
                return
        self.live.consumer.unassign()
        self._drop_all()

    def _drop_all(self) -> None:
        self._drop(self._assignment.keys)

    def _drop(self, keys: Iterable[Key]) -> None:
        for key in keys:
            part = self._assignment.remove(key)
            if part is not None:
                self.transitions.drop(part)
                self._archive.forget(Partition(*key))

    # -- positions ----------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at another offset."""
        self._check_open()
        part = self._assignment.find(_key_of(partition))
        if part is None:
            raise refusal(WRONG_STATE, f"{partition.topic} [{partition.partition}] is not assigned")
        if self.live is not None and part.state is State.LIVE:
            self.live.silence(part.key)
        self.transitions.drop(part)
        self._assignment.put(Assigned(part.key, partition.offset, is_paused=part.is_paused, is_dead=part.is_dead))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of partitions until they are resumed."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out paused partitions again."""
        self._set_paused(partitions, is_paused=False)

    def _set_paused(self, partitions: list[TopicPartition], *, is_paused: bool) -> None:
        self._check_open()
        for each in partitions:
            part = self._assignment.find(_key_of(each))
            if part is None:
                continue  # as librdkafka, which has an error for it that its binding drops
            part.is_paused = is_paused
            if part.state is State.LIVE and self.live is not None:
                change = self.live.consumer.pause if is_paused else self.live.consumer.resume
                change([TopicPartition(*part.key)])

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last record that the application got of each partition."""
        self._check_open()
        found = []
        for each in partitions:
            part = self._assignment.find(_key_of(each))
            offset = OFFSET_INVALID if part is None else part.position_or_invalid
            found.append(TopicPartition(each.topic, each.partition, offset))
        return found

    # -- offsets of the group -----------------------------------------------------------------------------------------

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the credentials for brokers."""
        self.of_group().set_sasl_credentials(username, password)
        if self._brokers is not None:
            self._brokers.set_sasl_credentials(username, password)

    def of_group(self) -> Any:
        """Return librdkafka's consumer, for what belongs to the group.

        Raises:
            KafkaException: without a subscription, `TIERED_STORAGE_ONLY` has no group.
        """
        self._check_open()
        if self.live is None:
            raise refusal(
                NO_GROUP, f"{Mode.TIERED_STORAGE_ONLY} with assign() has no group; subscribe(), or use seek()"
            )
        return self.live.consumer

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit."""
        consumer = self.of_group()
        if self._configuration.stores_offsets:
            raise refusal(WRONG_ARGUMENT, "store_offsets() needs enable.auto.offset.store=false")
        given = {"message": message} if offsets is None else {"offsets": offsets}
        consumer.store_offsets(**given)

    def commit(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or what is stored."""
        given: dict[str, Any] = {"asynchronous": asynchronous}
        if message is not None:
            given["message"] = message
        if offsets is not None:
            given["offsets"] = offsets
        found: list[TopicPartition] | None = self.of_group().commit(**given)
        return found

    # -- questions ----------------------------------------------------------------------------------------------------

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int] | None:
        """Return the first offset of both tiers, and the next one."""
        self._check_open()
        key = _key_of(partition)
        if cached and self.live is not None and self._configuration.mode.reads_kafka:
            found: tuple[int, int] | None = self.live.consumer.get_watermark_offsets(partition, cached=True)
            return found
        archived, kafka = self._answered(self._resolver.extents, key, timeout)
        if archived is None and kafka is None:
            raise refusal(WRONG_ARGUMENT, f"{key[0]} [{key[1]}]: no tier has the partition")
        extents = [extent for extent in (archived and archived.extent, kafka) if extent is not None]
        return min(extent.start for extent in extents), (kafka or extents[0]).end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return for each partition the offset of the first record at or after a timestamp.

        The archive has the lower offsets, so its answer counts. Without one, brokers answer.
        """
        self._check_open()
        found = [self._answered(self._offset_for_time, each, timeout) for each in partitions]
        rest = [each for each, offset in zip(partitions, found, strict=True) if offset is None]
        by_kafka: dict[Key, int] = {}
        if rest and self.live is not None and self._configuration.mode.reads_kafka:
            limit = _QUESTION_SECONDS if timeout is None or timeout < 0 else timeout
            for answer in self.live.consumer.offsets_for_times(rest, timeout=limit):
                by_kafka[_key_of(answer)] = answer.offset
        return [
            TopicPartition(each.topic, each.partition, by_kafka.get(_key_of(each), -1) if offset is None else offset)
            for each, offset in zip(partitions, found, strict=True)
        ]

    def _offset_for_time(self, wanted: TopicPartition) -> int | None:
        archived, _ = self._resolver.extents(_key_of(wanted))
        if archived is None:
            return None
        return self._archive.offset_for_time(archived, wanted.offset)

    def _answered(self, question: Callable[[Any], Any], about: Any, timeout: float | None) -> Any:
        """Answer a question on a thread, within a timeout."""
        seconds = _QUESTION_SECONDS if timeout is None or timeout < 0 else timeout
        asked = self._executor.submit(question, about)
        try:
            return asked.result(seconds)
        except TimeoutError:
            asked.cancel()
            raise refusal(TIMED_OUT, f"no answer in {seconds} s") from None
        except TieredStorageError as error:
            raise KafkaException(kafka_error(error)) from error

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the group, and free everything; a second call does nothing."""
        if self._is_closed:
            return
        try:
            if self.live is not None:
                self.live.consumer.close()  # callbacks run, and stored offsets are committed
        finally:
            self._is_closed = True
            self._drop_all()
            self._prefetch.close()
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Consumer closed")


def _is_refused(error: KafkaException) -> bool:
    """Return True for a change that the group's protocol refuses; raise any other error."""
    if error.args[0].code() != WRONG_STATE:
        raise error
    return True


def _key_of(partition: TopicPartition) -> Key:
    return partition.topic, partition.partition
