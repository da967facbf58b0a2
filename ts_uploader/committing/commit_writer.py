"""The only writer of `offset.wm` (protocol rules 4 and 7).

Each write is conditional on the commit that was read before. If the condition fails, or no answer arrives, the commit
is read again. If it has the nonce of this write, the write succeeded. If it has a higher leader epoch, this agent is
fenced. In all other cases the caller reads the position again.
"""

from collections.abc import Callable
from dataclasses import replace

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.small_objects import COMMIT_BYTES, checked
from ts_common.errors import PreconditionFailed, SegmentChanged, StaleStateError
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.committing.empty_archives import EmptyArchives
from ts_uploader.committing.next_commit import check_own, with_live
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.messages.observations import Listing
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Position


class CommitWriter:
    """Writes commits, each over the one that was read.

    Args:
        store_of: returns the store that holds a topic's objects.
        empty_archives: remembers partitions without a commit until the first one is written.
        tail_log: returns the name of this agent's log of packs for a topic; None if the topic's tail is off.
    """

    def __init__(
        self,
        store_of: Callable[[str], ObjectStore],
        empty_archives: EmptyArchives,
        tail_log: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._store_of = store_of
        self._empty_archives = empty_archives
        self._tail_log = tail_log

    def has_tail(self, partition: TopicPartition) -> bool:
        """Return whether this agent ships the live tail of a topic."""
        return self._tail_log(partition.topic) is not None

    def lacks_live(self, partition: TopicPartition, commit: Commit) -> bool:
        """Return whether a commit of this leadership does not name the log where this agent ships its tail."""
        log = self._tail_log(partition.topic)
        return log is not None and (commit.live is None or commit.live.log != log)

    def write(
        self,
        partition: TopicPartition,
        position: Position,
        commit: Commit,
        listing: Listing | None = None,
        *,
        forgets_former: bool = False,
    ) -> Position:
        """Write a commit over the one that `position` was read from, and return the position that it describes.

        Args:
            commit: complete but for the live tail, which is named here.
            listing: of this broker's log, for the first commit of a leadership.
            forgets_former: own entries cover what former leaderships shipped (tail rule 4).

        Raises:
            SegmentChanged: the broker's leadership has ended.
            FencedLeaderEpoch: a commit of a later leader epoch exists.
            PreconditionFailed: another commit exists, or may be written later: read the position again.
            CorruptData: the commit contradicts itself.
            OutcomeUnknown: no answer arrived, and the commit could not be read afterwards.
        """
        check_own(partition, commit.epochs.pairs, commit.epoch)
        commit = self._with_live(partition, position, commit, listing)
        if forgets_former and commit.live is not None:
            same = tuple(each for each in commit.live.former if each[1] == commit.epoch)
            commit = replace(commit, live=replace(commit.live, former=same))
        self._empty_archives.over(partition)
        store = self._store_of(partition.topic)
        condition = IfAbsent() if position.etag is None else IfMatch(position.etag)
        data = checked(commit.encode(), position.keys.commit, COMMIT_BYTES)
        try:
            etag = store.put(position.keys.commit, data, condition=condition).etag
        except StaleStateError as refused:
            etag = self._follow(store, position.keys, commit, refused)
        return replace(
            position,
            next_offset=commit.next_offset,
            highest_base=commit.highest_base if commit.has_run else None,
            epochs=commit.epochs,
            etag=etag,
            commit=commit,
            lineage=commit.lineage,
        )

    def _with_live(
        self, partition: TopicPartition, position: Position, commit: Commit, listing: Listing | None
    ) -> Commit:
        log = self._tail_log(partition.topic)
        local = None if listing is None or log is None else local_epochs(listing.directory)
        if local is not None and listing is not None and (not local.pairs or local.pairs[-1][0] != commit.epoch):
            raise SegmentChanged(
                f"{listing.directory}: its leader epoch checkpoint no longer ends with epoch {commit.epoch}"
            )
        return with_live(commit, position.commit, log, local)

    def _follow(self, store: ObjectStore, keys: PartitionKeys, mine: Commit, refused: StaleStateError) -> str:
        """Return the ETag of a commit that was not acknowledged, if it was written after all."""
        theirs, etag = read_commit(store, keys)
        if isinstance(theirs, Commit):
            if theirs.nonce == mine.nonce and etag is not None:
                return etag
            if theirs.epoch > mine.epoch:
                raise FencedLeaderEpoch(
                    f"{keys.commit} is of leader epoch {theirs.epoch}, this one would be of {mine.epoch}"
                )
        raise PreconditionFailed(f"{keys.commit} was written by another agent, or may still be: {refused}") from refused
