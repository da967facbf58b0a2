"""Checks a topic id that changed: whether the log is still that of the archive's newest incarnation.

A controller that lost a topic's id creates a new one (KAFKA-14190). Operators then remove `partition.metadata`, so that
the broker writes the new id, and the log continues at its offsets. A new incarnation would split the archive: readers
use the newest one, and would not return earlier offsets. So the agent opens none if the log continues, and the
partition waits for an operator.

If a topic was deleted and created again, all files of its directory are younger than its topic id. The comparison, in
this order:

- the last committed batch, if this log has that offset: other bytes mean another log;
- the age of the lowest segment: if it was written before the id, the id was replaced;
- the lowest offset: the log begins at or above the next offset, at an epoch not below the run's last.
"""

from pathlib import Path

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys
from ts_common.errors import TopicIdChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.batch_comparison import holds_tail
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.messages.observations import Listing

_NANOSECONDS_EACH = 1_000_000
# A broker may write the id some time after the first segment; the margin also covers a clock that is set meanwhile.
_WRITTEN_LATER = 5 * 60 * 1000


def check_other_log(store: ObjectStore, keys: PartitionKeys, listing: Listing, topic_id: str, made: int) -> None:
    """Check that a log with a new topic id is another log than that of the newest incarnation.

    Args:
        keys: of the partition in the newest incarnation, which has another topic id.
        listing: of the live directory.
        made: when the directory's `partition.metadata` was written, milliseconds since the epoch.

    Raises:
        TopicIdChanged: it is the same log, or may be.
        CorruptData: the commit, or the local `leader-epoch-checkpoint`, does not parse.
        SegmentChanged: a local segment no longer exists: list again.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    found, _ = read_commit(store, keys)
    commit = found if isinstance(found, Commit) else None
    why = _why_it_goes_on(commit, listing, made)
    if why is None:
        return
    topic = keys.partition.topic
    raise TopicIdChanged(
        f"{listing.directory} has topic id {topic_id}, which {keys.prefix} does not have, but its log continues: "
        f"{why}. A new incarnation of the topic would hide the archived records. If the controller replaced the id "
        f"(KAFKA-14190): tsctl adopt-topic-id {topic} {topic_id}; if the topic was created again: the same with "
        "--separate"
    )


def _why_it_goes_on(commit: Commit | None, listing: Listing, made: int) -> str | None:
    same = None if commit is None else holds_tail(commit, listing)
    if same is False:
        return None
    lowest = listing.bases[0]
    written = _written(listing.directory / f"{lowest:020d}{LOG_SUFFIX}")
    if written is not None and written < made - (0 if same else _WRITTEN_LATER):
        held = " and contains the last committed batch" if same else ""
        return f"segment {lowest} was written before the topic id{held}"
    if same is None and commit is not None and 0 < commit.next_offset <= lowest and _follows(commit, listing):
        return f"it begins at {lowest}, and {commit.next_offset} is the next offset"
    return None


def _follows(commit: Commit, listing: Listing) -> bool:
    """Return whether the local epochs can follow the commit's."""
    local = local_epochs(listing.directory)
    before, after = commit.epochs.at(commit.next_offset - 1), None if local is None else local.at(listing.bases[0])
    return before is None or after is None or after >= before


def _written(path: Path) -> int | None:
    """Return when a file was last written, milliseconds since the epoch; None if it does not exist."""
    try:
        return path.stat().st_mtime_ns // _NANOSECONDS_EACH
    except FileNotFoundError:
        return None
