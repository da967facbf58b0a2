"""Leader epochs that clients send: of their metadata (KIP-320), and of the record before their position (KIP-595)."""

from kio.schema.errors import ErrorCode

from ts_common.archive.epoch_history import NO_EPOCH
from ts_endpoint.topics.partitions import Snapshot


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
    pairs, end = snapshot.epochs.pairs, snapshot.end
    if epoch == NO_EPOCH or not pairs or epoch > max(pairs[-1][0], snapshot.epoch):
        return None
    if epoch == snapshot.epoch:
        return epoch, end
    return (pairs[-1][0], end) if epoch > pairs[-1][0] else snapshot.epochs.end_of(epoch, end)


def divergence(snapshot: Snapshot, offset: int, fetched: int) -> tuple[ErrorCode, tuple[int, int] | None]:
    """Return the error of a Fetch by the epoch of the record before it, and the epoch and its end where the logs part.

    As a leader decides (Kafka's `Partition.readRecords`). A snapshot without epochs decides nothing.

    Args:
        snapshot: of the partition.
        offset: of the Fetch.
        fetched: the client's last fetched epoch; -1 if it has none.
    """
    if fetched == NO_EPOCH or not snapshot.epochs.pairs:
        return ErrorCode.none, None
    ended = end_of(snapshot, fetched)
    if ended is None or offset < snapshot.start:
        return ErrorCode.offset_out_of_range, None
    return ErrorCode.none, ended if ended[0] < fetched or ended[1] < offset else None
