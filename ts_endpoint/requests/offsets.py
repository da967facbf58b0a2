"""ListOffsets and OffsetForLeaderEpoch: where a partition starts and ends, and where a time and an epoch are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any, Final

import structlog
from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import TieredStorageError
from ts_common.json_objects import MAX_INT64
from ts_endpoint.contract import Session, in_lots, permitted_first
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, end_of, epoch_error, error_of
from ts_endpoint.requests.times import greatest_time, time_at
from ts_endpoint.topics.lost import LASTING, Lost
from ts_endpoint.topics.partitions import Partition
from ts_endpoint.topics.snapshots import Snapshot
from ts_reader.reading.first_offset import first_offset_at, search_for

_READ_COMMITTED: Final = 1
_SEARCHES: Final = 4  # for timestamps, at once; each decodes records

log = structlog.get_logger()


class Special(IntEnum):
    """Timestamps of ListOffsets that mean a place."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # KIP-734
    EARLIEST_LOCAL = -4  # KIP-405


class ListOffsetsHandler:
    """Answers ListOffsets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._searches = asyncio.Semaphore(_SEARCHES)

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        committed = getattr(request.body, "isolation_level", 0) == _READ_COMMITTED
        one = partial(self._one, session, committed=committed)
        return {"topics": await _by_topic(self._context, session, request.body.topics, "name", one)}

    async def _one(self, session: Session, topic: str, wanted: Any, *, committed: bool) -> Values:
        number = wanted.partition_index
        found = {"partition_index": number, "timestamp": -1, "offset": -1, "leader_epoch": NO_EPOCH}
        requested = getattr(wanted, "current_leader_epoch", NO_EPOCH)
        try:
            opened = await _opened(self._context, session, topic, number, requested)
            if isinstance(opened, ErrorCode):
                return {**found, "error_code": opened}
            return {**found, **await self._find(*opened, wanted.timestamp, committed=committed)}
        except TieredStorageError as error:
            if not isinstance(error, Lost):  # the log has it once
                log.warning("offsets_not_listed", topic=topic, partition=number, reason=str(error))
            known = self._context.archive.known(topic, number)
            return {**found, **_despite(error, wanted.timestamp, known)}

    async def _find(self, partition: Partition, snapshot: Snapshot, timestamp: int, *, committed: bool) -> Values:
        if timestamp in {Special.EARLIEST, Special.EARLIEST_LOCAL}:
            return _place(snapshot, snapshot.start)
        end = await snapshot.stable(partition.store) if committed else snapshot.end
        if timestamp == Special.LATEST:
            # The leader's own epoch, also if no record of it is below the end.
            known = {} if snapshot.epoch == NO_EPOCH else {"leader_epoch": snapshot.epoch}
            return {**_place(snapshot, end), **known}
        if timestamp < 0 and timestamp != Special.MAX_TIMESTAMP:
            return {"error_code": ErrorCode.unsupported_version}
        async with self._searches:
            at = await asyncio.to_thread(_search, partition, snapshot, end, timestamp)
        if at is None:
            return {}
        return {**_place(snapshot, at[0]), "timestamp": at[1]}


async def current(partition: Partition, epoch: int = NO_EPOCH) -> Snapshot:
    """Return a snapshot that is not older than the refresh interval, unless the store is away.

    Args:
        epoch: the client's; a client with a later one has seen a later commit, so the snapshot is renewed.

    Raises:
        Lost: the partition cannot be opened for a reason that lasts.
        TieredStorageError: there is no snapshot yet, and it cannot be read.
    """
    if partition.known is None or not (partition.is_old or epoch > partition.known.epoch > NO_EPOCH):
        return await partition.snapshot()
    try:
        return await partition.renewed()
    except Lost:
        raise
    except TieredStorageError as error:
        if partition.known is None:  # it was lost meanwhile
            raise
        log.warning("partition_not_refreshed", partition=str(partition.keys.partition), reason=str(error))
        return partition.known


def _despite(error: TieredStorageError, timestamp: int, known: Snapshot | None) -> Values:
    """Return the first or the last known offset where an error lasts, so that the client's Fetch gets the error.

    Consumers of Java and librdkafka repeat ListOffsets after CORRUPT_MESSAGE in silence, and report that of Fetch. A
    search for a time has no place to fetch from: `offsetsForTimes` ends with the client's timeout.
    """
    if not isinstance(error, LASTING) or timestamp not in {Special.EARLIEST, Special.EARLIEST_LOCAL, Special.LATEST}:
        return {"error_code": error_of(error)}
    start, end = (0, 1) if known is None else (known.start, known.end)
    if isinstance(error, Lost):
        start, end = error.start, error.end
    return {"offset": end if timestamp == Special.LATEST else start}


def _place(snapshot: Snapshot, offset: int) -> Values:
    epoch = snapshot.epochs.at(offset)
    return {"offset": offset, "leader_epoch": NO_EPOCH if epoch is None else epoch}


def _search(partition: Partition, snapshot: Snapshot, end: int, timestamp: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record at or after a time, or with the greatest; None without one.

    Transaction markers count, as for a broker. It looks for the greatest timestamp of the whole log, and returns none
    if a record at or above the client's end has it (`Partition.fetchOffsetForTimestamp`).
    """
    if timestamp == Special.MAX_TIMESTAMP:
        greatest = greatest_time(partition.store, snapshot.view)
        return None if greatest is None or greatest[1] >= end else (greatest[1], greatest[0])
    view = replace(snapshot.view, end=end)
    search = search_for(partition.store, timestamp, erased=view.erased, counts_markers=True)
    offset = first_offset_at(view, search, after_hole=False, least=timestamp)
    if offset is None:
        return None
    found = time_at(partition.store, view, offset)
    return offset, timestamp if found is None else found


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch: where an epoch ends, for a client that validates its position (KIP-320)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        one = partial(self._one, session)
        return {"topics": await _by_topic(self._context, session, request.body.topics, "topic", one)}

    async def _one(self, session: Session, topic: str, wanted: Any) -> Values:
        number = wanted.partition
        found: dict[str, Any] = {"partition": number, "leader_epoch": NO_EPOCH, "end_offset": -1}
        try:
            opened = await _opened(self._context, session, topic, number, wanted.current_leader_epoch)
        except LASTING:
            # Clients repeat this request in silence after an error that lasts. Their position is valid as far as is
            # known, so they fetch and get the error.
            is_known = wanted.leader_epoch == NO_EPOCH
            return found if is_known else {**found, "leader_epoch": wanted.leader_epoch, "end_offset": MAX_INT64}
        except TieredStorageError as error:
            return {**found, "error_code": error_of(error)}
        if isinstance(opened, ErrorCode):
            return {**found, "error_code": opened}
        ended = end_of(opened[1], wanted.leader_epoch)
        return found if ended is None else {**found, "leader_epoch": ended[0], "end_offset": ended[1]}


async def _by_topic(
    context: Context, session: Session, topics: Iterable[Any], name: str, one: Callable[[str, Any], Awaitable[Values]]
) -> list[Values]:
    """Return what a function returns for each partition; `name` is the field with the topic's name."""
    found: list[Values] = []
    for topic in permitted_first(topics, lambda each: context.may_read(session, getattr(each, name))):
        partitions: list[Values] = []
        for some in in_lots(topic.partitions):
            partitions += await asyncio.gather(*(one(getattr(topic, name), each) for each in some))
            await asyncio.sleep(0)
        found.append({name: getattr(topic, name), "partitions": partitions})
    return found


async def _opened(
    context: Context, session: Session, topic: str, number: int, epoch: int
) -> tuple[Partition, Snapshot] | ErrorCode:
    """Return a partition as it is now, or why the client does not get it; errors of the store are raised."""
    if not context.may_read(session, topic):
        return ErrorCode.topic_authorization_failed
    partition = await context.archive.partition(topic, number)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if not context.owns(topic, number):
        return ErrorCode.not_leader_or_follower
    snapshot = await current(partition, epoch)
    error = epoch_error(epoch, snapshot.epoch)
    return (partition, snapshot) if error is ErrorCode.none else error
