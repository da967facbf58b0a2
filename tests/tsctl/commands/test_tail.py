"""Live tails in the commands that read: what they show of it, and that an option leaves it out."""

import json
from pathlib import Path

import pytest

from tests.made_archive import batches
from tests.made_tail import MadeTail, entry, plain, ship
from tests.spark.archives import Archive
from tests.tsctl.running import Run

PACK_TIME = 1_700_000_000_000


@pytest.fixture
def tailed(hand_made: Archive) -> Archive:
    """Return topic `t`: a closed segment `[0, 100)`, one above it that is not committed, and a tail up to 115."""
    ship(hand_made)
    hand_made.put_segment("t", 105, batches((105, 112)))
    tail = MadeTail(hand_made, time=PACK_TIME - 1000)
    tail.put(plain(hand_made, (95, 100), (100, 105)))
    tail.time = PACK_TIME
    tail.put(entry(hand_made, "t", 105, batches((105, 115)), stable=110))
    return hand_made


@pytest.mark.usefixtures("tailed")
@pytest.mark.parametrize(("option", "count"), [((), 115), (("--no-tail",), 100)])
def test_records_of_the_tail_are_read(named: tuple[str, ...], run: Run, option: tuple[str, ...], count: int) -> None:
    """By `cat` and by `sql`."""
    assert len(run("cat", "t", *named, *option).lines) == count
    ended = run("sql", 'select count(*) as n, max("offset") as most from t', *named, *option, "--json")
    assert ended.lines == [{"n": count, "most": count - 1}]


@pytest.mark.usefixtures("tailed")
def test_a_partition_is_listed_with_the_end_of_its_tail_and_how_fresh_it_is(named: tuple[str, ...], run: Run) -> None:
    """The time of the newest pack of the leader's log; the next offset is still that of closed segments."""
    (topic,) = run("ls", *named, "-l", "segments", "--json").document["topics"]
    (part,) = topic["partitions"]
    assert (part["next_offset"], part["end"], part["fresh"]) == (100, 115, "2023-11-14T22:13:20.000Z")
    assert [(each["base"], each["state"]) for each in part["segment_list"]] == [(0, "live"), (105, "uncommitted")]
    header, row = run("ls", *named, "-l", "partitions").out.splitlines()
    assert header.split()[-2:] == ["END", "FRESH"]
    assert row.split()[1:4] == ["0", "100", "110"]
    assert row.split()[-2:] == ["115", "2023-11-14T22:13:20.000Z"]
    (topic,) = run("ls", *named, "-l", "partitions", "--no-tail", "--json").document["topics"]
    assert (topic["partitions"][0]["end"], topic["partitions"][0]["fresh"]) == (100, None)


def test_entries_of_the_tail_are_files_of_their_own(
    tailed: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Byte for byte, below `tail`; the description has the offsets that readers return of them."""
    ended = run("get", "t", tmp_path, *named)
    assert (ended.code, ended.err) == (0, "")
    written = tmp_path / "t-0"
    found = {str(path.relative_to(written)): path.read_bytes() for path in written.rglob("*.log")}
    assert found == {
        f"{0:020d}.log": tailed.store.get(tailed.partition("t").prefix + f"{0:020d}.log")[0],
        f"tail/{95:020d}.log": batches((95, 100), (100, 105)),
        f"tail/{105:020d}.log": batches((105, 115)),
    }
    described = json.loads((written / "range.json").read_text())
    assert [(each["from"], each["to"], each["files"]) for each in described["ranges"]] == [
        (0, 100, [f"{0:020d}.log"]),
        (100, 105, [f"tail/{95:020d}.log"]),
        (105, 115, [f"tail/{105:020d}.log"]),
    ]
    run("get", "t", tmp_path / "closed", *named, "--no-tail")
    assert [path.name for path in (tmp_path / "closed").rglob("*.log")] == [f"{0:020d}.log"]
