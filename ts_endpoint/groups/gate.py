"""Checks before every request of a group: permission, the group's id, and whether this process owns it."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from kio.schema.errors import ErrorCode

from ts_common.archive.group_offsets import is_partition
from ts_common.model import TopicPartition
from ts_endpoint.contract import Permissions, Session
from ts_endpoint.groups.offsets_store import can_be_stored

# Returns those of some partitions that do not exist.
Lacking = Callable[[Sequence[TopicPartition]], Awaitable[Collection[TopicPartition]]]


async def lacking_none(partitions: Sequence[TopicPartition]) -> Collection[TopicPartition]:
    """Return nothing: every partition exists."""
    del partitions
    return ()


class Gate:
    """Decides whether a request of a group is handled.

    Args:
        owns: returns whether this process is the coordinator of a group.
        lacking: returns the partitions that do not exist.
        on_lost: called with a group that this process does not own.
    """

    def __init__(
        self, permissions: Permissions, owns: Callable[[str], bool], lacking: Lacking, on_lost: Callable[[str], None]
    ) -> None:
        self._permissions = permissions
        self._owns = owns
        self._lacking = lacking
        self._on_lost = on_lost
        self.is_closed = False

    def error_of(self, session: Session, group: str, *, may_be_empty: bool = False) -> ErrorCode | None:
        """Return the error of a request; None if it is handled.

        Args:
            group: id of the group.
            may_be_empty: whether the empty id is accepted, as Kafka does for offsets without a group.
        """
        if not self.may_use(session, group):
            return ErrorCode.group_authorization_failed
        if not (group or may_be_empty) or not can_be_stored(group):
            return ErrorCode.invalid_group_id
        if self.is_closed:
            return ErrorCode.coordinator_not_available
        if not self._owns(group):
            self._on_lost(group)
            return ErrorCode.not_coordinator
        return None

    async def refused(self, session: Session, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Return the errors of partitions whose offsets a broker refuses before its coordinator gets the rest."""
        topics = {each.topic for each in partitions}
        readable = {topic for topic in topics if self.may_read(session, topic)}
        permitted = [each for each in partitions if each.topic in readable]
        lacking = {each for each in permitted if not is_partition(each.topic, each.partition)}
        lacking.update(await self._lacking([each for each in permitted if each not in lacking]))
        denied = [each for each in partitions if each.topic not in readable]
        return {
            **dict.fromkeys(denied, ErrorCode.topic_authorization_failed),
            **dict.fromkeys(lacking, ErrorCode.unknown_topic_or_partition),
        }

    def may_list(self, session: Session, group: str) -> bool:
        """Return whether a list of groups has this one."""
        return self.may_use(session, group) and self._owns(group)

    def may_use(self, session: Session, group: str) -> bool:
        """Return whether a user may use a group."""
        return self._permissions.may_use(session.user, group)

    def may_read(self, session: Session, topic: str) -> bool:
        """Return whether a user may commit and fetch offsets of a topic, or of an incarnation `topic~id` of it."""
        return self._permissions.may_read(session.user, topic.partition("~")[0])
