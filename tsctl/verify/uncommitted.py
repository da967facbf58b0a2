"""Segments that lie in the store and that readers are not shown: above the commit, or in a partition without one.

An agent uploads up to some segments ahead of the commit, so that a few of them for a few seconds are the ordinary
course of things. They are the outside view of a stuck partition once the commit has not moved for as long as the agent
calls that stuck.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit


@dataclass(frozen=True, slots=True)
class StuckCommit:
    """A commit that does not move although segments lie above it.

    Attributes:
        segments: how many readers are not shown.
        first: base offset of the lowest of them.
        seconds: since the last progress that shows: the commit, or the first of these segments if that came later.
        next_offset: end of the commit; None where there is no commit, or a Java uploader's, which names none.
        is_there: whether there is a commit.
    """

    segments: int
    first: int
    seconds: float
    next_offset: int | None
    is_there: bool

    def __str__(self) -> str:
        """One line."""
        commit = "no commit" if not self.is_there else "the commit"
        commit += "" if self.next_offset is None else f" (next offset {self.next_offset})"
        count = f"{self.segments} segment{'' if self.segments == 1 else 's'} from offset {self.first} on"
        return f"{count} and {commit}: nothing was committed for {self.seconds / 60:.0f} min"


def uncommitted(catalog: PartitionCatalog) -> tuple[StoredSegment, ...]:
    """The segments that readers are not shown, because no commit reaches them; by base offset."""
    return catalog.segments[len(catalog.committed) :]


def stuck_commit(
    catalog: PartitionCatalog, written: Iterable[float], committed_at: float | None, now: float, after_seconds: float
) -> StuckCommit | None:
    """Whether the commit of a partition is stuck, as far as the store shows.

    Args:
        catalog: the snapshot.
        written: when the segments that `uncommitted` names were written, seconds since the epoch; some of them do.
        committed_at: when `offset.wm` was; None without one.
        now: seconds since the epoch.
        after_seconds: how long the commit may take to reach a segment that is uploaded.
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
    return StuckCommit(len(segments), segments[0].name.base, seconds, end, commit is not None)
