"""Plans that wait, for a dry run: their objects are due too, but the next run deletes them and does not plan them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from ts_common.archive.gc_plans import PlannedObject, read_parts, read_plan
from ts_common.archive.gc_runs import RunObjects, Use, claim_of, list_runs
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectStore
from tsctl.gc.survey import Candidate


@dataclass(slots=True)
class WaitingPlan:
    """A plan whose objects are not deleted yet.

    Attributes:
        run: its name.
        until: when its grace ends, milliseconds since the epoch.
        objects: how many objects of a survey are in it and in no earlier one, as far as `note` was called.
        bytes: of these objects.
        segment_bytes: of these objects, what `Survey.whole` counts.
        names: hashes of its objects by directory: a plan can have millions of objects.
    """

    run: str
    until: int
    objects: int = 0
    bytes: int = 0
    segment_bytes: int = 0
    names: dict[str, "array[int]"] = field(default_factory=dict)

    def note(self, candidate: Candidate, objects: Sequence[PlannedObject]) -> list[PlannedObject]:
        """Count what the plan has of the objects of a candidate, and return the others."""
        planned = set(self.names.get(candidate.keys.directory, ()))
        others: list[PlannedObject] = []
        for each in objects:
            if _hash(each) not in planned:
                others.append(each)
                continue
            self.objects += 1
            self.bytes += each.size
            if candidate.over or each.name.endswith(LOG_SUFFIX):
                self.segment_bytes += each.size
        return others


def read_waiting(store: ObjectStore, keys: ClusterKeys) -> list[WaitingPlan]:
    """Return the plans that a later run deletes. Runs discard a damaged plan, and plan again what an undo shows.

    Raises:
        NewerFormat: a later release wrote a plan.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = []
    for run in list_runs(store, keys):
        if run.is_pending and not run.void:
            try:
                if claim_of(store, keys, run.run) is not Use.UNDO:
                    found.append(_read(store, keys, run))
            except (CorruptData, ObjectNotFound):
                continue
    return found


def _read(store: ObjectStore, keys: ClusterKeys, run: RunObjects) -> WaitingPlan:
    plan = read_plan(store, keys, run.run)
    found = WaitingPlan(run.run, plan.due)
    for partition, objects in read_parts(store, keys, plan):
        directory = partition.keys(keys).directory
        if not run.shows(directory):
            found.names.setdefault(directory, array("q")).extend(map(_hash, objects))
    return found


def _hash(one: PlannedObject) -> int:
    return hash((one.name, one.etag))
