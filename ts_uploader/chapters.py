"""Writing chapters, so that readers need not ask for each segment (see `ts_common.chapters`).

No part of the protocol: whatever happens here, shipping neither waits nor fails, and a chapter that was not written
costs readers time. So a thread of its own writes them, one attempt each, once a partition's commits have passed enough
segments; the next attempt makes up for one that failed. Nothing is remembered of a partition but how many segments its
commits have passed since the last attempt: what chapters there are and what they lack, the store says.

A chapter is written over the one that was read, or where there is none. Two agents that write at once (a former leader
may) disturb nobody: each entry is true by itself, and the second is refused.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import islice

import structlog

from ts_common.chapters import (
    CHAPTER_BYTES,
    CHAPTER_SEGMENTS,
    Chapter,
    ChapterEntry,
    encode_chapter,
    parse_chapter_name,
)
from ts_common.errors import CorruptData, TieredStorageError
from ts_common.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.segment_metadata import decode_metadata
from ts_common.store.contract import IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_uploader.work_queue import WorkQueue

log = structlog.get_logger()

# Readers ask for what no chapter holds yet: 1.5 segments of each partition on average. An attempt takes four small
# requests and one for each segment; shipping four segments takes at least twenty.
SEGMENTS_PER_CHAPTER_WRITE = 4


class ChapterWriter:
    """Writes chapters behind the commits.

    Args:
        store_of: the store that holds a topic's objects.
        is_throttled: whether a store refuses requests for being asked too fast; chapters wait then.
        every: a partition's chapter is written when its commits have passed so many segments.
    """

    def __init__(
        self,
        store_of: Callable[[str], ObjectStore],
        is_throttled: Callable[[], bool] = lambda: False,
        every: int = SEGMENTS_PER_CHAPTER_WRITE,
    ) -> None:
        self._store_of = store_of
        self._is_throttled = is_throttled
        self._every = every
        self._due: WorkQueue[PartitionKeys] = WorkQueue()
        self._lock = threading.Lock()  # guards what follows
        # By the partition's prefix: segments since the last attempt, and the next offset as last committed.
        self._passed: dict[str, tuple[int, int]] = {}
        self._waiting: set[str] = set()  # what is in the queue

    @property
    def waiting(self) -> int:
        """How many partitions wait for their chapter."""
        with self._lock:
            return len(self._waiting)

    def committed(self, keys: PartitionKeys, next_offset: int, segments: int) -> None:
        """A commit has passed so many more segments of a partition. Never blocks, and asks nothing.

        Args:
            keys: of the partition.
            next_offset: as committed; everything below it stands in the store.
            segments: how many the commit has passed.
        """
        with self._lock:
            passed, latest = self._passed.get(keys.prefix, (0, next_offset))
            passed += segments
            self._passed[keys.prefix] = passed, max(latest, next_offset)
            if passed < self._every or keys.prefix in self._waiting:
                return
            self._waiting.add(keys.prefix)
        self._due.put(keys.prefix, keys)

    def run(self) -> None:
        """Write what is due, until `close`."""
        while (keys := self._due.get()) is not None:
            with self._lock:
                self._waiting.discard(keys.prefix)
                if self._is_throttled():
                    continue  # the count stays, so that the next commit is the next attempt
                # As far as is committed by now: it may be further than when this became due.
                _, next_offset = self._passed.pop(keys.prefix)
            try:
                added = write_chapter(self._store_of(keys.partition.topic), keys, next_offset)
            except (TieredStorageError, OSError) as error:
                log.info("chapter not written; readers ask for each segment", key=keys.chapters, reason=str(error))
                continue
            if added > self._every:  # more may stand there, from before there were chapters or after failures
                self.committed(keys, next_offset, self._every)

    def close(self) -> None:
        """Drop what is due, and let `run` return after what it is writing."""
        self._due.close()


def write_chapter(store: ObjectStore, keys: PartitionKeys, next_offset: int) -> int:
    """Bring a partition's newest chapter up to date, or begin the next one; at most one chapter at a time.

    What stands at or above the next offset is left for later: one before it may still be under way.

    Returns:
        How many segments were added.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent does the same.
        StoreUnavailable, AccessDenied, BucketMissing, ObjectNotFound: the store's.
    """
    first, known, etag = _newest(store, keys)
    after = ""
    if known:
        after = keys.segment(known[-1].name)
    elif first is not None:
        after = keys.segment(SegmentName(first), "")  # a damaged one is made again
    if len(known) >= CHAPTER_SEGMENTS:
        first, known, etag = None, [], None
    added = [
        _entry(store, name, info)
        for name, info in islice(_logs(store, keys, after, next_offset), CHAPTER_SEGMENTS - len(known))
    ]
    if not added:
        return 0
    store.put(
        keys.chapter(added[0].name.base if first is None else first),
        encode_chapter(keys, [*known, *added]),
        condition=IfAbsent() if etag is None else IfMatch(etag),
    )
    return len(added)


def _newest(store: ObjectStore, keys: PartitionKeys) -> tuple[int | None, list[ChapterEntry], str | None]:
    """First base, entries and etag of the newest chapter; no entries where it is damaged, None where there is none."""
    found = {parse_chapter_name(info.key.removeprefix(keys.chapters)): info for info in store.list(keys.chapters)}
    first = max((first for first in found if first is not None), default=None)
    if first is None:
        return None, [], None
    if found[first].size > CHAPTER_BYTES:
        return first, [], found[first].etag
    key = keys.chapter(first)
    data, info = store.get(key)
    try:
        return first, Chapter(data, keys, key).entries(), info.etag
    except CorruptData:
        return first, [], info.etag


def _logs(
    store: ObjectStore, keys: PartitionKeys, after: str, next_offset: int
) -> Iterator[tuple[SegmentName, ObjectInfo]]:
    """The `.log` objects behind a key and below an offset."""
    for info in store.list(keys.prefix, start_after=after):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is None or parsed[0].base >= next_offset:
            return
        if parsed[1] == LOG_SUFFIX:
            yield parsed[0], info


def _entry(store: ObjectStore, name: SegmentName, listed: ObjectInfo) -> ChapterEntry:
    """What a chapter says of an object; nothing where that is of no use to readers, who then look themselves."""
    try:
        metadata = decode_metadata(store.head(listed.key).metadata, listed.key)
    except CorruptData:
        metadata = None
    useful = metadata is not None and metadata.epochs is not None
    return ChapterEntry(name, listed.size, listed.etag, metadata if useful else None)
