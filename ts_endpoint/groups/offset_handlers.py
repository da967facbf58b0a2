"""Requests of committed offsets: OffsetCommit and OffsetFetch."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ts_common.archive.group_offsets import Committed, Offsets
from ts_common.model import TopicPartition
from ts_endpoint.contract import Handlers, Session, in_lots, permitted_first
from ts_endpoint.groups.coordinator import Coordinator
from ts_endpoint.groups.gate import Gate
from ts_endpoint.groups.keeper import Keeper, NotReadable
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

_SEVERAL_GROUPS_FROM: Final = 8
_GROUP_ERROR_FROM: Final = 2
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


class OffsetHandlers:
    """Handlers of commits and fetches of offsets.

    Args:
        gate: checks each request first.
        keeper: of their offsets.
    """

    def __init__(
        self, loop: AbstractEventLoop, gate: Gate, coordinator: Coordinator, keeper: Keeper, limits: GroupLimits
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._coordinator = coordinator
        self._keeper = keeper
        self._limits = limits

    def handlers(self) -> Handlers:
        """Return the handlers."""
        return {Api.OFFSET_COMMIT: self._commit, Api.OFFSET_FETCH: self._fetch}

    async def _commit(self, request: Request, session: Session) -> Values:
        body = request.body
        named = [
            (TopicPartition(topic.name, each.partition_index), each)
            for topic in body.topics
            for each in topic.partitions
        ]
        partitions = [partition for partition, _ in named]
        errors: dict[TopicPartition, ErrorCode] = {}
        if self._gate.may_use(session, body.group_id):
            errors |= await self._gate.refused(session, partitions)
        commits = {
            partition: (
                each.committed_offset,
                max(getattr(each, "committed_leader_epoch", _NO_EPOCH), _NO_EPOCH),
                each.committed_metadata or "",
            )
            for partition, each in named
            if partition not in errors
        }
        error = self._gate.error_of(session, body.group_id, may_be_empty=True)
        if error is not None:
            errors |= dict.fromkeys(commits, error)
        else:
            for some in in_lots(commits.items()):
                errors |= self._commit_to(request, dict(some))
                await asyncio.sleep(0)
        # A broker answers what it refuses before the coordinator answers the rest.
        return {"topics": by_topic(sorted(partitions, key=lambda each: each in commits), errors)}

    def _commit_to(
        self, request: Request, commits: Mapping[TopicPartition, tuple[int, int, str]]
    ) -> Mapping[TopicPartition, ErrorCode]:
        body = request.body
        generation = body.generation_id if hasattr(body, "generation_id") else body.generation_id_or_member_epoch
        instance = getattr(body, "group_instance_id", None)
        error = self._coordinator.check_commit(body.group_id, generation, body.member_id, instance)
        if error is not ErrorCode.none:
            return dict.fromkeys(commits, error)
        rows = [(partition, *commit) for partition, commit in commits.items()]
        return dict(zip(commits, self._keeper.commit(body.group_id, rows), strict=True))

    async def _fetch(self, request: Request, session: Session) -> Values:
        body = request.body
        deadline = self._loop.time() + self._limits.load
        if request.version >= _SEVERAL_GROUPS_FROM:
            wanted = {each.group_id: each for each in body.groups}
            return {"groups": [await self._of_group(each, session, deadline) for each in wanted.values()]}
        found = await self._of_group(body, session, deadline)
        if request.version < _GROUP_ERROR_FROM and found["error_code"] is not ErrorCode.none:
            topics = [
                {
                    "name": topic.name,
                    "partitions": [_fetched(index, None, found["error_code"]) for index in topic.partition_indexes],
                }
                for topic in body.topics
            ]
            return {"topics": topics}
        return found

    async def _of_group(self, wanted: Any, session: Session, deadline: float) -> Values:
        group = wanted.group_id
        error = self._gate.error_of(session, group, may_be_empty=True)
        if error is None:
            try:
                offsets: Offsets = (await self._keeper.read(group, deadline)).offsets
            except NotReadable as unreadable:
                error = unreadable.error
        if error is not None:
            return {"group_id": group, "topics": (), "error_code": error}
        topics = self._all_topics(offsets, session) if wanted.topics is None else None
        return {
            "group_id": group,
            "error_code": ErrorCode.none,
            "topics": topics if topics is not None else self._topics(wanted.topics, offsets, session),
        }

    def _all_topics(self, offsets: Offsets, session: Session) -> list[Values]:
        """Return what a group committed, without topics that the user may not read."""
        ordered = sorted(offsets.items(), key=itemgetter(0))
        return [
            {"name": topic, "partitions": [_fetched(each.partition, committed) for each, committed in some]}
            for topic, some in groupby(ordered, key=lambda item: item[0].topic)
            if self._gate.may_read(session, topic)
        ]

    def _topics(self, wanted: Iterable[Any], offsets: Offsets, session: Session) -> list[Values]:
        topics: list[Values] = []
        for topic in permitted_first(wanted, lambda each: self._gate.may_read(session, each.name)):
            may_read = self._gate.may_read(session, topic.name)
            error = ErrorCode.none if may_read else ErrorCode.topic_authorization_failed
            partitions = [
                _fetched(index, offsets.get(TopicPartition(topic.name, index)) if may_read else None, error)
                for index in topic.partition_indexes
            ]
            topics.append({"name": topic.name, "partitions": partitions})
        return topics


def by_topic(partitions: Iterable[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]) -> list[Values]:
    """Return the errors of partitions by topic, each topic where its first partition is."""
    topics: dict[str, list[Values]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append({"partition_index": each.partition, "error_code": errors[each]})
    return [{"name": topic, "partitions": results} for topic, results in topics.items()]


def _fetched(index: int, committed: Committed | None, error: ErrorCode = ErrorCode.none) -> Values:
    return {
        "partition_index": index,
        "committed_offset": committed.offset if committed is not None else _NO_OFFSET,
        "committed_leader_epoch": committed.epoch if committed is not None else _NO_EPOCH,
        "metadata": committed.metadata if committed is not None else "",
        "error_code": error,
    }
