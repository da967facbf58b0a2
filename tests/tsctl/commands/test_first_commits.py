"""A partition whose first commit has no run: line 1 names no object, and only a tail has records."""

import pytest

from tests.made_archive import batches
from tests.made_tail import MadeTail, entry
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory


@pytest.fixture
def first(hand_made: Archive) -> Archive:
    """Two partitions: one began at 0 and one at 40, each with a tail of ten records."""
    tail = MadeTail(hand_made)
    for partition, start in enumerate((0, 40)):
        live = Live("1", (), EpochHistory(((3, start),)))
        hand_made.commit(
            "t", start, partition=partition, log_start=start, epochs=(), epoch=3, highest_base=start, live=live
        )
        body = batches((start, start + 10), epoch=3)
        tail.put(entry(hand_made, "t", start, body, partition=partition, epoch=3))
    return hand_made


@pytest.mark.parametrize("level", ["topics", "partitions", "segments"])
def test_it_is_listed_without_a_problem(first: Archive, named: tuple[str, ...], run: Run, level: str) -> None:
    """Its log start and next offset are equal, and no segment is missing."""
    ended = run("ls", *named, "--level", level, "--json")
    assert (ended.code, ended.err) == (0, "")
    (topic,) = ended.document["topics"]
    assert [each["commit"] for each in topic["partitions"]] == ["committed", "committed"]
    if level != "topics":
        found = [(each["log_start"], each["next_offset"], each["holes"]) for each in topic["partitions"]]
        assert found == [(0, 0, []), (40, 40, [])]
    assert run("ls", *named, "--level", level).code == 0


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("arguments", [("gaps",), ("gaps", "--all"), ("verify",), ("verify", "--depth", "full")])
def test_it_is_no_finding(named: tuple[str, ...], run: Run, arguments: tuple[str, ...]) -> None:
    """Nothing was shipped, so nothing is missing."""
    command, *options = arguments
    ended = run(command, *named, *options, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document.get("gaps", ended.document.get("findings")) == []
