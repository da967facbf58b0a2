"""Keys and offsets of records, as the command line names them."""

import pytest

from tsctl.table_arguments import key_of, offsets_of


@pytest.mark.parametrize("text", ["t", "t-0", "t-0:", "t-0:5-4", "t-x:1", "t-0:1-2-3", "/-0:1"])
def test_wrong_offsets_are_named(text: str) -> None:
    """With the form that is expected."""
    with pytest.raises(ValueError, match=r"orders-0:100-199|below the first"):
        offsets_of(text)


def test_the_largest_offset_can_be_named() -> None:
    """It has 19 digits; larger numbers are no offsets."""
    assert offsets_of(f"t-0:{(1 << 63) - 1}") == ("t", 0, (1 << 63) - 1, 1 << 63)
    with pytest.raises(ValueError, match="no offset is above 9223372036854775807"):
        offsets_of(f"t-0:{1 << 63}")


def test_a_key_is_text_or_base64() -> None:
    """A topic's name can have a dash."""
    assert [key_of("a:b"), key_of("base64:/w==")] == ["a:b", b"\xff"]
    assert offsets_of("a-b-3:7") == ("a-b", 3, 7, 8)
