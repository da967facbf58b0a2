"""The clusters of a store, for a user whose cluster id is wrong."""

from pathlib import Path

from tests.made_archive import MadeArchive, batches
from ts_common.archive.clusters import known_clusters, list_clusters
from ts_common.archive.layout import Layout
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore


def put(store: ObjectStore, keys: ClusterKeys) -> None:
    for number in range(8):
        store.put(keys.partition(TopicPartition("t", number)).commit, b"")


def test_clusters_are_found_by_their_layout_or_their_partitions(tmp_path: Path) -> None:
    """With any number of entropy bits; other programs' directories and a hold of a mistyped cluster do not count."""
    store = MadeArchive(tmp_path).store
    assert (list_clusters(store), known_clusters(store)) == ((), "it has no cluster at all")
    store.put(ClusterKeys("begun").layout, Layout(0, "begun", 0).encode())
    store.put(ClusterKeys("typo").hold("case"), b"")
    put(store, ClusterKeys("java"))
    put(store, ClusterKeys("java-2", 3))
    store.put("logs/2026/app.log", b"")
    store.put("ts-uploader~probe", b"")
    assert list_clusters(store) == ("begun", "java", "java-2")
    assert known_clusters(store) == "it has begun, java, java-2"


def test_a_sentence_names_the_first_ten(tmp_path: Path) -> None:
    """A bucket can have hundreds of clusters."""
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, batches((0, 1)))
    for number in range(11):
        archive.store.put(ClusterKeys(f"c{number:02}").layout, b"")
    assert known_clusters(archive.store).endswith("c09 and 2 more")
