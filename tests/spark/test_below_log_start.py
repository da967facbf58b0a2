"""Copies below `log.start`: left out of views, and free to vanish while a query runs, as retention removes them."""

import random
from collections.abc import Collection, Iterator
from itertools import pairwise

import pytest

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.spark.metadata_caches import Counting, write_all
from ts_common.archive.catalog import read_catalog
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader.query.plan_query import plan_query
from ts_reader.query.read_split import read_split
from ts_reader.reading.transactional_batches import read_transactional
from ts_spark.options.parse import parse_options
from ts_uploader.committing.gap_recording import fillable


class Collected(WrappedStore):
    """Retention removes objects right after they were listed."""

    def __init__(self, inner: ObjectStore, keys: Collection[str]) -> None:
        super().__init__(inner, threads=1)
        self._keys = keys

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All that was there; some of it is not any more."""
        found = list(super().list(prefix, start_after=start_after))
        self._inner.delete(self._keys)
        yield from found


def rows(store: ObjectStore, archive: Archive, **options: str) -> list[int]:
    """The offsets that a query is shown."""
    plan = plan_query(store, parse_options(archive.options(subscribe="t", **options)).query)
    return [n for split in plan.splits for b in read_split(store, split, ["offset"]) for n in b["offset"].to_pylist()]


def two_leaders(archive: Archive, log_start: int) -> Archive:
    """[0,100) [100,200) [200,300) of one leader, [0,90) [90,250) of another."""
    for base, end in ((0, 100), (100, 200), (200, 300)):
        archive.put_segment("t", base, batches((base, end)))
    archive.put_segment("t", 0, batches((0, 90), value=b"x"), variant=True)
    archive.put_segment("t", 90, batches((90, 250)))
    archive.commit("t", 300, highest_base=200, log_start=log_start)
    return archive


def key(archive: Archive, base: int) -> str:
    return archive.partition("t").segment(SegmentName(base))


def variants(archive: Archive) -> list[str]:
    return [info.key for info in archive.store.list(archive.partition("t").prefix) if ".e0." in info.key]


def test_a_query_far_above_log_start_survives_deletions_below_it(archive: Archive) -> None:
    """All that ends at or below 200 is removed after it was listed; [90,250) ends above, and stays."""
    two_leaders(archive, 200)
    store = Collected(archive.store, [key(archive, 0), key(archive, 100), *variants(archive)])
    assert rows(store, archive) == list(range(200, 300))


def test_copies_below_log_start_are_in_no_view(archive: Archive) -> None:
    """While they are there too; a copy that reaches over the start is in it."""
    two_leaders(archive, 100)
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    assert [copy.base for copy in view.copies] == [90, 100, 200]
    assert [copy.end for copy in view.retired] == [100, 90]


def test_no_request_is_made_for_cached_copies_below_log_start(archive: Archive) -> None:
    """Neither the metadata nor a byte of what lies below the start."""
    two_leaders(archive, 200)
    write_all(archive, 300)
    counting = Counting(archive.store)
    assert rows(counting, archive) == list(range(200, 300))
    asked = {*counting.headed, *counting.opened}
    assert not asked & {key(archive, 0), key(archive, 100), *variants(archive)}


@pytest.mark.parametrize("base", [200, 250])
def test_what_vanishes_at_or_above_log_start_is_an_error_that_names_retention(archive: Archive, base: int) -> None:
    """The query was planned with an earlier `log.start`: it never returns only a part of the deleted range."""
    two_leaders(archive, 200)
    archive.put_segment("t", 250, batches((250, 300)))
    with pytest.raises(ObjectNotFound, match=rf"{base}\.log in .*: removed after .*retention.*run the query again"):
        rows(Collected(archive.store, [key(archive, base)]), archive)


def test_what_vanishes_and_reached_over_log_start_is_an_error_too(archive: Archive) -> None:
    """The end of [90,250) is no longer known; only [200,300) is left of a view from 120 on."""
    two_leaders(archive, 120)
    gone = [key(archive, 0), key(archive, 90), key(archive, 100), *variants(archive)]
    with pytest.raises(ObjectNotFound, match=r"removed after it was listed .*, and the view begins at 120"):
        rows(Collected(archive.store, gone), archive, failOnDataLoss="false")


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_object_that_vanishes_after_planning_is_an_error(archive: Archive, is_committed: bool) -> None:
    """A task that reads it names retention; so does the search for markers."""
    two_leaders(archive, 200)
    archive.store.delete([key(archive, 90), key(archive, 100)])
    plan = plan_query(archive.store, parse_options(archive.options(subscribe="t")).query)
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    archive.store.delete([key(archive, 200)])
    with pytest.raises(ObjectNotFound, match="retention"):
        if is_committed:
            list(read_transactional(archive.store, view.copies[0], 200, 300))
        else:
            [list(read_split(archive.store, split, ["offset"])) for split in plan.splits]


def test_the_epochs_of_a_foreign_commit_are_read_from_the_remaining_copies(archive: Archive) -> None:
    """A Java uploader replaced the commit. Copies below the start can be deleted; a copy over it has the epoch."""
    archive.put_segment("t", 0, batches((0, 100)))
    archive.put_segment("t", 90, batches((90, 150)) + batches((150, 250), epoch=2))
    archive.put_segment("t", 100, batches((100, 200)), variant=True)
    archive.put_segment("t", 250, batches((250, 300), epoch=2))
    archive.commit("t", 300, highest_base=250, log_start=120)
    archive.store.put(archive.partition("t").commit, b"%020d" % 250)
    assert rows(Collected(archive.store, [key(archive, 0)]), archive) == list(range(120, 300))
    view = open_view(archive.store, read_catalog(archive.store, archive.partition("t")))
    assert view.epochs.pairs == ((0, 90), (2, 150))


def test_gaps_below_log_start_are_not_filled() -> None:
    """A broker may still have what retention deleted here; only the part of a gap above the start counts."""
    gaps = ((0, 10), (20, 40), (50, 60), (90, 100))
    assert fillable(gaps, 80, 0, 30) == ((30, 40), (50, 60))
    assert fillable(gaps, 80, 40, 30) == ((50, 60),)
    assert fillable(gaps, 80, 0, 0) == ((0, 10), (20, 40), (50, 60))


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=pytest.mark.full) for n in range(20, 120))])
def test_whatever_retention_may_delete_changes_no_row(archive: Archive, seed: int) -> None:
    """Three leaders' segments of random bounds, some compacted, and a view that begins anywhere."""
    draw = random.Random(seed)
    end, start = 60, draw.randrange(1, 56)
    log = [batch(n, [record(0, b"k%d" % n)], attributes=TRANSACTIONAL, producer_id=n % 3) for n in range(end)]
    log[-3:] = [marker(n, n % 3, 1) for n in range(end - 3, end)]
    removed: list[str] = []
    for leader in range(3):
        bounds = sorted({0, end, *(draw.randrange(1, end) for _ in range(draw.randrange(6)))})
        for low, high in pairwise(bounds):
            held = [n for n in range(low, high) if leader != 1 or n >= end - 3 or draw.random() < 0.6]
            if not held or (leader and draw.random() < 0.3):
                continue
            before = {info.key for info in archive.store.list()}
            archive.put_segment("t", low, b"".join(log[n] for n in held), end=high, variant=bool(leader))
            if high <= start and draw.random() < 0.8:
                removed += {info.key for info in archive.store.list()} - before
    archive.commit("t", end, highest_base=0, last_stable_offset=end, log_start=start)
    level = {"kafka.isolation.level": draw.choice(["read_committed", "read_uncommitted"])}
    expected = rows(archive.store, archive, **level)
    assert expected
    assert rows(Collected(archive.store, removed), archive, **level) == expected == list(range(start, end - 3))
