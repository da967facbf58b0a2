"""One run of `tsctl gc` on one store: first each step that is due, then the fuse, then what is newly due is hidden."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import StaleStateError
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_reader.reading.parallel import stream_in_threads
from tsctl.gc.ended import visit_ended
from tsctl.gc.incarnations import has_objects
from tsctl.gc.partition import Candidate, Step, Visit, Work
from tsctl.gc.policy import Fuse
from tsctl.gc.report import SUFFIX, list_reports
from tsctl.gc.retention import LEAVES_OUT, Skipped, TopicIncarnation, Why
from tsctl.gc.visits import examine, visit
from tsctl.gc.writes import hide

# Each thread has the listing of one partition in memory.
THREADS: Final = 4
FUSE_WAY_OUT: Final = "compare a dry run with the policy, then correct the policy, or give --ignore-fuse once"
LOG_OF_DELETIONS: Final = "/log-"  # of an earlier release

Show = Callable[[PartitionKeys, Visit], object]
_Look = Callable[..., Visit]


@dataclass(slots=True)
class Found:
    """What a run found in one store.

    Attributes:
        candidates: what is newly due.
        hidden: these of them that the run hid; one that changed meanwhile is among them.
        going: number of objects whose grace is over.
        going_bytes: of these objects.
        partitions: number of partitions that were looked at.
        waiting: number of partitions where a reader needs offsets that are due otherwise.
        bytes: of all committed segments of partitions with a rule, and of all objects of ended ones.
        fuse: why the fuse has blown; None if it has not.
        oldest_due: when the oldest object that stays hidden was hidden, seconds since the epoch; None without one.
        in_grace: number of partitions that earlier runs hid, and whose grace is not over.
    """

    candidates: list[Candidate] = field(default_factory=list)
    hidden: list[Candidate] = field(default_factory=list)
    going: int = 0
    going_bytes: int = 0
    partitions: int = 0
    waiting: int = 0
    bytes: int = 0
    fuse: str | None = None
    oldest_due: float | None = None
    in_grace: int = 0

    def add(self, result: Visit, size: int) -> None:
        """Add what was found in a partition; `size` in bytes, as `bytes`."""
        self.partitions += 1
        self.waiting += result.waits
        self.bytes += size
        self.going += len(result.removed)
        self.going_bytes += sum(info.size for info in result.removed)
        self.in_grace += result.hidden is not None and result.step is Step.NOTHING and result.candidate is None
        if result.hidden is not None:
            self.oldest_due = min(result.hidden / 1000, self.oldest_due or result.hidden / 1000)
        if result.candidate is not None:
            self.candidates.append(result.candidate)

    @property
    def objects(self) -> int:
        """Number of objects that are newly due."""
        return sum(each.objects for each in self.candidates)

    @property
    def due_bytes(self) -> int:
        """Bytes of the objects that are newly due."""
        return sum(each.bytes for each in self.candidates)


def run_once(
    work: Work,
    incarnations: Iterable[TopicIncarnation],
    fuse: Fuse,
    *,
    show: Show | None = None,
    found: Found | None = None,
) -> Found:
    """Do what is due in one store.

    Args:
        fuse: what one run hides at most. What is hidden is deleted whatever the fuse is.
        show: of a dry run, which writes nothing: is called with what was found in each partition, whose objects are not
            kept.
        found: an empty one, which has what was found also if an error ends the run; None for a new one.

    Raises:
        ConfigurationError: a reader of the policy does not exist, or a rule needs the running cluster.
        OutcomeUnknown, ClusterAway, StoreUnavailable, AccessDenied, BucketMissing: a request failed; the next run
            continues.
    """
    found = Found() if found is None else found
    whole = Counter[str]()
    for keys, result in _visits(work, incarnations, writes=show is None):
        if show is not None:
            show(keys, result)
        if result.bytes is not None:
            found.add(result, result.bytes)
            whole[keys.partition.topic] += result.bytes
    found.fuse = fuse.blown(found.objects, found.due_bytes, found.bytes)
    if found.fuse is None:
        blown = _blown(found.candidates, whole, fuse)
        for topic, why in sorted(blown.items()):
            work.report.skip(Skipped(topic, f"the fuse of the topic has blown: {why}; {FUSE_WAY_OUT}", Why.FUSE))
        chosen = [each for each in found.candidates if each.over or each.keys.partition.topic not in blown]
        found.hidden = chosen if show is None else []
        for _ in stream_in_threads(lambda each: _hide(work, each), found.hidden, most=THREADS):
            pass
    return found


def _blown(candidates: Iterable[Candidate], whole: Mapping[str, int], fuse: Fuse) -> dict[str, str]:
    """Return the topics whose own fuse has blown, and why; an incarnation that is over is due as a whole."""
    due: dict[str, list[Candidate]] = {}
    for each in candidates:
        if not each.over:
            due.setdefault(each.keys.partition.topic, []).append(each)
    found = {}
    for topic, own in due.items():
        objects, size = sum(each.objects for each in own), sum(each.bytes for each in own)
        if (why := fuse.blown_of_topic(objects, size, whole[topic], max(each.logs for each in own))) is not None:
            found[topic] = why
    return found


def _visits(
    work: Work, incarnations: Iterable[TopicIncarnation], *, writes: bool
) -> Iterator[tuple[PartitionKeys, Visit]]:
    def look(task: tuple[PartitionKeys, _Look]) -> tuple[PartitionKeys, Visit]:
        keys, visiting = task
        try:
            return keys, visiting(work, keys, writes=writes)
        except LEAVES_OUT as error:
            work.report.skip(Skipped.of(keys.directory, error))
            return keys, Visit()

    return stream_in_threads(look, _tasks(work, incarnations), most=THREADS)


def _tasks(work: Work, incarnations: Iterable[TopicIncarnation]) -> Iterator[tuple[PartitionKeys, _Look]]:
    """Yield what a run looks at; a former incarnation that is kept only if retention wrote its `log.start`."""
    for incarnation in incarnations:
        is_over = work.retention.is_over(incarnation)
        is_kept = not is_over and (incarnation.over_since is not None or incarnation.is_old_place)
        if is_kept and has_objects(work.store, incarnation):
            place = "old place" if incarnation.is_old_place else "former incarnation"
            work.report.stays(incarnation.directory, place, incarnation.over_since)
        for keys in incarnation.partitions:
            if not is_kept or work.is_first or work.has_copy(keys):
                yield keys, visit_ended if is_over else partial(visit, is_kept=is_kept)


def _hide(work: Work, candidate: Candidate) -> None:
    """Hide what is newly due, if it still is by a second look."""
    keys = candidate.keys
    try:
        if candidate.over:
            visit_ended(work, keys, hides=True)
            return
        partition = examine(work, keys)
        target = 0 if partition is None else min(partition.target, candidate.target)
        if partition is not None and partition.start == partition.floor and target > partition.start:
            hide(work, partition, target)
    except LEAVES_OUT as error:
        work.report.skip(Skipped.of(keys.directory, error))


def discarded_plans(
    store: ObjectStore, cluster: ClusterKeys, began: float, warn: Callable[[str], None]
) -> dict[str, str]:
    """Discard the plans of an earlier release, and return whether it ran since the last run of this one.

    What it hid is in no copy of `log.start`: the next looks show it again, or begin its grace. Its logs of deletions
    stay, until they are as old as reports.

    Args:
        began: when the store got this run's report, seconds since the epoch.
        warn: is called with a line for each plan that still waited.

    Raises:
        StaleStateError: one is younger than the store's first report, so an older collector still runs.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    first = min((info.modified for info in list_reports(store, cluster)), default=began)
    runs = _runs_of_earlier_release(store, cluster)
    for run, objects in sorted(runs.items()):
        names = {info.key.rpartition("/")[2]: info for info in objects}
        plan = names.get("plan.json")
        if plan is not None and plan.modified > first:
            raise StaleStateError(
                f"{plan.key} is younger than the first report of this release, {SUFFIX} below {cluster.gc}: an older "
                "release of tsctl gc still runs on this archive; stop it, then delete the plan, and run this one again"
            )
        if plan is not None and names.keys().isdisjoint({"done.json", "void.json"}):
            warn(f"plan {run} of an earlier release still waited, and was discarded; what it hid begins a grace again")
    found = (info for objects in runs.values() for info in objects)
    return {info.key: info.etag for info in found if LOG_OF_DELETIONS not in info.key}


def _runs_of_earlier_release(store: ObjectStore, cluster: ClusterKeys) -> Mapping[str, list[ObjectInfo]]:
    runs = defaultdict[str, list[ObjectInfo]](list)
    for info in store.list(cluster.gc):
        run, slash, _ = info.key.removeprefix(cluster.gc).partition("/")
        if (slash and not info.key.startswith(cluster.log_start_copies)) or run in {"lease.json", "last-run.json"}:
            runs[run].append(info)
    return runs
