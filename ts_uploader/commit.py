"""How far the archive came: read from the store, moved along the run. The only writer of `offset.wm`.

Nothing is kept on disk; progress is what the store says (protocol rules 4, 7, 8 and 12):

- `ask` finds where to go on. With no commit, `log.start` is written first, so that an archive begins where it
  first meant to; a commit without a second line, or segments without a commit, are walked (`ts_uploader.takeover`).
- `write` moves the commit, conditional on the one that was read. Where the condition fails, or no answer comes, the
  store is read and the facts decide: own nonce, it was written; a higher epoch, this reign is over; else look again.
"""

import secrets
import time
from collections.abc import Callable, Sequence

import structlog

from ts_common.catalog import read_catalog, read_commit, read_incarnations
from ts_common.commit import Commit, decode_log_start, encode_log_start
from ts_common.epochs import NO_EPOCH, EpochLine
from ts_common.errors import (
    CorruptData,
    LookFirstError,
    OutcomeUnknown,
    PreconditionFailed,
    SegmentChanged,
    TieredStorageError,
)
from ts_common.object_keys import ClusterKeys, PartitionKeys
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.events import AskStore, Listing, Position, Reign, Shipped, WriteCommit
from ts_uploader.takeover import walk_run
from ts_uploader.watch.scan import list_partition

log = structlog.get_logger()

_MILLISECONDS = 1000


class ReignOver(TieredStorageError):
    """The store shows a later reign, or a later incarnation, than the one that this agent works in."""


class CommitLog:
    """Reads and writes the commits of one cluster.

    Args:
        keys: of the cluster.
        broker: id of the broker beside which the agent runs.
        store_of: the store that holds a topic's objects.
    """

    def __init__(self, keys: ClusterKeys, broker: int, store_of: Callable[[str], ObjectStore]) -> None:
        self._keys = keys
        self._broker = broker
        self._store_of = store_of

    def ask(self, task: AskStore) -> Position:
        """Where to go on.

        Raises:
            ReignOver: the store is ahead of this reign.
        SegmentChanged: the directory is not the one that was listed any more.
        PreconditionFailed: another agent commits at this moment: ask again.
            CorruptData: something in the store is not what it should be; nothing is written.
            StoreUnavailable, OutcomeUnknown, AccessDenied, BucketMissing: the store's.
        """
        listing = _look_again(task)
        topic = task.partition.topic
        store = self._store_of(topic)
        keys = self._keys.partition(task.partition, self._incarnation(store, topic, listing.topic_id, task.reign))
        commit, etag = read_commit(store, keys)
        if isinstance(commit, Commit):
            if commit.epoch > task.reign.epoch:
                raise ReignOver(
                    f"{keys.commit} is of leader epoch {commit.epoch}, this broker's reign of {task.reign.epoch}"
                )
            start = commit.epochs.pairs[0][1] if commit.epochs.pairs else commit.next_offset
            return Position(keys, start, commit.next_offset, commit.highest_base, commit.epochs, etag, commit)
        catalog = read_catalog(store, keys)
        if isinstance(catalog.commit, Commit):
            raise PreconditionFailed(f"{keys.commit} was written by another agent while this one looked")
        log_start = catalog.log_start
        if log_start is None:
            # Where segments stand already (a Java uploader's), the archive began with the lowest of them.
            log_start = catalog.segments[0].name.base if catalog.segments else task.first_base
            log_start = _write_once(store, keys, log_start)
        run = walk_run(store, catalog, log_start)
        if catalog.segments:
            log.info(
                "run walked",
                partition=str(task.partition),
                commit="a Java uploader's" if catalog.commit else "none",
                next_offset=run.next_offset,
                segments=len(catalog.segments),
            )
        return Position(
            keys, log_start, run.next_offset, run.highest_base, run.epochs, catalog.commit_etag, catalog.commit
        )

    def write(self, task: WriteCommit) -> Position:
        """Move the commit to the end of the run.

        Raises:
            ReignOver: a commit of a later reign stands there; this one wrote nothing.
            PreconditionFailed: another commit stands there: ask again.
            OutcomeUnknown: no answer, and the store did not say afterwards either.
        """
        position = task.position
        commit = next_commit(position, task.run, task.reign.epoch, task.reign.topic_id, self._broker)
        store = self._store_of(task.partition.topic)
        condition = IfAbsent() if position.etag is None else IfMatch(position.etag)
        try:
            etag = store.put(position.keys.commit, commit.encode(), condition=condition).etag
        except LookFirstError as refused:
            etag = self._look(store, position.keys, commit, refused)
        return Position(
            position.keys, position.log_start, commit.next_offset, commit.highest_base, commit.epochs, etag, commit
        )

    def _look(self, store: ObjectStore, keys: PartitionKeys, mine: Commit, refused: LookFirstError) -> str:
        """What became of a commit that was not acknowledged: the etag where it stands, or an error."""
        theirs, etag = read_commit(store, keys)
        if isinstance(theirs, Commit):
            if theirs.nonce == mine.nonce and etag is not None:
                return etag
            if theirs.epoch > mine.epoch:
                raise ReignOver(f"{keys.commit} is of leader epoch {theirs.epoch}, this one would be of {mine.epoch}")
        raise PreconditionFailed(f"{keys.commit} was written by somebody else, or may still be: {refused}") from refused

    def _incarnation(self, store: ObjectStore, topic: str, local_id: str | None, reign: Reign) -> str:
        """The directory of the incarnation that the reign's topic id names; opens one for an id that was never seen.

        Only an id that both the leadership source and the live directory name may open one: a task that was late could
        otherwise open an old id behind a new one.
        """
        topic_id = reign.topic_id
        if topic_id is not None and local_id != topic_id:
            raise SegmentChanged(f"{topic}: the directory is of topic id {local_id}, the reign of {topic_id}")
        for _ in range(3):
            known, etag = read_incarnations(store, self._keys, topic)
            if topic_id is None:
                return known.newest_directory
            found = known.find(topic_id)
            if found is not None:
                if found.directory != known.newest_directory:
                    raise ReignOver(f"topic id {topic_id} of {topic} was followed by {known.entries[-1].topic_id}")
                return found.directory
            opened = known.opened(topic_id, int(time.time() * _MILLISECONDS), self._keys)
            condition = IfAbsent() if etag is None else IfMatch(etag)
            try:
                store.put(self._keys.incarnations(topic), opened.encode(), condition=condition)
            except (PreconditionFailed, OutcomeUnknown):
                continue
            log.info("incarnation opened", topic=topic, topic_id=topic_id, directory=opened.newest_directory)
            return opened.newest_directory
        raise OutcomeUnknown(f"{self._keys.incarnations(topic)} is being written by several agents")


def next_commit(position: Position, run: Sequence[Shipped], epoch: int, topic_id: str | None, broker: int) -> Commit:
    """The commit after `run` has continued the run that `position` ends. Pure but for time and nonce.

    Below the old next offset the epochs stay what they were, from there on they are those of the segments.

    Raises:
        CorruptData: a segment cannot continue what is committed.
    """
    epochs, next_offset, highest = position.epochs, position.next_offset, position.highest_base
    for shipped in run:
        continued = epochs.continued(_line_of(shipped.epochs), next_offset)
        if not continued.agrees_with(shipped.epochs, next_offset, shipped.end):
            raise CorruptData(
                f"{shipped.partition}: segment {shipped.base} has epochs {shipped.epochs}, which cannot continue "
                f"{epochs.pairs} from offset {next_offset} on; committed, readers would drop its records"
            )
        epochs = continued.below(shipped.end)
        next_offset = shipped.end
        highest = shipped.base if highest is None else max(highest, shipped.base)
    return Commit(
        highest_base=highest if highest is not None else position.log_start,
        next_offset=next_offset,
        epoch=epoch,
        epochs=epochs,
        last_stable_offset=run[-1].last_stable_offset if run else None,
        topic_id=topic_id,
        broker=broker,
        time=int(time.time() * _MILLISECONDS),
        nonce=secrets.token_hex(8),
    )


def _line_of(epochs: tuple[tuple[int, int], ...]) -> EpochLine:
    """The batches' epochs as a line; batches without an epoch (old magic) between two of one epoch are part of it."""
    pairs: list[tuple[int, int]] = []
    for epoch, first in epochs:
        if epoch != NO_EPOCH and (not pairs or epoch > pairs[-1][0]):
            pairs.append((epoch, first))
    return EpochLine(tuple(pairs))


def _look_again(task: AskStore) -> Listing:
    """The directory as it is now: a task can have waited for long, and `log.start` is written once and for ever."""
    seen = task.listing
    now = list_partition(task.partition, seen.directory, seen.log_dir)
    if now is None or now.identity != seen.identity or now.swapping or not now.bases or now.bases[0] != seen.bases[0]:
        raise SegmentChanged(f"{seen.directory} changed since it was listed")
    return now


def _write_once(store: ObjectStore, keys: PartitionKeys, log_start: int) -> int:
    """Write `log.start`, or take what somebody else wrote there first."""
    try:
        store.put(keys.log_start, encode_log_start(log_start), condition=IfAbsent())
    except (PreconditionFailed, OutcomeUnknown):
        return decode_log_start(store.get(keys.log_start)[0], keys.log_start)
    return log_start
