"""Streams over a live tail: batches across the change to a closed segment, and a batch that waits for its end."""

import pytest

from tests.made_tail import MadeTail, live, plain, ship
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, LENIENT, Query
from ts_common.errors import ShorterView
from ts_reader.following import ends


@pytest.fixture(autouse=True)
def _each_look_reads_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that reads the packs alone for some seconds sees an older commit."""
    monkeypatch.setattr(ends, "COMMIT_SECONDS", 0.0)


def test_batches_read_the_tail_and_then_its_segment(archive: Archive) -> None:
    """Each record once; with the option the stream follows closed segments alone."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    query, closed = Query(archive, **EARLIEST), Query(archive, **EARLIEST, tail="false")
    query.trigger()
    closed.trigger()
    tail.put(plain(archive, (110, 130)))
    query.trigger()
    ship(archive, 120)
    for each in (query, closed):
        each.trigger()
    assert query.offsets_of() == list(range(130))
    assert closed.offsets_of() == [*range(100), *range(100, 120)]


def test_a_batch_that_runs_again_waits_for_the_end_that_it_had(archive: Archive) -> None:
    """Its end is in the checkpoint, so a stream that may lose data must not run it with fewer records either."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))
    query = Query(archive, **LENIENT)
    query.trigger(dies=True)
    archive.commit("t", 100, live=None)
    with pytest.raises(ShorterView, match="t-0: offsets 100 to 129 are not shown now"):
        query.start(**LENIENT)
    assert query.pauses == [1.0] * 5
    archive.commit("t", 100, live=live((0, 100)))
    query.start(**LENIENT)
    assert query.offsets_of() == list(range(130))
