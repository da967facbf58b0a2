"""Requests of members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from asyncio import AbstractEventLoop, Future
from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Handlers, Session
from ts_endpoint.groups.coordinator import Coordinator, Join
from ts_endpoint.groups.gate import Gate
from ts_endpoint.groups.members import Answer, join_error, sync_error
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

_NEEDS_ID_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIPS_FROM: Final = 9
_PROTOCOL_IN_SYNC_FROM: Final = 5
_SEVERAL_LEAVE_FROM: Final = 3
_LONGEST_REASON: Final = 255  # as Java's clients cut it


class MembershipHandlers:
    """Handlers of requests that members send.

    Args:
        gate: checks each request first.
    """

    def __init__(self, loop: AbstractEventLoop, gate: Gate, coordinator: Coordinator) -> None:
        self._loop = loop
        self._gate = gate
        self._coordinator = coordinator

    def handlers(self) -> Handlers:
        """Return the handlers."""
        return {
            Api.JOIN_GROUP: self._join,
            Api.SYNC_GROUP: self._sync,
            Api.HEARTBEAT: self._heartbeat,
            Api.LEAVE_GROUP: self._leave,
        }

    async def _join(self, request: Request, session: Session) -> Values:
        body = request.body
        error = self._gate.error_of(session, body.group_id)
        if error is not None:
            values = join_error(error, body.member_id)
        else:
            reply, answer = self._reply()
            join = Join(
                group=body.group_id,
                member_id=body.member_id,
                instance=getattr(body, "group_instance_id", None),
                client_id=request.client_id or "",
                host=f"/{session.host}",  # as Kafka's tools show it
                session=_seconds(body.session_timeout),
                rebalance=_seconds(body.rebalance_timeout),
                protocol_type=body.protocol_type,
                protocols=tuple((each.name, each.metadata) for each in body.protocols),
                needs_id=request.version >= _NEEDS_ID_FROM,
                may_skip=request.version >= _SKIPS_FROM,
            )
            self._coordinator.join(join, answer)
            values = await reply
        if request.version < _NULL_PROTOCOL_FROM and values["protocol_name"] is None:
            values = {**values, "protocol_name": ""}
        return values

    async def _sync(self, request: Request, session: Session) -> Values:
        body = request.body
        protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
        if request.version >= _PROTOCOL_IN_SYNC_FROM and None in protocol:
            return sync_error(ErrorCode.inconsistent_group_protocol)
        error = self._gate.error_of(session, body.group_id)
        if error is not None:
            return sync_error(error)
        reply, answer = self._reply()
        self._coordinator.sync(
            body.group_id,
            body.generation_id,
            body.member_id,
            getattr(body, "group_instance_id", None),
            protocol,
            {each.member_id: each.assignment for each in body.assignments},
            answer,
        )
        return await reply

    async def _heartbeat(self, request: Request, session: Session) -> Values:
        body = request.body
        error = self._gate.error_of(session, body.group_id)
        if error is None:
            instance = getattr(body, "group_instance_id", None)
            error = self._coordinator.heartbeat(body.group_id, body.generation_id, body.member_id, instance)
        return {"error_code": error}

    async def _leave(self, request: Request, session: Session) -> Values:
        body = request.body
        error = self._gate.error_of(session, body.group_id)
        if error is not None:
            return {"error_code": error, "members": ()}
        if request.version < _SEVERAL_LEAVE_FROM:
            return {"error_code": self._coordinator.leave(body.group_id, body.member_id, None, "it left")}
        members = []
        for each in body.members:
            reason = (getattr(each, "reason", None) or "it left")[:_LONGEST_REASON]
            error = self._coordinator.leave(body.group_id, each.member_id, each.group_instance_id, reason)
            members.append(
                {"member_id": each.member_id, "group_instance_id": each.group_instance_id, "error_code": error}
            )
        return {"error_code": ErrorCode.none, "members": members}

    def _reply(self) -> tuple["Future[Values]", Answer]:
        """Return a reply that a later event sends, and the function that sends it."""
        reply: Future[Values] = self._loop.create_future()

        def answer(values: Values) -> None:
            if not reply.done():  # the connection can have ended
                reply.set_result(values)

        return reply, answer


def _seconds(duration: timedelta) -> float:
    return max(duration.total_seconds(), 0.0)
