"""Writes `log.start`, the begin of an archive: once, and again if it is lost (protocol rule 8)."""

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart, read_snapshot
from ts_common.archive.commit import Commit, LogStart, epoch_of
from ts_common.archive.copies import describe
from ts_common.archive.gc_plans import PlannedLogStart, planned_log_starts
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_uploader.messages.observations import Listing

log = structlog.get_logger()


def restore_log_start(
    store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys, commit: Commit, listing: Listing
) -> StoredLogStart:
    """Write `log.start` again if only the commit exists (retention rule 1).

    It gets the base where readers begin meanwhile. If retention moved it further up, a plan has the number. If the
    commit went back after the plan, the lower of two numbers counts: the plan's, and where the commit's lineage begins.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    catalog = read_snapshot(store, keys, (commit, None))
    lowest = commit.next_offset if catalog.start is None else catalog.start
    if commit.lineage is not None:
        lowest = min(lowest, max(commit.lineage.begin, listing.bases[0]))
    lowest = max(lowest, min(_planned(store, cluster, catalog, commit), commit.next_offset))
    return _write_again(store, keys, LogStart(lowest, commit.lineage))


def _planned(store: ObjectStore, cluster: ClusterKeys, catalog: PartitionCatalog, commit: Commit) -> int:
    """Return where plans of retention moved `log.start`, for a commit's readers; 0 if no plan counts."""
    offset = 0
    for each in _plans(store, cluster, catalog.keys):
        if each.content.fits(commit.lineage):
            shown = each.content.shown_from(commit.lineage)
            if not _is_shipped_below(store, catalog, shown, each.began):
                offset = max(offset, shown)
    return offset


def restore_by_plan(store: ObjectStore, cluster: ClusterKeys, catalog: PartitionCatalog) -> StoredLogStart | None:
    """Write `log.start` as a plan has it, if the commit is lost too and segments below that offset are stored.

    The lineage is lost with the commit, so the newest of the plans' lineages counts.

    Args:
        catalog: of the partition, with segments and without commit and `log.start`.

    Returns:
        What was written; None if no plan counts.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    plans = [each for each in _plans(store, cluster, catalog.keys) if _hides(store, catalog, each)]
    if not plans:
        return None
    start = max((each.content for each in plans), key=lambda each: (epoch_of(each.lineage), each.offset))
    return _write_again(store, catalog.keys, start)


def _hides(store: ObjectStore, catalog: PartitionCatalog, planned: PlannedLogStart) -> bool:
    offset = planned.content.offset
    is_below = any(segment.name.base < offset for segment in catalog.segments)
    return is_below and not _is_shipped_below(store, catalog, offset, planned.began)


def _is_shipped_below(store: ObjectStore, catalog: PartitionCatalog, offset: int, began: int) -> bool:
    """Return whether a segment that ends at or below an offset was written after a run of retention began.

    Then a plan of the run is void: a later lineage shipped there, or the archive was begun again. A segment that
    reaches above the offset shows neither: a repair can put it again, and the next leader can ship it.

    Args:
        offset: where the plan moved `log.start`.
        began: as in `PlannedLogStart`.
    """
    later = [each for each in catalog.segments if each.name.base < offset and (each.modified or 0) > began]
    copies = describe(store, catalog.keys, later, catalog.cache_objects, damaged=[], removed=[])
    return any(copy.end <= offset for copy in copies)


def _plans(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys) -> list[PlannedLogStart]:
    """Return where plans of retention moved `log.start`; nothing if one cannot be read."""
    try:
        return planned_log_starts(store, keys, cluster)
    except (CorruptData, NewerFormat, ObjectNotFound) as error:  # without it, readers see more
        log.warning("gc_plan_unusable", key=keys.log_start, reason=str(error))
        return []


def _write_again(store: ObjectStore, keys: PartitionKeys, start: LogStart) -> StoredLogStart:
    log.error(
        "log_start_missing",
        message="written again; check the lifecycle rules of the bucket",
        key=keys.log_start,
        log_start=start.offset,
    )
    return write_log_start(store, keys, start)


def write_log_start(store: ObjectStore, keys: PartitionKeys, start: LogStart) -> StoredLogStart:
    """Write `log.start` where none exists.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    return StoredLogStart(start, store.put(keys.log_start, start.encode(), condition=IfAbsent()).etag)
