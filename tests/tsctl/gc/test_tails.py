"""Retention and a live tail: the collector deletes nothing below `tail/`."""

from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.made_tail import MadeTail, entry
from tests.tsctl.gc.archives import GRACE, FixedRetention, bases, keep_last, names, run, ship
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from tsctl.gc.due import Rule

DAYS = 86_400_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def commit(archive: MadeArchive, next_offset: int, **fields: Any) -> None:
    """Commit with the log of broker 1."""
    archive.commit("t", next_offset, live=Live("1", (), EpochHistory(((0, next_offset),))), **fields)


def tail_of(archive: MadeArchive) -> list[str]:
    return [info.key for info in archive.store.list(archive.keys.cluster_prefix + "tail/")]


def view_of(archive: MadeArchive) -> tuple[int, int]:
    catalog = read_catalog(archive.store, archive.partition("t"))
    view = open_view(archive.store, catalog, tails=TailLogs(archive.store, archive.keys))
    return view.start, view.end


def test_a_run_deletes_segments_and_leaves_the_tail(archive: MadeArchive) -> None:
    """Records of 1970 are due by any age. The segment that the commit names stays, and the tail behind it."""
    ship(archive, "t", 0, 100)
    commit(archive, 100, highest_base=90)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 100, batches((100, 110))))
    archive.store.put(tail.key("merged/1-0badcafe"), b"left by a killed merge")
    before = tail_of(archive)
    retention = FixedRetention(Rule(age=1))
    for _ in range(3):
        found = run(archive, retention, after=2 * DAYS)
        assert not found.report.skipped
    assert tail_of(archive) == before
    assert bases(archive) == [90]
    assert view_of(archive) == (90, 110)


@pytest.mark.parametrize("retention", [FixedRetention(Rule(age=1)), keep_last(1, 1), FixedRetention(None)])
def test_a_first_commit_without_a_run_is_left_as_it_is(archive: MadeArchive, retention: FixedRetention) -> None:
    """Nothing of it is due: no segment exists yet."""
    commit(archive, 40, log_start=40, epochs=(), epoch=3, highest_base=40)
    MadeTail(archive).put(entry(archive, "t", 40, batches((40, 50))))
    before = names(archive), tail_of(archive)
    for _ in range(3):
        found = run(archive, retention, after=GRACE)
        assert not found.report.skipped
    assert (names(archive), tail_of(archive)) == before
