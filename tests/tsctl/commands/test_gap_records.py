"""`tsctl verify` on malformed gap records."""

import json
from pathlib import Path

import pytest

from tests.spark.archives import Archive
from tests.tsctl.verify.verified import READING, only, put, verify
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth


@READING
@pytest.mark.parametrize("content", [b"", b"{", json.dumps({"from": 100, "to": 200}).encode()])
def test_a_gap_record_that_cannot_be_read_is_damage(tmp_path: Path, depth: Depth, content: bytes) -> None:
    """The reason of the gap is unknown, so the finding is damage instead of information."""
    archive = Archive(tmp_path / "store", entropy_bits=3)
    put(archive, 0, 100)
    put(archive, 200, 300)
    archive.commit("t", 300, highest_base=200)
    key = archive.partition("t").gap(100, 200)
    archive.store.put(key, content)
    found = only(verify(archive, depth))
    assert (found.kind.code, found.start, found.end, found.key) == ("gap-record-damaged", 100, 200, key)
    assert found.severity is Severity.DAMAGED
    assert "not a gap record" in found.detail
