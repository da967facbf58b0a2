"""The arrays that kernels share: each name has a place of its own within them, because kernels check no index."""

from enum import IntEnum

import pytest

from ts_reader.decode.kernel_arrays import CURSOR_SIZE, TABLE_WIDTH, Column, CursorField, DecodeStatus


@pytest.mark.parametrize(("names", "size"), [(Column, TABLE_WIDTH), (CursorField, CURSOR_SIZE)])
def test_each_name_has_its_own_place_in_the_array(names: type[IntEnum], size: int) -> None:
    """Two names with one number are one name for Python; a number beyond the size is a write beyond the memory."""
    assert sorted(names.__members__.values()) == list(range(size))


def test_damage_is_a_negative_status() -> None:
    """The decoder distinguishes damage by the sign, and one status from another by its number."""
    assert {status.name for status in DecodeStatus if status >= 0} == {"DONE", "FULL", "NO_ROOM"}
    assert len(set(DecodeStatus.__members__.values())) == len(DecodeStatus.__members__)
