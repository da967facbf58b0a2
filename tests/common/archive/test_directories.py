"""Topics and entropy widths, by the names of directories in a store."""

import pytest

from ts_common.archive.directories import TopicDirectories, entropy_widths, list_topics, topics_of
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

PLAIN = ClusterKeys("prod")
SPREAD = ClusterKeys("prod", 5)


def commit(store: ObjectStore, keys: ClusterKeys, topic: str, partition: int = 0, directory: str | None = None) -> None:
    """Write an object into a partition's directory."""
    store.put(keys.partition(TopicPartition(topic, partition), directory).commit, b"")


@pytest.mark.parametrize("keys", [PLAIN, SPREAD])
def test_topics_have_their_partitions_and_later_directories(store: ObjectStore, keys: ClusterKeys) -> None:
    """A later incarnation counts for its topic; a topic with only its list of incarnations has no partitions."""
    for partition in (0, 1, 7):
        commit(store, keys, "a-b", partition)
    commit(store, keys, "a-b", 2, "a-b~IdIdId")
    store.put(keys.incarnations("alone"), b"")
    commit(store, ClusterKeys("other", keys.entropy_bits), "foreign")
    assert list_topics(store, keys) == {
        "a-b": TopicDirectories(frozenset({0, 1, 2, 7}), frozenset({"a-b~IdIdId"})),
        "alone": TopicDirectories(is_named=True),
    }


@pytest.mark.parametrize("keys", [PLAIN, SPREAD])
def test_a_topic_named_as_a_partition_has_its_incarnations_in_the_directory_of_that_name(
    store: ObjectStore, keys: ClusterKeys
) -> None:
    """The objects of the directories show whose they are; only a directory of its own name makes a topic certain."""
    for name in ("t-1", "u-0", "u-1"):
        store.put(keys.incarnations(name), b"")
    assert topics_of(store, keys, "t", [0, 1]) == ({"t-1"} if keys is PLAIN else set())
    commit(store, keys, "u", 1)
    assert "u" in topics_of(store, keys, "u", [0, 1])
    assert not list_topics(store, keys)["u"].is_certain
    commit(store, keys, "v", 0)
    assert not list_topics(store, keys)["v"].is_certain
    store.put(keys.incarnations("v"), b"")
    commit(store, keys, "w", 0, "w~IdIdId")
    listed = list_topics(store, keys)
    assert listed["v"].is_certain
    assert listed["w"].is_certain


def test_directories_under_other_entropy_bits_do_not_count(store: ObjectStore) -> None:
    """A directory is a partition's only under the bits of its own name."""
    key = SPREAD.partition(TopicPartition("t", 0)).commit
    store.put(f"{'0' if key[0] == '1' else '1'}{key[1:]}", b"")
    assert list_topics(store, SPREAD) == {}
    store.put(key, b"")
    assert list_topics(store, SPREAD) == {"t": TopicDirectories(frozenset({0}))}
    assert list_topics(store, ClusterKeys("prod", 4)) == {}


def test_entropy_widths_are_those_with_objects_of_the_cluster(store: ObjectStore) -> None:
    """Width 0 is a key without an entropy part; directories of other clusters do not count."""
    assert entropy_widths(store, "prod") == frozenset()
    commit(store, PLAIN, "t")
    commit(store, SPREAD, "t")
    commit(store, ClusterKeys("other", 3), "t")
    assert entropy_widths(store, "prod") == {0, 5}


def test_a_list_without_a_stored_incarnation_is_rejected() -> None:
    """The newest incarnation is then unknown, and the error names the list and the missing directory."""
    listed = Incarnations("t").opened("A", 1, PLAIN).opened("B", 2, PLAIN)
    TopicDirectories(frozenset({0}), frozenset({"t~B"})).check_all_listed(listed, "the/key")
    with pytest.raises(CorruptData, match=r"the/key does not contain t~C,.*Restore the last version of the list"):
        TopicDirectories(frozenset({0}), frozenset({"t~B", "t~C"})).check_all_listed(listed, "the/key")
