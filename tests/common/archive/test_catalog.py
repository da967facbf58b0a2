"""The snapshot of a partition: one listing, with commit before and `log.start` after it."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5

import pytest
from tenacity import wait_none

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.md5_etags import Md5Etags
from ts_common.archive import catalog as catalogs
from ts_common.archive.catalog import (
    catalog_of,
    read_catalog,
    read_commit,
    read_log_start,
    read_marks,
    read_snapshot,
)
from ts_common.archive.commit import Commit, ForeignCommit, Lineage, LogStart, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_list import ListedErased
from ts_common.archive.gap_records import Gap
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.errors import LineageUnsettled
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore

KEYS = ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))
EPOCHS = EpochHistory(((1, 0),))


def commit_of(lineage: Lineage | None, next_offset: int = 100) -> Commit:
    """Return a commit at epoch 5 with a lineage."""
    return Commit(0, next_offset, 5, EPOCHS, 0, "A" * 22, 1, 0, "nonce", lineage=lineage)


def test_a_partition_without_objects_has_an_empty_catalog(archive: MadeArchive) -> None:
    """A missing commit or `log.start` is not an error, and readers get no first offset."""
    catalog = read_catalog(archive.store, KEYS)
    assert (catalog.commit, catalog.commit_etag, catalog.stored_log_start) == (None, None, None)
    assert (catalog.segments, catalog.gaps, catalog.start, catalog.committed) == ((), (), None, ())


def test_each_listed_object_is_read_by_its_name(archive: MadeArchive) -> None:
    """Segments have their indexes, gap records are joined, and other names are ignored."""
    archive.put_segment("t", 0, batches((0, 10)), index=b"", timeindex=b"")
    archive.put_segment("t", 10, batches((10, 20), epoch=3), variant=True, index=b"")
    archive.put_segment("t", 10, batches((10, 20)))
    for start, end in ((30, 40), (20, 30)):
        archive.store.put(KEYS.gap(start, end), Gap(start, end, "lost", 0, 1).encode())
    archive.store.put(KEYS.cache_object(0), b"")
    archive.store.put(KEYS.cache_object(10), b"x" * (CACHE_OBJECT_BYTES + 1))
    archive.store.put(KEYS.prefix + "gaps/notes.txt", b"")
    archive.store.put(KEYS.prefix + "00000000000000000099.log.bak", b"")
    archive.commit("t", 20)
    catalog = read_catalog(archive.store, KEYS)
    assert [(each.name.base, each.name.epoch, sorted(each.suffixes)) for each in catalog.segments] == [
        (0, None, [".index", ".timeindex"]),
        (10, None, []),
        (10, 3, [".index"]),
    ]
    assert catalog.gaps == ((20, 40),)
    assert catalog.cache_objects == (0,)
    assert catalog.commit_etag == archive.store.head(KEYS.commit).etag


def test_a_segment_has_the_storage_class_that_the_listing_shows(archive: MadeArchive) -> None:
    """Plans find frozen segments without a request for each."""
    for base in (0, 10):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 20)

    class Cold(WrappedStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            for info in self._inner.list(prefix, start_after=start_after):
                yield replace(info, storage_class="GLACIER") if info.key == KEYS.segment(SegmentName(0)) else info

    catalog = read_catalog(Cold(archive.store, threads=1), KEYS)
    assert [each.storage_class for each in catalog.segments] == ["GLACIER", None]


def test_only_segments_that_the_commit_reaches_are_committed(archive: MadeArchive) -> None:
    """A commit ends below its next offset; a Java uploader's includes the segment that it names."""
    for base in (0, 10, 20):
        archive.put_segment("t", base, batches((base, base + 10)))
    archive.commit("t", 20)
    assert [each.name.base for each in read_catalog(archive.store, KEYS).committed] == [0, 10]
    archive.store.put(KEYS.commit, b"%020d" % 20)
    catalog = read_catalog(archive.store, KEYS)
    assert catalog.commit == ForeignCommit(20)
    assert [each.name.base for each in catalog.committed] == [0, 10, 20]


def test_without_a_log_start_the_first_segment_is_the_beginning(archive: MadeArchive) -> None:
    """A Java uploader writes no `log.start`."""
    archive.put_segment("t", 40, batches((40, 50)))
    archive.store.put(KEYS.commit, b"%020d" % 40)
    catalog = read_catalog(archive.store, KEYS)
    assert (catalog.log_start, catalog.start) == (None, 40)


@pytest.mark.parametrize("stored", [0, 50])
def test_log_start_is_read_if_its_etag_is_no_md5(archive: MadeArchive, stored: int) -> None:
    """ETags under SSE-KMS, and those of a directory, do not show whether the content is what the commit implies."""
    archive.store.put(KEYS.commit, commit_of(None).encode())
    written = archive.store.put(KEYS.log_start, encode_log_start(stored))
    assert md5(encode_log_start(stored)).hexdigest() not in written.etag
    assert read_catalog(archive.store, KEYS).log_start == stored


@pytest.mark.parametrize(("stored", "reads"), [(0, 0), (50, 1)])
def test_an_md5_etag_of_the_implied_log_start_saves_the_request(archive: MadeArchive, stored: int, reads: int) -> None:
    """If the commit implies the content, its MD5 is compared; any other ETag causes one read."""
    archive.store.put(KEYS.commit, commit_of(None).encode())
    archive.store.put(KEYS.log_start, encode_log_start(stored))
    store = Md5Etags(archive.store, threads=1)
    assert read_catalog(store, KEYS).log_start == stored
    assert store.reads[KEYS.log_start] == reads


@pytest.mark.parametrize("moves", [False, True])
def test_an_expected_commit_is_read_only_if_it_moved(archive: MadeArchive, moves: bool) -> None:
    """A listing that shows its MD5 proves it; any other snapshot is the one of a reader that expects nothing."""
    archive.put_segment("t", 0, batches((0, 100)))
    archive.store.put(KEYS.commit, commit_of(None).encode())
    archive.store.put(KEYS.log_start, encode_log_start(0))
    store = Md5Etags(archive.store, threads=1)
    expected = read_catalog(store, KEYS).proven_commit
    assert expected == commit_of(None)
    if moves:
        archive.put_segment("t", 100, batches((100, 200)))
        archive.store.put(KEYS.commit, commit_of(None, 200).encode())
    before = store.reads[KEYS.commit], store.listings[KEYS.prefix]
    found = read_catalog(store, KEYS, expected=expected)
    assert (store.reads[KEYS.commit] - before[0], store.listings[KEYS.prefix] - before[1]) == (moves, 1 + moves)
    assert found == read_catalog(store, KEYS)
    assert read_catalog(archive.store, KEYS, expected=expected) == read_catalog(archive.store, KEYS)
    assert read_catalog(archive.store, KEYS).proven_commit is None


def test_lineages_that_do_not_fit_are_read_again_and_then_an_error(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `log.start` of a newer lineage than the commit's cannot be used; one more write of the agent settles it."""
    monkeypatch.setattr(catalogs, "_POLICY", catalogs._POLICY.copy(wait=wait_none()))
    newer = LogStart(60, Lineage(6, 60, 100))
    archive.store.put(KEYS.commit, commit_of(Lineage(5, 50, 100)).encode())
    archive.store.put(KEYS.log_start, newer.encode())
    assert not read_snapshot(archive.store, KEYS).settled
    with pytest.raises(LineageUnsettled, match=r"log\.start has the lineage .*offset\.wm has .*repeat the query"):
        read_catalog(archive.store, KEYS)
    archive.store.put(KEYS.commit, commit_of(newer.lineage).encode())
    assert read_catalog(archive.store, KEYS).log_start == 60


def test_an_older_log_start_begins_no_later_than_the_commits_lineage(archive: MadeArchive) -> None:
    """The commit went back to 50, and `log.start` at 80 was not written again yet."""
    archive.store.put(KEYS.commit, commit_of(Lineage(5, 50, 100), next_offset=50).encode())
    archive.store.put(KEYS.log_start, encode_log_start(80))
    assert read_catalog(archive.store, KEYS).log_start == 50


def test_a_log_start_is_read_by_its_key_with_the_time_of_the_store(archive: MadeArchive) -> None:
    """The copy of the collector has the same form; without an object there is no error."""
    key = archive.keys.log_start_copy(KEYS)
    assert read_log_start(archive.store, key) is None
    copy = LogStart(50, floor=20, since="gc-1", written_by="gc-1")
    archive.store.put(key, copy.encode())
    found = read_log_start(archive.store, key)
    info = archive.store.head(key)
    assert found is not None
    assert (found.content, found.etag, found.modified) == (copy, info.etag, int(info.modified * 1000))


def test_the_catalog_has_the_greatest_listed_list_of_erased_offsets(archive: MadeArchive) -> None:
    """By number; other objects below `erased/` are no lists."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    assert read_catalog(archive.store, KEYS).listed_erased is None
    for name in ("9.bin", "10.bin", "11.bin.bak", "x"):
        archive.store.put(KEYS.erased + name, b"")
    etag = archive.store.head(KEYS.erased + "10.bin").etag
    assert read_catalog(archive.store, KEYS).listed_erased == ListedErased(10, etag)


def test_a_listing_alone_is_a_catalog_without_commit_and_log_start(archive: MadeArchive) -> None:
    """The collector lists first, and reads both objects after it."""
    archive.put_segment("t", 0, batches((0, 10)), index=b"")
    archive.commit("t", 10)
    whole = read_catalog(archive.store, KEYS)
    found = catalog_of(KEYS, archive.store.list(KEYS.prefix))
    assert found == replace(whole, commit=None, commit_etag=None, stored_log_start=None)


class Listed(WrappedStore):
    """A store that records the keys that its listings return."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.keys: set[str] = set()

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for info in self._inner.list(prefix, start_after=start_after):
            self.keys.add(info.key)
            yield info


def test_marks_are_read_without_the_segments(archive: MadeArchive) -> None:
    """The listing of `read_marks` contains gap records and `log.start`, but no segment."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.store.put(KEYS.gap(10, 20), Gap(10, 20, "lost", 0, 1).encode())
    archive.store.put(KEYS.cache_object(0), b"")
    archive.commit("t", 20)
    store = Listed(archive.store)
    commit, _ = read_commit(store, KEYS)
    assert isinstance(commit, Commit)
    marks = read_marks(store, KEYS, commit)
    assert marks.gaps == ((10, 20),)
    assert marks.log_start is not None
    assert marks.log_start.content.offset == 0
    assert KEYS.segment(SegmentName(0)) not in store.keys
