"""Bounds of groups: timeouts, and what clients can make the process keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Bounds of groups. The names in brackets are Kafka's, and their defaults are the same unless described.

    Attributes:
        groups: number of groups in memory.
        members: of one group, with those that have only an id yet (group.max.size). Kafka has no limit.
        group_bytes: metadata and assignments of the members of one group. Kafka's limit is the size of a record.
        member_bytes: metadata and assignments of the members of all groups.
        offset_bytes: committed offsets in memory, of all groups.
        group_offset_bytes: committed offsets of one group, as they are stored.
        offset_metadata: characters of the metadata of one committed offset (offset.metadata.max.bytes).
        min_session: seconds (group.min.session.timeout.ms).
        max_session: seconds (group.max.session.timeout.ms).
        new_member: seconds that a new member waits for its first generation, before it must join again.
        initial_delay: seconds that a group without members waits for more members after each one that joins
            (group.initial.rebalance.delay.ms, there three seconds). Without a delay, of two members that start at the
            same time the first gets all partitions alone, and the second waits for the heartbeat of the first, three
            seconds. With a fifth of a second both are in the first generation, and a console tool starts at once. Later
            members are in the next generation, whatever the delay is, so it never repeats a rebalance.
        flush: seconds between two flushes of offsets to the store.
        retention: seconds; offsets of a group without members expire this long after its last commit
            (offsets.retention.minutes, there seven days).
        expiry: seconds between two searches for groups that expired. A group expires at the earliest this long after
            its last member left.
        load: seconds that a request waits for a group that is read from the store.
    """

    groups: int = 10_000
    members: int = 1_000
    group_bytes: int = 16 << 20
    member_bytes: int = 64 << 20
    offset_bytes: int = 64 << 20
    group_offset_bytes: int = 8 << 20
    offset_metadata: int = 4096
    min_session: float = 6.0
    max_session: float = 1800.0
    new_member: float = 300.0
    initial_delay: float = 0.2
    flush: float = 30.0
    retention: float = 30 * 86_400.0
    expiry: float = 3600.0
    load: float = 5.0
