"""What the handlers of this room share, and the errors that clients get.

Clients send leader epochs of their metadata (KIP-320), and of the record before their position (KIP-595).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.snapshots import Configs
from ts_common.errors import BatchTooLarge, TieredStorageError
from ts_endpoint.contract import Permissions, Session
from ts_endpoint.topics.archive import ServedArchive
from ts_endpoint.topics.cluster_configs import NO_CONFIGS
from ts_endpoint.topics.lost import LASTING
from ts_endpoint.topics.snapshots import Snapshot

_LAST_WITHOUT_STORAGE_ERROR: Final = 5  # version of Fetch
_FRANZ_GO: Final = "kgo"  # it repeats a Fetch after CORRUPT_MESSAGE in silence, and reports INVALID_RECORD


async def _no_configs(_: str) -> Configs:
    return NO_CONFIGS


class Nodes(Protocol):
    """The processes that serve the archive: `ts_endpoint.peers`."""

    @property
    def self_id(self) -> int:
        """Node id of this process."""
        ...

    def brokers(self) -> Sequence[tuple[int, str, int]]:
        """Return node id, host and port of each process."""
        ...

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of the process that serves a partition."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What the handlers of this room share.

    Attributes:
        cluster: the cluster's id, as clients see it.
        configs: returns the settings that a topic has in the archived cluster.
    """

    archive: ServedArchive
    nodes: Nodes
    permissions: Permissions
    cluster: str
    configs: Callable[[str], Awaitable[Configs]] = _no_configs

    def may_read(self, session: Session, topic: str) -> bool:
        """Return whether a client may read a topic, or an incarnation `topic~id` of it."""
        return self.permissions.may_read(session.user, topic.partition("~")[0])

    def owns(self, topic: str, partition: int) -> bool:
        """Return whether this process serves a partition."""
        return self.nodes.leader_of(topic, partition) == self.nodes.self_id


def error_of(error: TieredStorageError) -> ErrorCode:
    """Return the error that a client gets for an error of the store.

    `KAFKA_STORAGE_ERROR` makes clients retry in silence, and `CORRUPT_MESSAGE` is an error of the partition for them.
    A thaw needs an operator and hours, so a frozen object has the second one.
    """
    if isinstance(error, LASTING):
        return ErrorCode.corrupt_message
    if isinstance(error, BatchTooLarge):
        return ErrorCode.message_too_large
    return ErrorCode.kafka_storage_error


def code_for(error: ErrorCode, session: Session, version: int) -> ErrorCode:
    """Return the code that makes a client do what an error of a Fetch means.

    Args:
        error: as `error_of` returns it.
    """
    if error is ErrorCode.kafka_storage_error and version <= _LAST_WITHOUT_STORAGE_ERROR:
        return ErrorCode.not_leader_or_follower  # clients read Metadata and repeat the request
    if error is ErrorCode.corrupt_message and session.software == _FRANZ_GO:
        return ErrorCode.invalid_record
    return error


def epoch_error(requested: int, epoch: int) -> ErrorCode:
    """Return the error of a request with a leader epoch of its metadata, as a leader with `epoch` answers (KIP-320).

    Args:
        requested: the client's; -1 if it has none.
        epoch: of the last commit; -1 if it is not known.
    """
    if NO_EPOCH in {requested, epoch} or requested == epoch:
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if requested < epoch else ErrorCode.unknown_leader_epoch


def end_of(snapshot: Snapshot, epoch: int) -> tuple[int, int] | None:
    """Return an epoch and its end, as a leader does (Kafka's `LeaderEpochFileCache.endOffsetFor`).

    The leader of the last commit has its own epoch in its list, also if no record of that epoch is committed yet.

    Returns:
        None if the epoch is -1, or later than all.
    """
    pairs, end = snapshot.epochs.pairs, snapshot.reach
    if epoch == NO_EPOCH or not pairs or epoch > max(pairs[-1][0], snapshot.epoch):
        return None
    if epoch == snapshot.epoch:
        return epoch, end
    return (pairs[-1][0], end) if epoch > pairs[-1][0] else snapshot.epochs.end_of(epoch, end)


def divergence(snapshot: Snapshot, offset: int, fetched: int) -> tuple[ErrorCode, tuple[int, int] | None]:
    """Return the error of a Fetch by the epoch of the record before it, and the epoch and its end where the logs part.

    As a leader decides (Kafka's `Partition.readRecords`). A snapshot without epochs decides nothing.

    Args:
        fetched: the client's last fetched epoch; -1 if it has none.
    """
    if fetched == NO_EPOCH or not snapshot.epochs.pairs:
        return ErrorCode.none, None
    ended = end_of(snapshot, fetched)
    if ended is None or offset < snapshot.start:
        return ErrorCode.offset_out_of_range, None
    return ErrorCode.none, ended if ended[0] < fetched or ended[1] < offset else None
