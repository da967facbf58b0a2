"""Which incarnation of a topic a leadership works in, and so which directory of the store (protocol rule 1).

A list of incarnations goes forward only, and a broker may not know yet that its topic was deleted and made anew: one
that is cut off from the controllers takes the old id, its own disk and its own word for the truth, all alike. Behind a
later id an older one must never be opened; readers would take that, and the living one would never be shipped again.

Of two ids the disk tells which is the later one. Kafka writes `partition.metadata` once, with each replica's directory
(a reassignment, a new disk or a move between disks makes another, later one), and the directories of a topic are all
made before it is deleted, those of its successor afterwards. So the file of a later id is always the younger one, and
the list keeps of each id when the file was written that opened it. What may be wrong are clocks, of two brokers:
`_CLOCKS_APART` is granted, and of a topic that is made anew within that time nothing is told apart. A file that was
copied without its times, or moved between the disks of the very broker that is cut off, looks younger than its topic.

Nor is one opened where the id of a living topic was replaced: see `same_log`.
"""

import time
from datetime import UTC, datetime

import structlog

from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import INCARNATIONS_BYTES, checked
from ts_common.errors import OutcomeUnknown, PreconditionFailed, SegmentChanged
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.committing.same_log import check_other_log
from ts_uploader.events import Leadership, Listing
from ts_uploader.log_dirs.directory_scan import PARTITION_METADATA
from ts_uploader.log_dirs.leader_epoch import FencedLeaderEpoch

log = structlog.get_logger()

_MILLISECONDS = 1000
_NANOSECONDS_EACH = 1_000_000
_CLOCKS_APART = 5 * 60 * _MILLISECONDS


class IncarnationLog:
    """Reads a topic's list of incarnations, and opens one for a topic id that was never seen.

    Args:
        keys: of the cluster.
    """

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        # By topic and topic id. An entry of the list is never changed, so what was read once stays true; a thread that
        # reads it too changes nothing. An id that is followed by another has no live directory for long.
        self._directories: dict[tuple[str, str], str] = {}

    def directory(self, store: ObjectStore, topic: str, listing: Listing, leadership: Leadership) -> str:
        """The directory of the incarnation that the leadership's topic id names; opens one for an id that was never
        seen.

        Only an id that both the leadership source and the live directory name may open one: a task that was late could
        otherwise open an old id behind a new one.

        Args:
            store: the topic's.
            topic: its name.
            listing: of the live directory, as it is now.
            leadership: that works in it.

        Raises:
            SegmentChanged: directory and leadership are not of one topic id, or that id is older than the list's last.
            FencedLeaderEpoch: the topic was made anew since.
            TopicIdChanged: the id was never seen, and the log of the newest incarnation goes on under it.
            OutcomeUnknown: several agents write the list at this moment: ask again.
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        topic_id = leadership.topic_id
        if topic_id is not None and listing.topic_id != topic_id:
            raise SegmentChanged(
                f"{topic}: the directory is of topic id {listing.topic_id}, the leadership of {topic_id}"
            )
        if topic_id is not None and (topic, topic_id) in self._directories:
            return self._directories[topic, topic_id]
        for _ in range(3):
            known, etag = read_incarnations(store, self._keys, topic)
            if topic_id is None:
                return known.newest_directory
            found = known.find(topic_id)
            if found is not None:
                if found.directory != known.newest_directory:
                    raise FencedLeaderEpoch(
                        f"topic id {topic_id} of {topic} was followed by {known.entries[-1].topic_id}"
                    )
                self._directories[topic, topic_id] = found.directory
                return found.directory
            made = _made(listing)
            _check_later(known, topic_id, made, listing)
            if known.entries:
                newest = self._keys.partition(listing.partition, known.newest_directory)
                check_other_log(store, newest, listing, topic_id, made)
            opened = known.opened(topic_id, int(time.time() * _MILLISECONDS), self._keys, made)
            condition = IfAbsent() if etag is None else IfMatch(etag)
            key = self._keys.incarnations(topic)
            data = checked(opened.encode(), key, INCARNATIONS_BYTES)
            try:
                store.put(key, data, condition=condition)
            except (PreconditionFailed, OutcomeUnknown):
                continue
            log.info("incarnation_opened", topic=topic, topic_id=topic_id, directory=opened.newest_directory)
            return opened.newest_directory
        raise OutcomeUnknown(f"{self._keys.incarnations(topic)} is being written by several agents")

    def are_of_one_life(self, store: ObjectStore, topic: str, topic_id: str, other: str) -> bool:
        """Whether two ids are of one incarnation: an operator let the second continue the first.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        return read_incarnations(store, self._keys, topic)[0].are_of_one_life(topic_id, other)


def _made(listing: Listing) -> int:
    """When the directory's `partition.metadata` was written, in milliseconds since the epoch.

    Raises:
        SegmentChanged: it is gone.
    """
    try:
        return (listing.directory / PARTITION_METADATA).stat().st_mtime_ns // _NANOSECONDS_EACH
    except FileNotFoundError as gone:
        raise SegmentChanged(f"{listing.directory}: {PARTITION_METADATA} is gone") from gone


def _check_later(known: Incarnations, topic_id: str, made: int, listing: Listing) -> None:
    """An id is opened behind another only if its directory is the younger one; see the module's page."""
    last = known.entries[-1] if known.entries else None
    if last is None or last.made is None or made > last.made - _CLOCKS_APART:
        return
    raise SegmentChanged(
        f"{listing.directory} is of topic id {topic_id}, made {_said(made)}, and the archive already has a later one, "
        f"{last.topic_id}, made {_said(last.made)}: the topic was made anew, and this broker, perhaps cut off from the "
        f"controllers, does not know it yet; nothing is shipped. Where this one is the living topic, and a "
        f"clock was wrong: touch {listing.directory / PARTITION_METADATA}"
    )


def _said(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // _MILLISECONDS, UTC).isoformat()
