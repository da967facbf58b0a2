"""The arrows between a partition's states. All of them are in calls of the application.

::

    RESOLVE ---> HISTORY ---> RESOLVE     the archive has the next offset; then, its plan is read to the end
    RESOLVE ---> JOIN ---> LIVE           Kafka has it
    RESOLVE ---> WAIT ---> RESOLVE        no tier has it yet
    LIVE ------> RESOLVE                  Kafka removed it: the only way back
    any -------> FAILED                   an error that only the application can decide about

A seek, an assign and a revocation replace the partition's object, so nothing of the time before them returns.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import structlog
from confluent_kafka import Message

from ts_common.errors import ObjectNotFound
from ts_common.model import TopicPartition as Partition
from ts_consumer.configuration import Configuration
from ts_consumer.errors import event, may_pass, needs_an_operator
from ts_consumer.live import LivePart
from ts_consumer.modes import Way
from ts_consumer.partitions import Assigned, AssignedState, Assignment
from ts_consumer.prefetch import Prefetch
from ts_consumer.resolution import Resolution, Resolver

_RETRY_SECONDS: Final = 1.0
_START_SECONDS: Final = 2.0  # of a fetcher

log = structlog.get_logger()


@dataclass
class Passages:
    """How often something happened, since the consumer was made.

    Attributes:
        to_history: partitions that began to read the archive.
        to_live: partitions that began to read Kafka.
        back: partitions whose next offset Kafka had removed.
        skipped: offsets that no tier has and that were passed over by option.
        dropped: live messages that a partition did not want.
    """

    to_history: int = 0
    to_live: int = 0
    back: int = 0
    skipped: int = 0
    dropped: int = 0


@dataclass
class Transitions:
    """Moves partitions from state to state.

    Attributes:
        live: returns the live part; None without one.
        forget: makes the archive's next look read everything again.
        passages: what happened so far.
    """

    configuration: Configuration
    assignment: Assignment
    prefetch: Prefetch
    resolver: Resolver
    executor: Executor
    live: Callable[[], LivePart | None]
    forget: Callable[[Partition], None]
    passages: Passages = field(default_factory=Passages)

    def advance(self) -> list[Message]:
        """Move each partition as far as it can without a wait; return errors for the application."""
        events: list[Message] = []
        for part in self.assignment:
            if part.is_settled:
                continue
            try:
                self._advance(part)
            except Exception as error:  # noqa: BLE001  (all become the application's errors)
                events += self._failed(part, error)
        return events

    def leave_live(self, part: Assigned, reason: str) -> None:
        """Handle that brokers refused the offset of a partition, and that its fetcher has ended."""
        part.is_dead, part.jumped_to = True, None
        if part.state is AssignedState.LIVE:
            part.state, part.refusal = AssignedState.RESOLVE, reason

    def seek_again(self, part: Assigned, offset: int) -> None:
        """Handle that the first message after a seek has a later offset than the next one.

        Compaction, an aborted transaction or a marker explains that, and so does a seek that librdkafka has undone. The
        second seek gives the same message in the first case.
        """
        live = self.live()
        assert live is not None  # noqa: S101  (it has just returned a message)
        live.silence(part.key)
        part.jumped_to, part.state = offset, AssignedState.JOIN

    def join_again(self) -> None:
        """Seek back to the next offset of each live partition: what librdkafka returned since then is lost."""
        live = self.live()
        for part in self.assignment:
            if part.state is AssignedState.LIVE and live is not None:
                live.silence(part.key)
                part.state = AssignedState.JOIN

    def drop(self, part: Assigned) -> None:
        """Free what a partition holds that is revoked or replaced."""
        if part.resolving is not None:
            part.resolving.cancel()
        if part.reading is not None:
            self.prefetch.cancel(part.reading)
            part.reading = None

    def _advance(self, part: Assigned) -> None:
        if part.state is AssignedState.HISTORY:
            if part.is_read:
                self._end_of_plan(part)
            return
        if part.state is AssignedState.WAIT and monotonic() >= part.retry_at:
            part.state = AssignedState.RESOLVE
        if part.state is AssignedState.RESOLVE:
            self._resolve(part)
        if part.state is AssignedState.JOIN:
            self._join(part)

    def _resolve(self, part: Assigned) -> None:
        if part.resolving is None:
            if monotonic() < part.retry_at:
                return
            part.resolving = self.executor.submit(
                self.resolver.resolve,
                part.key,
                part.offset_wanted,
                history=part.history,
                refusal=part.refusal,
                epoch=part.epoch,
            )
            part.resolving.add_done_callback(lambda _: self._wake())
        if not part.resolving.done():
            return
        resolving, part.resolving = part.resolving, None
        self._apply(part, resolving.result())

    def _apply(self, part: Assigned, found: Resolution) -> None:
        topic, partition = part.key
        if part.refusal is not None:
            part.refusal = None
            self.passages.back += 1
        part.failing_since, part.epoch = None, found.epoch
        self.passages.skipped += found.skipped
        if found.offset is not None:
            part.next = found.offset
        if found.way is Way.KAFKA:
            part.state = AssignedState.JOIN
        elif found.plan is not None:
            part.reading = self.prefetch.begin(found.plan)
            part.state = AssignedState.HISTORY
            part.history = found.plan
            self.passages.to_history += 1
            self.passages.skipped += sum(loss.end - loss.start for loss in found.plan.losses)
            for loss in found.plan.losses:
                log.warning("hole_passed_over", partition=str(loss.partition), reason=str(loss))
            log.info(
                "reads_archive", topic=topic, partition=partition, from_offset=found.offset, to_offset=found.plan.end
            )
        else:
            part.state = AssignedState.WAIT
            part.retry_at = monotonic() + self.configuration.refresh_seconds

    def _end_of_plan(self, part: Assigned) -> None:
        reading = part.end_reading()
        part.state = AssignedState.RESOLVE
        self.prefetch.cancel(reading)
        if reading.error is not None:
            raise reading.error

    def _join(self, part: Assigned) -> None:
        live = self.live()
        if live is None or part.next is None:
            return
        now = monotonic()
        if part.is_dead or now >= part.joins_by > 0:
            live.revive(part.key, self.assignment.keys, self._next_of)
            part.is_dead, part.joins_by = False, now + _START_SECONDS
        if live.join(part.key, part.next, part.epoch, paused=part.is_paused):
            part.state, part.joins_by, part.is_fresh = AssignedState.LIVE, 0.0, True
            if part.jumped_to is None:
                self.passages.to_live += 1
                log.info("reads_kafka", topic=part.key[0], partition=part.key[1], from_offset=part.next)
        elif part.joins_by == 0:
            part.joins_by = now + _START_SECONDS

    def _next_of(self, key: tuple[str, int]) -> int:
        part = self.assignment.find(key)
        return 0 if part is None or part.next is None else part.next

    def _failed(self, part: Assigned, error: BaseException) -> list[Message]:
        """Return an error for the application, once; try again later if it may pass.

        The plain client tries again in silence too, while a coordinator moves or a broker is away.
        """
        now, text, is_passing = monotonic(), f"{type(error).__name__}: {error}", may_pass(error)
        if part.logged != text:
            part.logged = text
            log.warning("partition_failed", topic=part.key[0], partition=part.key[1], offset=part.next, reason=text)
        if isinstance(error, ObjectNotFound):  # retention removed an object of the plan
            self.forget(Partition(*part.key))
        if is_passing:
            part.failing_since = now if part.failing_since is None else part.failing_since
            part.retry_at = now + _RETRY_SECONDS
            part.state = AssignedState.RESOLVE if part.state is not AssignedState.JOIN else AssignedState.JOIN
            if now - part.failing_since < self.configuration.report_seconds and not needs_an_operator(error):
                return []
        else:
            part.state = AssignedState.FAILED
        if part.reported == text:
            return []
        part.reported = text
        return [event(*part.key, -1 if part.next is None else part.next, error)]

    def _wake(self) -> None:
        with self.prefetch.arrived:
            self.prefetch.arrived.notify_all()
