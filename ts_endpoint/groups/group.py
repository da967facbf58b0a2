"""The state of one classic group: members, their votes, the generation."""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kio.schema.errors import ErrorCode

from ts_endpoint.groups.members import MEMBER_BYTES, Alarm, Answer, Member, Protocols
from ts_endpoint.protocol.replies import Values

_CONSUMER: Final = "consumer"
_VERSION_BYTES: Final = 2  # of a subscription
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")


class GroupState(StrEnum):
    """States of a group, by the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join
    COMPLETING = "CompletingRebalance"  # members wait for the leader's assignments
    STABLE = "Stable"
    DEAD = "Dead"  # deleted, or another process is the coordinator


@dataclass(slots=True)
class Budget:
    """Bytes that all groups share.

    Attributes:
        most: bytes.
        used: bytes.
    """

    most: int
    used: int = 0


class Group:
    """Members of one group and its generation. Nothing here waits, or reads a clock.

    Args:
        name: the group's id.
        join_alarm: fires when a rebalance need not wait for more members.
        sync_alarm: fires when members must have sent their SyncGroup.
        budget: bytes of the members of all groups.
    """

    def __init__(self, name: str, join_alarm: Alarm, sync_alarm: Alarm, budget: Budget) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending: dict[str, Alarm] = {}  # ids of members that have not joined with them yet
        self.unsynced: set[str] = set()  # members of this generation that have not sent a SyncGroup
        self.emptied = 0.0  # time of the event loop: the last member left
        self.join_alarm = join_alarm
        self.sync_alarm = sync_alarm
        self.is_initial = False  # the rebalance waits for a fixed time
        self.has_newcomer = False  # a member joined since this wait began
        self.initial_left = 0.0
        self.bytes = 0
        self._budget = budget
        self._instances: dict[str, str] = {}
        self._support: Counter[str] = Counter()

    @property
    def rebalance_seconds(self) -> float:
        """How long a rebalance waits for members."""
        return max((member.rebalance for member in self.members.values()), default=0.0)

    @property
    def all_joined(self) -> bool:
        """Whether a JoinGroup of each member waits."""
        return not self.pending and all(member.is_joining for member in self.members.values())

    def member_of_instance(self, instance: str) -> str | None:
        """Return the id of a static member; None if the group has no such member."""
        return self._instances.get(instance)

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members are consumers, and not workers of Connect or others."""
        return self.protocol_type == _CONSUMER

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that its members subscribe to; None if they are not known (Kafka's `computeSubscribedTopics`)."""
        if not self.is_of_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset().union(*(_topics_of(each.metadata(self.protocol)) for each in self.members.values()))
        except (ValueError, struct.error):
            return None

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Return whether a member with these protocols can join the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return self.protocol_type == protocol_type and any(
            self._support[name] == len(self.members) for name in set(protocols)
        )

    def add(self, member: Member, protocol_type: str, answer: Answer) -> None:
        """Add a member whose JoinGroup waits."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance is not None:
            self._instances[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._support.update(_names(member.protocols))
        self._weigh(member.size)
        self.forget_pending(member.id)
        member.wait_to_join(answer)

    def remove(self, member_id: str) -> None:
        """Remove a member, or an id that has not joined; requests of it that wait get UNKNOWN_MEMBER_ID."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.alarm.cancel()
            self._support.subtract(_names(member.protocols))
            self._support += Counter()  # keeps those above zero
            self._weigh(-member.size)
            if member.instance is not None:
                del self._instances[member.instance]
            member.answer_all(ErrorCode.unknown_member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.unsynced.discard(member_id)

    def give_id(self, member_id: str, alarm: Alarm) -> None:
        """Wait for a member to join with the id that it was given; the alarm ends this."""
        self.pending[member_id] = alarm
        self._weigh(MEMBER_BYTES)

    def forget_pending(self, member_id: str) -> None:
        """Remove an id that was given and not used."""
        alarm = self.pending.pop(member_id, None)
        if alarm is not None:
            alarm.cancel()
            self._weigh(-MEMBER_BYTES)

    def update(self, member: Member, protocols: Protocols, session: float, rebalance: float) -> None:
        """Replace the protocols and timeouts of a member."""
        before = member.size
        self._support.subtract(_names(member.protocols))
        member.protocols = protocols
        self._support.update(_names(protocols))
        self._support += Counter()
        self._weigh(member.size - before)
        member.session, member.rebalance = session, rebalance

    def replace(self, member: Member, new_id: str) -> None:
        """Give a static member another id; requests with the old one are fenced."""
        member.answer_all(ErrorCode.fenced_instance_id)
        old_id = member.id
        del self.members[old_id]
        member.id = new_id
        self.members[new_id] = member
        if member.instance is not None:
            self._instances[member.instance] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Set what each member is assigned; a member without an assignment gets an empty one."""
        before = sum(len(member.assignment) for member in self.members.values())
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self._weigh(sum(len(member.assignment) for member in self.members.values()) - before)

    def elect(self) -> bool:
        """Elect a leader among the members that joined, if the leader did not; return whether one is elected."""
        leader = None if self.leader is None else self.members[self.leader]
        if leader is None or leader.is_joining:
            return leader is not None
        joined = next((member.id for member in self.members.values() if member.is_joining), None)
        self.leader = joined or self.leader
        return joined is not None

    def begin_generation(self) -> None:
        """Begin the next generation, with the protocol that most members prefer."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.preferred_protocol() if self.members else None
        self.state = GroupState.COMPLETING if self.members else GroupState.EMPTY

    def preferred_protocol(self) -> str:
        """Return the protocol with most votes among those that all members support."""
        candidates = frozenset(name for name, count in self._support.items() if count == len(self.members))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def joined(self, member: Member, *, skips_assignment: bool = False, leader: str | None = None) -> Values:
        """Return the values of a JoinGroup reply to a member of this generation.

        Args:
            member: that joined.
            skips_assignment: whether the leader must not assign.
            leader: the id that the reply names, if it is not the leader's.
        """
        names = leader if leader is not None else self.leader
        protocol = self.protocol or ""
        described = self.members.values() if names == member.id else ()
        return {
            "error_code": ErrorCode.none,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": protocol,
            "leader": names or "",
            "skip_assignment": skips_assignment,
            "member_id": member.id,
            "members": [
                {"member_id": each.id, "group_instance_id": each.instance, "metadata": each.metadata(protocol)}
                for each in described
            ],
        }

    def synced(self, member: Member) -> Values:
        """Return the values of a SyncGroup reply with the member's assignment."""
        return {
            "error_code": ErrorCode.none,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    def end(self, error: ErrorCode) -> None:
        """End the group: requests that wait get an error, and no alarm fires any more."""
        self.state = GroupState.DEAD
        for alarm in (self.join_alarm, self.sync_alarm, *self.pending.values()):
            alarm.cancel()
        for member in self.members.values():
            member.alarm.cancel()
            member.answer_all(error)
        self._weigh(-self.bytes)

    def _weigh(self, change: int) -> None:
        self.bytes += change
        self._budget.used += change


def _topics_of(subscription: bytes) -> frozenset[str]:
    """Return the topics of a consumer's metadata: Kafka's `ConsumerProtocolSubscription`, whose version 0 begins all.

    Raises:
        ValueError, struct.error: the metadata is no subscription.
    """
    (count,) = _COUNT.unpack_from(subscription, _VERSION_BYTES)
    topics, at = set(), _VERSION_BYTES + _COUNT.size
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(subscription, at)
        at += _LENGTH.size + size
        if size < 0 or at > len(subscription):
            raise ValueError(f"a topic's name ends at byte {at} of {len(subscription)}")
        topics.add(subscription[at - size : at].decode())
    return frozenset(topics)


def _names(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}
