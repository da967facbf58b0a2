"""The ends of partitions: by their commits, and by their live tails, which move while the commits do not.

A tail is followed by the packs alone for some seconds: entries are facts, and a commit that was read some seconds ago
names those that count. What the commit shows, such as an election, is found when it is read again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ts_common.archive.commit import Commit, ForeignCommit, Live
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.read_log import ReadLog
from ts_common.archive.tail_chain import Chain
from ts_common.archive.tail_logs import TailLogs, tail_ranges
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_reader.query.plan_query import tails_of
from ts_reader.query.query import Query

# For which tails are followed by the packs alone. An agent keeps an entry for a far longer time after a commit.
COMMIT_SECONDS: Final = 5.0
_MOST_PACKS: Final = 16  # of a log in one look; the next look continues

_Commit = Commit | ForeignCommit | None


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The end of one partition.

    Attributes:
        next_offset: the end of what is shipped: the next offset of the commit, or the end of the live tail.
        shown: the end of what the query may read; `read_committed` may put it below `next_offset`.
        log: by the commit, with the epochs of the tail.
        warning: a sentence about a damaged tail, which can end earlier; None without one.
    """

    keys: PartitionKeys
    next_offset: int
    shown: int
    log: ReadLog
    warning: str | None = None


def end_by_commit(keys: PartitionKeys, commit: Commit, *, read_committed: bool) -> PartitionEnd | None:
    """Return the end by a commit, without its live tail; None if only the view has the last stable offset."""
    end, stable = commit.next_offset, commit.last_stable_offset
    if read_committed and stable is None:
        return None
    shown = min(end, stable) if read_committed and stable is not None else end
    return PartitionEnd(keys, end, shown, ReadLog(commit.epochs, commit.lineage))


class LiveEnds:
    """The ends of partitions with a live tail; not thread-safe, but for `end_of`.

    Args:
        query: settled.
    """

    def __init__(self, store: ObjectStore, query: Query) -> None:
        self._store = store
        self._query = query
        self._tails: TailLogs | None = None  # as they were read last
        self._commits: dict[PartitionKeys, Commit] = {}  # of the last look, with a tail
        self._looked_at = float("-inf")

    @property
    def can_follow(self) -> bool:
        """Whether there are tails that can be followed by the packs alone now."""
        return bool(self._commits) and time.monotonic() - self._looked_at < COMMIT_SECONDS

    def begin_look(self) -> None:
        """Forget the commits, which are read again now."""
        self._commits, self._looked_at = {}, time.monotonic()

    def renewed(self) -> TailLogs | None:
        """Return the tails as they are now, after commits were read; None if the query reads none.

        An index that is still named is not read again.
        """
        self._tails = tails_of(self._store, self._query, self._tails)
        return self._tails

    def end_of(
        self, keys: PartitionKeys, commit: Commit, tails: TailLogs, again: Callable[[], _Commit]
    ) -> tuple[PartitionEnd | None, str | None]:
        """Return the end of a partition by its tail, None if it does not show it; and the sentence about damage.

        Args:
            again: as of `TailLogs.continuing`; what it returned last is the commit that counts.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `TailLogs.continuing`.
        """
        read: _Commit = commit

        def read_again() -> _Commit:
            nonlocal read
            read = again()
            return read

        chain, why = tails.continuing(keys, commit, read_again)
        if chain is None or not isinstance(read, Commit):
            return None, why
        end = self._by_chain(keys, read, chain)
        if end is not None:
            self._commits[keys] = read
        return end, why

    def moved(self) -> Iterator[PartitionEnd]:
        """Yield the ends by the newest packs and the commits that were read last; without those that have none now.

        Raises:
            NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        tails = self._tails
        logs = {log for commit in self._commits.values() if commit.live is not None for log in _logs_of(commit.live)}
        for log in sorted(logs):
            if tails is not None:
                _advance(tails, log)
        for keys, commit in self._commits.items():
            chain = None if tails is None else _chain(tails, keys, commit)
            end = None if chain is None else self._by_chain(keys, commit, chain)
            if end is not None:
                yield end

    def view(self, keys: PartitionKeys, start: int) -> PartitionView | None:
        """Return the view of the tail alone, by what was read last; None if it does not suffice from an offset on.

        It has all that decides which records from the offset on are shown: a transaction with a marker below the last
        stable offset has its marker, and its records from there on, in the tail.
        """
        commit, tails = self._commits.get(keys), self._tails
        if commit is None or tails is None or not self.can_follow or start < commit.next_offset:
            return None
        chain = _chain(tails, keys, commit)
        if chain is None or (self._query.read_committed and chain.stable is None):
            return None
        return PartitionView(
            keys,
            commit.next_offset,
            chain.end,
            chain.epochs,
            (),
            (),
            chain.stable,
            lineage=commit.lineage,
            tail=tail_ranges(keys, chain),
            fresh=chain.time,
        )

    def _by_chain(self, keys: PartitionKeys, commit: Commit, chain: Chain) -> PartitionEnd | None:
        shown = chain.end
        if self._query.read_committed:
            if chain.stable is None:
                return None
            shown = min(shown, chain.stable)
        return PartitionEnd(keys, chain.end, shown, ReadLog(chain.epochs, commit.lineage))


def _logs_of(live: Live) -> Iterator[str]:
    yield live.log
    yield from (log for log, _ in live.former)


def _advance(tails: TailLogs, log: str) -> None:
    """Read the packs of a log that are new, without a listing; leave a damaged one to the next look."""
    with suppress(CorruptData, ObjectNotFound):
        for _ in range(_MOST_PACKS):
            if not tails.advance(log, lists=False):
                return


def _chain(tails: TailLogs, keys: PartitionKeys, commit: Commit) -> Chain | None:
    """Return a chain; None if it is damaged, or a merge deleted a pack meanwhile: the next look finds out."""
    try:
        return tails.chain(keys, commit)
    except (CorruptData, ObjectNotFound):
        return None
