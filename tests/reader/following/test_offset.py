"""The offset of a stream as JSON values, in the form that checkpoints hold."""

import json

import pytest

from ts_common.archive.commit import Lineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.read_log import ReadLog
from ts_common.model import TopicPartition
from ts_reader.following.offset import StreamOffset, decode_offset

ZERO, ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("a", 0)
TWO_EPOCHS, BACK = EpochHistory(((0, 0), (3, 4))), Lineage(3, 4, 9)
WHOLE = StreamOffset(
    {ONE: 7, ZERO: 5, OTHER: 1},
    {"t": "id-t", "a": "id-a"},
    {ONE: ReadLog(), ZERO: ReadLog(TWO_EPOCHS, BACK)},
    {OTHER: 0},
)
TEXT = (
    '{"a": {"0": 1}, "t": {"0": 5, "1": 7}, "~topicIds": {"a": "id-a", "t": "id-t"}, '
    '"~epochs": {"t": {"0": [[0, 0], [3, 4]], "1": []}}, "~lineages": {"t": {"0": [3, 4, 9]}}, '
    '"~began": {"a": {"0": 0}}}'
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


def test_the_one_epoch_of_an_earlier_release_is_read() -> None:
    """It is that of the offset before the position; -1, and a position without one, show no election."""
    read = decode_offset({"t": {"0": 5, "1": 7, "2": 0}, "~epochs": {"t": {"0": 3, "1": -1, "2": 3}}})
    assert read.logs == {ZERO: ReadLog(EpochHistory(((3, 4),)), is_lineage_known=False)}
    assert decode_offset(read.encode()) == read, "its lineage stays unknown"


def test_logs_and_beginnings_are_no_part_of_the_position() -> None:
    """A topic id is: the same offsets of another incarnation are other records."""
    assert StreamOffset({ZERO: 5}, {"t": "x"}, {ZERO: ReadLog()}).equals_in_position(
        StreamOffset({ZERO: 5}, {"t": "x"})
    )
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
        {"t": {"0": 5}, "~epochs": {"t": {"0": [[3, 4], [2, 5]]}}},
        {"t": {"0": 5}, "~epochs": {"t": {"0": []}}, "~lineages": {"t": {"0": [1, 2]}}},
        {"t": {"0": 5}, "~other": {"t": {"0": 1}}},
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
