"""How the offsets of a step are shared out over the partitions."""

from ts_common.model import TopicPartition
from ts_reader.following.step_limit import limited


def test_limits_are_those_of_sparks_kafka_source() -> None:
    """Shares are rounded down, small ones up to one offset; what fell stays as it is."""
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert limited(10, {a: 0, b: 100, c: 50}, {a: 900, b: 200, c: 40}) == {a: 9, b: 101, c: 40}
    assert limited(10, {a: 0, b: 5}, {a: 4, b: 6}) == {a: 4, b: 6}
    assert limited(3, {a: 0, b: 0, c: 0}, {a: 9, b: 9, c: 9}) == {a: 1, b: 1, c: 1}
