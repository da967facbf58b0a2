"""Writes `log.start`, the begin of an archive: once, and again if it is lost (protocol rule 8)."""

from collections.abc import Sequence

import structlog

from ts_common.archive.catalog import PartitionCatalog, StoredLogStart, StoredSegment, read_snapshot
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.gc_plans import PlannedLogStart, planned_log_starts
from ts_common.archive.lineage import epoch_of
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_uploader.messages import Listing

log = structlog.get_logger()


def restore_log_start(
    store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys, commit: Commit, listing: Listing
) -> StoredLogStart:
    """Write `log.start` again if only the commit exists (retention rule 1).

    It gets the base where readers begin meanwhile. If retention moved it further up, a plan has the number.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    shown = read_snapshot(store, keys, (commit, None)).start
    lowest = commit.next_offset if shown is None else shown
    if commit.lineage is not None:
        lowest = min(lowest, max(commit.lineage.begin, listing.bases[0]))
    lowest = max(lowest, min(_planned(store, cluster, keys, commit), commit.next_offset))
    return _write_again(store, keys, LogStart(lowest, commit.lineage))


def _planned(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys, commit: Commit) -> int:
    """Return where plans of retention moved `log.start` in this lineage; 0 without a plan that can be read."""
    found = (each.content for each in _plans(store, cluster, keys))
    return max((each.offset for each in found if each.lineage == commit.lineage), default=0)


def restore_by_plan(store: ObjectStore, cluster: ClusterKeys, catalog: PartitionCatalog) -> StoredLogStart | None:
    """Write `log.start` as a plan has it, if the commit is lost too and segments below that offset are stored.

    The lineage is lost with the commit, so the newest of the plans' lineages counts. A segment below that was written
    after the run began is of a later lineage: the commit went back since, and the plan is void.

    Args:
        store: of the partition.
        cluster: its keys.
        catalog: of the partition, with segments and without commit and `log.start`.

    Returns:
        What was written; None if no plan counts.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    plans = [each for each in _plans(store, cluster, catalog.keys) if _hides(each, catalog.segments)]
    if not plans:
        return None
    start = max((each.content for each in plans), key=lambda each: (epoch_of(each.lineage), each.offset))
    return _write_again(store, catalog.keys, start)


def _hides(planned: PlannedLogStart, segments: Sequence[StoredSegment]) -> bool:
    below = [segment for segment in segments if segment.name.base < planned.content.offset]
    return bool(below) and all((segment.modified or 0) <= planned.began for segment in below)


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
