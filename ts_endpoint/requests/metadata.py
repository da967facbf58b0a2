"""Metadata and DescribeConfigs: which topics and partitions there are, and who serves them.

A request that names topics gets the leader epoch of each partition, which costs one request for a commit that is not
in memory: with it clients notice an election that replaced records. Metadata of all topics reads no partition. It has
the epochs that are in memory: consumers that subscribe to a pattern send no other Metadata.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import TieredStorageError
from ts_common.model import is_topic_name
from ts_endpoint.contract import Session, in_lots, permitted_first
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, error_of
from ts_endpoint.topics.catalog import INCARNATION_MARK, UsedTopic
from ts_endpoint.topics.topic_ids import NO_TOPIC_ID, uuid_of

_NULL_NAMES: Final = 12  # the version since which a reply may have no name of a topic
_ZERO_OPERATIONS: Final = -(1 << 31)  # Kafka's value for operations that were not requested
_AT_ONCE: Final = 32  # commits that are read for one request
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})  # Kafka's `Topic`
_PLACES: Final = {
    ErrorCode.unknown_topic_or_partition: 1,
    ErrorCode.invalid_topic_exception: 1,
    ErrorCode.topic_authorization_failed: 2,
}
_TOPIC, _BROKER = 2, 4  # Kafka's numbers of resources

log = structlog.get_logger()


class MetadataHandler:
    """Answers Metadata.

    Args:
        context: of the room.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        asked = request.body.topics
        is_all = asked is None or (request.version == 0 and not asked)
        if is_all:
            topics = await self._all(session)
        else:
            names = [getattr(each, "name", None) for each in asked]
            found = await self._each(dict.fromkeys(name for name in names if name is not None), session)
            # A request by topic id alone, since version 10: ids are not served.
            unnamed = None if request.version >= _NULL_NAMES else ""
            unserved = [
                getattr(each, "topic_id", None) for each, name in zip(asked, names, strict=True) if name is None
            ]
            unknown = [_failed(unnamed, ErrorCode.unknown_topic_id, each) for each in dict.fromkeys(unserved)]
            topics = [*unknown, *sorted(found, key=_place)]
        nodes = self._context.nodes
        return {
            "brokers": [
                {"node_id": node, "host": host, "port": port, "rack": None} for node, host, port in nodes.brokers()
            ],
            "cluster_id": self._context.cluster,
            "controller_id": min(node for node, _, _ in nodes.brokers()),
            "topics": topics,
            "cluster_authorized_operations": _ZERO_OPERATIONS,
        }

    async def _all(self, session: Session) -> list[Values]:
        context = self._context
        listed = await context.archive.topics()
        found = [
            self._topic(name, None, topic.partitions, partial(context.archive.known_epoch, name))
            for name, topic in sorted(listed.items())
            if context.may_read(session, name)
        ]
        former = [name for name in await context.archive.former_incarnations() if context.may_read(session, name)]
        return [*found, *await self._each(former, session)]

    async def _each(self, names: Iterable[str], session: Session) -> list[Values]:
        """Describe topics, some at once; other clients are served in between."""
        topics: list[Values] = []
        for some in in_lots(names):
            topics += await asyncio.gather(*(self._one(name, session) for name in some))
            await asyncio.sleep(0)
        return topics

    async def _one(self, name: str, session: Session) -> Values:
        if not self._context.may_read(session, name):
            return _failed(name, ErrorCode.topic_authorization_failed)
        if not is_topic_name(name.partition(INCARNATION_MARK)[0]):
            return _failed(name, ErrorCode.invalid_topic_exception)
        try:
            topic = await self._context.archive.topic(name)
            if topic is None:
                return _failed(name, ErrorCode.unknown_topic_or_partition)
        except TieredStorageError as error:
            log.warning("topic_not_described", topic=name, reason=str(error))
            code = error_of(error)
            # Every client repeats Metadata with this error, as it does while a broker elects a leader.
            return _failed(name, ErrorCode.leader_not_available if code is ErrorCode.kafka_storage_error else code)
        epochs = await self._epochs(topic)
        return self._topic(name, topic.topic_id, topic.partitions, epochs.__getitem__)

    async def _epochs(self, topic: UsedTopic) -> dict[int, int]:
        """Return the leader epoch of each partition."""
        numbers = list(topic.partitions)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def epoch(number: int) -> int:
            async with limit:
                try:
                    return await self._context.archive.of(topic, number).epoch()
                except TieredStorageError as error:  # a client reads without it, and repeats the request
                    log.warning("epoch_not_read", topic=topic.name, partition=number, reason=str(error))
                    return NO_EPOCH

        return dict(zip(numbers, await asyncio.gather(*map(epoch, numbers)), strict=True))

    def _topic(
        self, name: str, topic_id: str | None, partitions: Iterable[int], epoch_of: Callable[[int], int]
    ) -> Values:
        leader_of = self._context.nodes.leader_of

        def partition(number: int) -> dict[str, Any]:
            leader = leader_of(name, number)
            return {
                "partition_index": number,
                "leader_id": leader,
                "leader_epoch": epoch_of(number),
                "replica_nodes": [leader],
                "isr_nodes": [leader],
                "offline_replicas": [],
            }

        return {
            "name": name,
            "topic_id": uuid_of(topic_id),
            "is_internal": name in _INTERNAL,
            "partitions": [partition(number) for number in partitions],
            "topic_authorized_operations": _ZERO_OPERATIONS,
        }


def _place(topic: Values) -> int:
    """Return the place of a topic in the reply to a request that names topics: a broker orders them by their errors."""
    return _PLACES.get(topic.get("error_code", ErrorCode.none), 0)


def _failed(name: str | None, error: ErrorCode, topic_id: UUID | None = None) -> Values:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id or NO_TOPIC_ID,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": _ZERO_OPERATIONS,
    }


class DescribeConfigsHandler:
    """Answers DescribeConfigs: an archive has no settings of topics, so the lists are empty.

    Args:
        context: of the room.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        results = []
        for some in in_lots(permitted_first(request.body.resources, lambda each: self._is_permitted(each, session))):
            results += [await self._one(each, session) for each in some]
            await asyncio.sleep(0)
        return {"results": results}

    async def _one(self, resource: Any, session: Session) -> Values:
        error = ErrorCode.none
        if resource.resource_type == _TOPIC:
            error = await self._topic_error(resource.resource_name, session)
        elif resource.resource_type != _BROKER:
            error = ErrorCode.invalid_request
        return {
            "error_code": error,
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }

    def _is_permitted(self, resource: Any, session: Session) -> bool:
        return resource.resource_type != _TOPIC or self._context.may_read(session, resource.resource_name)

    async def _topic_error(self, name: str, session: Session) -> ErrorCode:
        if not self._context.may_read(session, name):
            return ErrorCode.topic_authorization_failed
        try:
            known = await self._context.archive.topic(name)
        except TieredStorageError as error:
            return error_of(error)
        return ErrorCode.none if known is not None else ErrorCode.unknown_topic_or_partition
