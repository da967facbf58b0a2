"""The former places of a restored partition: one that is missing, damaged or has a hole is a finding."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.spark.archives import Archive
from tests.tsctl.verify.verified import codes, only, verify
from ts_common.archive.object_keys import SegmentName
from tsctl.verify.segment_check import Depth

END = 100


@pytest.fixture
def old(tmp_path: Path) -> MadeArchive:
    """Return the cluster `old` with the offsets 0 to 109."""
    made = MadeArchive(tmp_path / "store", cluster="old")
    for base in (0, 50):
        made.put_segment("t", base, batches(*steps(base, base + 60)), index=b"", timeindex=b"")
    made.commit("t", 110, highest_base=50)
    return made


@pytest.fixture
def restored(tmp_path: Path, old: MadeArchive) -> Archive:
    """Return the cluster `prod`, restored from it up to 99; its first segment begins below."""
    made = Archive(tmp_path / "store")
    made.put_segment("t", 80, batches(*steps(80, 150)), index=b"", timeindex=b"")
    made.commit("t", 150, highest_base=80, log_start=END, epochs=[(0, 80)])
    made.put_restored(old.keys, END)
    return made


def test_a_whole_chain_is_no_finding(restored: Archive) -> None:
    """Records below `log.start` are not hidden, though their segment was shipped after it: a former place has them."""
    restored.age(3600, "log.start")
    found = verify(restored, Depth.HEADERS)
    assert codes(found) == []
    (coverage,) = found.coverages
    assert coverage.start == 0


def test_a_former_place_that_no_longer_exists_is_a_finding(restored: Archive, old: MadeArchive) -> None:
    """Until retention of the new place passes the end."""
    prefix = old.partition("t").prefix
    restored.store.delete([info.key for info in restored.store.list(prefix)])
    finding = only(verify(restored, Depth.HEADERS))
    assert (finding.kind.code, finding.key, finding.end) == ("former-place-missing", prefix, END)
    restored.commit("t", 150, highest_base=80, log_start=END + 1, epochs=[(0, 101)])
    assert "former-place-missing" not in codes(verify(restored, Depth.HEADERS))


def test_a_hole_of_a_former_place_is_a_finding(restored: Archive, old: MadeArchive) -> None:
    """Its offsets are those that readers lose."""
    restored.store.delete([old.partition("t").segment(SegmentName(50))])
    finding = only(verify(restored, Depth.HEADERS))
    assert (finding.kind.code, finding.start, finding.end) == ("hole", 60, END)


def test_a_malformed_record_is_a_finding(restored: Archive) -> None:
    """It names the object."""
    restored.store.put(restored.keys.restored, b"x")
    found = verify(restored, Depth.HEADERS)
    assert "former-place-damaged" in codes(found)
    assert restored.keys.restored in {finding.key for finding in found.all_findings}
