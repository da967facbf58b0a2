"""Checks the former places of a restored partition: the directories that have its older records (reading rule 9)."""

from collections.abc import Mapping
from dataclasses import replace

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.former_places import former_places
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from tsctl.verify.finding_kinds import FORMER_PLACE_DAMAGED, FORMER_PLACE_MISSING, HOLE
from tsctl.verify.findings import Finding


def check_former_places(
    store: ObjectStore, catalog: PartitionCatalog, copies: Mapping[StoredSegment, SegmentCopy], where: str
) -> tuple[int | None, list[Finding]]:
    """Return the first offset that readers return of former places, and the findings about these.

    There is no such offset if readers return nothing of a former place.

    Args:
        copies: what each segment of the partition's own directory covers.
        where: the partition's name in findings.

    Raises:
        NewerFormat, StoreUnavailable, AccessDenied: a request failed.
    """
    record, found = catalog.keys.cluster.restored, list[Finding]()
    if catalog.commit is None:
        return None, found
    try:
        former = former_places(store, catalog)
        view = open_view(store, replace(catalog, segments=tuple(copies), former=former), copies, shows_records=False)
    except CorruptData as error:
        return None, [Finding(FORMER_PLACE_DAMAGED, where, str(error), record)]
    for place in former:
        if place.start == place.end:
            detail = f"{record} names it, and it has no objects"
            found.append(Finding(FORMER_PLACE_MISSING, where, detail, place.catalog.keys.prefix, None, place.end))
    for part in view.former:
        for step in view.plan(part.start, part.end):
            if isinstance(step, Hole) and not step.recorded:
                count = counted(step.end - step.start, "offset")
                elsewhere = view.elsewhere(step.start)
                kind = HOLE if elsewhere is None else FORMER_PLACE_MISSING
                detail = f"{count} of a former place: {elsewhere or 'no object has them'}"
                found.append(Finding(kind, where, detail, part.keys.prefix, step.start, step.end))
    return (view.start if view.former else None), found
