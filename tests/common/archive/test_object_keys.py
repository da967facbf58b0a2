import csv
from pathlib import Path

import pytest

from ts_common.archive.object_keys import ClusterKeys, SegmentName, entropy
from ts_common.model import TopicPartition

VECTORS = Path(__file__).parents[2] / "data" / "entropy.csv"


def vectors() -> list[dict[str, str]]:
    with VECTORS.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", vectors(), ids=lambda row: f"{row['cluster']}-{row['topic']}-{row['partition']}")
def test_entropy_is_what_the_java_original_computed(row: dict[str, str]) -> None:
    """Both uploaders give a partition the same keys."""
    partition = TopicPartition(row["topic"], int(row["partition"]))
    for bits in (1, 5, 20):
        assert entropy(row["cluster"], partition, bits) == row[f"bits{bits}"]


@pytest.mark.parametrize("bits", [0, -1])
def test_no_entropy_bits_leave_no_part_in_the_key(bits: int) -> None:
    """With a width below 1, the key begins with the cluster."""
    keys = ClusterKeys("prod", bits).partition(TopicPartition("clicks", 3))
    assert keys.commit == "prod/clicks-3/offset.wm"


def test_a_segment_lies_under_entropy_cluster_and_partition() -> None:
    """The keys are those that docs/store.md describes."""
    keys = ClusterKeys("my-cluster", 5).partition(TopicPartition("my-topic", 1))
    assert keys.segment(SegmentName(100)) == "10001/my-cluster/my-topic-1/00000000000000000100.log"
    assert keys.segment(SegmentName(100), ".txnindex").endswith("/00000000000000000100.txnindex")
    assert keys.log_start == "10001/my-cluster/my-topic-1/log.start"


def test_a_later_incarnation_keeps_the_entropy_bits_of_the_plain_name() -> None:
    """The directory of a re-created topic has the entropy bits of the first one."""
    cluster = ClusterKeys("my-cluster", 5)
    directory = cluster.later_incarnation("my-topic", "AbC")
    keys = cluster.partition(TopicPartition("my-topic", 1), directory)
    assert keys.commit == "10001/my-cluster/my-topic~AbC-1/offset.wm"
    assert cluster.incarnations("my-topic") == "11111/my-cluster/my-topic/incarnations.json"


@pytest.mark.parametrize(
    "name",
    [SegmentName(0), SegmentName(7, 3, 0xAB), SegmentName(2**63 - 1, 0, 0xFFFFFFFF), SegmentName(7, 3, 0xAB, 12)],
)
def test_a_segment_name_reads_back(name: SegmentName) -> None:
    """Plain names, variants and repairs are read back from a key."""
    assert SegmentName.parse(name.stem + ".log") == (name, ".log")


@pytest.mark.parametrize(
    "file_name",
    ["offset.wm", "100.log", "0" * 20 + ".snapshot", "0" * 20 + ".log.deleted", "0" * 20 + ".e007.000000ab.log"]
    + [
        "0" * 20 + name for name in (".r1.log", ".e7.000000ab.r0.log", ".e7.000000ab.r01.log", ".e7.000000ab.r1.r2.log")
    ],
)
def test_an_object_with_another_name_is_not_parsed_as_a_segment(file_name: str) -> None:
    """Objects with other names in the directory are ignored."""
    assert SegmentName.parse(file_name) is None


@pytest.mark.parametrize(
    ("group", "name"),
    [("reports", "reports"), ("a/b ü%", "a%2Fb%20%C3%BC%25"), ("", ""), ("..", ".."), ("A-z_0.9~", "A-z_0.9~")],
)
def test_a_group_is_percent_encoded_and_reads_back(group: str, name: str) -> None:
    """No id of a group contains a slash in the key, or leads to the object of another group."""
    keys = ClusterKeys("prod", 5)
    key = keys.offsets_of(group)
    assert key == f"ts-uploader~cluster~prod/groups/{name}.json"
    assert keys.group_of(key) == group


@pytest.mark.parametrize("name", ["a%2fb.json", "%61.json", "a", "a/b.json", "a b.json", "%FF.json"])
def test_a_key_that_no_group_has_is_of_no_group(name: str) -> None:
    """Another program wrote it."""
    keys = ClusterKeys("prod", 5)
    assert keys.group_of(keys.groups + name) is None
    assert keys.group_of("ts-uploader~cluster~other/groups/a.json") is None


def test_holds_are_below_the_prefix_of_the_cluster_and_traces_apart() -> None:
    """The policies of deploy/iam have these keys. No hold has the key of a trace."""
    keys = ClusterKeys("prod", 5)
    assert keys.hold("case-1") == "ts-uploader~cluster~prod/holds/case-1.json"
    assert keys.removed_hold("case-1", 7) == "ts-uploader~cluster~prod/holds/removed/case-1-7.json"
