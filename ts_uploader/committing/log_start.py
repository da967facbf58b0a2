"""Writes `log.start`, the begin of an archive: once, and again if it is lost (protocol rule 8).

A lost one is written from the collector's copy below `gc/log-start/`, where agents may only read. So no deletion in
progress is below it. Without a copy, retention deleted nothing, and the stored run shows where the archive begins.
Lists of erased offsets count too: the copy can be older than the last one (erase rule 3).
"""

from dataclasses import replace

import structlog

from ts_common.archive.catalog import StoredLogStart, read_log_start, read_snapshot
from ts_common.archive.commit import Commit, LogStart, epoch_of, new_writer
from ts_common.archive.erased_list import greatest_listed
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData
from ts_common.store.contract import IfAbsent, ObjectStore

log = structlog.get_logger()


def restore_log_start(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys, commit: Commit) -> StoredLogStart:
    """Write `log.start` again if only the commit exists, by its copy, or by the stored run (retention rule 1).

    Raises:
        PreconditionFailed, OutcomeUnknown: another agent writes it at this moment: read again.
        NewerFormat: a later release wrote the copy.
        StoreUnavailable, AccessDenied: the store's.
    """
    copy, listed = _copy(store, cluster, keys), _listed(store, keys)
    if copy is None:
        return _write_again(store, keys, LogStart.begun(_first_living(store, keys, commit), commit.lineage, listed))
    start = min(copy.offset, commit.next_offset)
    if commit.lineage is not None and epoch_of(copy.lineage) < epoch_of(commit.lineage):
        start = min(copy.offset, commit.lineage.begin)
    return _write_again(store, keys, _restored(copy, listed, start, commit))


def restore_by_copy(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys) -> StoredLogStart | None:
    """Write `log.start` as its copy has it, if the commit is lost too; None without a copy.

    Raises:
        As `restore_log_start`.
    """
    copy = _copy(store, cluster, keys)
    if copy is None:
        return None
    return _write_again(store, keys, _restored(copy, _listed(store, keys), copy.offset, None))


def _first_living(store: ObjectStore, keys: PartitionKeys, commit: Commit) -> int:
    """Return the first offset of the stored run. A hole above it is shown: the loss can perhaps be repaired."""
    catalog = replace(read_snapshot(store, keys, (commit, None)), stored_log_start=None)
    damaged: list[str] = []
    view = open_view(store, catalog, damaged=damaged, shows_records=False)
    living = (step.start for step in view.plan(view.start, view.end) if isinstance(step, ReadRange))
    return view.start if damaged else next(living, commit.next_offset)


def _restored(copy: LogStart, listed: int | None, start: int, commit: Commit | None) -> LogStart:
    """Return the content of a copy without `since`: what was hidden stays hidden, and its grace begins again."""
    lineage = copy.lineage if commit is None else commit.lineage
    floor = None if copy.floor is None else min(copy.floor, start)
    erased = max(copy.erased or 0, listed or 0) or None
    return LogStart(start, lineage, floor=floor, erased=erased, written_by=new_writer("agent"))


def _listed(store: ObjectStore, keys: PartitionKeys) -> int | None:
    """Return the number of the greatest list of erased offsets; None without one."""
    listed = greatest_listed(keys, store.list(keys.erased))
    return None if listed is None else listed.number


def _copy(store: ObjectStore, cluster: ClusterKeys, keys: PartitionKeys) -> LogStart | None:
    key = cluster.log_start_copy(keys)
    try:
        found = read_log_start(store, key)
    except CorruptData as error:  # without it, readers see more
        log.warning("log_start_copy_unusable", key=key, reason=str(error))
        return None
    return None if found is None else found.content


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
