"""Fetch: records of partitions.

Each request names all its partitions: session id 0 in the reply turns fetch sessions off (KIP-227).

The reply has what is in memory. If that is less than the client's least bytes, loads and new snapshots are awaited up
to its longest wait. Loads continue after that, so the next request finds them. Meanwhile the commit of a partition is
read again once in each refresh interval.

Without any record the loads are awaited for half a second at least, because a broker reads before it waits: a client
that never waits would otherwise repeat its request in a loop, and never see an error of a load.

A hole ends the partition for the client, unless it is passed over by option: `CORRUPT_MESSAGE`, which Java's consumer
raises from `poll` and librdkafka reports as an error of the partition. Both stay at the offset. So does a partition
that cannot be opened for a reason that lasts. Most other errors are repeated in silence, and `OFFSET_OUT_OF_RANGE`
would make a client with `auto.offset.reset=earliest` begin at the start.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import ObjectFrozen, ObjectNotFound, TieredStorageError
from ts_endpoint.contract import Session, in_lots
from ts_endpoint.data.reads import FetchRange, Found, HoleReached, Load, Reads
from ts_endpoint.protocol.replies import Records, Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, code_for, divergence, epoch_error, error_of
from ts_endpoint.security.audit import Audit
from ts_endpoint.topics.lost import Lost
from ts_endpoint.topics.partitions import Partition
from ts_endpoint.topics.snapshots import Snapshot
from ts_endpoint.topics.topic_ids import NO_TOPIC_ID

_READ_COMMITTED: Final = 1
_FIRST_BY_IDS: Final = 13  # the first version whose requests name topics by their ids
_FIRST_WITH_LEADERS: Final = 16  # the first version whose replies name the leader of a partition (KIP-951)
_MOVED: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
_MOST_BYTES: Final = 16 << 20  # of a reply, whatever the client wants
# A client can be ahead of this process, and the first look may have begun before the commit that the client has seen.
_LOOKS: Final = 2
_MOST_SECONDS: Final = 30.0  # of a wait
_LOOK_SECONDS: Final = 1.0  # between two looks for snapshots that are old enough to be renewed
LEAST_LOAD_SECONDS: Final = 0.5  # of a wait for the first records (Kafka's `remote.fetch.max.wait.ms`)

log = structlog.get_logger()


@dataclass(slots=True)
class _Part:
    """One partition of a request.

    Attributes:
        diverging: an epoch and its end, where the client's log parts from the archive's (KIP-595).
        refused: the place among the parts that a broker answers without a read, after all others; 0 if it reads.
    """

    topic: str
    topic_id: UUID
    number: int
    wanted: Any
    partition: Partition | None = None
    snapshot: Snapshot | None = None
    end: int = 0  # the offset after the last one that the client may see
    stable: int | None = None
    error: ErrorCode = ErrorCode.none
    diverging: tuple[int, int] | None = None
    refused: int = 0
    found: Found | None = None
    loading: "asyncio.Task[None] | None" = None
    again: bool = field(default=False)  # whether the snapshot was renewed after an object had disappeared

    @property
    def is_answered(self) -> bool:
        """Whether the reply is known without a read."""
        return self.error is not ErrorCode.none or self.diverging is not None


class FetchHandler:
    """Answers Fetch.

    Args:
        room: returns the bytes that a reply to a connection may have now.
        audit: of what is read; None for none.
    """

    def __init__(
        self, context: Context, reads: Reads, room: Callable[[Session], int], audit: Audit | None = None
    ) -> None:
        self._context = context
        self._reads = reads
        self._room = room
        self._audit = audit

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        body = request.body
        committed, is_by_id = body.isolation_level == _READ_COMMITTED, request.version >= _FIRST_BY_IDS
        wanted = {
            (getattr(topic, "topic", ""), getattr(topic, "topic_id", None), each.partition): each
            for topic in body.topics
            for each in topic.partitions
        }
        parts = [
            _Part(topic, topic_id or NO_TOPIC_ID, number, each) for (topic, topic_id, number), each in wanted.items()
        ]
        seconds = min(max(body.max_wait.total_seconds(), 0.0), _MOST_SECONDS)
        now = asyncio.get_running_loop().time()
        deadlines = now + seconds, now + max(seconds, LEAST_LOAD_SECONDS)
        for some in in_lots(parts):
            for part in some:
                await self._open(part, session, committed=committed, is_by_id=is_by_id)
            await asyncio.sleep(0)
        await self._read(parts, body, session, deadlines, committed=committed)
        return {"session_id": 0, **self._replies(parts, session, request.version, committed=committed)}

    async def _read(
        self, parts: Sequence[_Part], body: Any, session: Session, deadlines: tuple[float, float], *, committed: bool
    ) -> None:
        """Read until the reply is complete, or the time is over: the event loop's, and that for a first load."""
        while True:
            # Nothing is reserved while a request waits: a thousand clients at the end of a topic need no memory.
            most = max(1, min(body.max_bytes, _MOST_BYTES, self._room(session)))
            size = self._fill(parts, most, committed=committed)
            loading = {part.loading for part in parts if part.loading is not None}
            if _is_complete(parts) or (size >= min(body.min_bytes, most) and (size or not loading)):
                return
            left = deadlines[0 if size or not loading else 1] - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await self._news(parts, loading, left, committed=committed)

    async def _news(
        self, parts: Iterable[_Part], loading: Iterable["asyncio.Task[None]"], seconds: float, *, committed: bool
    ) -> None:
        """Wait until a load has ended or a partition has another snapshot, at most some seconds."""
        idle = [
            (part, part.partition)
            for part in parts
            if part.partition is not None and part.snapshot is not None and part.loading is None
        ]
        for _, partition in idle:
            if partition.known is not None:
                await partition.snapshot()  # begins a renewal if it is old
        changed = {partition.change for part, partition in idle if partition.known is part.snapshot}
        if len(changed) == len(idle):
            await asyncio.wait(
                {*loading, *changed}, timeout=min(seconds, _LOOK_SECONDS), return_when=asyncio.FIRST_COMPLETED
            )
        for part, partition in idle:
            if partition.known is not part.snapshot:
                part.found = None
                try:
                    await self._see(part, await partition.snapshot(), committed=committed)
                except TieredStorageError as error:
                    self._fail(part, error)

    async def _open(self, part: _Part, session: Session, *, committed: bool, is_by_id: bool) -> None:
        """Find the partition of a part, and check its offset and epoch; begin to open a view that is not in memory."""
        context = self._context
        try:
            if is_by_id:
                name = await context.archive.catalog.name_of(part.topic_id, partial(context.may_read, session))
                if name is None:
                    part.error, part.refused = ErrorCode.unknown_topic_id, 1
                    hidden = context.archive.catalog.ids.hidden_name_of(part.topic_id)
                    if hidden is not None and self._audit is not None:
                        self._audit.refused_topic(session, hidden)
                    return
                part.topic = name
            if not context.may_read(session, part.topic):
                part.error, part.refused = ErrorCode.topic_authorization_failed, 2
                if self._audit is not None:
                    self._audit.refused_topic(session, part.topic)
                return
            topic = await context.archive.catalog.use(part.topic)
            if topic is None or part.number not in topic.partitions:
                part.error, part.refused = ErrorCode.unknown_topic_or_partition, 2
                return
            part.partition = context.archive.of(topic, part.number)
            if is_by_id and topic.topic_id != part.topic_id:  # the topic was created again
                part.error = ErrorCode.inconsistent_topic_id
            elif not context.owns(part.topic, part.number):
                part.error = ErrorCode.not_leader_or_follower
            elif part.partition.known is None:  # others are opened at the same time
                part.loading = _begun(self._open_view(part, part.partition, committed=committed))
            else:
                await self._see(part, await part.partition.snapshot(), committed=committed)
        except TieredStorageError as error:
            self._fail(part, error)

    async def _open_view(self, part: _Part, partition: Partition, *, committed: bool) -> None:
        await self._see(part, await partition.snapshot(), committed=committed)

    async def _see(self, part: _Part, snapshot: Snapshot, *, committed: bool) -> None:
        """Set the snapshot of a part, and check the client's offset and epoch against it."""
        assert part.partition is not None  # noqa: S101  (set by `_open`)
        offset, epoch = part.wanted.fetch_offset, getattr(part.wanted, "current_leader_epoch", NO_EPOCH)
        fetched = getattr(part.wanted, "last_fetched_epoch", NO_EPOCH)
        for _ in range(_LOOKS):  # another process may be ahead of this one
            if offset <= snapshot.reach and not max(epoch, fetched) > snapshot.epoch > NO_EPOCH:
                break
            snapshot = await part.partition.renewed()
        part.snapshot, part.end, part.stable = snapshot, snapshot.end, snapshot.stable_at_once
        if committed:
            part.end = await snapshot.stable(part.partition.store)
            part.stable = part.end
        part.error, part.diverging = epoch_error(epoch, snapshot.epoch), None
        if part.error is ErrorCode.none:
            part.error, part.diverging = divergence(snapshot, offset, fetched)
        if not part.is_answered and not snapshot.start <= offset <= snapshot.reach:
            part.error = ErrorCode.offset_out_of_range

    def _fill(self, parts: Sequence[_Part], most: int, *, committed: bool) -> int:
        """Read what is in memory, begin to load the rest, and return the bytes of the reply so far."""
        size = sum(part.found.nbytes for part in parts if part.found is not None)
        for part in parts:
            if part.found is not None or part.is_answered:
                continue
            if part.loading is not None and not self._has_loaded(part):
                continue
            found = self._attempt(part, most - size, committed=committed, at_least_one=size == 0)
            if isinstance(found, Found) and found.views:
                part.found = found
                size += found.nbytes
        return size

    def _attempt(self, part: _Part, left: int, *, committed: bool, at_least_one: bool) -> Found | None:
        assert part.partition is not None and part.snapshot is not None  # noqa: S101, PT018  (no error)
        offset = part.wanted.fetch_offset
        if offset >= part.end:
            return None
        most = min(left, max(part.wanted.partition_max_bytes, 0))
        wanted = FetchRange(part.partition, part.snapshot, offset, part.end, committed, most, at_least_one)
        try:
            found = self._reads.attempt(wanted)
        except HoleReached as hole:
            log.warning("hole_reached", topic=part.topic, partition=part.number, reason=str(hole))
            part.error = ErrorCode.corrupt_message
            return None
        except TieredStorageError as error:
            self._fail(part, error)
            return None
        if isinstance(found, Found):
            return found
        part.loading = _begun(self._load(part, found, committed=committed))
        return None

    async def _load(self, part: _Part, load: Load, *, committed: bool) -> None:
        """Load what an attempt needs; renew the snapshot if an object of it has disappeared."""
        try:
            await load()
        except ObjectNotFound:
            if part.again or part.partition is None:
                raise
            part.again = True
            await self._see(part, await part.partition.renewed(lists=True), committed=committed)

    def _has_loaded(self, part: _Part) -> bool:
        """Return whether another attempt can follow."""
        loading = part.loading
        assert loading is not None  # noqa: S101  (the caller has checked it)
        if not loading.done():
            return False
        part.loading = None
        error = loading.exception()
        if error is None:
            return not part.is_answered
        if not isinstance(error, TieredStorageError):
            raise error
        self._fail(part, error)
        return False

    def _fail(self, part: _Part, error: TieredStorageError) -> None:
        part.error = error_of(error)
        if isinstance(error, Lost):
            return  # the log has it once
        reason = str(error)
        if isinstance(error, ObjectFrozen) and part.partition is not None and part.snapshot is not None:
            reason = part.snapshot.frozen_from(part.partition.store, part.wanted.fetch_offset) or reason
        log.warning("fetch_failed", topic=part.topic, partition=part.number, reason=reason)

    def _replies(self, parts: Iterable[_Part], session: Session, version: int, *, committed: bool) -> Values:
        """Return the topics of the reply; consecutive partitions of one topic are together, as in a broker's."""
        ordered = sorted(parts, key=lambda part: part.refused)
        values: dict[str, Any] = {
            "responses": [
                {
                    "topic": topic,
                    "topic_id": topic_id,
                    "partitions": [self._reply(part, session, version, committed=committed) for part in some],
                }
                for (topic, topic_id), some in groupby(ordered, key=lambda part: (part.topic, part.topic_id))
            ]
        }
        if version >= _FIRST_WITH_LEADERS:
            leaders = {self._leader_of(part) for part in ordered if part.error in _MOVED}
            values["node_endpoints"] = [
                {"node_id": node, "host": host, "port": port, "rack": None}
                for node, host, port in self._context.nodes.brokers()
                if node in leaders
            ]
        return values

    def _leader_of(self, part: _Part) -> int:
        return self._context.nodes.leader_of(part.topic, part.number)

    def _reply(self, part: _Part, session: Session, version: int, *, committed: bool) -> Values:
        snapshot, found = part.snapshot, part.found
        values: dict[str, Any] = {
            "partition_index": part.number,
            "error_code": code_for(part.error, session, version),
            "high_watermark": -1,
            "aborted_transactions": None,
            "records": Records(),
        }
        if part.error in _MOVED and version >= _FIRST_WITH_LEADERS:
            epoch = NO_EPOCH if part.partition is None else part.partition.known_epoch
            values["current_leader"] = {"leader_id": self._leader_of(part), "leader_epoch": epoch}
        if snapshot is None or part.error is not ErrorCode.none:
            return values
        values["high_watermark"] = snapshot.end
        values["last_stable_offset"] = snapshot.end if part.stable is None else part.stable
        values["log_start_offset"] = snapshot.start
        if found is not None:
            values["records"] = Records(found.views)
            if self._audit is not None:
                self._audit.read(
                    session, part.topic, part.number, part.wanted.fetch_offset, found.next_offset, found.nbytes
                )
        if part.diverging is not None:
            epoch, end = part.diverging
            values["diverging_epoch"] = {"epoch": epoch, "end_offset": end}
        elif committed:
            aborted = () if found is None else found.aborted
            values["aborted_transactions"] = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted
            ]
        return values


def _is_complete(parts: Iterable[_Part]) -> bool:
    """Return whether a wait for more bytes brings the reply nothing."""
    read = [part for part in parts if not part.refused]
    if not read or any(part.is_answered for part in read):
        return True
    # Then the rest is of a later segment; a broker does not wait for more bytes either.
    return any(part.found is not None and part.found.next_offset < part.end for part in read)


def _begun(load: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Begin a load. It can fail after its request was answered; asyncio would then log the traceback of each."""
    task = asyncio.ensure_future(load)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: "asyncio.Task[None]") -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, TieredStorageError):
        log.error("load_failed", error=repr(error))  # a defect, which no request may have noticed
