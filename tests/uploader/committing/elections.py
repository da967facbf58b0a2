"""The commit of an earlier leader, and the log of the broker that leads now."""

from dataclasses import replace

from tests.common.log_format import build
from tests.uploader.local_directory import ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import PositionRead
from ts_uploader.messages.tasks import ReadPosition

LEADERSHIP = Leadership(5, ID, 0)


def committed(store: ObjectStore, next_offset: int, *epochs: tuple[int, int], highest: int = 0) -> Commit:
    """A commit as an earlier leader epoch left it."""
    commit = Commit(highest, next_offset, epochs[-1][0] if epochs else 0, EpochHistory(epochs), 0, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    return commit


def ask(commits: CommitLog, local: LocalDirectory, leadership: Leadership = LEADERSHIP) -> PositionRead:
    return commits.read(ReadPosition(TP, 0, leadership, local.listing(), 0, None, 0))


def put_segment(store: ObjectStore, base: int, data: bytes, end: int) -> None:
    metadata = SegmentMetadata(end, None, None, None, None, 0)
    store.put(KEYS.segment(SegmentName(base)), data, metadata=metadata.encode())


def said_by(store: ObjectStore, before: Commit) -> Commit:
    """Return the current commit, with the earlier one's writer, time and leader epoch."""
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    return replace(commit, epoch=before.epoch, broker=before.broker, time=before.time, nonce=before.nonce)


def old_batches(base: int, *values: bytes) -> bytes:
    return b"".join(build.message(1, base + n, value) for n, value in enumerate(values))


def compacted_log(local: LocalDirectory, *batches: tuple[int, int]) -> None:
    """One closed segment up to 320, with these (offset, epoch) left in it."""
    local.write(0, b"".join(build.batch(offset, [build.record(0)], epoch=epoch) for offset, epoch in batches))
    local.segments(320)
