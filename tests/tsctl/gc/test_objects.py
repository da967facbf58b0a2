"""Which objects retention can delete."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from tsctl.gc.objects import removable

DAMAGED, COPY, SECOND = SegmentName(0), SegmentName(0, 0, 1), SegmentName(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("start", "expected"),
    [(20, [SegmentName(10)]), (30, [DAMAGED, COPY, SECOND, SegmentName(10)])],
    ids=["the damaged object stays", "all are due"],
)
def test_a_good_copy_stays_while_the_object_that_it_replaces_does(
    tmp_path: Path, start: int, expected: list[SegmentName]
) -> None:
    """Without the copy that names it, readers choose the damaged one, so that one is removed first, and so on."""
    made = MadeArchive(tmp_path / "store")
    keys = made.partition("t")
    made.put_segment("t", 0, batches((0, 30)))
    made.put_segment("t", 10, batches((10, 20)))
    good = made.store.head(keys.segment(SegmentName(10))).metadata
    for name, replaced in ((COPY, DAMAGED), (SECOND, COPY)):
        metadata = {**good, "ts-end": "10", "ts-epochs": "0:0", "ts-replaces": replaced.stem}
        made.store.put(keys.segment(name), batches((0, 10)), metadata=metadata)
    made.put_segment("t", 30, batches((30, 40)))
    made.commit("t", 40, highest_base=30, log_start=start)
    catalog = read_catalog(made.store, keys)
    view = open_view(made.store, catalog)
    assert isinstance(catalog.commit, Commit)
    copies = (*view.retired, *view.copies)
    found = removable(keys, made.store.list(keys.prefix), copies, catalog.commit, start, 0)
    assert [each.key for each in found] == [keys.segment(name) for name in expected]
