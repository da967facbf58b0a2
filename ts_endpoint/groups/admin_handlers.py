"""Requests of administrators: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from ts_common.model import TopicPartition
from ts_endpoint.contract import Handlers, Session, permitted_first
from ts_endpoint.groups.coordinator import Coordinator
from ts_endpoint.groups.gate import Gate
from ts_endpoint.groups.group import Group, GroupState
from ts_endpoint.groups.keeper import Keeper, NotReadable
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.offset_handlers import by_topic
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

_CLASSIC: Final = "classic"
_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8  # read, delete, describe: AclOperation of Kafka


class AdminHandlers:
    """Handlers of requests that tools send.

    Args:
        gate: checks each request first.
        keeper: of their offsets.
        flush: called when a group was deleted, so that its object does not stay until the next flush.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        gate: Gate,
        coordinator: Coordinator,
        keeper: Keeper,
        limits: GroupLimits,
        flush: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._coordinator = coordinator
        self._keeper = keeper
        self._limits = limits
        self._flush = flush
        self._listed: frozenset[str] = frozenset()
        self._list_again = loop.time()

    def handlers(self) -> Handlers:
        """Return the handlers."""
        return {
            Api.DESCRIBE_GROUPS: self._describe,
            Api.LIST_GROUPS: self._list,
            Api.DELETE_GROUPS: self._delete,
            Api.OFFSET_DELETE: self._delete_offsets,
        }

    async def _describe(self, request: Request, session: Session) -> Values:
        deadline = self._loop.time() + self._limits.load
        operations = getattr(request.body, "include_authorized_operations", False)
        described = []
        groups = dict.fromkeys(request.body.groups)
        for name in sorted(groups, key=lambda each: self._gate.may_use(session, each)):  # a broker refuses first
            error = self._gate.error_of(session, name, may_be_empty=True)
            exists = False
            if error is None and self._coordinator.get(name) is None:
                error, exists = await self._has_offsets(name, deadline)
            values = _error(name, error) if error is not None else _described(self._coordinator.get(name), name, exists)
            if operations and error is None:
                values = {**values, "authorized_operations": _OPERATIONS}
            described.append(values)
        return {"groups": described}

    async def _list(self, request: Request, session: Session) -> Values:
        if self._gate.is_closed:
            return {"error_code": ErrorCode.coordinator_not_available, "groups": ()}
        states = {each.lower() for each in getattr(request.body, "states_filter", ())}
        types = {each.lower() for each in getattr(request.body, "types_filter", ())}
        if types and _CLASSIC not in types:
            return {"error_code": ErrorCode.none, "groups": ()}
        error, empty = ErrorCode.none, frozenset[str]()
        if not states or GroupState.EMPTY.lower() in states:
            error, empty = await self._with_offsets()
        names = sorted(empty.union(self._coordinator.names()))
        groups = [_listed(self._coordinator.get(name), name) for name in names if self._gate.may_list(session, name)]
        return {
            "error_code": error,
            "groups": [each for each in groups if not states or each["group_state"].lower() in states],
        }

    async def _delete(self, request: Request, session: Session) -> Values:
        deadline = self._loop.time() + self._limits.load
        results = []
        for name in permitted_first(
            dict.fromkeys(request.body.groups_names), lambda each: self._gate.may_use(session, each)
        ):
            error = self._gate.error_of(session, name, may_be_empty=True)
            if error is None:
                error = await self._missing(name, deadline)
            group = self._coordinator.get(name)
            if error is None and group is not None and group.state is not GroupState.EMPTY:
                error = ErrorCode.non_empty_group
            if error is None:
                self._coordinator.remove(name, ErrorCode.coordinator_not_available)
                self._keeper.delete(name)
                self._listed -= {name}
                self._flush()
            results.append({"group_id": name, "error_code": error or ErrorCode.none})
        return {"results": results}

    async def _delete_offsets(self, request: Request, session: Session) -> Values:
        body = request.body
        name = body.group_id
        error = self._gate.error_of(session, name)
        named = [TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
        refused: Mapping[TopicPartition, ErrorCode] = {}
        if error is None:
            refused = await self._gate.refused(session, named)
            error = await self._missing(name, self._loop.time() + self._limits.load)
        group = self._coordinator.get(name)
        if error is None and group is not None and group.state is not GroupState.EMPTY and not group.is_of_consumers:
            error = ErrorCode.non_empty_group
        if error is not None:
            return {"error_code": error, "topics": ()}
        errors = {each: refused.get(each) or _error_of_offset(each, group) for each in named}
        self._keeper.remove(name, [each for each, error in errors.items() if error is ErrorCode.none])
        self._flush()
        # The coordinator decides after all others.
        return {
            "error_code": ErrorCode.none,
            "topics": by_topic(sorted(errors, key=lambda each: each not in refused), errors),
        }

    async def _missing(self, name: str, deadline: float) -> ErrorCode | None:
        """Return why a group cannot be changed; the caller looks for members after this wait."""
        error, exists = await self._has_offsets(name, deadline)
        is_missing = error is None and not exists and self._coordinator.get(name) is None
        return ErrorCode.group_id_not_found if is_missing else error

    async def _has_offsets(self, name: str, deadline: float) -> tuple[ErrorCode | None, bool]:
        try:
            return None, bool((await self._keeper.read(name, deadline)).offsets)
        except NotReadable as unreadable:
            return unreadable.error, False

    async def _with_offsets(self) -> tuple[ErrorCode, frozenset[str]]:
        """Return the groups with committed offsets, and the error if the list is not complete."""
        error = ErrorCode.none
        if self._loop.time() >= self._list_again:
            # Once in a while: a client that lists groups in a loop must not list the bucket in a loop.
            try:
                self._listed = frozenset(name for name, _ in await self._keeper.list_stored())
                self._list_again = self._loop.time() + self._limits.flush
            except NotReadable as unreadable:
                error = unreadable.error
        in_memory = {name: self._keeper.get(name) for name in self._keeper.names()}
        empty = {name for name, offsets in in_memory.items() if offsets is not None and offsets.offsets}
        deleted = {
            name
            for name, offsets in in_memory.items()
            if offsets is not None and not offsets.offsets and (offsets.is_loaded or offsets.deleted_at)
        }
        return error, (self._listed - deleted) | empty


def _error_of_offset(partition: TopicPartition, group: Group | None) -> ErrorCode:
    """Return why the offset of a partition may not be deleted."""
    if group is None or (group.state is GroupState.EMPTY and not group.is_of_consumers):
        return ErrorCode.none
    topics = group.topics
    is_subscribed = topics is None or partition.topic in topics
    return ErrorCode.group_subscribed_to_topic if is_subscribed else ErrorCode.none


def _error(name: str, error: ErrorCode) -> Values:
    return {
        "error_code": error,
        "group_id": name,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _described(group: Group | None, name: str, has_offsets: bool) -> Values:
    if group is None:
        state = GroupState.EMPTY if has_offsets else GroupState.DEAD
        return {**_error(name, ErrorCode.none), "group_state": str(state)}
    is_stable = group.state is GroupState.STABLE
    protocol = group.protocol or ""
    return {
        "error_code": ErrorCode.none,
        "group_id": name,
        "group_state": str(group.state),
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol if is_stable else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": member.metadata(protocol) if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in group.members.values()
        ],
    }


def _listed(group: Group | None, name: str) -> Values:
    return {
        "group_id": name,
        "protocol_type": (group.protocol_type if group is not None else None) or "",
        "group_state": str(group.state if group is not None else GroupState.EMPTY),
        "group_type": _CLASSIC,
    }
