"""Commits and `log.start` with lineages, and stores that fail between the two writes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.uploader.local_directory import ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart, decode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.errors import OutcomeUnknown, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import PositionRead
from ts_uploader.messages.tasks import Position, ReadPosition

OLD = Lineage(3, 100, 250)


def write_commit(
    store: ObjectStore, next_offset: int, *epochs: tuple[int, int], lineage: Lineage | None = None
) -> None:
    commit = Commit(0, next_offset, epochs[-1][0], EpochHistory(epochs), 0, ID, 2, 0, "theirs", lineage=lineage)
    store.put(KEYS.commit, commit.encode())


def write_log_start(store: ObjectStore, offset: int, lineage: Lineage | None = None) -> None:
    store.put(KEYS.log_start, LogStart(offset, lineage).encode())


def put_segment(
    store: ObjectStore, base: int, end: int, *epochs: tuple[int, int], name: SegmentName | None = None, lacks: int = 0
) -> None:
    metadata = SegmentMetadata(end, epochs, end - base - lacks, None, None, 0)
    store.put(KEYS.segment(name or SegmentName(base)), b"x", metadata=metadata.encode())


def ask(commits: CommitLog, local: LocalDirectory, epoch: int, *, first: int = 0, latest: bool = False) -> PositionRead:
    return commits.read(ReadPosition(TP, 0, Leadership(epoch, ID, 0), local.listing(), first, None, 0, latest))


def stored(store: ObjectStore) -> tuple[Commit, LogStart]:
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    return commit, decode_log_start(store.get(KEYS.log_start)[0], "log.start")


class Unanswered(WrappedStore):
    """A store that writes a commit, but answers neither that nor any later request, until it is repaired."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.mended = self._silent = False

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """As the inner store, and no answer."""
        info = super().put(key, *arguments, **named)
        if key == KEYS.commit and not self.mended:
            self._silent = True
            raise OutcomeUnknown("no answer")
        return info

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store, before the commit."""
        if self._silent and not self.mended:
            raise StoreUnavailable("no answer")
        return super().open(key, byte_range)


def empty_replica(local: LocalDirectory, epoch: int) -> None:
    """Make a replica that returned without a record, and leads."""
    local.segments(0)
    local.epochs((epoch, 0))


def rebuilt(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, *, latest: bool = False
) -> tuple[Position, Commit, LogStart]:
    position = ask(commits, local, 5, latest=latest).position
    commit, start = stored(store)
    assert position.lineage == commit.lineage == start.lineage
    assert (position.next_offset, position.log_start) == (commit.next_offset, start.offset)
    return position, commit, start


class Settling(WrappedStore):
    """A store that runs a callback before the second read of the commit."""

    def __init__(self, inner: ObjectStore, happens: Callable[[], None]) -> None:
        super().__init__(inner, threads=1)
        self._happens = happens
        self._reads = 0

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """As the inner store."""
        self._reads += key == KEYS.commit
        if key == KEYS.commit and self._reads == 2:
            self._happens()
        return super().open(key, byte_range)
