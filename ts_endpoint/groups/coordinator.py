"""The coordinator of classic groups: what each request of a member does to its group.

The rules, and the order of the checks, are those of Kafka's GroupCoordinator (release 3.9). Members are in memory only.
After a restart their ids are unknown, so each client joins again; it does so by itself.
"""

import uuid
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from ts_endpoint.groups.group import Budget, Group, GroupState
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.members import MEMBER_BYTES, Answer, Member, Protocols, bytes_of, join_error, sync_error
from ts_endpoint.groups.rounds import Rounds

# A client's name is part of the ids of its members. Kafka keeps all of it; here `MEMBER_BYTES` has room for names.
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request.

    Attributes:
        group: id of the group.
        member_id: empty for a new member.
        instance: `group.instance.id`; None without one.
        session: seconds of the session timeout.
        rebalance: seconds of the rebalance timeout.
        protocol_type: `consumer`, `connect` and others.
        protocols: names with metadata, in order of preference.
        needs_id: whether a new member must join again with its id (version 4 and later).
        may_skip: whether the leader can be excused from assigning (version 9 and later).
    """

    group: str
    member_id: str
    instance: str | None
    client_id: str
    host: str
    session: float
    rebalance: float
    protocol_type: str
    protocols: Protocols
    needs_id: bool
    may_skip: bool


class Coordinator:
    """All classic groups of this process."""

    def __init__(self, loop: AbstractEventLoop, limits: GroupLimits) -> None:
        self._loop = loop
        self._limits = limits
        self._budget = Budget(limits.member_bytes)
        self._rounds = Rounds(loop, limits, self._budget)
        self._groups: dict[str, Group] = {}

    @property
    def rebalances(self) -> int:
        """Generations that began with a member, since the start."""
        return self._rounds.rebalances

    def get(self, name: str) -> Group | None:
        """Return a group that has members, had them lately, or expects one."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """Return the names of these groups."""
        return list(self._groups)

    def states(self) -> Mapping[GroupState, int]:
        """Return the number of these groups in each state."""
        return Counter(group.state for group in self._groups.values())

    def members(self) -> int:
        """Return the number of members of all groups."""
        return sum(len(group.members) for group in self._groups.values())

    def join(self, request: Join, answer: Answer) -> None:
        """Handle a JoinGroup; `answer` is called now or when the next generation begins."""
        if not self._limits.min_session <= request.session <= self._limits.max_session:
            answer(join_error(ErrorCode.invalid_session_timeout, request.member_id))
            return
        if max(len(request.instance or ""), len(request.protocol_type)) > _LONGEST_NAME:
            answer(join_error(ErrorCode.invalid_request, request.member_id[:_LONGEST_NAME]))
            return
        group = self._groups.get(request.group)
        if group is None and request.member_id:
            answer(join_error(ErrorCode.unknown_member_id, request.member_id))
            return
        if not self._accepts(group, request):
            answer(join_error(ErrorCode.group_max_size_reached))
            return
        if group is None:
            group = self._groups[request.group] = self._rounds.new_group(request.group)
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            answer(join_error(ErrorCode.inconsistent_group_protocol, request.member_id))
        elif not request.member_id:
            self._join_new(group, request, answer)
        elif request.member_id in group.pending and request.instance is None:
            self._add(group, request, request.member_id, answer)
        else:
            self._join_again(group, request, answer)
        self._rounds.check_joined(group)

    def sync(
        self,
        name: str,
        generation: int,
        member_id: str,
        instance: str | None,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        answer: Answer,
    ) -> None:
        """Handle a SyncGroup; `answer` is called now or when the leader has sent the assignments.

        Args:
            generation: as the member has it.
            instance: its `group.instance.id`.
            protocol: the protocol's type and name as the member has them; None in early versions.
            assignments: by member, from the leader.
            answer: sends the reply.
        """
        group = self._groups.get(name)
        if group is None or group.state is GroupState.EMPTY:
            answer(sync_error(ErrorCode.unknown_member_id))
            return
        error = _error_of(group, member_id, instance, generation)
        if error is None and any(
            given is not None and given != expected
            for given, expected in zip(protocol, (group.protocol_type, group.protocol), strict=True)
        ):
            error = ErrorCode.inconsistent_group_protocol
        if error is None and group.state is GroupState.PREPARING:
            error = ErrorCode.rebalance_in_progress
        if error is not None:
            answer(sync_error(error))
            return
        member = group.members[member_id]
        self._rounds.synced(group, member_id)
        if group.state is GroupState.STABLE:
            answer(group.synced(member))
            member.alarm.set(member.session)
            return
        member.wait_to_sync(answer)
        if group.leader == member_id:
            self._rounds.propagate(group, assignments)

    def heartbeat(self, name: str, generation: int, member_id: str, instance: str | None) -> ErrorCode:
        """Return the error code of a heartbeat; a rebalance is one."""
        group = self._groups.get(name)
        if group is None or group.state is GroupState.EMPTY:
            return ErrorCode.unknown_member_id
        error = _error_of(group, member_id, instance, generation)
        if error is not None:
            return error
        member = group.members[member_id]
        member.alarm.set(member.session)
        return ErrorCode.rebalance_in_progress if group.state is GroupState.PREPARING else ErrorCode.none

    def leave(self, name: str, member_id: str, instance: str | None, reason: str) -> ErrorCode:
        """Remove a member. Without an id, it is the static member of this instance, as an operator removes it."""
        group = self._groups.get(name)
        if group is None:
            return ErrorCode.unknown_member_id
        if not member_id:
            member_id = (group.member_of_instance(instance) or "") if instance is not None else ""
        elif member_id in group.pending:
            self._rounds.remove_pending(group, member_id)
            return ErrorCode.none
        else:
            error = _error_of(group, member_id, instance)
            if error is not None:
                return error
        if member_id not in group.members:
            return ErrorCode.unknown_member_id
        self._rounds.remove(group, group.members[member_id], reason)
        return ErrorCode.none

    def check_commit(self, name: str, generation: int, member_id: str, instance: str | None) -> ErrorCode:
        """Return whether a commit of offsets is accepted; a member's commit counts as a heartbeat."""
        group = self._groups.get(name)
        if group is None:
            # A consumer that does not use groups, or an admin client; a member's generation is over.
            return ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.none
        error = ErrorCode.unknown_member_id
        if generation >= 0 or member_id or instance is not None:
            error = _error_of(group, member_id, instance, generation) or ErrorCode.none
        if error is ErrorCode.none and group.state is GroupState.COMPLETING:
            error = ErrorCode.rebalance_in_progress
        if error is ErrorCode.none:
            member = group.members[member_id]
            member.alarm.set(member.session)
        return error

    def remove(self, name: str, error: ErrorCode) -> None:
        """Remove a group; its members get an error."""
        group = self._groups.pop(name, None)
        if group is not None:
            group.end(error)

    def forget_empty(self, seconds: float) -> None:
        """Remove groups whose last member left at least `seconds` ago; their offsets stay."""
        now = self._loop.time()
        for group in list(self._groups.values()):
            if group.state is GroupState.EMPTY and not group.pending and now - group.emptied >= seconds:
                self.remove(group.name, ErrorCode.coordinator_not_available)

    def _accepts(self, group: Group | None, request: Join) -> bool:
        """Return whether the limits allow a join. A member can join again, and use the id that it was given."""
        if group is None and len(self._groups) >= self._limits.groups:
            self.forget_empty(0.0)
            if len(self._groups) >= self._limits.groups:
                return False
        member = None if group is None else self._member_of(group, request)
        size = bytes_of(request.protocols) - (bytes_of(member.protocols) if member is not None else -MEMBER_BYTES)
        used = 0
        if group is not None:
            used = group.bytes
            is_new = member is None and request.member_id not in group.pending
            if is_new and len(group.members) + len(group.pending) >= self._limits.members:
                return False
        return used + size <= self._limits.group_bytes and self._budget.used + size <= self._budget.most

    def _member_of(self, group: Group, request: Join) -> Member | None:
        """Return the member that a request is of, or that it replaces."""
        member_id: str | None = request.member_id
        if not member_id and request.instance is not None:
            member_id = group.member_of_instance(request.instance)
        return group.members.get(member_id or "")

    def _join_new(self, group: Group, request: Join, answer: Answer) -> None:
        prefix = request.client_id[:_LONGEST_NAME] if request.instance is None else request.instance
        member_id = f"{prefix}-{uuid.uuid4()}"
        former = None if request.instance is None else group.member_of_instance(request.instance)
        if former is not None:
            self._replace(group, group.members[former], member_id, request, answer)
        elif request.instance is None and request.needs_id:
            self._rounds.give_id(group, member_id, request.session)
            answer(join_error(ErrorCode.member_id_required, member_id))
        else:
            self._add(group, request, member_id, answer)

    def _join_again(self, group: Group, request: Join, answer: Answer) -> None:
        error = _error_of(group, request.member_id, request.instance)
        if error is not None:
            answer(join_error(error, request.member_id))
            return
        member = group.members[request.member_id]
        is_same = member.protocols == request.protocols
        if is_same and (
            group.state is GroupState.COMPLETING
            or (group.state is GroupState.STABLE and group.leader != request.member_id)
        ):
            # It did not receive the reply. A leader can begin a rebalance by joining a stable group: it does so when
            # its subscription has other partitions.
            answer(group.joined(member))
            return
        group.update(member, request.protocols, request.session, request.rebalance)
        member.wait_to_join(answer)
        self._rounds.rebalance(group, "a member joins again")

    def _add(self, group: Group, request: Join, member_id: str, answer: Answer) -> None:
        member = Member(
            member_id,
            request.instance,
            request.client_id[:_LONGEST_NAME],
            request.host,
            request.session,
            request.rebalance,
            request.protocols,
            self._rounds.new_alarm(group, lambda: member),
        )
        group.has_newcomer = True
        group.add(member, request.protocol_type, answer)
        # A client that has no id yet cannot send heartbeats. If it has ended, its JoinGroup must not wait forever.
        member.alarm.set(self._limits.new_member)
        self._rounds.rebalance(group, "a member joins")

    def _replace(self, group: Group, member: Member, new_id: str, request: Join, answer: Answer) -> None:
        """Let a static member that restarted continue, without a rebalance if the group is stable."""
        former_leader = group.leader
        group.replace(member, new_id)
        member.alarm.set(request.session)
        group.update(member, request.protocols, request.session, request.rebalance)
        if group.state is GroupState.STABLE and group.preferred_protocol() == group.protocol:
            if request.may_skip:
                answer(group.joined(member, skips_assignment=group.leader == new_id))
            else:
                # An early client that is named as the leader would assign, and a stable group ignores that.
                answer(group.joined(member, leader=former_leader))
            return
        member.wait_to_join(answer)
        self._rounds.rebalance(group, "a static member restarted")


def _error_of(group: Group, member_id: str, instance: str | None, generation: int | None = None) -> ErrorCode | None:
    """Return the error of a request by a member; None if it is one, of this generation."""
    if instance is not None:
        current = group.member_of_instance(instance)
        if current is None:
            return ErrorCode.unknown_member_id
        if current != member_id:
            return ErrorCode.fenced_instance_id
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    if generation is not None and generation != group.generation:
        return ErrorCode.illegal_generation
    return None
