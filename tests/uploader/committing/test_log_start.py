"""A `log.start` that was lost: it shows again neither less than the archive has, nor what retention hid."""

import pytest

from tests.uploader.committing.lineages import put_segment, stored, write_commit
from tests.uploader.local_directory import CLUSTER, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.gc_plans import Plan, PlannedPartition
from ts_common.archive.gc_runs import PART, PLAN_NAME, numbered_key, run_directory
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.log_start import restore_log_start

RUN = "20261127T020000000Z-1f2e3d4c"
BACK = Lineage(3, 100, 250)


def plan_a_move(store: ObjectStore, offset: int, lineage: Lineage | None) -> None:
    """Write a pending plan that moved `log.start` of the partition."""
    moved = PlannedPartition(TP, TP.topic, 0, offset, "n", lineage)
    store.put(numbered_key(CLUSTER, RUN, PART, 0), f"{moved.encode()}\n".encode())
    plan = Plan(RUN, 0, 10, 1, 1, 0, 0, {})
    store.put(run_directory(CLUSTER, RUN) + PLAN_NAME, plan.encode())


def restore(store: ObjectStore, local: LocalDirectory) -> None:
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    restore_log_start(store, CLUSTER, KEYS, commit, local.listing())


@pytest.mark.parametrize(
    ("planned", "lineage", "expected"),
    [(None, None, 40), (120, None, 120), (20, None, 40), (900, None, 300), (120, BACK, 40)],
    ids=["no plan", "a plan", "a plan below", "a plan above the end", "a plan of another lineage"],
)
def test_a_lost_log_start_gets_what_a_plan_moved_it_to(
    store: ObjectStore, local: LocalDirectory, planned: int | None, lineage: Lineage | None, expected: int
) -> None:
    """The plan is pending, so the segments below are there still; readers do not see them again."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    if planned is not None:
        plan_a_move(store, planned, lineage)
    restore(store, local)
    assert stored(store)[1].offset == expected


def test_a_damaged_plan_is_no_reason_to_stop(store: ObjectStore, local: LocalDirectory) -> None:
    """The archive is shown from its lowest segment on."""
    put_segment(store, 40, 300, (1, 0))
    write_commit(store, 300, (1, 0))
    plan_a_move(store, 120, None)
    store.put(numbered_key(CLUSTER, RUN, PART, 0), b"x")
    restore(store, local)
    assert stored(store)[1].offset == 40


def test_an_index_without_its_segment_does_not_lower_a_lost_log_start(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The deletion of its segment was cut off; the archive is as long as readers see it without `log.start`."""
    put_segment(store, 40, 300, (1, 0))
    store.put(KEYS.segment(SegmentName(20), ".index"), b"i")
    write_commit(store, 300, (1, 0))
    shown = read_catalog(store, KEYS).start
    restore(store, local)
    assert stored(store)[1].offset == shown == 40
