"""Objects of live tails with erased records: all that are stored, of agents that run and of others."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from tests.made_tail import MadeTail, live, plain, ship
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.erasures import ErasedPartition
from ts_common.archive.tail_pack import PackHead, encode_pack
from tsctl.erase.live_tails import remaining_in_tails
from tsctl.erase.remains import Surface


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """Return an archive with a closed segment up to offset 100."""
    found = MadeArchive(tmp_path / "bucket")
    ship(found)
    return found


def remaining(made: MadeArchive, *runs: tuple[int, int, int], directory: str = "t-0") -> list[str]:
    """Return what remains of erased offsets, without the common prefix of all tails."""
    found = [*remaining_in_tails(made.store, made.keys, {directory: ErasedOffsets.of(runs)})]
    assert {each.surface for each in found} <= {Surface.TAIL}
    return [each.where.removeprefix(made.keys.tails) for each in found]


def names(made: MadeArchive) -> list[str]:
    return [info.key.removeprefix(made.keys.tails) for info in made.store.list(made.keys.tails)]


def test_packs_with_an_erased_offset_remain(made: MadeArchive) -> None:
    """By the batches of their own: the newest pack leads to all of them. Another partition's list counts not."""
    tail = MadeTail(made)
    for start in (100, 110, 120):
        tail.put(plain(made, (start, start + 10)))
    third, second, first = names(made)
    assert remaining(made, (109, 111, 0)) == [second, first]
    assert remaining(made, (120, 121, 0)) == [third]
    assert remaining(made, (99, 100, 0), (130, 140, 0)) == []
    assert remaining(made, (100, 130, 0), directory="u-0") == []
    assert remaining(made) == []


def test_a_batch_of_a_higher_epoch_is_another_record(made: MadeArchive) -> None:
    """An election put it at an offset that it freed."""
    tail = MadeTail(made)
    tail.put(plain(made, (100, 110), epoch=3))
    assert remaining(made, (105, 106, 2)) == []
    assert remaining(made, (105, 106, 3)) == names(made)


def test_x05_a_request_does_not_wait_for_packs_with_records_of_a_later_one(made: MadeArchive) -> None:
    """A list has all requests. Records from a request's END on are not its own, nor are those of other partitions."""
    tail = MadeTail(made)
    tail.put(plain(made, (100, 110)))
    (found,) = remaining_in_tails(made.store, made.keys, {"t-0": ErasedOffsets.of([(40, 41, 0), (105, 106, 0)])})
    assert not found.concerns([ErasedPartition("t-0", 105, 105, 1, 1), ErasedPartition("t-1", 500, 500, 1, 1)])
    assert found.concerns([ErasedPartition("t-0", 106, 106, 2, 1)])
    assert found.concerns([ErasedPartition("former/t-0", 106, 106, 2, 1)])


def test_x02_merged_objects_and_those_that_nothing_leads_to_remain(made: MadeArchive) -> None:
    """The agent deletes former packs twenty minutes after the merge; another broker's log has no agent any more."""
    tail, removed = MadeTail(made), MadeTail(made, log="7")
    tail.put(plain(made, (100, 110)))
    former = tail.newest, made.store.get(tail.newest)[0]
    removed.put(plain(made, (100, 105)))
    tail.merge(moves_index=True)
    (merged,) = (name for name in names(made) if "merged/" in name)
    (dead,) = (name for name in names(made) if name.startswith("7/"))
    assert remaining(made, (104, 105, 0)) == [merged, dead]
    made.store.put(*former)
    assert remaining(made, (104, 105, 0)) == [merged, former[0].removeprefix(made.keys.tails), dead]
    made.commit("t", 200, live=live((0, 200)))
    assert len(remaining(made, (104, 105, 0))) == 3  # until they are deleted


def test_x02_a_merged_object_whose_index_has_none_of_its_batches_may_have_some(made: MadeArchive) -> None:
    """Only the last object of a merge has the index of all, if one has no room for its own."""
    tail = MadeTail(made)
    tail.put(plain(made, (100, 110)))
    batches = tail.batches(tail.entries[0])
    name = f"{made.keys.tail('1')}merged/1-1a2b3c4d"
    made.store.put(name, encode_pack(PackHead("1", 1, "nonce", 1), (), [batches]))
    assert remaining(made, (300, 301, 0)) == [name.removeprefix(made.keys.tails)]
    made.store.put(name, encode_pack(PackHead("1", 1, "nonce", 1), (), ()))
    assert remaining(made, (300, 301, 0)) == []


@pytest.mark.parametrize("at", [0, 20, -30])
def test_x02_an_object_that_cannot_be_read_may_have_some(made: MadeArchive, at: int) -> None:
    """A damaged header or index, and a name that no agent gives; damaged batches change nothing."""
    tail = MadeTail(made)
    tail.put(plain(made, (100, 110)))
    data = bytearray(made.store.get(tail.newest)[0])
    data[at] ^= 1
    made.store.put(tail.newest, bytes(data))
    assert remaining(made, (300, 301, 0)) == ([] if at < 0 else names(made))
    made.store.put(f"{made.keys.tails}1/note", b"x")
    assert "1/note" in remaining(made, (300, 301, 0))
