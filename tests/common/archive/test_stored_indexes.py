import os
from pathlib import Path

from structlog.testing import capture_logs

from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.small_objects import INDEX_BYTES, read_index
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("prod").partition(TopicPartition("t", 0))
NAME = SegmentName(7)


def test_an_index_is_returned_by_its_suffix(store: ObjectStore) -> None:
    """Each index of a segment has its own object."""
    store.put(KEYS.segment(NAME, ".index"), b"offsets")
    store.put(KEYS.segment(NAME, ".timeindex"), b"times")
    assert read_index(store, KEYS, NAME, ".index") == b"offsets"
    assert read_index(store, KEYS, NAME, ".timeindex") == b"times"


def test_a_read_of_a_missing_index_returns_no_index(store: ObjectStore) -> None:
    """Readers do without an index."""
    assert read_index(store, KEYS, NAME, ".index") is None


def test_r15_an_oversized_index_is_skipped_with_a_warning(store: ObjectStore, tmp_path: Path) -> None:
    """A broker writes no such index, so it is not read into memory."""
    key = KEYS.segment(NAME, ".index")
    store.put(key, b"")
    os.truncate(tmp_path / key, INDEX_BYTES + 1)
    with capture_logs() as log:
        assert read_index(store, KEYS, NAME, ".index") is None
    assert [(line["event"], key in line["reason"]) for line in log] == [("index_unusable", True)]
