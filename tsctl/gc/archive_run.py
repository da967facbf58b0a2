"""A run of `tsctl gc` on all stores of an archive, a dry run, an undo, and what is hidden at this moment."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ts_common.archive.catalog import read_log_start
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, QueryError
from ts_common.format_version import VERSION
from ts_common.store.contract import DeleteOutcome, ObjectStore
from ts_common.store.protection import Lock
from ts_common.wording import counted
from tsctl.archive_options import ArchiveLocation, OpenArchive
from tsctl.gc.incarnations import note_absent, read_topic_incarnations
from tsctl.gc.objects import Locked, Outcome
from tsctl.gc.partition import Work
from tsctl.gc.policy import Fuse, OwnObjects, Policy, parse_policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.report import Report, list_reports
from tsctl.gc.retention import Retention, Skipped
from tsctl.gc.run import FUSE_WAY_OUT, LOG_OF_DELETIONS, Found, Show, discarded_plans, run_once
from tsctl.gc.snapshots import thin_snapshots
from tsctl.legal_holds import repeat_legal_holds
from tsctl.output import Output, iso, size

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

NO_FUSE: Final = Fuse.model_validate({"share": "100%"})
_SKEW_MS: Final = 15 * 60_000  # S3 rejects requests of a clock that is further off
_HIDDEN: Final = "hidden"


@dataclass(slots=True)
class LocationResult:
    """What a run did in one location.

    Attributes:
        old: what became of objects that retention, repairs, checks and snapshots wrote, and whose time is over.
        legal_holds: number of versions that got a legal hold, because a hold with `lock` covers them.
    """

    location: str
    report: Report
    found: Found = field(default_factory=Found)
    old: DeleteOutcome = field(default_factory=lambda: DeleteOutcome((), (), {}))
    legal_holds: int = 0

    @property
    def is_finding(self) -> bool:
        """Whether the operator must act."""
        doubts = any(skipped.why.is_finding for skipped in self.report.skipped)
        return bool(doubts or self.report.errors or self.found.fuse is not None or self.old.failed)


def run_archive(
    archive: OpenArchive,
    policy: Policy,
    kafka: "KafkaCluster | None",
    findings: Sequence[Skipped],
    warn: Callable[[str], None],
    *,
    ignore_fuse: bool = False,
    begun: Callable[[LocationResult], object] = lambda _: None,
) -> Iterator[LocationResult]:
    """Run retention on each location of an archive, and yield what it did there.

    Args:
        kafka: the running cluster; None if the command line does not name it.
        findings: what the policy names and the archive lacks.
        warn: is called with a sentence for the operator.
        begun: is called with the result of each location before it has anything: an error can end the run later.

    Raises:
        QueryError: a clock is wrong, or the running cluster is probably another one.
        ConfigurationError: a reader of the policy does not exist, or the policy needs the running cluster.
        StaleStateError: a collector of an earlier release still runs.
        CorruptData, NewerFormat: an object of a reader is damaged, or of a later release.
        ClusterAway, OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    for location in archive.locations:
        store, keys, result = location.store, archive.keys, LocationResult(location.store.location, Report())
        store.check()
        with result.report.writing(store, keys):
            begun(result)
            now = begin(store, keys, result.report)
            plans = discarded_plans(store, keys, result.report.began, warn)
            fuse, is_first = NO_FUSE if ignore_fuse else policy.fuse, bool(plans)
            _repeat_legal_holds(archive, store, now, result)
            work = _run_in(archive, location, policy, kafka, findings, now, result, fuse, is_first=is_first)
            if plans:  # a run that is killed before leaves them, and what they hid, to the next
                store.delete_matching(plans)
            result.old = delete_old(store, keys, policy.own, now, work.locked)
            result.old = result.old.joined(thin_snapshots(store, archive.stores, keys, policy.meta, now, work.locked))
            _end(result)
        yield result


def _repeat_legal_holds(archive: OpenArchive, store: ObjectStore, now: int, result: LocationResult) -> None:
    """Repeat the legal holds of holds with `lock`; what prevents it is a doubt, because the holds promise them."""
    try:
        result.legal_holds = repeat_legal_holds(store, archive.stores, archive.keys, now)
    except (AccessDenied, CorruptData, NewerFormat) as error:
        result.report.skip(Skipped("legal holds", str(error)))
    if result.legal_holds:
        result.report.line(did="legal holds", versions=result.legal_holds)


def _end(result: LocationResult) -> None:
    why = {} if result.found.fuse is None else {"fuse": result.found.fuse}
    result.report.line(did="ended", failed=result.is_finding, **why)


def begin(store: ObjectStore, keys: ClusterKeys, report: Report, clock: Callable[[], float] = time.time) -> int:
    """Write the first line of a report, and return the lesser of this host's and the store's time, ms since the epoch.

    Raises:
        QueryError: they differ by more than a quarter of an hour.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    own = int(clock() * 1000)
    report.line(version=VERSION, run=report.run, time=own)
    report.write(store, keys)
    report.began = store.head(report.key(keys)).modified
    stored = int(report.began * 1000)
    if abs(own - stored) > _SKEW_MS:
        raise QueryError(
            f"the clock of this host differs by {abs(own - stored) // 1000} s from the clock of {store.location}; "
            "set it before anything is deleted by age"
        )
    return min(own, stored)


def work_in(
    store: ObjectStore,
    keys: ClusterKeys,
    retention: Retention,
    now: int,
    grace: int,
    report: Report,
    *,
    is_first: bool = False,
) -> Work:
    """Return a run in one store.

    Raises:
        AccessDenied: this identity may not read whether the bucket has object lock.
        StoreUnavailable, BucketMissing: the store failed.
    """
    copies = {info.key for info in store.list(keys.log_start_copies)}
    return Work(store, keys, retention, now, grace, copies, locked_by(store, now), report, is_first)


def survey_archive(
    archive: OpenArchive, policy: Policy, kafka: "KafkaCluster | None", findings: Sequence[Skipped], show: Show
) -> Iterator[LocationResult]:
    """Yield, for each location, what is due at this moment; it writes nothing.

    Args:
        kafka: the running cluster; None if the command line does not name it.
        findings: what the policy names and the archive lacks.
        show: as in `run_once`.

    Raises:
        As `run_archive`.
    """
    for location in archive.locations:
        location.store.check()
        now, result = int(time.time() * 1000), LocationResult(location.store.location, Report())
        _run_in(archive, location, policy, kafka, findings, now, result, policy.fuse, show=show)
        yield result


def show_hidden(archive: OpenArchive, retention: Retention, wants: Callable[[str], bool]) -> Iterator[LocationResult]:
    """Show what is hidden of topics under a hold, and yield what was shown in each location.

    Raises:
        QueryError: a clock is wrong.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    for location in archive.locations:
        store, result = location.store, LocationResult(location.store.location, Report())
        with result.report.writing(store, archive.keys):
            now = begin(store, archive.keys, result.report)
            work = work_in(store, archive.keys, retention, now, 0, result.report, is_first=True)
            incarnations = read_topic_incarnations(store, archive.keys, lambda _: True, result.report.skip)
            run_once(work, (each for each in incarnations if wants(each.topic)), NO_FUSE, found=result.found)
            _end(result)
        yield result


def held_retention(archive: OpenArchive, now: int) -> Retention:
    """Return a retention that keeps everything, by the holds of the archive; `now` in milliseconds since the epoch."""
    policy = parse_policy({"cluster": archive.keys.cluster, "rules": []}, "undo")
    return PolicyRetention(policy, archive.stores, archive.keys, now)


def list_states(store: ObjectStore, keys: ClusterKeys) -> Iterator[dict[str, Any]]:
    """Yield the state of each partition that retention wrote: `hidden` if it can be shown again, else `released`.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for info in store.list(keys.log_start_copies):
        row: dict[str, Any] = {"partition": info.key.rpartition("/")[2], "floor": None, "start": None, "since": None}
        try:
            copy = read_log_start(store, info.key)
        except (CorruptData, NewerFormat) as error:
            yield row | {"state": str(error)}
            continue
        if copy is not None and (start := copy.content.offset):
            floor = copy.content.floor
            state = _HIDDEN if floor is None or floor < start else "released"
            yield row | {"state": state, "floor": floor, "start": start, "since": copy.modified}


def _run_in(
    archive: OpenArchive,
    location: ArchiveLocation,
    policy: Policy,
    kafka: "KafkaCluster | None",
    findings: Sequence[Skipped],
    now: int,
    result: LocationResult,
    fuse: Fuse,
    *,
    show: Show | None = None,
    is_first: bool = False,
) -> Work:
    """Run in one location; with `show` it writes nothing."""
    store, keys, absent = location.store, archive.keys, None
    for each in findings:
        result.report.skip(each)
    if policy.deleted_topics is not None and kafka is not None:
        absent = note_absent(store, keys, kafka, location.has, now, writes=show is None)
    stores = [store, *(each for each in archive.stores if each.location != store.location)]
    retention = PolicyRetention(policy, stores, keys, now, kafka, absent, location.options)
    work = work_in(store, keys, retention, now, policy.grace, result.report, is_first=is_first)
    incarnations = read_topic_incarnations(store, keys, location.has, result.report.skip)
    run_once(work, incarnations, fuse, show=show, found=result.found)
    return work


def locked_by(store: ObjectStore, now: int) -> Locked:
    """Return a function that finds objects which the store keeps; without object lock it sends no request.

    Raises:
        AccessDenied: this identity may not read whether the bucket has object lock.
    """
    if not store.protection().locks:
        return lambda _: {}
    return lambda keys: store.locked(keys, now / 1000)


def delete_old(
    store: ObjectStore, keys: ClusterKeys, own: OwnObjects, now: int, locked: Locked = lambda _: {}
) -> DeleteOutcome:
    """Delete reports, answers of repairs and probes that are older than their ages; `now` in ms since the epoch.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    logs = (
        info
        for info in store.list(keys.gc)
        if LOG_OF_DELETIONS in info.key.removeprefix(keys.gc) and ".jsonl" in info.key
    )
    kinds = (
        (list_reports(store, keys), own.reports),
        (logs, own.reports),  # of deletions by an earlier release
        (store.list(keys.repairs), own.repairs),
        (store.list(PROBE_NAME), own.probes),
    )
    etags = {info.key: info.etag for kind, age in kinds for info in kind if now - info.modified * 1000 >= age}
    held: Mapping[str, Lock] = locked(list(etags)) if etags else {}
    return store.delete_matching({key: etag for key, etag in etags.items() if key not in held})


def print_result(result: LocationResult, grace: int, output: Output) -> None:
    """Print what a run did in one location: lines of text, or one JSON line."""
    report, found = result.report, result.found
    for skipped in report.skipped:
        output.warn(f"{skipped.where}: {'' if skipped.why.is_finding else 'kept: '}{skipped.reason}")
    for line in (*report.errors, *(f"{key}: {error}" for key, error in result.old.failed.items())):
        output.warn(f"not deleted: {line}")
    if found.fuse is not None:
        output.warn(f"the fuse has blown, so nothing was hidden: {found.fuse}; {FUSE_WAY_OUT}")
    for line in _lines(result, grace):
        output.text(f"{result.location}: {line}")
    if output.as_json:
        output.line({"location": result.location, **fields_of(result)})


def _lines(result: LocationResult, grace: int) -> Iterator[str]:
    report, found = result.report, result.found
    if report.outcomes:
        others = (f"; {n:,} {outcome}" for outcome, n in sorted(report.outcomes.items()) if outcome != Outcome.REMOVED)
        yield f"deleted: {counted(report.outcomes[Outcome.REMOVED], 'object')} of {size(report.bytes)}{''.join(others)}"
        if report.locked_until is not None or report.legal_holds:
            last = Lock(report.locked_until, report.legal_holds > 0, "").reason
            yield f"locked objects: {last}; a run after that deletes them"
    if result.legal_holds:
        yield f"legal holds set, by holds with lock: {result.legal_holds:,}"
    yield from _hidden_and_shown(report, found, grace)
    if not (report.outcomes or report.did[_HIDDEN] or report.did["shown"] or found.in_grace):
        did = "nothing was hidden, shown or deleted" if report.skipped or found.fuse else "nothing is due"
        yield f"{did}; partitions checked, of topics with a rule: {found.partitions}"
    if result.old.removed:
        old = counted(len(result.old.removed), "old object")
        yield f"{old} of reports, repairs, checks and metadata snapshots deleted"
    yield f"report: tsctl gc log {report.run}"


def _hidden_and_shown(report: Report, found: Found, grace: int) -> Iterator[str]:
    if report.did["shown"]:
        yield f"shown again: {counted(report.did['shown'], 'partition')}"
    if report.did[_HIDDEN]:
        yield (
            f"hidden: {counted(sum(each.objects for each in found.hidden), 'object')} of "
            f"{size(sum(each.bytes for each in found.hidden))} in "
            f"{counted(report.did[_HIDDEN], 'partition')}; the first run after {_time(grace)} deletes them; until then "
            "a hold, or tsctl gc undo, shows them again"
        )
    if report.did["stays"]:
        yield (
            f"former incarnations and old places that stay: {report.did['stays']:,}; deleted_topics and old_places of "
            "the policy collect them"
        )
    if found.in_grace:
        yield f"hidden before, and in their grace: {counted(found.in_grace, 'partition')}"


def _time(milliseconds: int) -> str:
    hours, rest = divmod(milliseconds // 60_000, 60)
    return f"{hours} h" if not rest else f"{hours} h {rest} min" if hours else f"{rest} min"


def fields_of(result: LocationResult) -> dict[str, object]:
    """Return the JSON values of what a run did."""
    report, found = result.report, result.found
    return {
        "run": report.run,
        "hidden_partitions": report.did[_HIDDEN],
        "shown_partitions": report.did["shown"],
        "due_objects": found.objects,
        "due_bytes": found.due_bytes,
        "deleted": {str(outcome): count for outcome, count in sorted(report.outcomes.items())},
        "deleted_bytes": report.bytes,
        "locked_until": None if report.locked_until is None else iso(int(report.locked_until * 1000)),
        "legal_holds_set": result.legal_holds,
        "partitions": found.partitions,
        "waiting_partitions": found.waiting,
        "staying": report.did["stays"],
        "left_out": [{"where": each.where, "why": str(each.why), "reason": each.reason} for each in report.skipped],
        "fuse": found.fuse,
        "old_objects": len(result.old.removed),
    }
