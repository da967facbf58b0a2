"""Rebalances: how a group gets from one generation to the next, and what ends a wait.

A rebalance begins when a member joins, leaves, disappears or changes its metadata. Members learn it by their next
heartbeat and join again. It ends when all have joined, or after the longest of their rebalance timeouts, without those
that did not join. Static members stay without joining. Then the leader must send the assignments within the rebalance
timeout, or the members that sent no SyncGroup are removed.

The rules are those of Kafka's GroupCoordinator (core/src/main/scala/kafka/coordinator/group, release 3.9).
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable

import structlog
from kio.schema.errors import ErrorCode

from ts_endpoint.groups.group import Budget, Group, GroupState
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.members import Alarm, Member, join_error, sync_error

log = structlog.get_logger("ts_endpoint")


class Rounds:
    """Runs the rebalances of all groups.

    Args:
        budget: bytes of the members of all groups.

    Attributes:
        rebalances: generations that began with a member, since the start.
    """

    def __init__(self, loop: AbstractEventLoop, limits: GroupLimits, budget: Budget) -> None:
        self._loop = loop
        self._limits = limits
        self._budget = budget
        self.rebalances = 0

    def new_group(self, name: str) -> Group:
        """Return a group without members."""
        group = Group(
            name,
            Alarm(self._loop, lambda: self._join_ended(group)),
            Alarm(self._loop, lambda: self._sync_ended(group)),
            self._budget,
        )
        group.emptied = self._loop.time()
        return group

    def new_alarm(self, group: Group, member: Callable[[], Member]) -> Alarm:
        """Return the alarm of the session of a member, which is created with it."""
        return Alarm(self._loop, lambda: self._session_ended(group, member()))

    def give_id(self, group: Group, member_id: str, session: float) -> None:
        """Wait for a member to join with the id that it was given."""
        alarm = Alarm(self._loop, lambda: self._pending_ended(group, member_id))
        group.give_id(member_id, alarm)
        alarm.set(session)

    def rebalance(self, group: Group, reason: str) -> None:
        """Begin a rebalance, unless members already join."""
        if group.state is GroupState.PREPARING:
            return
        if group.state is GroupState.COMPLETING:
            self._cancel_assignments(group, ErrorCode.rebalance_in_progress)
        group.sync_alarm.cancel()
        group.unsynced.clear()
        group.is_initial = group.state is GroupState.EMPTY
        group.state = GroupState.PREPARING
        log.info("group_rebalances", group=group.name, generation=group.generation, reason=reason)
        if group.is_initial:
            group.has_newcomer = False
            delay = self._limits.initial_delay
            group.initial_left = max(group.rebalance_seconds - delay, 0.0)
            group.join_alarm.set(delay)
        else:
            group.join_alarm.set(group.rebalance_seconds)
            self.check_joined(group)

    def check_joined(self, group: Group) -> None:
        """Begin the next generation if all members have joined."""
        if group.state is GroupState.PREPARING and not group.is_initial and group.all_joined:
            self._complete_join(group)

    def remove(self, group: Group, member: Member, reason: str) -> None:
        """Remove a member; the others share its partitions."""
        group.remove(member.id)
        if group.state is GroupState.PREPARING:
            self.check_joined(group)
        elif group.state in {GroupState.STABLE, GroupState.COMPLETING}:
            self.rebalance(group, reason)

    def remove_pending(self, group: Group, member_id: str) -> None:
        """Remove an id that was given and not used."""
        group.forget_pending(member_id)
        self.check_joined(group)

    def synced(self, group: Group, member_id: str) -> None:
        """Record that a member sent its SyncGroup."""
        group.unsynced.discard(member_id)
        if not group.unsynced:
            group.sync_alarm.cancel()

    def propagate(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Send the leader's assignments to the members that wait, and end the rebalance."""
        size = sum(len(assignments.get(member_id, b"")) for member_id in group.members)
        before = sum(len(member.assignment) for member in group.members.values())
        grown = size - before
        if group.bytes + grown > self._limits.group_bytes or self._budget.used + grown > self._budget.most:
            log.warning("group_assignment_too_large", group=group.name, bytes=size)
            self._cancel_assignments(group, ErrorCode.unknown_server_error)  # as Kafka does if the record is too large
            self.rebalance(group, "the assignment is too large")
            return
        group.assign(assignments)
        group.state = GroupState.STABLE
        for member in group.members.values():
            if member.answer_sync(group.synced(member)):
                member.alarm.set(member.session)

    def _cancel_assignments(self, group: Group, error: ErrorCode) -> None:
        group.assign({})
        for member in group.members.values():
            if member.answer_sync(sync_error(error)):
                member.alarm.set(member.session)

    def _join_ended(self, group: Group) -> None:
        if group.is_initial and group.has_newcomer and group.initial_left > 0:
            group.has_newcomer = False
            delay = min(self._limits.initial_delay, group.initial_left)
            group.initial_left -= delay
            group.join_alarm.set(delay)
        else:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        group.join_alarm.cancel()
        group.is_initial = False
        for member in list(group.members.values()):
            if not member.is_joining and member.instance is None:
                log.info("group_member_removed", group=group.name, member=member.id, reason="it did not join again")
                group.remove(member.id)
        if group.members and not group.elect():
            # Only static members are left, and their sessions have not ended: wait for them.
            group.join_alarm.set(group.rebalance_seconds)
            return
        group.begin_generation()
        if group.state is GroupState.EMPTY:
            group.emptied = self._loop.time()
            return
        self.rebalances += 1
        log.info("group_generation", group=group.name, generation=group.generation, members=len(group.members))
        for member in group.members.values():
            member.is_new = False
            member.answer_join(group.joined(member))
            member.alarm.set(member.session)
            group.unsynced.add(member.id)
        group.sync_alarm.set(group.rebalance_seconds)

    def _sync_ended(self, group: Group) -> None:
        if not group.unsynced:
            return
        for member_id in sorted(group.unsynced):
            log.info("group_member_removed", group=group.name, member=member_id, reason="it sent no SyncGroup")
            group.remove(member_id)
        self.rebalance(group, "members sent no SyncGroup")

    def _session_ended(self, group: Group, member: Member) -> None:
        if member.is_waiting and not member.is_new:
            return  # it is answered when the rebalance ends, and its session begins again
        log.info("group_member_removed", group=group.name, member=member.id, reason="its session timed out")
        member.answer_join(join_error(ErrorCode.unknown_member_id))
        self.remove(group, member, "the session of a member timed out")

    def _pending_ended(self, group: Group, member_id: str) -> None:
        self.remove_pending(group, member_id)
