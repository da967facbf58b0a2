"""Writes `log.start`, the begin of an archive: once, and again if it is lost (protocol rule 8)."""

import structlog

from ts_common.archive.catalog import StoredLogStart, read_snapshot
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.gc_plans import planned_log_start
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
    log.error(
        "log_start_missing",
        message="written again; check the lifecycle rules of the bucket",
        key=keys.log_start,
        log_start=lowest,
    )
    return write_log_start(store, keys, LogStart(lowest, commit.lineage))


def _planned(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys, commit: Commit) -> int:
    """Return where plans of retention moved `log.start` in this lineage; 0 without a plan that can be read."""
    try:
        return planned_log_start(store, keys, cluster, commit.lineage) or 0
    except (CorruptData, NewerFormat, ObjectNotFound) as error:  # without it, readers see more
        log.warning("gc_plan_unusable", key=keys.log_start, reason=str(error))
        return 0


def write_log_start(store: ObjectStore, keys: PartitionKeys, start: LogStart) -> StoredLogStart:
    """Write `log.start` where none exists.

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        StoreUnavailable, AccessDenied: the store's.
    """
    return StoredLogStart(start, store.put(keys.log_start, start.encode(), condition=IfAbsent()).etag)
