"""From names to partitions of one incarnation, and the message for a store that lacks the cluster."""

from pathlib import Path

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.directories import NO_DIRECTORIES, list_topics
from ts_common.archive.layout import Layout
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_reader.reading.topics import Topic, nothing_under, read_topics, topic_names

ONE, TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"


def topics(archive: MadeArchive, *absent: str, incarnation: str = "newest") -> dict[str, Topic]:
    listed = {**dict.fromkeys(absent, NO_DIRECTORIES), **list_topics(archive.store, archive.keys)}
    return read_topics(archive.store, archive.keys, listed, incarnation)


def directories(topic: Topic) -> list[str]:
    return [catalog.keys.prefix for catalog in topic.partitions]


def test_all_partitions_are_of_the_same_incarnation(archive: MadeArchive) -> None:
    """The newest by default; partition 1 has data of the first incarnation only, and is no partition of the newest."""
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 5)), partition=partition)
        archive.commit("t", 5, partition=partition)
    archive.put_incarnations("t", ONE, TWO)
    later = archive.keys.partition(TopicPartition("t", 0), f"t~{TWO}")
    archive.store.put(later.commit, b"%020d" % 0)
    assert directories(topics(archive)["t"]) == [f"{CLUSTER}/t~{TWO}-0/"]
    assert directories(topics(archive, incarnation="1")["t"]) == [f"{CLUSTER}/t-0/", f"{CLUSTER}/t-1/"]
    with pytest.raises(QueryError, match="topic t: no incarnation 3"):
        topics(archive, incarnation="3")


def test_a_topic_without_data_is_listed_by_its_incarnations_and_another_name_is_not(archive: MadeArchive) -> None:
    """An empty topic has no partitions; a topic that never existed is left out."""
    archive.put_incarnations("empty", ONE)
    archive.store.put(f"{CLUSTER}/other-0/notes.txt", b"a directory of something else")
    found = topics(archive, "never")
    assert list(found) == ["empty"]
    assert found["empty"].partitions == ()


@pytest.mark.parametrize("bits", [0, 3])
def test_a_topic_without_data_is_named_even_if_its_name_is_that_of_a_partition(tmp_path: Path, bits: int) -> None:
    """No topic is named whose partition it only seems to be; without entropy bits the keys alone do not show that."""
    archive = MadeArchive(tmp_path / "store", bits)
    for topic in ("events-1", "late-0-1"):
        archive.put_incarnations(topic, ONE)
    assert topic_names(archive.store, archive.keys) == ["events-1", "late-0-1"]
    for topic, partition in (("events-1", 0), ("late", 0), ("java", 2)):
        archive.put_segment(topic, 0, batches((0, 5)), partition=partition)
    archive.put_incarnations("late", ONE)
    expected = ["events-1", "java", "late", "late-0-1"]
    assert topic_names(archive.store, archive.keys) == expected


def test_a_missing_cluster_is_explained_by_its_entropy_width(tmp_path: Path) -> None:
    """By the layout; without a layout by the directories; without both the location or the cluster is wrong."""
    archive = MadeArchive(tmp_path / "store", entropy_bits=3)
    other = MadeArchive(tmp_path / "store").keys
    assert "has no objects of cluster prod" in nothing_under([archive.store], other, "bits=")
    archive.put_segment("t", 0, batches((0, 5)))
    assert nothing_under([archive.store], other, "bits=").endswith("with no bits; found with bits=3: set that option")
    archive.store.put(archive.keys.layout, Layout(3, CLUSTER, 0).encode())
    assert nothing_under([archive.store], other, "bits=").endswith("set bits=3")
