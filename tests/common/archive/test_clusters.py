"""The clusters of a store, for a user whose cluster id is wrong or unknown."""

from pathlib import Path

from tests.made_archive import MadeArchive, batches
from ts_common.archive.clusters import MOST_LAYOUTS, MOST_LISTINGS, find_clusters, known_clusters
from ts_common.archive.layout import Layout
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.wrappers.counted import CountedStore, StoreCounts


def put(store: ObjectStore, keys: ClusterKeys, partitions: int = 8) -> None:
    for number in range(partitions):
        store.put(keys.partition(TopicPartition("t", number)).commit, b"")


def test_clusters_are_found_by_their_layout_or_their_partitions(tmp_path: Path) -> None:
    """With any number of entropy bits; other programs' directories and a hold of a mistyped cluster do not count."""
    store = MadeArchive(tmp_path).store
    assert (find_clusters(store).ids, known_clusters(store)) == ((), "it has no cluster")
    store.put(ClusterKeys("begun").layout, Layout(0, "begun", 0).encode())
    store.put(ClusterKeys("typo").hold("case"), b"")
    put(store, ClusterKeys("java"))
    put(store, ClusterKeys("java-2", 3))
    store.put("logs/2026/app.log", b"")
    store.put("ts-uploader~probe", b"")
    assert find_clusters(store).ids == ("begun", "java", "java-2")
    assert known_clusters(store) == "it has begun, java, java-2"


def test_directories_below_entropy_parts_that_are_no_clusters_do_not_count(tmp_path: Path) -> None:
    """Below `101/`, only a partition with these bits makes a cluster; nor do directories named like a partition."""
    store = MadeArchive(tmp_path).store
    put(store, ClusterKeys("java", 3))
    for number in range(8):
        store.put(f"{number:03b}/backup/2026/file", b"")
        store.put(f"{number:03b}/notes/t-0/readme", b"")
    elsewhere = ClusterKeys("moved", 3).partition(TopicPartition("t", 0)).commit
    store.put(f"{'000' if not elsewhere.startswith('000') else '111'}{elsewhere[3:]}", b"")
    store.put("db/backup-1/dump", b"")
    assert find_clusters(store).ids == ("java",)


def test_a_cluster_can_be_named_like_entropy_bits(tmp_path: Path) -> None:
    """Next to a cluster whose keys begin with the same bits; segments without a commit and later incarnations count."""
    store = MadeArchive(tmp_path).store
    put(store, ClusterKeys("java", 3))
    own = ClusterKeys("101").partition(TopicPartition("orders", 0))
    store.put(own.segment(SegmentName(0)), b"")
    assert find_clusters(store).ids == ("101", "java")
    later = ClusterKeys("0", 1).partition(TopicPartition("orders", 0), "orders~AAAAAAAAAAAAAAAAAAAAAQ")
    store.put(later.log_start, b"")
    assert find_clusters(store).ids == ("0", "101", "java")


def test_the_search_sends_a_bounded_number_of_requests(tmp_path: Path) -> None:
    """A store with more directories is read in part, and the message reports that; agents' clusters are first."""
    store = MadeArchive(tmp_path).store
    for number in range(MOST_LISTINGS):
        store.put(f"{number:08b}/other/file", b"")
        store.put(f"dir{number}/file", b"")
    store.put(ClusterKeys("begun").layout, Layout(0, "begun", 0).encode())
    counts = StoreCounts()
    found = find_clusters(CountedStore(store, counts))
    assert (found.ids, found.is_complete) == (("begun",), False)
    assert str(found) == "it has begun, as far as its directories were read"
    assert counts.requests.total() <= MOST_LAYOUTS + MOST_LISTINGS + 1


def test_a_sentence_names_the_first_ten(tmp_path: Path) -> None:
    """A bucket can have hundreds of clusters."""
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, batches((0, 1)))
    for number in range(11):
        archive.store.put(ClusterKeys(f"c{number:02}").layout, b"")
    assert known_clusters(archive.store).endswith("c09 and 2 more")
