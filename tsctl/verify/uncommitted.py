"""Uploaded segments that readers do not see, because they are above the commit.

An agent uploads a few segments ahead of the commit, so some of them for some seconds are normal. If the commit has not
moved for the time after which the agent reports a partition as stuck, the partition is stuck.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.wording import counted


@dataclass(frozen=True, slots=True)
class StuckCommit:
    """A commit that does not move, although there are segments above it.

    Attributes:
        segments: number of segments that readers do not see.
        first: the lowest base offset of them.
        seconds: time since the commit or the first of these segments, whichever is later.
        next_offset: end of the commit; None if a Java uploader wrote it.
    """

    segments: int
    first: int
    seconds: float
    next_offset: int | None

    def __str__(self) -> str:
        """Return it as one line."""
        commit = "the commit" + ("" if self.next_offset is None else f" (next offset {self.next_offset})")
        count = f"{counted(self.segments, 'segment')} from offset {self.first} on"
        return f"{count} and {commit}: nothing was committed for {self.seconds / 60:.0f} min"


def uncommitted(catalog: PartitionCatalog) -> tuple[StoredSegment, ...]:
    """Return the segments that the commit does not cover, by base offset; none without a commit."""
    return () if catalog.commit is None else catalog.segments[len(catalog.committed) :]


def stuck_commit(
    catalog: PartitionCatalog, written: Iterable[float], committed_at: float | None, now: float, after_seconds: float
) -> StuckCommit | None:
    """Return the stuck commit of a partition, as far as the store shows; None if it is not stuck.

    Args:
        catalog: the snapshot.
        written: when segments of `uncommitted` were written, seconds since the epoch; some of them are enough.
        committed_at: when `offset.wm` was written; None if it was not listed.
        now: seconds since the epoch.
        after_seconds: how long the commit may need to cover an uploaded segment.
    """
    segments = uncommitted(catalog)
    first = min(written, default=None)
    if not segments or first is None:
        return None
    seconds = now - max(first, committed_at or 0.0)
    if seconds < after_seconds:
        return None
    commit = catalog.commit
    end = commit.next_offset if isinstance(commit, Commit) else None
    return StuckCommit(len(segments), segments[0].name.base, seconds, end)
