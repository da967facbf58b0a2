"""A topic id that changed under a living topic: is the log the one that the archive's newest incarnation is of?

A controller that lost a topic's id makes a new one (KAFKA-14190), and operators then remove `partition.metadata`, so
that the broker writes the new id. The log goes on at its offsets. A new incarnation would split the archive: readers
take the newest, and would be shown no offset of before. So the agent opens none where the log goes on, and the
partition waits for an operator.

A topic that was deleted and created again has a directory whose files are all younger than its topic id. What is
compared, in this order:

- the last committed batch, where this log holds that offset: other bytes are another log;
- the age of the lowest segment: it was written before the id, so the id was replaced;
- the lowest offset: the log begins at or above the next offset, at an epoch not below the run's last.
"""

from pathlib import Path

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys
from ts_common.errors import TopicIdChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.divergence import holds_tail
from ts_uploader.events import Listing
from ts_uploader.log_dirs.local_log import local_epochs

_NANOSECONDS_EACH = 1_000_000
# A broker may write the id a while after the first segment, and with this margin a clock may be set meanwhile.
_WRITTEN_LATER = 5 * 60 * 1000


def check_other_log(store: ObjectStore, keys: PartitionKeys, listing: Listing, topic_id: str, made: int) -> None:
    """Go on only where a log with a new topic id is another log than the one of the newest incarnation.

    Args:
        store: the topic's.
        keys: of the partition in the newest incarnation, which is of another topic id.
        listing: of the live directory.
        topic_id: the new one.
        made: milliseconds since the epoch, when the directory's `partition.metadata` was written.

    Raises:
        TopicIdChanged: it is the same log, or may be.
        CorruptData: the commit, or the local `leader-epoch-checkpoint`, is none.
        SegmentChanged: a local segment is gone: look again.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    found, _ = read_commit(store, keys)
    commit = found if isinstance(found, Commit) else None
    why = _why_it_goes_on(commit, listing, made)
    if why is None:
        return
    topic = keys.partition.topic
    raise TopicIdChanged(
        f"{listing.directory} bears topic id {topic_id}, which {keys.prefix} is not of, and its log goes on all the "
        f"same: {why}; a new life of the topic would hide what is archived. Where the controller replaced the id "
        f"(KAFKA-14190): tsctl adopt-topic-id {topic} {topic_id}; where the topic was created again: the same with "
        "--separate"
    )


def _why_it_goes_on(commit: Commit | None, listing: Listing, made: int) -> str | None:
    same = None if commit is None else holds_tail(commit, listing)
    if same is False:
        return None
    lowest = listing.bases[0]
    written = _written(listing.directory / f"{lowest:020d}{LOG_SUFFIX}")
    if written is not None and written < made - (0 if same else _WRITTEN_LATER):
        held = " and the last committed batch stands in it" if same else ""
        return f"segment {lowest} was written before the topic id{held}"
    if same is None and commit is not None and 0 < commit.next_offset <= lowest and _follows(commit, listing):
        return f"it begins at {lowest}, and {commit.next_offset} is the next offset"
    return None


def _follows(commit: Commit, listing: Listing) -> bool:
    """Whether the local epochs could be those behind the commit's."""
    local = local_epochs(listing.directory)
    before, after = commit.epochs.at(commit.next_offset - 1), None if local is None else local.at(listing.bases[0])
    return before is None or after is None or after >= before


def _written(path: Path) -> int | None:
    """When a file was written last, milliseconds since the epoch; None where it is gone."""
    try:
        return path.stat().st_mtime_ns // _NANOSECONDS_EACH
    except FileNotFoundError:
        return None
