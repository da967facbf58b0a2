"""ListOffsets and OffsetForLeaderEpoch: where a partition starts and ends, and where a time and an epoch are."""

import asyncio
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

import structlog
from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import TieredStorageError
from ts_common.reading.first_offset import first_offset_at, search_for
from ts_endpoint.contract import Session, in_lots
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, epoch_error, error_of
from ts_endpoint.requests.times import time_at
from ts_endpoint.topics.partitions import Partition, Snapshot

_READ_COMMITTED: Final = 1

log = structlog.get_logger()


class Special(IntEnum):
    """Timestamps of ListOffsets that mean a place."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # KIP-734
    EARLIEST_LOCAL = -4  # KIP-405


class ListOffsetsHandler:
    """Answers ListOffsets.

    Args:
        context: of the room.
        searches: the number of searches for timestamps that run at once; each decodes records.
    """

    def __init__(self, context: Context, searches: int = 4) -> None:
        self._context = context
        self._searches = asyncio.Semaphore(searches)

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        committed = getattr(request.body, "isolation_level", 0) == _READ_COMMITTED
        topics = []
        for topic in request.body.topics:
            partitions: list[Values] = []
            for some in in_lots(topic.partitions):
                found = (self._one(topic.name, each, session, committed=committed) for each in some)
                partitions += await asyncio.gather(*found)
                await asyncio.sleep(0)
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    async def _one(self, topic: str, wanted: Any, session: Session, *, committed: bool) -> Values:
        number = wanted.partition_index
        found = {"partition_index": number, "timestamp": -1, "offset": -1, "leader_epoch": NO_EPOCH}
        context = self._context
        if not context.permissions.may_read(session.user, topic.partition("~")[0]):
            return {**found, "error_code": ErrorCode.topic_authorization_failed}
        try:
            partition = await context.archive.partition(topic, number)
            if partition is None:
                return {**found, "error_code": ErrorCode.unknown_topic_or_partition}
            if not context.owns(topic, number):
                return {**found, "error_code": ErrorCode.not_leader_or_follower}
            snapshot = await current(partition)
            error = epoch_error(getattr(wanted, "current_leader_epoch", NO_EPOCH), snapshot.epoch)
            if error is not ErrorCode.none:
                return {**found, "error_code": error}
            return {**found, **await self._find(partition, snapshot, wanted.timestamp, committed=committed)}
        except TieredStorageError as error:
            log.warning("offsets_not_listed", topic=topic, partition=number, reason=str(error))
            return {**found, "error_code": error_of(error)}

    async def _find(self, partition: Partition, snapshot: Snapshot, timestamp: int, *, committed: bool) -> Values:
        if timestamp in {Special.EARLIEST, Special.EARLIEST_LOCAL}:
            return _place(snapshot, snapshot.start)
        end = await snapshot.stable(partition.store) if committed else snapshot.end
        if timestamp == Special.LATEST:
            return _place(snapshot, end)
        if timestamp == Special.MAX_TIMESTAMP:
            times = [copy.metadata.time_max for copy in snapshot.view.copies if copy.metadata.time_max is not None]
            if not times:
                return {}
            timestamp = max(times)
        elif timestamp < 0:
            return {"error_code": ErrorCode.unsupported_version}
        async with self._searches:
            at = await asyncio.to_thread(_search, partition, snapshot, end, timestamp)
        if at is None:
            return {}
        return {**_place(snapshot, at[0]), "timestamp": at[1]}


async def current(partition: Partition) -> Snapshot:
    """Return a snapshot that is not older than the refresh interval, unless the store is away.

    Raises:
        TieredStorageError: there is no snapshot yet, and it cannot be read.
    """
    if partition.known is None or not partition.is_old:
        return await partition.snapshot()
    try:
        return await partition.renewed()
    except TieredStorageError as error:
        log.warning("partition_not_refreshed", partition=str(partition.keys.partition), reason=str(error))
        return partition.known


def _place(snapshot: Snapshot, offset: int) -> Values:
    epoch = snapshot.epochs.at(offset)
    return {"offset": offset, "leader_epoch": NO_EPOCH if epoch is None else epoch}


def _search(partition: Partition, snapshot: Snapshot, end: int, timestamp: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record at or after a time; None without one."""
    view = replace(snapshot.view, end=end)
    offset = first_offset_at(view, search_for(partition.store, timestamp), after_hole=False)
    if offset is None:
        return None
    found = time_at(partition.store, view, offset)
    return offset, timestamp if found is None else found


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch: where an epoch ends, for a client that validates its position (KIP-320).

    Args:
        context: of the room.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        topics = []
        for topic in request.body.topics:
            partitions: list[Values] = []
            for some in in_lots(topic.partitions):
                partitions += await asyncio.gather(*(self._one(topic.topic, each, session) for each in some))
                await asyncio.sleep(0)
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"topics": topics}

    async def _one(self, topic: str, wanted: Any, session: Session) -> Values:
        number = wanted.partition
        found: dict[str, Any] = {"partition": number, "leader_epoch": NO_EPOCH, "end_offset": -1}
        context = self._context
        if not context.permissions.may_read(session.user, topic.partition("~")[0]):
            return {**found, "error_code": ErrorCode.topic_authorization_failed}
        try:
            partition = await context.archive.partition(topic, number)
            if partition is None:
                return {**found, "error_code": ErrorCode.unknown_topic_or_partition}
            if not context.owns(topic, number):
                return {**found, "error_code": ErrorCode.not_leader_or_follower}
            snapshot = await current(partition)
        except TieredStorageError as error:
            return {**found, "error_code": error_of(error)}
        error_code = epoch_error(wanted.current_leader_epoch, snapshot.epoch)
        if error_code is not ErrorCode.none:
            return {**found, "error_code": error_code}
        try:
            epoch, end = snapshot.epochs.end_of(wanted.leader_epoch, snapshot.end)
        except ValueError:  # no leader of this log had so high an epoch
            return found
        return {**found, "leader_epoch": epoch, "end_offset": end}
