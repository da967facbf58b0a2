"""`verify` on intact segments of producers that wrote wrong offsets: a finding of the lowest severity, and no other."""

from pathlib import Path

from tests.made_archive import MadeArchive
from tests.reader.decode.odd_bytes import FILES, OFFSETS, with_deltas
from tests.tsctl.verify.verified import READING, verify
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth

_SARAMA = "sarama-1.15-real-kafka-1.0.0"


@READING
def test_intact_segments_of_wrong_producers_are_information(tmp_path: Path, depth: Depth) -> None:
    """Headers do not show each of them; the whole bytes do, and its detail has the number of records."""
    made, logs = MadeArchive(tmp_path), {**OFFSETS, **FILES}
    logs["zipped"] = with_deltas(0, [0, 0, 0], 2, codec=1)
    ends = {"kafka-4298-real-0.10.0.1": 1400, "last-delta-0": 15, "last-delta-0-zipped": 14}
    for name, log in logs.items():
        made.put_segment(name, 0, log, index=b"", timeindex=b"", end=ends.get(name))
        made.commit(name, 1, last_stable_offset=1)
    found = verify(made, depth).all_findings  # type: ignore[arg-type]
    assert [each for each in found if each.severity > Severity.INFORMATION] == []
    wrong = {each.where: each.detail for each in found if each.kind.code == "wrong-producer"}
    expected = {*OFFSETS, _SARAMA, "zipped"} if depth is Depth.FULL else set()
    assert {*wrong} == {f"{name}-0" for name in expected}
    if wrong:
        assert "readers return 10 records" in wrong[f"{_SARAMA}-0"]
