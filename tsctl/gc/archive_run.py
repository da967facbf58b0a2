"""A run of `tsctl gc` on all stores of an archive, and a dry run."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ts_common.archive.gc_plans import PlannedObject
from ts_common.store.contract import ObjectStore
from tsctl.archive_options import ArchiveLocation, OpenArchive
from tsctl.gc.deletion import Locked
from tsctl.gc.lease import leased
from tsctl.gc.own_objects import delete_old
from tsctl.gc.policy import Fuse, Policy
from tsctl.gc.policy_retention import PolicyRetention, read_absent
from tsctl.gc.retention import Skipped
from tsctl.gc.run import RunResult, Settings, run_once, store_time
from tsctl.gc.survey import Candidate, Survey, survey
from tsctl.gc.topic_incarnations import read_topic_incarnations
from tsctl.gc.waiting import WaitingPlan, read_waiting

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_NO_FUSE = Fuse.model_validate({"share": "100%"})


@dataclass(slots=True)
class LocationResult:
    """What a run did in one location.

    Attributes:
        location: of the store.
        result: of both phases.
        old: number of objects of retention itself, of repairs and of checks that were deleted by their ages.
        old_failed: why some of them were not deleted, by key.
        now: of the run, milliseconds since the epoch.
    """

    location: str
    result: RunResult
    now: int
    old: int = 0
    old_failed: Mapping[str, Exception] = field(default_factory=dict)


def run_archive(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    *,
    ignore_fuse: bool = False,
    advance: Callable[[], None] = lambda: None,
    begun: Callable[[LocationResult], object] = lambda _: None,
) -> Iterator[LocationResult]:
    """Run retention on each location of an archive, and yield what it did there.

    Args:
        archive: with open stores.
        policy: of the cluster.
        kafka: the running cluster; None if the command line does not name it.
        ignore_fuse: whether the run may plan more than the fuse allows.
        advance: is called after each partition of each phase.
        begun: is called with the result of each location before it has anything: an error can end the run later.

    Raises:
        QueryError: a clock is wrong, or the running cluster is probably another one.
        ConfigurationError: a reader of the policy does not exist, or the policy needs the running cluster.
        StaleStateError: another collector runs on a location, or got its lease meanwhile.
        CorruptData, NewerFormat: an object of a reader or of retention is damaged, or of a later release.
        ClusterAway, OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    fuse = _NO_FUSE if ignore_fuse else policy.fuse
    settings = Settings(policy.grace, fuse, {**policy.as_json(), "digest": policy.digest()})
    for location in archive.locations:
        location.store.check()
        with leased(location.store, archive.keys) as store:
            now = store_time(store, archive.keys)
            retention = _retention(archive, replace(location, store=store), policy, kafka, now, writes=True)
            locked = locked_by(store, now)
            found = LocationResult(store.location, RunResult(), now)
            begun(found)
            run_once(
                store,
                archive.keys,
                location.has,
                retention,
                settings,
                now,
                locked=locked,
                advance=advance,
                result=found.result,
            )
            old = delete_old(store, archive.keys, policy.own, now, locked=locked)
            found.old, found.old_failed = len(old.removed), old.failed
        yield found


def survey_archive(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    show: Callable[[Candidate, Sequence[PlannedObject]], None],
) -> Iterator[tuple[str, Survey, Sequence[Skipped], str | None, Sequence[WaitingPlan]]]:
    """Yield, for each location, what is due at this moment, topics that are left out, why the fuse blows, and plans.

    It writes nothing. The objects of a plan that waits are due too. The fuse does not count them, because the next run
    deletes them before it plans.

    Args:
        archive: with open stores.
        policy: of the cluster.
        kafka: the running cluster; None if the command line does not name it.
        show: is called with each candidate and its objects.

    Raises:
        As `run_archive`.
    """
    for location in archive.locations:
        location.store.check()
        now = int(time.time() * 1000)
        retention = _retention(archive, location, policy, kafka, now, writes=False)
        skipped: list[Skipped] = []
        incarnations = read_topic_incarnations(location.store, archive.keys, location.has, skipped.append)
        waiting = read_waiting(location.store, archive.keys)

        def show_one(
            candidate: Candidate, objects: Sequence[PlannedObject], waiting: Sequence[WaitingPlan] = waiting
        ) -> None:
            show(candidate, objects)
            for plan in waiting:
                objects = plan.note(candidate, objects)

        found = survey(location.store, incarnations, retention, now, show=show_one)
        objects, size, whole = (
            total - sum(parts)
            for total, parts in (
                (found.objects, [plan.objects for plan in waiting]),
                (found.bytes, [plan.bytes for plan in waiting]),
                (found.whole, [plan.segment_bytes for plan in waiting]),
            )
        )
        yield location.store.location, found, skipped, policy.fuse.blown(objects, size, whole), waiting


def _retention(
    archive: OpenArchive,
    location: ArchiveLocation,
    policy: Policy,
    kafka: "KafkaCluster | None",
    now: int,
    *,
    writes: bool,
) -> PolicyRetention:
    absent = None
    if policy.deleted_topics is not None and kafka is not None:
        absent = read_absent(location.store, archive.keys, kafka, location.has, now, writes=writes)
    others = (store for store in archive.stores if store.location != location.store.location)
    stores = [location.store, *others]
    return PolicyRetention(policy, stores, archive.keys, now, kafka, absent, location.options)


def locked_by(store: ObjectStore, now: int) -> Locked:
    """Return a function that finds objects which the store keeps; without object lock it sends no request.

    Args:
        store: of the objects.
        now: milliseconds since the epoch, by its clock.

    Raises:
        AccessDenied: this identity may not read whether the bucket has object lock.
    """
    if not store.protection().locks:
        return lambda _: {}
    return lambda keys: {key: lock.reason for key, lock in store.locked(keys, now / 1000).items()}
