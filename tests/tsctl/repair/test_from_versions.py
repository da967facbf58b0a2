"""Which earlier versions count as good, and that nothing is put twice."""

from tests.made_archive import batches, steps
from tests.tsctl.repair.versioned import EPOCH, Versioned
from ts_common.archive.repair_requests import Damage
from tsctl.repair.needs import Need

HOLE = Need(100, 200, Damage.MISSING, None)


def test_versions_of_an_archive_that_was_deleted_are_not_used(versioned: Versioned) -> None:
    """The new log has the same offsets and epochs: its holes must not get the old log's records."""
    versioned.store.delete([info.key for info in versioned.store.list()])
    for base in (0, 200):
        log = batches(*steps(base, base + 100), epoch=EPOCH, value=b"new")
        versioned.made.put_segment("t", base, log, index=b"", timeindex=b"")
    versioned.made.commit("t", 300, epochs=((EPOCH, 0),), highest_base=200)
    versions = versioned.versions()
    assert (versions.restore(HOLE), versions.left_out is None) == ([], False)


def test_a_version_of_another_log_than_a_live_copy_is_not_put(versioned: Versioned) -> None:
    """It has its own metadata's bytes, but other records than the live copy at some offsets."""
    versioned.made.put_segment("t", 150, batches(*steps(150, 300), epoch=EPOCH), index=b"", timeindex=b"")
    versioned.made.put_segment("t", 100, batches(*steps(100, 200), epoch=EPOCH, value=b"other"), index=b"")
    versioned.store.delete([versioned.key(100)])
    assert [put.end for put in versioned.versions().restore(HOLE)] == [200]
    versioned.assert_whole()


def test_segments_that_a_hole_no_longer_needs_stay_deleted(versioned: Versioned) -> None:
    """Two deleted segments have the same offsets: one of them is enough."""
    versioned.made.put_segment("t", 120, batches(*steps(120, 180), epoch=EPOCH), index=b"", timeindex=b"")
    versioned.store.delete([versioned.key(100), versioned.key(120)])
    assert [put.start for put in versioned.versions().restore(HOLE)] == [100]
    assert versioned.logs() == ["000.log", "100.log", "200.log"]
