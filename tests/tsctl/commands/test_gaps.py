"""`tsctl gaps`: offsets that no segment contains, with the reason of a gap record."""

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.conftest import FIELDS, Shipped
from tests.tsctl.running import Run
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import SegmentName


def record_gap(archive: Archive, start: int, end: int, reason: str = "retention took it", name_end: int = 0) -> None:
    gap = Gap(start, end, reason, 1_700_000_000_000, 3)
    archive.store.put(archive.partition("t").gap(start, name_end or end), gap.encode())


@pytest.fixture
def holed(hand_made: Archive) -> Archive:
    """Make topic `t`: 10 to 29 are missing, with two records for 10 to 24; other records are filled or expired."""
    hand_made.put_segment("t", 5, batches((5, 10)))
    hand_made.put_segment("t", 30, batches((30, 40)))
    hand_made.commit("t", 40, log_start=5)
    record_gap(hand_made, 0, 4, "old")
    record_gap(hand_made, 10, 20)
    record_gap(hand_made, 18, 25, "DeleteRecords took it")
    record_gap(hand_made, 32, 35, "shipped since")
    hand_made.put_segment("whole", 0, batches((0, 10)))
    hand_made.commit("whole", 10)
    return hand_made


def test_r03_holes_are_listed_with_reason_time_and_broker(holed: Archive, named: tuple[str, ...], run: Run) -> None:
    """Holes are listed by offset, each piece once, with or without a record."""
    ended = run("gaps", *named, "--json")
    assert ended.code == 1
    pieces = [(gap["from"], gap["to"], gap["state"], gap["reason"], gap["broker"]) for gap in ended.document["gaps"]]
    assert pieces == [
        (10, 20, "recorded", "retention took it", 3),
        (20, 25, "recorded", "DeleteRecords took it", 3),
        (25, 30, "unrecorded", None, None),
    ]
    assert ended.document["gaps"][0]["time"] == "2023-11-14T22:13:20.000Z"
    assert {(gap["topic"], gap["partition"]) for gap in ended.document["gaps"]} == {("t", 0)}
    table = run("gaps", *named).out
    assert "DeleteRecords took it" in table
    assert len(table.splitlines()) == 5
    assert table.splitlines()[-1].startswith("tsctl repair puts back ")


def test_gap_records_of_offsets_shipped_or_expired_since_are_shown_if_requested(
    holed: Archive, named: tuple[str, ...], run: Run
) -> None:
    """Readers prefer data, so such a record is not a hole."""
    states = [(gap["from"], gap["state"]) for gap in run("gaps", *named, "--json", "--all").document["gaps"]]
    assert states == [(0, "expired"), (10, "recorded"), (20, "recorded"), (25, "unrecorded"), (32, "filled")]


def test_the_exit_code_reports_the_holes_that_the_option_selects(
    holed: Archive, named: tuple[str, ...], run: Run
) -> None:
    """It is 1 for any hole, or only for holes without a record, or never."""
    assert run("gaps", *named).code == 1
    assert run("gaps", *named, "--fail-on", "unrecorded").code == 1
    assert run("gaps", *named, "--fail-on", "never").code == 0
    record_gap(holed, 25, 30)
    assert run("gaps", *named, "--fail-on", "unrecorded").code == 0
    assert run("gaps", *named).code == 1
    ended = run("gaps", "whole", *named, "--all")
    assert (ended.code, ended.out) == (0, "no gaps; partitions checked: 1\n")


def test_an_invalid_gap_record_is_named(holed: Archive, named: tuple[str, ...], run: Run) -> None:
    """The message has its key, and the exit code is 1."""
    holed.store.put(holed.partition("t").gap(50, 60), b"{}")
    ended = run("gaps", *named)
    assert (ended.code, "prod/t-0/gaps/50-60.json: not a gap record" in ended.err) == (1, True)


def test_r04_a_segment_that_cannot_be_looked_into_is_no_reason_to_end(
    holed: Archive, named: tuple[str, ...], run: Run
) -> None:
    """It is named, its offsets are a hole, and the other partitions are checked."""
    holed.store.put(holed.partition("whole").segment(SegmentName(0)), b"garbage" * 20)
    ended = run("gaps", *named, "--json", "--fail-on", "never")
    assert ended.code == 1
    assert "prod/whole-0/00000000000000000000.log" in ended.err
    assert [gap["topic"] for gap in ended.document["gaps"]] == ["t", "t", "t", "whole"]


def test_a_real_archive_has_none(shipped: Shipped, run: Run) -> None:
    """Four partitions are read with the agent's own file."""
    ended = run("gaps", "--config", shipped.config / "prod.properties", "--json")
    assert (ended.code, ended.document["gaps"], ended.document["partitions"]) == (0, [], 4)
    assert run("gaps", FIELDS, "-p", "1-2", "--config", shipped.config, "--json").document["partitions"] == 2
