"""A restored cluster's archive: the history of its former places, each offset once, in both isolation levels."""

import pytest
from structlog.testing import capture_logs

from tests.made_archive import batches, steps
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import txnindex_entry
from tests.transactions import ABORT, COMMIT, data, ended
from ts_common.archive.former_places import MOST_PLACES
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.restored import Ended, Outcome
from ts_common.errors import DataLoss

IDS = ("A" * 21 + "Q", "A" * 21 + "g")
VALUES = {"prod": b"old", "again": b"new", "third": b"newest"}


def of(archive: ScannedArchive, cluster: str) -> ScannedArchive:
    """Return another cluster in the same store."""
    return ScannedArchive(archive.location, cluster=cluster)


def ship(archive: ScannedArchive, start: int, end: int, log_start: int, epoch: int = 0) -> None:
    """Ship one segment `[start, end)` of topic `t`, whose values name the cluster."""
    value = VALUES[archive.keys.cluster]
    archive.put_segment("t", start, batches(*steps(start, end), epoch=epoch, value=value))
    archive.commit("t", end, highest_base=start, log_start=log_start, epochs=[(epoch, log_start)])


@pytest.fixture
def again(archive: ScannedArchive) -> ScannedArchive:
    """Return the cluster `again`, restored from offsets 10 to 99 of `prod`; `prod` has 110, of leader epoch 5."""
    ship(archive, 10, 110, 10, epoch=5)
    made = of(archive, "again")
    made.put_restored(archive.keys, 100, epochs=[(5, 10)])
    ship(made, 90, 150, 100)  # the broker appended to a segment of restored records
    return made


def values(archive: ScannedArchive, **arguments: object) -> list[tuple[int, bytes]]:
    return [(row["offset"], row["value"]) for row in archive.rows(**arguments)]


OLD = [(offset, b"old") for offset in range(10, 100)]
NEW = [(offset, b"new") for offset in range(100, 150)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_restored_partition_has_its_old_records_below_its_own(again: ScannedArchive, isolation: str) -> None:
    """What both places have is read once; what the restore cut off is not read."""
    assert values(again, isolation_level=isolation) == OLD + NEW


def test_retention_of_the_former_place_counts(again: ScannedArchive) -> None:
    """The view begins at its `log.start`."""
    of(again, "prod").commit("t", 110, highest_base=10, log_start=40, epochs=[(5, 10)])
    assert values(again) == OLD[30:] + NEW


@pytest.mark.parametrize(("start", "expected"), [(100, OLD + NEW), (101, NEW[1:])])
def test_old_records_are_shown_until_retention_passes_them(
    again: ScannedArchive, start: int, expected: list[tuple[int, bytes]]
) -> None:
    """They are, as long as nothing between the two places is hidden."""
    again.commit("t", 150, highest_base=90, log_start=start)
    assert values(again) == expected


def test_later_writes_to_a_former_place_change_nothing(again: ScannedArchive) -> None:
    """What agents of the lost cluster write after the restore changes no row: its commit is not read."""
    prod = of(again, "prod")
    prod.put_segment("t", 60, batches(*steps(60, 200), epoch=7, value=b"late"))
    prod.commit("t", 200, highest_base=60, log_start=10, epochs=[(5, 10), (7, 60)])
    assert values(again) == OLD + NEW


def test_a_hole_of_the_former_place_is_named(again: ScannedArchive) -> None:
    """It is data loss, as any hole is."""
    again.store.delete([of(again, "prod").partition("t").segment(SegmentName(10))])
    with pytest.raises(DataLoss, match="offsets 10 to 99 are lost"):
        values(again)


def test_an_archive_without_a_commit_shows_what_was_restored(archive: ScannedArchive) -> None:
    """From the agent's first `log.start` on."""
    ship(archive, 10, 110, 10, epoch=5)
    made = of(archive, "again")
    made.put_restored(archive.keys, 100, epochs=[(5, 10)])
    made.commit("t", 100, log_start=100)
    made.store.delete([made.partition("t").commit])
    assert values(made) == OLD


def test_a_cluster_that_was_lost_twice_has_the_history_of_all_three(again: ScannedArchive) -> None:
    """Three places, cut anywhere: also below the begin of the second."""
    third = of(again, "third")
    third.put_restored(again.keys, 120, epochs=[(0, 100)])
    ship(third, 120, 160, 120)
    newest = [(offset, b"newest") for offset in range(120, 160)]
    assert values(third) == OLD + NEW[:20] + newest
    third.put_restored(again.keys, 80)
    ship(third, 80, 160, 80)
    assert values(third) == OLD[:70] + [(offset, b"newest") for offset in range(80, 160)]


@pytest.fixture
def same(archive: ScannedArchive) -> ScannedArchive:
    """Return the cluster `prod` with the first incarnation of `t`, which has the offsets 10 to 109."""
    ship(archive, 10, 110, 10, epoch=5)
    archive.put_incarnations("t", *IDS[:1])
    return archive


def restore(archive: ScannedArchive) -> None:
    """Restore it up to 99 under another id, and ship its next 50 offsets."""
    archive.put_incarnations("t", *IDS)
    archive.directories["t"] = f"t~{IDS[1]}"
    archive.put_restored(archive.keys, 100, directory=archive.directories["t"], epochs=[(5, 10)])
    ship(archive, 100, 150, 100)


def test_a_topic_restored_into_its_own_cluster_has_its_history(same: ScannedArchive) -> None:
    """The former place is an earlier incarnation, which can still be read by itself."""
    restore(same)
    assert values(same) == OLD + [(offset, b"old") for offset in range(100, 150)]
    assert values(same, incarnation="1") == [*OLD, *((offset, b"old") for offset in range(100, 110))]


def test_a_stream_continues_at_its_position_after_a_restore(same: ScannedArchive) -> None:
    """It reads no record twice: also those that it had not read of the former place."""
    same.commit("t", 60, highest_base=10, log_start=10, epochs=[(5, 10)])
    step = next(iter(same.scan().follow(poll_seconds=0.001)))
    assert step.to_table()["offset"].to_pylist() == list(range(10, 60))
    restore(same)
    step = next(iter(same.scan().follow(position=step.position, poll_seconds=0.001)))
    assert step.to_table()["offset"].to_pylist() == list(range(60, 150))


def test_a_stream_that_read_what_the_restore_cut_off_reports_it(same: ScannedArchive) -> None:
    """Its position is above the end of the restored records."""
    step = next(iter(same.scan().follow(poll_seconds=0.001)))
    assert step.to_table()["offset"].to_pylist()[-1] == 109
    restore(same)
    with pytest.raises(DataLoss, match=r"deleted and created again .* offset 110 of t-0 on are not read"):
        next(iter(same.scan().follow(position=step.position, poll_seconds=0.001)))


def test_a_circle_and_a_long_chain_are_damage(archive: ScannedArchive) -> None:
    """Readers end with an error that names the object."""
    ship(archive, 10, 110, 10)
    archive.put_restored(archive.keys, 100)
    with pytest.raises(DataLoss, match=r"restored\.json is a circle at prod/t-0/"):
        archive.offsets()
    before = archive
    for number in range(MOST_PLACES + 1):
        following = of(archive, f"c{number}")
        following.put_restored(before.keys, 10)
        following.commit("t", 10, log_start=10)
        before = following
    before.store.delete([archive.keys.restored])
    with pytest.raises(DataLoss, match=f"more than {MOST_PLACES} places"):
        before.offsets()


def test_records_in_another_store_are_lost_to_readers_of_this_one(again: ScannedArchive) -> None:
    """The error has the way out; the new records can be read."""
    again.put_restored(of(again, "prod").keys, 100, epochs=[(5, 10)], url="s3://old")
    with pytest.raises(
        DataLoss, match=r"offsets 10 to 99 are lost: they are in s3://old.* or copy prod/t-0/ into this"
    ):
        again.offsets()
    assert values(again, starting_offsets={"t": {0: 100}}) == NEW
    assert values(again, fail_on_data_loss=False) == NEW


def test_a_malformed_record_is_an_error(again: ScannedArchive) -> None:
    """No reader shows the new records as if they were all."""
    again.store.put(again.keys.restored, b"x")
    with pytest.raises(DataLoss, match=r"restored\.json: not a record of restored topics"):
        again.offsets()


def test_a_former_place_that_no_longer_exists_is_named(again: ScannedArchive) -> None:
    """Readers return the other records, with a warning."""
    prod = of(again, "prod").partition("t")
    again.store.delete([info.key for info in again.store.list(prod.prefix)])
    with capture_logs() as logs:
        assert values(again) == NEW
    assert any("prod/t-0/ no longer exists" in str(entry) for entry in logs)


@pytest.mark.parametrize(("outcome", "shown"), [(Outcome.ABORT, []), (Outcome.COMMIT, [10, 11])])
@pytest.mark.parametrize("indexed", [True, False])
def test_the_restore_decides_the_transactions_that_it_ended(
    archive: ScannedArchive, outcome: Outcome, shown: list[int], indexed: bool
) -> None:
    """A later producer of the new cluster has the same id, because ids begin at 0 again: its marker decides its own."""
    made = of(archive, "again")
    other = ABORT if outcome is Outcome.COMMIT else COMMIT
    old = data(10, 1, 0, sequence=0) + data(11, 2, 0, sequence=1)
    new = data(12, 3, 0, sequence=0) + ended(13, 4, 0, kind=other)
    if indexed:
        archive.put_segment("t", 10, old)
        made.put_segment("t", 12, new, txnindex=txnindex_entry(0, 12, 13, 14) if other == ABORT else None)
    else:  # as a Java uploader ships
        archive.store.put(archive.partition("t").segment(SegmentName(10)), old)
        made.store.put(made.partition("t").segment(SegmentName(12)), new)
    archive.commit("t", 12, log_start=10, last_stable_offset=10)
    made.put_restored(archive.keys, 12, ended=[Ended(0, 0, 10, outcome)])
    made.commit("t", 14, highest_base=12, log_start=12, epochs=[(0, 12)])
    own = [12] if other == COMMIT else []
    assert made.offsets(isolation_level="read_committed") == shown + own
    assert made.offsets(isolation_level="read_uncommitted") == [10, 11, 12]


def test_a_transaction_that_no_restore_ended_ends_in_the_new_place(archive: ScannedArchive) -> None:
    """The coordinator of a cluster that ran on wrote its marker there."""
    archive.put_segment("t", 10, data(10, 1, 7, sequence=0))
    archive.commit("t", 11, log_start=10, last_stable_offset=10)
    made = of(archive, "again")
    made.put_restored(archive.keys, 11)
    index = txnindex_entry(7, 10, 11, 12)
    made.put_segment("t", 11, ended(11, 4, 7, kind=ABORT) + data(12, 5, 8), txnindex=index)
    made.commit("t", 13, highest_base=11, log_start=11, epochs=[(0, 11)], last_stable_offset=12)
    assert made.offsets(isolation_level="read_committed") == []
    assert made.offsets(isolation_level="read_uncommitted") == [10, 12]


def test_a_stream_that_begins_in_the_old_records_continues_in_the_new(again: ScannedArchive) -> None:
    """A step reads across both places."""
    first = next(iter(again.scan(starting_offsets={"t": {0: 95}}).follow(poll_seconds=0.001)))
    assert first.to_table()["offset"].to_pylist() == list(range(95, 150))
