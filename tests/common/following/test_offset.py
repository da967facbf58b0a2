"""The offset of a stream as JSON values, in the form that checkpoints hold."""

import json

import pytest

from ts_common.following.offset import StreamOffset, decode_offset
from ts_common.model import TopicPartition

ZERO, ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("a", 0)
WHOLE = StreamOffset({ONE: 7, ZERO: 5, OTHER: 1}, {"t": "id-t", "a": "id-a"}, {ONE: 2, ZERO: 3}, {OTHER: 0})
TEXT = (
    '{"a": {"0": 1}, "t": {"0": 5, "1": 7}, "~topicIds": {"a": "id-a", "t": "id-t"}, '
    '"~epochs": {"t": {"0": 3, "1": 2}}, "~began": {"a": {"0": 0}}}'
)


def test_the_text_of_an_offset_is_frozen() -> None:
    """Checkpoints and saved positions hold it: topics and partitions are in order, and empty parts are left out."""
    assert json.dumps(WHOLE.encode()) == TEXT
    assert StreamOffset({ZERO: 5}).encode() == {"t": {"0": 5}}
    assert StreamOffset().encode() == {}


def test_an_offset_survives_json() -> None:
    """Positions alone are an offset too, as Spark's Kafka source writes it."""
    assert decode_offset(json.loads(TEXT)) == WHOLE
    assert decode_offset({"t": {"0": 5}}) == StreamOffset({ZERO: 5})
    assert decode_offset({}) == StreamOffset()


def test_epochs_and_beginnings_are_no_part_of_the_position() -> None:
    """A topic id is: the same offsets of another incarnation are other records."""
    assert StreamOffset({ZERO: 5}, {"t": "x"}, {ZERO: 1}).equals_in_position(StreamOffset({ZERO: 5}, {"t": "x"}))
    assert not StreamOffset({ZERO: 5}).equals_in_position(StreamOffset({ZERO: 6}))
    assert not StreamOffset({ZERO: 5}).equals_in_position(StreamOffset({ZERO: 5}, {"t": "x"}))


@pytest.mark.parametrize(
    "encoded",
    [
        {"t": 5},
        {"t": {"x": 5}},
        {"t": {"0": None}},
        {"t": {"0": 1.9}},
        {"t": {"0": True}},
        {"t": {"0": float("inf")}},
        {"t": {"0": -7}},
        {"t": {"0": 1 << 63}},
        {"t": {"00": 1}},
        {"t": {"-3": 1}},
        {"t": {"9" * 5000: 1}},
        {"t": {"0": 5}, "~epochs": {"t": {"0": -2}}},
        {"a b": {"0": 1}},
        ["t"],
        5,
        None,
    ],
)
def test_other_values_are_no_offset(encoded: object) -> None:
    """The caller names what holds them."""
    with pytest.raises(ValueError, match=r"."):
        decode_offset(encoded)  # type: ignore[arg-type]  # what a user may pass
