"""Chooses the incarnation of a topic for a leadership, and so its directory in the store (protocol rule 1).

A list of incarnations only grows. A broker may not have heard yet that its topic was deleted and created again: a
broker partitioned from the controllers still has the old topic id, its own disk and its own metadata, and all three
agree. An older id must never be opened after a later one: readers would use it, and the live topic would never be
shipped again.

The disk shows which of two ids is the later one. Kafka writes `partition.metadata` once, with each replica's directory
(a reassignment, a new disk or a move between disks creates another, later one). The directories of a topic are all
created before its deletion, those of its successor afterwards. So the file of a later id is always younger, and the
list has, for each id, the write time of the file that opened it. The clocks of two brokers can differ: the agent allows
`_CLOCKS_APART`, and cannot distinguish two topics of one name that were created within that time. A file that was
copied without its times, or moved between the disks of the partitioned broker itself, looks younger than its topic.

No incarnation is opened if the id of a live topic was replaced: see `same_log`.
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
from ts_uploader.log_dirs.directory_scan import PARTITION_METADATA
from ts_uploader.messages.observations import Leadership, Listing
from ts_uploader.messages.results import FencedLeaderEpoch

log = structlog.get_logger()

_MILLISECONDS = 1000
_NANOSECONDS_EACH = 1_000_000
_CLOCKS_APART = 5 * 60 * _MILLISECONDS


class IncarnationLog:
    """Reads a topic's list of incarnations, and opens one for a new topic id."""

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        # By topic and topic id. An entry of the list never changes, so it can be cached, by several threads at once. An
        # id that is followed by another has no live directory for long.
        self._directories: dict[tuple[str, str], str] = {}

    def directory(
        self, store: ObjectStore, topic: str, listing: Listing, leadership: Leadership, *, over: bool = False
    ) -> str:
        """Return the directory of the incarnation of the leadership's topic id; opens one for a new id.

        The leadership source and the live directory must both have the id: a late task could otherwise open an old id
        after a new one.

        Args:
            listing: of the live directory, read now.
            leadership: that works in it.
            over: the topic id was deleted (protocol rule 14). Its incarnation can be followed by another. It is opened
                only if no other can be later, whatever the clocks.

        Raises:
            SegmentChanged: directory and leadership have different topic ids, or the id is older than the list's last.
            FencedLeaderEpoch: the topic was created again since.
            TopicIdChanged: the id is new, and the log of the newest incarnation continues under it.
            OutcomeUnknown: several agents write the list at this moment: read again.
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
                if found.directory != known.newest_directory and not over:
                    raise FencedLeaderEpoch(
                        f"topic id {topic_id} of {topic} was followed by {known.entries[-1].topic_id}"
                    )
                self._directories[topic, topic_id] = found.directory
                return found.directory
            made = _made(listing)
            _check_later(known, topic_id, made, listing, _CLOCKS_APART if over else -_CLOCKS_APART)
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

    def known_directory(self, store: ObjectStore, topic: str, topic_id: str) -> str | None:
        """Return the directory of a topic id's incarnation; None if the list does not have the id.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        found = read_incarnations(store, self._keys, topic)[0].find(topic_id)
        return None if found is None else found.directory

    def last_id_of(self, store: ObjectStore, topic: str, topic_id: str) -> str:
        """Return the newest topic id of the same incarnation; the id itself if the list does not have it.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        known = read_incarnations(store, self._keys, topic)[0]
        return next(
            (each.topic_id for each in reversed(known.entries) if known.are_of_one_life(each.topic_id, topic_id)),
            topic_id,
        )

    def are_of_one_life(self, store: ObjectStore, topic: str, topic_id: str, other: str) -> bool:
        """Return whether two ids are of one incarnation: an operator let the second continue the first.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        return read_incarnations(store, self._keys, topic)[0].are_of_one_life(topic_id, other)


def _made(listing: Listing) -> int:
    """Return when the directory's `partition.metadata` was written, in milliseconds since the epoch.

    Raises:
        SegmentChanged: the file no longer exists.
    """
    try:
        return (listing.directory / PARTITION_METADATA).stat().st_mtime_ns // _NANOSECONDS_EACH
    except FileNotFoundError as gone:
        raise SegmentChanged(f"{listing.directory}: {PARTITION_METADATA} no longer exists") from gone


def _check_later(known: Incarnations, topic_id: str, made: int, listing: Listing, margin: int) -> None:
    """Check that an id is opened after another only if its directory is the younger one; see the module's docstring.

    Args:
        made: when its directory was made, milliseconds since the epoch.
        margin: how much younger it must be, in milliseconds.
    """
    last = known.entries[-1] if known.entries else None
    if last is None or (last.made is None and margin < 0) or (last.made is not None and made > last.made + margin):
        return
    if last.made is None or margin > 0:
        raise SegmentChanged(
            f"{listing.directory} has the deleted topic id {topic_id}, which the archive does not have; it has "
            f"{last.topic_id}, which can be later. Nothing of the deleted one is shipped"
        )
    raise SegmentChanged(
        f"{listing.directory} has topic id {topic_id}, written {_said(made)}; the archive already has a later one, "
        f"{last.topic_id}, written {_said(last.made)}. The topic was created again, and this broker, perhaps "
        "partitioned from the controllers, has not heard of it; nothing is shipped. If this is the live topic and a "
        f"clock was wrong: touch {listing.directory / PARTITION_METADATA}"
    )


def _said(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // _MILLISECONDS, UTC).isoformat()
