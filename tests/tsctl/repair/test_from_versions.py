"""Which earlier versions count as good, and that nothing is put twice."""

import struct
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import Any

import pytest

from tests.made_archive import batches, steps
from tests.made_wrong_indexes import CASES, IndexCase, an_abort_too_many, times_too_early
from tests.matrix import cases
from tests.tsctl.repair.versioned import EPOCH, Versioned
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import Damage
from ts_common.archive.sealed_objects import SealedRange, SealJson
from ts_common.errors import OperatorError
from tsctl.repair.from_versions import PartitionVersions
from tsctl.repair.needs import Need

HOLE = Need(100, 200, Damage.MISSING, None)
TAIL = Need(300, 310, Damage.MISSING, None)


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
    assert b"other" not in versioned.store.get(versioned.key(100))[0]


def test_segments_that_a_hole_no_longer_needs_stay_deleted(versioned: Versioned) -> None:
    """Two deleted segments have the same offsets: one of them is enough."""
    versioned.made.put_segment("t", 120, batches(*steps(120, 180), epoch=EPOCH), index=b"", timeindex=b"")
    versioned.store.delete([versioned.key(100), versioned.key(120)])
    assert [put.start for put in versioned.versions().restore(HOLE)] == [100]
    assert versioned.logs() == ["000.log", "100.log", "200.log"]


def test_a_shorter_good_version_is_put_once_and_the_rest_requested(versioned: Versioned) -> None:
    """A damaged segment was shipped again, longer; no version of the longer one is good."""
    versioned.store.delete([versioned.key(100), versioned.key(200)])
    log = batches(*steps(100, 300), epoch=EPOCH)
    versioned.made.put_segment("t", 100, log, body=log[:-1] + bytes([log[-1] ^ 1]), index=b"", timeindex=b"")
    versioned.made.commit("t", 300, epochs=((EPOCH, 0),), highest_base=100)
    for status in ("repaired", "nothing-to-do"):
        code, rows = versioned.repair()
        assert (code, [row[:3] for row in rows]) == (75, [(status, 100, 200), ("waiting", 200, 300)])
    versioned.made.commit("t", 300, epochs=((EPOCH, 0),), highest_base=100, epoch=EPOCH + 1)
    assert [put.is_new for put in versioned.versions().restore(Need(100, 300, Damage.DAMAGED, versioned.key(100)))] == [
        False
    ]
    assert len(versioned.logs()) == 3
    assert len(versioned.requests()) == 1


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_repair_unseals_the_offsets_before_its_put(
    versioned: Versioned, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that lists no sealed offsets would not see what is put there; other ranges stay sealed."""
    ranges = tuple(SealedRange(start, start + 100, f"{start}-{start + 100}.00000001.seal") for start in (0, 100, 200))
    versioned.store.put(versioned.keys.seal_json, SealJson("n", None, ranges, {}).encode())
    if is_deleted:
        versioned.store.delete([versioned.key(100)])
    else:
        versioned.damage(versioned.key(100))
    seen = list[SealJson]()
    put_again = PartitionVersions._put

    def put(versions: PartitionVersions, *arguments: Any) -> bool:
        found = SealJson.read(versioned.store, versioned.keys.seal_json)
        assert found is not None
        seen.append(found)
        return put_again(versions, *arguments)

    monkeypatch.setattr(PartitionVersions, "_put", put)
    need = HOLE if is_deleted else Need(100, 200, Damage.DAMAGED, versioned.key(100))
    assert [each.is_new for each in versioned.versions().restore(need)] == [True]
    assert [(each.sealed, [*each.open.values()]) for each in seen] == [((ranges[0], ranges[2]), [(100, 200)])]
    after = SealJson.read(versioned.store, versioned.keys.seal_json)
    assert after is not None
    assert (after.sealed, after.open) == ((ranges[0], ranges[2]), {})


@pytest.mark.parametrize("highest", [0, 150])
def test_a_segment_that_several_findings_need_is_put_once(versioned: Versioned, highest: int) -> None:
    """Two holes, below and above another copy; below the lineage's highest it gets a variant's name."""
    lineage = Lineage(EPOCH, 50, highest)
    commit = Commit(200, 300, EPOCH, EpochHistory(((EPOCH, 0),)), 300, None, 1, 0, "n", lineage=lineage)
    versioned.store.put(versioned.keys.commit, commit.encode())
    versioned.store.put(versioned.keys.log_start, LogStart(0, lineage).encode())
    versioned.made.put_segment("t", 30, batches(*steps(30, 60), epoch=EPOCH), index=b"", timeindex=b"")
    versioned.store.delete([versioned.key(0)])
    versions = versioned.versions()
    put = [versions.restore(Need(start, end, Damage.MISSING, None)) for start, end in ((0, 30), (60, 100))]
    assert [[(each.start, each.end) for each in found] for found in put] == [[(0, 100)], [(0, 100)]]
    assert len(versioned.logs()) == 4
    assert versioned.requests() == []


def test_the_segment_that_the_commit_names_also_fills_a_hole(versioned: Versioned) -> None:
    """One deleted object, reported twice."""
    versioned.made.put_segment("t", 150, batches(*steps(150, 250), epoch=EPOCH), index=b"", timeindex=b"")
    versioned.store.delete([versioned.key(200)])
    needs = Need(200, 201, Damage.MISSING, versioned.key(200)), Need(250, 300, Damage.MISSING, None)
    versions = versioned.versions()
    assert [[put.key for put in versions.restore(need)] for need in needs] == [[versioned.key(200)]] * 2


def test_repairs_at_the_same_time_put_one_object_each(versioned: Versioned) -> None:
    """A deleted and a damaged segment: the second run reads what the first one has put."""
    needs = Need(100, 200, Damage.DAMAGED, versioned.key(100)), Need(200, 300, Damage.MISSING, None)
    versioned.damage(versioned.key(100))
    versioned.store.delete([versioned.key(200)])
    runs = [versioned.versions() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda versions: [versions.restore(need) for need in needs], runs))
    assert [[(each.start, each.end) for put in run for each in put] for run in found] == [[(100, 200), (200, 300)]] * 3
    assert len(versioned.logs()) == 4


def test_a_version_with_another_ones_metadata_is_not_put(versioned: Versioned) -> None:
    """Its CRC-32C is right. Queries by time or offset would lose records; the version before it is whole."""
    key = versioned.key(100)
    right = versioned.metadata(key)
    for wrong in ({"ts-time-max": "5"}, {"ts-end": "130", "ts-records": "30", "ts-time-max": "1129"}):
        versioned.store.put(key, versioned.store.get(key)[0], metadata={**right, **wrong})
    versioned.store.delete([key])
    assert [(put.start, put.end) for put in versioned.versions().restore(HOLE)] == [(100, 200)]
    assert versioned.metadata(key) == right


def test_the_dead_tail_of_a_segment_with_many_epochs_is_no_repair(versioned: Versioned) -> None:
    """They are too many for metadata, so its batches have them."""
    pairs = [(EPOCH + number, 100 + number * 5) for number in range(20)]
    log = b"".join(batches((start, start + 5), epoch=epoch) for epoch, start in pairs)
    versioned.made.put_segment("t", 100, log, index=b"", timeindex=b"")
    versioned.store.delete([versioned.key(100)])
    live = ((EPOCH, 0), *(pair for pair in pairs[1:] if pair[1] < 150), (40, 150))
    versioned.made.commit("t", 300, epochs=live, highest_base=200)
    assert [(put.start, put.end) for put in versioned.versions().restore(HOLE)] == [(100, 150)]


def test_a_disk_without_room_is_one_message(versioned: Versioned, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the size and the way out, and nothing is put."""
    size = versioned.store.head(versioned.key(100)).size
    versioned.store.delete([versioned.key(100)])
    versions = versioned.versions()
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", "/nonexistent")
        with pytest.raises(OperatorError, match=rf"100\.log: no temporary file for the {size} bytes.*set TMPDIR"):
            versions.restore(HOLE)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", lambda **_: FileIO("/dev/full", "r+"))
        with pytest.raises(OperatorError, match="No space left on device; set TMPDIR"):
            versions.restore(HOLE)
    assert versioned.logs() == ["000.log", "200.log"]


def test_an_index_is_put_back_only_if_it_fits_its_segment(versioned: Versioned) -> None:
    """Junk was written over it before it was deleted; the version before that is right. A deleted .log has the same."""
    key = versioned.key(100, ".index")
    good = struct.pack(">ii", 19, len(batches((100, 110))))
    versioned.store.put(key, good)
    versioned.store.put(key, bytes.fromhex("0000000a000f0456"))
    versioned.store.delete([key])
    assert len(versioned.versions().restore(Need(100, 200, Damage.MISSING, key))) == 1
    assert versioned.store.get(key)[0] == good
    versioned.store.put(key, b"junk")
    versioned.store.delete([key, versioned.key(100)])
    assert len(versioned.versions().restore(HOLE)) == 1
    assert versioned.store.get(key)[0] == good


@pytest.fixture(params=cases(CASES, quick=[times_too_early, an_abort_too_many]), ids=[each.__name__ for each in CASES])
def case(versioned: Versioned, request: pytest.FixtureRequest) -> IndexCase:
    """Return a segment `[300, 310)` that is not put yet; the commit contains it."""
    versioned.made.commit("t", 310, epochs=((EPOCH, 0),), highest_base=300)
    made: IndexCase = request.param(300, EPOCH)
    return made


def test_a_version_that_names_a_wrong_index_is_not_put(versioned: Versioned, case: IndexCase) -> None:
    """Readers would omit records or return aborted ones, and an earlier version of segment and index is right."""
    log, index = versioned.key(300), versioned.key(300, case.suffix)
    for data in (case.right, case.wrong):
        case.put(versioned.store, versioned.keys, data)
    versioned.store.delete([log, index])
    (put,) = versioned.versions().restore(TAIL)
    assert (put.key, put.start, put.end) == (log, 300, 310)
    assert (versioned.metadata(log), versioned.store.get(index)[0]) == (case.metadata(case.right), case.right)
    versioned.assert_whole()


def test_a_segment_that_names_a_wrong_index_gets_a_good_copy(versioned: Versioned, case: IndexCase) -> None:
    """A full verify reports the segment, and the repair puts an earlier version next to it."""
    for data in (case.right, case.wrong):
        case.put(versioned.store, versioned.keys, data)
    code, document = versioned.tsctl("verify")
    assert (code, [(each["code"], each["key"]) for each in document["findings"]]) == (
        1,
        [("metadata-wrong", f"base/{versioned.key(300)}")],
    )
    (put,) = versioned.versions().restore(Need(300, 310, Damage.DAMAGED, versioned.key(300)))
    replaces = {"ts-replaces": SegmentName(300).stem}
    assert versioned.metadata(put.key) == {**case.metadata(case.right), **replaces}
    assert versioned.store.get(put.key.removesuffix(".log") + case.suffix)[0] == case.right
    versioned.assert_whole()


def test_a_segment_without_a_version_that_names_the_right_index_is_requested(
    versioned: Versioned, case: IndexCase
) -> None:
    """The broker has the right index, so the agent puts the segment."""
    case.put(versioned.store, versioned.keys, case.wrong)
    versioned.store.delete([versioned.key(300, suffix) for suffix in (".log", case.suffix)])
    assert [row[:3] for row in versioned.repair()[1]] == [("waiting", 300, 310)]
    assert versioned.logs() == ["000.log", "100.log", "200.log"]


def test_a_version_whose_named_index_has_expired_is_put(versioned: Versioned, case: IndexCase) -> None:
    """Readers ignore an index with another checksum, so the metadata omits no record."""
    case.put(versioned.store, versioned.keys, case.right)
    expired = case.metadata(b"expired")
    versioned.store.put(versioned.key(300), case.log, metadata=expired)
    versioned.store.delete([versioned.key(300), versioned.key(300, case.suffix)])
    assert [put.end for put in versioned.versions().restore(TAIL)] == [310]
    assert versioned.metadata(versioned.key(300)) == expired
