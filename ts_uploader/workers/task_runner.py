"""Runs the tracker's tasks on worker threads, and returns their results.

Uploads have their own threads, so that a commit never waits behind a gigabyte. Every error of a task becomes a result,
including unexpected exceptions: it stops its partition, and no other.
"""

import time
from collections.abc import Callable, Iterable

import structlog

from ts_common.errors import PreconditionFailed, SegmentChanged, TieredStorageError
from ts_common.model import TopicPartition
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.health.store_health import failure_reason
from ts_uploader.log_dirs.hanging import look_below
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.messages.results import (
    Changed,
    Committed,
    DeletedPending,
    DeletedShipped,
    Failed,
    Fenced,
    FencedLeaderEpoch,
    LookedBelow,
    Repaired,
    Result,
)
from ts_uploader.messages.tasks import (
    AnyTask,
    FillGap,
    ForgetFormer,
    LookBelow,
    PassGap,
    ReadPosition,
    Repair,
    Rescan,
    Ship,
    ShipDeleted,
    Shipped,
    Task,
    WriteCommit,
)
from ts_uploader.metrics.counters import GAP_BY_REQUEST, GAP_DELETED, GAP_TOPIC_DELETED, GAP_UNRECORDED, Metrics
from ts_uploader.process.progress import Shipping
from ts_uploader.shipping.deleted_directory import DeletedShipper, NotAnswered
from ts_uploader.shipping.deleted_task import again, to_ship
from ts_uploader.shipping.metadata_cache_writer import CacheWriter
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader

log = structlog.get_logger()

# When a leadership begins, the leadership source may be ahead of the broker's own files: then the retry is soon.
_EXPECTED_RETRIES = 2
# The source answers in its next rounds.
_EXPECTED_ATTEMPTS = 4


def losses_counter(metrics: Metrics) -> Callable[[TopicPartition, tuple[int, int], bool], None]:
    """Return a function that counts the records that elections lost, for `CommitLog`."""

    def count(partition: TopicPartition, lost: tuple[int, int], legacy: bool) -> None:
        metrics.lost_offsets.inc(lost[1] - lost[0])
        if legacy:
            metrics.legacy_rewinds.inc()
            log.error(
                "old_magic_records_lost",
                message="an election lost records of magic 0 or 1; readers may show lost records from there on, and "
                "hide the new leader's (see docs/repair.md: old magic and unclean elections)",
                partition=str(partition),
                lost=lost,
            )

    return count


class TaskRunner:
    """Runs tasks, one at a time for each calling thread.

    Args:
        cache_objects: receives commits, and writes readers' cache objects on its own thread.
    """

    def __init__(
        self,
        uploader: Uploader,
        commits: CommitLog,
        watcher: LogDirectoryWatcher,
        metrics: Metrics,
        cache_objects: CacheWriter,
        repairer: Repairer,
        deleted: DeletedShipper,
        shipping: Shipping | None = None,
    ) -> None:
        self._uploader = uploader
        self._cache_objects = cache_objects
        self._commits = commits
        self._watcher = watcher
        self._metrics = metrics
        self._repairer = repairer
        self._deleted = deleted
        self._shipping = shipping or Shipping()

    def run(self, task: AnyTask) -> Result | None:
        """Return the result of a task; None for a rescan, whose result is the watcher's listing."""
        if isinstance(task, Rescan):
            self._watcher.hint(task.partition, whole=True)
            return None
        if isinstance(task, ShipDeleted):
            return self._ship_deleted(task)
        try:
            return self._run(task)
        except FencedLeaderEpoch as over:
            self._metrics.fenced.inc()
            self._metrics.commit_conflicts.inc()
            log.warning(
                "leadership_given_up", partition=str(task.partition), epoch=task.leadership.epoch, reason=str(over)
            )
            return Fenced(task.partition, task.generation, task.leadership, str(over))
        except SegmentChanged as changed:
            if isinstance(task, ReadPosition) and task.attempt >= _EXPECTED_RETRIES:
                return self._failed(task, changed, str(changed))
            if isinstance(task, Ship):  # logged with the retry that the tracker schedules: one for several
                self._metrics.changed_segments.inc()
                return Changed(task.partition, task.generation, task.leadership, task.base, str(changed))
            log.info("segment_changed", partition=str(task.partition), reason=str(changed))
            return Failed(task.partition, task.generation, task.leadership, None, type(task).__name__, str(changed))
        except (TieredStorageError, OSError) as error:
            if isinstance(error, PreconditionFailed):
                self._metrics.commit_conflicts.inc()
            return self._failed(task, error, f"{type(error).__name__}: {error}")
        except Exception as error:  # a defect: one partition waits until it is fixed, the others continue
            log.exception(
                "internal_error",
                message="please report it",
                operation=type(task).__name__,
                partition=str(task.partition),
            )
            return self._failed(task, error, f"a defect of this agent: {type(error).__name__}: {error}")

    def _run(self, task: Task) -> Result:
        match task:
            case Ship():
                with self._metrics.uploads_in_progress.track_inprogress():
                    shipped = self._uploader.ship(task)
                self._count(shipped)
                return shipped
            case ReadPosition():
                return self._commits.read(task)
            case WriteCommit():
                committed = self._committed(self._commits.write(task))
                self._observe_lag(task.run)
                position = committed.position
                own = [shipped.stored for shipped in task.run if shipped.stored is not None]
                self._cache_objects.committed(position.keys, position.next_offset, len(task.run), own)
                return committed
            case PassGap():
                self._uploader.ship_tail(task)
                return self._committed(self._commits.pass_gap(task))
            case FillGap():
                return self._committed(self._commits.fill_gap(task))
            case ForgetFormer():
                return self._committed(self._commits.forget_former(task))
            case LookBelow():
                return self._looked(look_below(task))
            case Repair():
                return self._repaired(self._repairer.repair(task))
        raise TypeError(f"no such task: {task!r}")

    def _ship_deleted(self, task: ShipDeleted) -> DeletedShipped | DeletedPending:
        """Run one attempt; whatever fails is repeated, with what the attempt read of the log."""
        operation, partition = ShipDeleted.__name__, str(task.partition)
        try:
            task = self._deleted.note_log(task)
            if task.confirmed:
                result = self._deleted.ship(task, self._committed)
            else:
                found = self._deleted.confirm(task)
                result = to_ship(found) if isinstance(found, ShipDeleted) else found
        except NotAnswered as late:
            if task.attempt < _EXPECTED_ATTEMPTS:
                log.debug("deleted_directory_waits", partition=partition, reason=str(late))
            else:
                self._metrics.errors.labels(operation, failure_reason(late)).inc()
                log.warning("task_failed", message="retried", operation=operation, partition=partition, error=str(late))
            return self._repeated(task, str(late))
        except SegmentChanged as changed:  # the broker removes the directory, or renames in it
            log.info("segment_changed", partition=partition, reason=str(changed))
            return self._repeated(task, str(changed))
        except (TieredStorageError, OSError) as error:
            if isinstance(error, PreconditionFailed):
                self._metrics.commit_conflicts.inc()
            self._metrics.errors.labels(operation, failure_reason(error)).inc()
            log.warning("task_failed", message="retried", operation=operation, partition=partition, error=str(error))
            return self._repeated(task, f"{type(error).__name__}: {error}")
        except Exception as error:
            log.exception("internal_error", message="please report it", operation=operation, partition=partition)
            return self._repeated(task, f"a defect of this agent: {type(error).__name__}: {error}")
        if isinstance(result, DeletedPending):
            log.info("deleted_directory_waits", partition=partition, reason=result.reason)
            return result
        return self._deleted_done(result)

    def _repeated(self, task: ShipDeleted, reason: str) -> DeletedShipped | DeletedPending:
        result = again(task, reason)
        return result if isinstance(result, DeletedPending) else self._deleted_done(result)

    def _deleted_done(self, done: DeletedShipped) -> DeletedShipped:
        partition, topic_id, reason = str(done.partition), done.leadership.topic_id, done.reason
        if done.lost:
            self._metrics.gaps.labels(GAP_UNRECORDED).inc()
            log.error(
                "deleted_topic_lost",
                message="records of a deleted topic may be lost without a gap record",
                partition=partition,
                topic_id=topic_id,
                reason=reason,
            )
        else:
            log.info(
                "deleted_directory_done",
                partition=partition,
                topic_id=topic_id,
                next_offset=done.next_offset,
                reason=reason,
            )
        return done

    def _committed(self, committed: Committed) -> Committed:
        self._metrics.commits.inc()
        partition = str(committed.partition)
        log.info("committed", partition=partition, next_offset=committed.position.next_offset)
        reason = GAP_BY_REQUEST if committed.by_request else GAP_TOPIC_DELETED if committed.with_topic else GAP_DELETED
        self._metrics.gap(reason, committed.gaps)
        for start, end in committed.gaps:
            log.error("gap_recorded", partition=partition, start=start, end=end, reason=committed.reason)
        return committed

    def _repaired(self, repaired: Repaired) -> Repaired:
        self._metrics.repairs.labels(repaired.outcome.value).inc()
        request = repaired.request
        log.warning(
            "repair_answered",
            partition=str(repaired.partition),
            id=request.id,
            kind=request.damage.value,
            start=request.start,
            end=request.end,
            outcome=repaired.outcome.value,
            reason=repaired.reason,
            objects=list(repaired.objects),
        )
        return repaired

    def _looked(self, looked: LookedBelow) -> LookedBelow:
        bases = [file.base for file in looked.hanging]
        log.info(
            "deleted_files_examined",
            partition=str(looked.partition),
            of_this_log=len(bases),
            others=len(looked.below) - len(bases),
            lowest=bases[0] if bases else None,
        )
        return looked

    def _observe_lag(self, run: Iterable[Shipped]) -> None:
        now = time.time()
        for shipped in run:
            if shipped.closed_at is not None:
                self._metrics.commit_lag_seconds.observe(max(0.0, now - shipped.closed_at))

    def _failed(self, task: Task, error: Exception, reason: str) -> Failed:
        operation = type(task).__name__
        self._metrics.errors.labels(operation, failure_reason(error)).inc()
        log.warning("task_failed", message="retried", operation=operation, partition=str(task.partition), error=reason)
        base = task.base if isinstance(task, Ship) else None
        return Failed(task.partition, task.generation, task.leadership, base, operation, reason)

    def _count(self, shipped: Shipped) -> None:
        self._metrics.segments.labels("sent" if shipped.files_sent else "found").inc()
        self._metrics.bytes.inc(shipped.bytes_sent)
        self._shipping.shipped(shipped.bytes_sent)
        self._metrics.files.inc(shipped.files_sent)
        self._metrics.upload_seconds.observe(shipped.seconds)
        facts = {
            "partition": str(shipped.partition),
            "base": shipped.base,
            "end": shipped.end,
            "bytes": shipped.bytes_sent,
            "seconds": round(shipped.seconds, 3),
        }
        log.info("segment_shipped" if shipped.files_sent else "segment_found", **facts)
        if shipped.late:
            self._metrics.late_segments.inc()
            log.warning(
                "segment_shipped_late", message="tombstones or transaction markers may be missing in it", **facts
            )
        if shipped.corruptions:
            self._metrics.corrupt_segments.inc()
            log.error("segment_shipped_corrupt", places=shipped.corruptions, **facts)
