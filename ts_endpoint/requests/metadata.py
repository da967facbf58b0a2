"""Metadata: which topics and partitions there are, and who serves them.

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
from ts_endpoint.contract import Session, in_lots
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, error_of
from ts_endpoint.topics.catalog import UsedTopic
from ts_endpoint.topics.lost import Lost
from ts_endpoint.topics.topic_ids import INCARNATION_MARK, NO_TOPIC_ID

_FIRST_WITH_IDS: Final = 10  # the first version whose replies have topic ids
_FIRST_BY_IDS: Final = 12  # the first version whose requests may name topics by their ids
_ID_SECONDS: Final = 1.0  # that Metadata of all topics waits for ids: it has those that were read
_ZERO_OPERATIONS: Final = -(1 << 31)  # Kafka's value for operations that were not requested
_OPERATIONS: Final = 1 << 3 | 1 << 8 | 1 << 10  # read, describe, describe configs: AclOperation of Kafka
_OF_CLUSTER: Final = 1 << 8  # describe
_AT_ONCE: Final = 32  # commits that are read for one request
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})  # Kafka's `Topic`
_PLACES: Final = {
    ErrorCode.unknown_topic_or_partition: 1,
    ErrorCode.invalid_topic_exception: 1,
    ErrorCode.topic_authorization_failed: 2,
}
_OFFSET_SYNCS: Final = "mm2-offset-syncs."

log = structlog.get_logger()


class MetadataHandler:
    """Answers Metadata."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        body, nodes = request.body, self._context.nodes
        topics = await self._topics(request, session)
        if getattr(body, "include_topic_authorized_operations", False):
            permitted = {"topic_authorized_operations": _OPERATIONS}
            topics = [{**each, **permitted} if _error_of(each) is ErrorCode.none else each for each in topics]
        describes = getattr(body, "include_cluster_authorized_operations", False)
        return {
            "brokers": [
                {"node_id": node, "host": host, "port": port, "rack": None} for node, host, port in nodes.brokers()
            ],
            "cluster_id": self._context.cluster,
            "controller_id": min(node for node, _, _ in nodes.brokers()),
            "topics": topics,
            "cluster_authorized_operations": _OF_CLUSTER if describes else _ZERO_OPERATIONS,
        }

    async def _topics(self, request: Request, session: Session) -> list[Values]:
        """Describe the topics that a request names, by names or by ids; all if it names none."""
        asked = request.body.topics
        if asked is None or (request.version == 0 and not asked):
            return await self._all(session, has_ids=request.version >= _FIRST_WITH_IDS)
        ids = dict.fromkeys(each for topic in asked if (each := getattr(topic, "topic_id", None)) is not None)
        if request.version < _FIRST_BY_IDS and (ids or any(topic.name is None for topic in asked)):
            # Kafka named both in the schema of versions 10 and 11, and rejects both there.
            return [_failed(topic.name or "", ErrorCode.invalid_request, topic.topic_id) for topic in asked]
        if ids:
            return await self._by_ids(ids, session)
        names = dict.fromkeys(topic.name for topic in asked if topic.name is not None)
        return sorted(await self._each(names, session), key=_place)

    async def _by_ids(self, ids: Iterable[UUID], session: Session) -> list[Values]:
        """Describe topics by their ids; what is unknown is first, as in a broker's reply."""
        unknown: list[Values] = []
        names: dict[str, UUID] = {}
        for topic_id in ids:
            name = await self._context.archive.catalog.name_of(topic_id, partial(self._context.may_read, session))
            if name is None:
                unknown.append(_failed(None, ErrorCode.unknown_topic_id, topic_id))
            else:
                names[name] = topic_id
        found = await self._each(names, session)
        denied = ErrorCode.topic_authorization_failed
        return [
            *unknown,
            *sorted(
                (
                    {**each, "name": None, "topic_id": names[each["name"]]} if _error_of(each) is denied else each
                    for each in found
                ),
                key=_place,
            ),
        ]

    async def _all(self, session: Session, *, has_ids: bool) -> list[Values]:
        context = self._context
        archive, catalog = context.archive, context.archive.catalog
        listed = await catalog.topics()
        if has_ids:
            await catalog.read_ids(_ID_SECONDS)
        found = [
            self._topic(name, catalog.ids.of(name), topic.partitions, partial(archive.known_epoch, name))
            for name, topic in sorted(listed.items())
            if context.may_read(session, name)
        ]
        former = [name for name in await catalog.former_incarnations() if context.may_read(session, name)]
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
            topic = await self._context.archive.catalog.use(name)
            if topic is None:
                return _failed(name, _missing(name))
        except Lost:
            # Every client repeats Metadata after an error. Without one it sends a Fetch, whose error it reports.
            listed = (await self._context.archive.catalog.topics()).get(name.partition(INCARNATION_MARK)[0])
            partitions = [] if listed is None else listed.partitions
            return self._topic(name, NO_TOPIC_ID, partitions, lambda _: NO_EPOCH)
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

    def _topic(self, name: str, topic_id: UUID, partitions: Iterable[int], epoch_of: Callable[[int], int]) -> Values:
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
            "topic_id": topic_id,
            "is_internal": name in _INTERNAL,
            "partitions": [partition(number) for number in partitions],
            "topic_authorized_operations": _ZERO_OPERATIONS,
        }


def _place(topic: Values) -> int:
    """Return the place of a topic in the reply to a request that names topics: a broker orders them by their errors."""
    return _PLACES.get(_error_of(topic), 0)


def _error_of(topic: Values) -> ErrorCode:
    error: ErrorCode = topic.get("error_code", ErrorCode.none)
    return error


def _missing(name: str) -> ErrorCode:
    """Return the error for a topic that the archive does not have.

    MirrorMaker 2 writes offset syncs to its source by default. Its producer would wait a minute for each topic that is
    unknown, and no longer than a reply for one that is invalid.
    """
    is_of_mirror_maker = name.startswith(_OFFSET_SYNCS)
    return ErrorCode.invalid_topic_exception if is_of_mirror_maker else ErrorCode.unknown_topic_or_partition


def _failed(name: str | None, error: ErrorCode, topic_id: UUID | None = None) -> Values:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id or NO_TOPIC_ID,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": _ZERO_OPERATIONS,
    }
