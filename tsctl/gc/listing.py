"""The rows of `tsctl gc ls`: what a run planned, and whether it was deleted or undone."""

from typing import Any, Final

from ts_common.archive.gc_plans import read_plan
from ts_common.archive.gc_runs import RunObjects, Use, read_claim
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import ObjectStore
from tsctl.output import Cell, iso, size

COLUMNS: Final = ("RUN", "STATE", "DUE", "PARTITIONS", "OBJECTS", "SIZE", "LOCATION")


def listed(store: ObjectStore, keys: ClusterKeys, run: RunObjects) -> dict[str, Any]:
    """Return the values of a run, by the names of `COLUMNS` in lower case, with `bytes`; a damaged plan has no numbers.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    row: dict[str, Any] = {"run": run.run, "state": None}
    row |= {**dict.fromkeys(("due", "partitions", "objects", "bytes")), "location": store.location}
    try:
        row["state"] = _state(store, keys, run)
        if run.planned is not None:
            plan = read_plan(store, keys, run.run)
            row |= {
                "due": iso(plan.due),
                "partitions": plan.partitions,
                "objects": plan.objects,
                "bytes": plan.size,
            }
    except (CorruptData, NewerFormat):
        row["state"] = "void" if row["state"] == "void" else "damaged"
    except ObjectNotFound:
        row["state"] = "deleted since"
    return row


def without_log(store: ObjectStore, keys: ClusterKeys, run: RunObjects) -> str:
    """Return a sentence on a run whose log has no line: whether nothing of its plan was deleted.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    state = listed(store, keys, run)["state"]
    if state == "deleted":
        return "the log of this plan has no line; own.deletion_log of the policy removes a log by its age"
    if state == "deletion began":
        return "the deletion of this plan began, and its log has no line yet"
    return f"nothing of this plan was deleted; its state is: {state}"


def cell(column: str, row: dict[str, Any]) -> Cell:
    """Return the cell of a run's row in one of `COLUMNS`."""
    if column != "SIZE":
        found: Cell = row[column.lower()]
        return found
    return None if row["bytes"] is None else size(row["bytes"])


def _state(store: ObjectStore, keys: ClusterKeys, run: RunObjects) -> str:
    undone = run.claimed and read_claim(store, keys, run.run) is Use.UNDO
    if undone:
        return "undone" if run.done else "undo began"
    if run.void:
        return "void"
    if run.done:
        return "deleted"
    if run.planned is None:
        return "no plan"
    return "deletion began" if run.claimed else "waits"
