import pytest

from ts_common.model import TopicPartition, is_cluster_id, is_topic_name


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("clicks-0", TopicPartition("clicks", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("__consumer_offsets-3", TopicPartition("__consumer_offsets", 3)),
        ("clicks-0.aabbcc-delete", None),
        ("clicks-0.aabbcc-future", None),
        ("clicks-0.aabbcc-stray", None),
        ("clicks", None),
        ("clicks-01", None),
        ("..-0", None),
    ],
)
def test_only_plain_directories_are_partitions(directory: str, expected: TopicPartition | None) -> None:
    """The topic ends at the last dash, and a directory with a suffix is not a partition."""
    assert TopicPartition.parse(directory) == expected
    if expected is not None:
        assert str(expected) == directory


def test_topic_names_are_those_that_kafka_accepts() -> None:
    """Kafka accepts 249 characters of a small alphabet, but not `.` and `..`."""
    assert all(map(is_topic_name, ("a", "A.b_c-9", "x" * 249, "...")))
    assert not any(map(is_topic_name, ("", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n")))


def test_a_cluster_id_can_be_a_part_of_a_key() -> None:
    """An id with a slash, with `~` or with a dot at its start could lead to other keys."""
    assert all(map(is_cluster_id, ("prod", "_x", "a.b-c", "9", "x" * 200)))
    assert not any(map(is_cluster_id, ("", ".hidden", "..", "a/b", "a~b", "x" * 201, "a\n")))
