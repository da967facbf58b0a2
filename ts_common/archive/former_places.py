"""The former places of a partition: the directories that have the older records of a restored log (reading rule 9).

A restore names in `restored.json` where a directory's records below its first `log.start` are. The cluster can be lost
and restored again, so a former place can have one itself. Readers return them as one view (`ts_common.archive.view`).

The order of the reads makes it consistent. The restore writes `restored.json` before an agent writes `log.start`, so a
reader that reads `log.start` first finds the record. Nothing continues a former place: only retention changes it, so
its listing is read before its `log.start`.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from ts_common.archive.catalog import FormerPlace, PartitionCatalog, StoredLogStart, read_catalog, read_snapshot
from ts_common.archive.commit import Commit, ForeignCommit, LogStart
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.restored import Ended, Restored, RestoredPartition
from ts_common.archive.sealed_objects import SealedObject
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore

MOST_PLACES: Final = 16  # a cluster that is lost and restored once a year, for as long as an archive exists
# Of a record that was read: it can lack a partition whose `log.start` is not older by this, because the store's clock
# is known by a second only. After the longer time an operator's correction is read.
_MARGIN_SECONDS: Final = 60.0
_KEPT_SECONDS: Final = 600.0


def read_with_former(
    store: ObjectStore,
    keys: PartitionKeys,
    commit: tuple[Commit | ForeignCommit | None, str | None] | None = None,
    *,
    seals: bool = False,
    known: Sequence[SealedObject] = (),
    lowest: int | None = None,
    expected: Commit | None = None,
) -> PartitionCatalog:
    """Return a snapshot of one partition for a reader, with its former places.

    A malformed `restored.json` or former place is the `damage` of the snapshot, as a malformed commit is.

    Args:
        commit: as of `read_catalog`.
        seals: as of `read_catalog`.
        known: as of `read_catalog`.
        lowest: the lowest offset that the caller reads. If the partition's own directory has it, the snapshot lacks the
            former places, and no request is sent for them.
        expected: as of `read_catalog`.

    Raises:
        LineageUnsettled, StoreUnavailable, AccessDenied, BucketMissing: as `read_catalog`.
        NewerFormat: as `read_catalog`, of any of the places, and of `restored.json`.
    """
    catalog = read_catalog(store, keys, commit, seals=seals, known=known, expected=expected)
    if lowest is not None and lowest >= (catalog.start or 0):
        return catalog
    try:
        return replace(catalog, former=former_places(store, catalog))
    except CorruptData as error:
        return replace(catalog, commit=None, commit_etag=None, damage=str(error))


def former_places(store: ObjectStore, catalog: PartitionCatalog) -> tuple[FormerPlace, ...]:
    """Return the former places of a partition that readers show, oldest first.

    One that no longer exists has no offsets. One whose retention has passed its end is left out. One in another store
    is not read, and is the last.

    Args:
        catalog: of the partition's own directory.

    Raises:
        CorruptData: `restored.json` or the `log.start` of a place is malformed; the places form a circle, are more than
            `MOST_PLACES`.
        NewerFormat: a later release wrote one of them.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    places: list[FormerPlace] = []
    seen, place, start = {catalog.keys.prefix}, catalog, catalog.start
    end, ended = start or 0, tuple[Ended, ...]()
    while start:
        record = _records_of(store).read(store, place.keys.cluster.restored, place.stored_log_start)
        found = None if record is None else record.find(place.keys)
        if found is None:
            break
        topic, restored = found
        if start > restored.end:
            break  # retention has passed what was restored
        if start < end or place is catalog:
            end, ended = start, restored.ended
        former = topic.keys_of(catalog.keys.partition)
        _check(catalog.keys, former, seen)
        seen.add(former.prefix)
        if topic.url is not None and topic.url.rstrip("/") != store.location.rstrip("/"):
            unread = PartitionCatalog(former, None, None, None, (), ())
            first = restored.epochs.pairs[0][1] if restored.epochs.pairs else 0
            places.append(FormerPlace(unread, min(first, end - 1), end, restored.epochs, ended, topic.url))
            break
        place = read_snapshot(store, former, (None, None))
        start = _start_of(place, restored)
        if start is None or start < end:
            places.append(FormerPlace(place, end if start is None else start, end, restored.epochs, ended))
    return tuple(reversed(places))


def _check(keys: PartitionKeys, former: PartitionKeys, seen: set[str]) -> None:
    """Check that a former place can be followed.

    Raises:
        CorruptData: it cannot.
    """
    where = f"{keys.partition}: the chain of {keys.cluster.restored}"
    if former.prefix in seen:
        raise CorruptData(f"{where} is a circle at {former.prefix}; write the object again without it")
    if len(seen) > MOST_PLACES:
        raise CorruptData(f"{where} has more than {MOST_PLACES} places; write the object again without the oldest")


def _start_of(place: PartitionCatalog, restored: RestoredPartition) -> int | None:
    """Return the first offset that readers return of a former place; None if nothing of it is left."""
    if place.stored_log_start is None:
        return place.start
    content: LogStart = place.stored_log_start.content
    return content.shown_from(restored.lineage) if content.fits(restored.lineage) else content.offset


@dataclass(slots=True)
class _Records:
    """The records of one store that were read, by key: a plan of thousands of partitions reads one once."""

    lock: Lock = field(default_factory=Lock)
    read_at: dict[str, tuple[float, Restored | None]] = field(default_factory=dict)

    def read(self, store: ObjectStore, key: str, log_start: StoredLogStart | None) -> Restored | None:
        """Return a record that contains the directory of a `log.start`, if a restore wrote it."""
        with self.lock:
            now = store.current_time()
            at, known = self.read_at.get(key, (float("-inf"), None))
            is_older = log_start is not None and log_start.modified / 1000 < at - _MARGIN_SECONDS
            if not is_older or now - at > _KEPT_SECONDS:
                known = Restored.read(store, key)
                self.read_at[key] = now, known
            return known


_RECORDS: Final[MutableMapping[ObjectStore, _Records]] = WeakKeyDictionary()
_LOCK: Final = Lock()  # guards `_RECORDS`


def _records_of(store: ObjectStore) -> _Records:
    with _LOCK:
        return _RECORDS.setdefault(store, _Records())
