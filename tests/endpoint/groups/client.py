"""A client that sends real requests of any version to the handlers, and reads real replies."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from tests.endpoint.groups.virtual_time import current
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_endpoint.contract import EveryonePermitted, Permissions, Session
from ts_endpoint.groups.gate import Lacking, lacking_none
from ts_endpoint.groups.groups import Groups
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.offsets_store import OffsetsStore
from ts_endpoint.protocol.replies import encode_reply
from ts_endpoint.protocol.requests import Request, parse_request
from ts_endpoint.protocol.versions import SERVED, Api

BEGAN = 1_700_000_000_000  # milliseconds since the epoch, at the beginning of virtual time
KEYS = ClusterKeys("prod", 5)
RANGE = (("range", b"orders"),)


def clock() -> int:
    return BEGAN + int(current().time() * 1000)


def offsets_store(store: ObjectStore) -> OffsetsStore:
    return OffsetsStore(store, KEYS, lambda: BEGAN)


def directory_store(directory: Path) -> ObjectStore:
    return open_store(directory.as_uri())


@asynccontextmanager
async def room(
    store: ObjectStore | None = None,
    permissions: Permissions | None = None,
    owns: Callable[[str], bool] = lambda _: True,
    limits: GroupLimits | None = None,
    lacking: Lacking = lacking_none,
) -> AsyncIterator["Client"]:
    """Return a client of the groups of a process; the process ends in order afterwards."""
    offsets = None if store is None else offsets_store(store)
    groups = Groups(
        offsets, permissions or EveryonePermitted(), owns, lacking=lacking, limits=limits or GroupLimits(), clock=clock
    )
    try:
        yield Client(groups)
    finally:
        await groups.close()


class Client:
    """Sends requests as one user. Each method returns kio's entity of the reply."""

    def __init__(self, groups: Groups, user: str | None = None, client_id: str = "c") -> None:
        self.groups = groups
        self._handlers = groups.handlers()
        self._session = Session("198.51.100.7", user)
        self._client_id = client_id

    def as_user(self, user: str) -> "Client":
        return Client(self.groups, user)

    async def send(self, api: Api, version: int | None = None, **values: Any) -> Any:
        version = SERVED[api][1] if version is None else version
        request = _request(api, version, self._client_id, values)
        reply = await asyncio.wait_for(self._handlers[api](request, self._session), 10_000)
        assert reply is not None
        schema = load_response_schema(int(api), version)
        frame = b"".join(encode_reply(request, reply))[4:]
        _, used = entity_reader(schema.__header_schema__)(frame, 0)
        return entity_reader(schema)(frame, used)[0]

    def later(self, api: Api, version: int | None = None, **values: Any) -> "asyncio.Task[Any]":
        """Send a request whose reply the test awaits later."""
        return asyncio.get_running_loop().create_task(self.send(api, version, **values))

    async def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = 9,
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session: float = 30,
        rebalance: float = 60,
        instance: str | None = None,
    ) -> Any:
        """Send a JoinGroup; without a member id and from version 4 on, only the first of the two."""
        return await self.send(
            Api.JOIN_GROUP,
            version,
            group_id=group,
            member_id=member_id,
            session_timeout=timedelta(seconds=session),
            rebalance_timeout=timedelta(seconds=rebalance),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name, metadata in protocols],
        )

    async def joined(self, member_id: str = "", **options: Any) -> Any:
        """Join as a client does, with the id that it is given."""
        reply = await self.join(member_id, **options)
        if reply.error_code is ErrorCode.member_id_required:
            reply = await self.join(reply.member_id, **options)
        return reply

    def joining(self, member_id: str = "", **options: Any) -> "asyncio.Task[Any]":
        return asyncio.get_running_loop().create_task(self.joined(member_id, **options))

    async def sync(
        self,
        joined: Any,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        group: str = "g",
        **changes: Any,
    ) -> Any:
        """Send a SyncGroup for a generation."""
        values = {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": getattr(joined, "protocol_type", "consumer"),
            "protocol_name": joined.protocol_name,
            "assignments": [
                {"member_id": member, "assignment": assignment} for member, assignment in (assignments or {}).items()
            ],
        }
        return await self.send(Api.SYNC_GROUP, version, **{**values, **changes})

    def syncing(self, joined: Any, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> Any:
        return asyncio.get_running_loop().create_task(self.sync(joined, assignments, **changes))

    async def heartbeat(self, joined: Any, *, group: str = "g", **changes: Any) -> ErrorCode:
        values = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        found: ErrorCode = (await self.send(Api.HEARTBEAT, **{**values, **changes})).error_code
        return found

    async def leave(self, *members: Mapping[str, Any], group: str = "g") -> Any:
        return await self.send(Api.LEAVE_GROUP, group_id=group, members=[*members])

    async def stable(self, count: int = 1, group: str = "g", **options: Any) -> list[Any]:
        """Let members join, and assign to each its own number; return their JoinGroup replies, the leader's first."""
        replies = await asyncio.gather(*(self.joined(group=group, **options) for _ in range(count)))
        replies.sort(key=lambda reply: reply.member_id != reply.leader)
        assignments = {reply.member_id: b"%d" % number for number, reply in enumerate(replies)}
        synced = await asyncio.gather(
            *(self.sync(each, assignments if each is replies[0] else {}, group=group) for each in replies)
        )
        assert [each.assignment for each in synced] == [assignments[each.member_id] for each in replies]
        return replies

    async def commit(
        self,
        offsets: Mapping[str, int],
        joined: Any = None,
        *,
        group: str = "g",
        version: int = 8,
        metadata: str = "",
        **changes: Any,
    ) -> list[ErrorCode]:
        """Commit offsets by `topic-partition`; return the error codes in this order."""
        values: dict[str, Any] = {
            "group_id": group,
            "generation_id_or_member_epoch": -1 if joined is None else joined.generation_id,
            "member_id": "" if joined is None else joined.member_id,
            "topics": [
                {
                    "name": name.rpartition("-")[0],
                    "partitions": [
                        {
                            "partition_index": int(name.rpartition("-")[2]),
                            "committed_offset": offset,
                            "committed_leader_epoch": 3,
                            "committed_metadata": metadata,
                        }
                    ],
                }
                for name, offset in offsets.items()
            ],
        }
        reply = await self.send(Api.OFFSET_COMMIT, version, **{**values, **changes})
        errors = {
            f"{topic.name}-{each.partition_index}": each.error_code
            for topic in reply.topics
            for each in topic.partitions
        }
        return [errors[name] for name in offsets or errors]

    async def fetched(self, group: str = "g", version: int = 8) -> dict[str, int]:
        """Return all committed offsets of a group by `topic-partition`."""
        topics = (await self.fetch_group(group, version)).topics
        return {
            f"{topic.name}-{each.partition_index}": each.committed_offset
            for topic in topics
            for each in topic.partitions
        }

    async def fetch_group(self, group: str = "g", version: int = 8, topics: Any = None) -> Any:
        """Return the part of an OffsetFetch reply that is about the group."""
        wanted = {"group_id": group, "topics": topics}
        if version < 8:
            return await self.send(Api.OFFSET_FETCH, version, **wanted)
        return (await self.send(Api.OFFSET_FETCH, version, groups=[wanted])).groups[0]

    async def describe(self, group: str = "g", version: int = 5) -> Any:
        return (
            await self.send(Api.DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=True)
        ).groups[0]

    async def listed(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> dict[str, str]:
        """Return the state of each listed group."""
        reply = await self.send(Api.LIST_GROUPS, states_filter=[*states], types_filter=[*types])
        assert reply.error_code is ErrorCode.none
        return {each.group_id: each.group_state for each in reply.groups}

    async def delete(self, *groups: str) -> dict[str, ErrorCode]:
        reply = await self.send(Api.DELETE_GROUPS, groups_names=[*groups])
        return {each.group_id: each.error_code for each in reply.results}


def _request(api: Api, version: int, client_id: str, values: Mapping[str, Any]) -> Request:
    """Return a request that was bytes."""
    parsed = parse_request(frame_of(api, version, client_id, values))
    assert isinstance(parsed, Request)
    return parsed


def frame_of(api: Api, version: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a request without its length.

    Args:
        api: its kind.
        version: of the kind.
        client_id: in its header.
        values: of its fields; those that the version does not have are left out.
    """
    schema = load_request_schema(int(api), version)
    header = schema.__header_schema__
    sink = io.BytesIO()
    named: dict[str, Any] = {
        "request_api_key": i16(api),
        "request_api_version": i16(version),
        "correlation_id": i32(7),
        "client_id": client_id,
    }
    entity_writer(header)(sink, header(**named))
    entity_writer(schema)(sink, _entity(schema, values))
    return sink.getvalue()


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    given = {each.name: _value(each.type, values[each.name]) for each in fields(schema) if each.name in values}
    return schema(**given)


def _value(kind: Any, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    inner = _element(kind)
    return tuple(_entity(inner, each) if isinstance(each, Mapping) else each for each in value)


def _element(kind: Any) -> Any:
    """Return the type of the elements in `tuple[T, ...]` or `tuple[T, ...] | None`."""
    inner = [each for each in get_args(kind) if each is not NoneType and each is not ...]
    return _element(inner[0]) if get_args(inner[0]) else inner[0]
