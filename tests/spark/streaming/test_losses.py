"""What a stream reports and reads if an election, retention or an operator changed the archive behind it."""

import pytest
from structlog.testing import capture_logs

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, LENIENT, Query, warnings_of
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import DataLoss

ID_ONE, ID_TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"


def elected(archive: Archive, end: int) -> None:
    """Hold an unclean election in topic `t` at offset 60; the new leader's log ends at `end`."""
    archive.put_segment("t", 60, batches((60, 140), epoch=1, value=b"new"))
    archive.commit("t", end, epochs=((0, 0), (1, 60)), highest_base=60)


@pytest.mark.parametrize("end", [60, 100, 140])
def test_u26_what_an_election_removed_is_data_loss(two: Archive, end: int) -> None:
    """Whether the next offset lies below the stream's position when it looks again, at it, or above it already."""
    query = Query(two, **EARLIEST)
    query.trigger()
    elected(two, end)
    told = "t-0: offsets 60 to 99 are lost: an election removed them after they were read"
    with pytest.raises(DataLoss, match=told):
        query.trigger()
    with capture_logs() as logs:
        query.start(**LENIENT)
        assert query.trigger() == []
        query.trigger()
        elected(two, 140)
        query.trigger()
    assert warnings_of(logs) == [told]
    assert query.offsets_of() == [*range(100), *range(60, 140)]
    assert all(row["value"] == b"new" for number in (2, 3) for row in query.sink.get(number, []))


@pytest.mark.parametrize("start", ["latest", '{"t":{"0":-1}}', '{"t":{"0":100}}'])
def test_u26_an_election_before_the_first_batch_is_data_loss(two: Archive, start: str) -> None:
    """Between the start of the query and the end of that batch."""
    driver = Query(two, subscribe="t", startingOffsets=start)._driver
    driver.initial_offset()
    elected(two, 140)
    with pytest.raises(DataLoss, match="t-0: offsets 60 to 99 are lost: an election removed them"):
        driver.latest_offset()


def test_u30_a_commit_that_is_rebuilt_below_the_stream_brings_no_row_twice(two: Archive) -> None:
    """It went back further than the run that it lost, on the same line: the stream waits until it has passed."""
    query = Query(two, **EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(100))
    two.commit("t", 60)
    query.trigger()
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_u26_an_election_before_a_batch_is_run_again_is_data_loss(two: Archive) -> None:
    """The batch ends where the logs diverge, and the next one starts there: no row of the new log is read twice."""
    query = Query(two, **EARLIEST)
    query.trigger(dies=True)
    elected(two, 140)
    with pytest.raises(DataLoss, match="t-0: offsets 60 to 99 are lost: an election removed them"):
        query.start(**EARLIEST)
    query.start(**LENIENT)
    for _ in range(3):
        query.trigger()
    assert query.offsets_of() == list(range(140))


@pytest.mark.parametrize("is_written", [True, False])
def test_u26_a_stream_follows_a_log_start_that_decreased(two: Archive, is_written: bool) -> None:
    """An empty replica won: `log.start` falls from 50 with a new lineage, and all of the new log is read.

    The same where the agent was killed between the commit and `log.start`.
    """
    keys = two.partition("t")
    two.commit("t", 100, log_start=50)
    query = Query(two, **LENIENT)
    query.trigger()
    two.put_segment("t", 0, batches((0, 140), epoch=1, value=b"new"), variant=True)
    lineage = Lineage(1, 0, 100)
    commit = Commit(0, 140, 1, EpochHistory(((1, 0),)), None, None, 1, 0, "nonce", lineage=lineage)
    two.store.put(keys.commit, commit.encode())
    if is_written:
        two.store.put(keys.log_start, LogStart(0, lineage).encode())
    with capture_logs() as logs:
        query.trigger()
        query.trigger()
    assert warnings_of(logs) == ["t-0: offsets 0 to 99 are lost: an election removed them after they were read"]
    assert query.offsets_of() == [*range(50, 100), *range(140)]


def test_an_election_that_lost_nothing_of_the_stream_is_no_data_loss(two: Archive) -> None:
    """A new epoch from the stream's position on."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_segment("t", 100, batches((100, 130), epoch=1), variant=True)
    two.commit("t", 130, epochs=((0, 0), (1, 100)), highest_base=100)
    assert len(query.trigger()) == 30


def test_what_retention_deleted_is_data_loss(two: Archive) -> None:
    """The log's start passed the stream: an error, or on from there."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.store.delete([two.partition("t").log_start])
    two.commit("t", 200, log_start=150, highest_base=100)
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 149 are lost: below the log's start 150"):
        query.trigger()
    query.start(**LENIENT)
    assert query.offsets_of() == [*range(100), *range(150, 200)]


def test_r03_a_hole_is_data_loss(two: Archive) -> None:
    """As in a batch query; what is behind it is read."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_segment("t", 300, batches((300, 310)))
    two.commit("t", 310, highest_base=300)
    with pytest.raises(DataLoss, match="t-0: offsets 200 to 299 are lost: no object in the store contains them"):
        query.trigger()
    query.start(**LENIENT)
    assert query.offsets_of() == [*range(200), *range(300, 310)]


@pytest.mark.parametrize("gone", ["offset.wm", "everything", "incarnations"])
def test_u30_missing_objects_are_reported_and_no_row_is_read_twice(two: Archive, gone: str) -> None:
    """An error; or a warning, and the position stays for objects that are restored."""
    two.put_incarnations("t", ID_ONE)
    two.put_segment("other", 0, batches((0, 5)))
    two.commit("other", 5)
    options = {"subscribe": "t,other", "startingOffsets": "earliest"}
    query = Query(two, **options)
    query.trigger()
    keys = two.partition("t")
    taken = {
        "offset.wm": [keys.commit],
        "incarnations": [two.keys.incarnations("t")],
        "everything": [*(info.key for info in two.store.list(keys.prefix)), two.keys.incarnations("t")],
    }[gone]
    held = [(key, *two.store.get(key)) for key in taken]
    two.store.delete(taken)
    with pytest.raises(DataLoss, match=r"t(-0)?\b.* missing from the store"):
        query.trigger()
    query.start(**{**options, "failOnDataLoss": "false"})
    two.commit("other", 4)
    two.put_segment("other", 5, batches((5, 9)))
    two.commit("other", 9, highest_base=5)
    assert query.trigger() == [("other", 0, offset) for offset in range(5, 9)]
    for key, data, info in held:
        two.store.put(key, data, metadata=info.metadata)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))
