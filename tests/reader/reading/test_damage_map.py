"""The damage map: what is read where copies are damaged, and what is logged."""

import pytest
from structlog.testing import capture_logs

from tests.made_archive import MadeArchive, batches
from tests.made_views import only_copy, ranges_of, view_of
from ts_common.archive.plan import ReadRange, with_spares
from ts_common.errors import CorruptData
from ts_reader.decode.salvage import Damage
from ts_reader.reading.damage_map import Corruption, DamageMap, ObjectSource

LOG = batches((0, 5), (5, 10), (10, 15))
SIZE = len(batches((0, 5)))


def damaged(at: int) -> bytes:
    body = bytearray(LOG)
    body[at] ^= 1
    return bytes(body)


def the_range(archive: MadeArchive) -> ReadRange:
    view = view_of(archive)
    (part,) = with_spares(ranges_of(view), view.copies, view.epochs)
    return part


def test_an_intact_range_is_one_step(archive: MadeArchive) -> None:
    """Nothing is cut and nothing is logged."""
    archive.put_segment("t", 0, LOG)
    archive.commit("t", 15)
    part = the_range(archive)
    with capture_logs() as logs:
        assert list(DamageMap(archive.store).steps(part)) == [part]
    assert logs == []


def test_offsets_that_no_copy_has_intact_are_a_corruption(archive: MadeArchive) -> None:
    """It has offsets and positions of the batch; a second pass logs nothing, and a silent map logs nothing at all."""
    archive.put_segment("t", 0, LOG, body=damaged(SIZE + 70))
    archive.commit("t", 15)
    part = the_range(archive)
    damage_map = DamageMap(archive.store)
    with capture_logs() as logs:
        before, lost, behind = damage_map.steps(part)
        list(damage_map.steps(part))
        list(DamageMap(archive.store, silent=True).steps(part))
    assert isinstance(lost, Corruption)
    assert (lost.start, lost.end, lost.position, lost.end_position) == (5, 10, SIZE, 2 * SIZE)
    assert [(step.start, step.end) for step in (before, behind)] == [(0, 5), (10, 15)]
    (line,) = logs
    assert line["event"] == "corrupt_batches_skipped"
    assert (line["first_offset"], line["last_offset"], line["position"]) == (5, 9, SIZE)


def test_another_copy_is_read_where_one_is_damaged(archive: MadeArchive) -> None:
    """Only there: the plan's copy is read before and behind, and no offset is lost."""
    archive.put_segment("t", 0, LOG, body=damaged(SIZE + 70))
    archive.put_segment("t", 0, LOG[: 2 * SIZE], variant=True)
    archive.commit("t", 15)
    part = the_range(archive)
    with capture_logs() as logs:
        steps = list(DamageMap(archive.store).steps(part))
    assert all(isinstance(step, ReadRange) for step in steps)
    assert [(step.start, step.end) for step in steps] == [(0, 5), (5, 10), (10, 15)]
    own, other = part.copies[0], part.spares[0].copies[0]
    assert [step.copies[0] for step in steps if isinstance(step, ReadRange)] == [own, other, own]
    assert [(line["event"], line["read_instead"]) for line in logs] == [("corrupt_batches_replaced", other.key)]


def test_an_undecodable_batch_is_damage_from_then_on_and_an_error_the_second_time(archive: MadeArchive) -> None:
    """A second failure at the same batch would repeat for ever."""
    archive.put_segment("t", 0, LOG)
    archive.commit("t", 15)
    part, damage_map = the_range(archive), DamageMap(archive.store, silent=True)
    damage = Damage(SIZE, 2 * SIZE, 5, 10, "its records do not decode")
    damage_map.add(part.copies[0], damage)
    found = [(type(step).__name__, step.start, step.end) for step in damage_map.steps(part)]
    assert found == [("ReadRange", 0, 5), ("Corruption", 5, 10), ("ReadRange", 10, 15)]
    with pytest.raises(CorruptData, match="its records do not decode"):
        damage_map.add(part.copies[0], damage)


def test_a_shorter_object_than_the_listed_one_was_replaced(archive: MadeArchive) -> None:
    """Reads may jump; a read behind the object's real end shows the replacement."""
    archive.put_segment("t", 0, LOG)
    archive.commit("t", 15)
    with ObjectSource(archive.store, only_copy(archive), len(LOG) + 10) as source:
        assert source.read(SIZE, 7) + source.read(SIZE + 7, 5) == LOG[SIZE : SIZE + 12]
        assert source.read(3, 4) == LOG[3:7]
        assert not source.was_replaced
        with pytest.raises(CorruptData):
            list(source.chunks(SIZE))
        assert source.was_replaced
