"""A line of JSON is written in pieces that together are the document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_text import raw_in
from tsctl import json_lines
from tsctl.json_lines import json_line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)


@given(value=JSON, piece=st.integers(1, 5))
def test_pieces_make_the_line_that_would_be_written_at_once(value: object, piece: int) -> None:
    """A string may be cut anywhere, at any depth."""
    whole = "".join(json_line(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_PIECE", piece)
        assert "".join(json_line(value)) == whole
    assert json.loads(whole.encode()) == value
    assert raw_in(whole.removesuffix("\n")) == []


@pytest.mark.parametrize("character", ["\0", "\x80", "\u202e", "\U0001f600", "a"])
def test_no_piece_is_as_long_as_a_long_value(character: str) -> None:
    """Writing a line needs memory for a piece of it, even if each character needs six in JSON."""
    value = character * (3 << 20)
    lengths = [len(piece) for piece in json_line({"topic": "t", "headers": [{"key": "k", "value": value}]})]
    assert max(lengths) <= 6 * (1 << 18)
    assert sum(lengths) >= len(value)
