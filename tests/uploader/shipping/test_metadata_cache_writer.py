"""The agent's cache objects: written after the commits, and not needed by any reader."""

import io
import threading
from dataclasses import replace
from typing import Any

import pytest
from awscrt.checksums import crc32c

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.s3 import S3FaultProxy
from tests.asked_store import AskedStore
from tests.faults.crashes.runs import Moment, Step, Victim
from tests.made_archive import batches
from tests.uploader.conftest import ArchiveOf
from tests.uploader.local_directory import KEYS
from tests.uploader.produced import records
from ts_common.archive.cache_rewriting import entry_of
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import describe
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, CACHE_OBJECT_SEGMENTS, CacheEntry, CacheObject
from ts_common.archive.object_keys import CACHE_DIRECTORY, SegmentName
from ts_common.archive.segment_inspection import metadata_of
from ts_common.errors import NewerFormat, OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.shipping import metadata_cache_writer
from ts_uploader.shipping.metadata_cache_writer import SEGMENTS_PER_CACHE_OBJECT_WRITE, CacheWriter, write_cache_object

EVERY = SEGMENTS_PER_CACHE_OBJECT_WRITE


def put_segments(store: ObjectStore, *numbers: int) -> int:
    """Segments of ten offsets each, as shipped; where the last one ends."""
    for number in numbers:
        base = number * 10
        log = batches((base, base + 10))
        metadata = metadata_of(scan_segment(io.BytesIO(log), len(log)), base, "hand-made").encode()
        store.put(KEYS.segment(SegmentName(base)), log, metadata=metadata)
    return numbers[-1] * 10 + 10


def put_own(store: ObjectStore, *numbers: int) -> tuple[int, list[CacheEntry]]:
    """As `put_segments`, and the entries by the responses to the puts."""
    entries = []
    for number in numbers:
        put_segments(store, number)
        name = SegmentName(number * 10)
        info = store.head(KEYS.segment(name))
        entries.append(entry_of(name, info, info.metadata))
    return numbers[-1] * 10 + 10, entries


def cache_objects(store: ObjectStore) -> dict[int, list[int]]:
    """The base offsets in each cache object, by its first."""
    return {
        first: [entry.name.base for entry in CacheObject(store.get(KEYS.cache_object(first))[0], KEYS, "").entries()]
        for first in read_catalog(store, KEYS).cache_objects
    }


def assert_true(store: ObjectStore) -> None:
    """Readers get the same metadata from cache objects as from the objects themselves."""
    catalog = read_catalog(store, KEYS)
    assert catalog.segments
    assert describe(store, KEYS, catalog.segments, catalog.cache_objects) == describe(store, KEYS, catalog.segments)


class Failing(WrappedStore):
    """The next put of a cache object fails with the given error, and records that it did."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.fault = "none"
        self.failed = threading.Event()

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """Fail once, as configured."""
        fault, self.fault = self.fault, "none"
        if fault == "before":
            self.failed.set()
            raise StoreUnavailable("nobody answers")
        info = super().put(key, *arguments, **named)
        if fault == "after":
            self.failed.set()
            raise OutcomeUnknown("the answer is lost")
        return info


class Running:
    """A writer on its thread, as the agent runs it."""

    def __init__(self, store: ObjectStore) -> None:
        self.throttled = False
        self.writer = CacheWriter(lambda _: store, lambda: self.throttled)
        self._thread = threading.Thread(target=self.writer.run)

    def __enter__(self) -> CacheWriter:
        self._thread.start()
        return self.writer

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_a_cache_object_grows_with_the_run_and_a_full_one_is_followed_by_the_next(store: ObjectStore) -> None:
    """Each segment below the next offset is in one cache object; segments above are left for later."""
    end = put_segments(store, 0, 1, 2, 3)
    assert write_cache_object(store, KEYS, end - 10)[1] == 3
    assert cache_objects(store) == {0: [0, 10, 20]}
    put_segments(store, *range(4, CACHE_OBJECT_SEGMENTS + 2))
    end = (CACHE_OBJECT_SEGMENTS + 2) * 10
    assert write_cache_object(store, KEYS, end)[1] == CACHE_OBJECT_SEGMENTS - 3
    assert write_cache_object(store, KEYS, end)[1] == 2
    assert write_cache_object(store, KEYS, end)[1] == 0
    bases = [number * 10 for number in range(CACHE_OBJECT_SEGMENTS + 2)]
    assert cache_objects(store) == {
        0: bases[:CACHE_OBJECT_SEGMENTS],
        bases[CACHE_OBJECT_SEGMENTS]: bases[CACHE_OBJECT_SEGMENTS:],
    }
    assert_true(store)


def test_a_java_uploaders_segments_are_passed_once(store: ObjectStore) -> None:
    """They have no metadata; a cache object records that, and the next write does not read them again."""
    for number in range(3):
        store.put(KEYS.segment(SegmentName(number * 10)), batches((number * 10, number * 10 + 10)))
    end = put_segments(store, 3, 4)
    assert write_cache_object(store, KEYS, end)[1] == 5
    assert write_cache_object(store, KEYS, end)[1] == 0
    assert cache_objects(store) == {0: [0, 10, 20, 30, 40]}
    assert_true(store)


def test_a_damaged_cache_object_is_made_again(store: ObjectStore) -> None:
    """From the objects that it spoke of."""
    end = put_segments(store, 0, 1, 2)
    write_cache_object(store, KEYS, end)
    store.put(KEYS.cache_object(0), b"damaged")
    assert_true(store)
    assert write_cache_object(store, KEYS, put_segments(store, 3))[1] == 4
    assert cache_objects(store) == {0: [0, 10, 20, 30]}
    assert_true(store)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"of":"%b","segments":[["00000000000000000000"]]}' % KEYS.directory.encode(),
        b'{"of":"%b","segments":[[5]]}' % KEYS.directory.encode(),
        b'{"of":"%b","segments":[["%020d",1,"e",{},[5],"x",null,[],1e9,true,0,0]]}' % (KEYS.directory.encode(), 0),
    ],
    ids=["nested", "short row", "number", "nonsense"],
)
def test_a_hostile_cache_object_is_made_again(store: ObjectStore, text: bytes) -> None:
    """Its checksum fits, as if its author used the format; one such object ended the agent."""
    end = put_segments(store, 0, 1, 2)
    store.put(KEYS.cache_object(0), b"%08x\n%b\n" % (crc32c(text), text))
    write_cache_object(store, KEYS, end)
    assert_true(store)


def test_a_cache_object_that_meets_a_defect_stops_no_other(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is logged, and the writer continues."""
    end = put_segments(store, *range(EVERY))
    met, written = threading.Event(), threading.Event()

    def fails_once(*arguments: Any) -> tuple[int | None, int]:
        if not met.is_set():
            met.set()
            raise ValueError("what nobody expects")
        written.set()
        return write_cache_object(*arguments)

    monkeypatch.setattr("ts_uploader.shipping.metadata_cache_writer.write_cache_object", fails_once)
    with Running(store) as writer:
        writer.committed(KEYS, end, EVERY)
        assert met.wait(10)
        writer.committed(KEYS, end, EVERY)
        assert written.wait(10)


def test_a_cache_object_that_is_too_large_is_kept(store: ObjectStore) -> None:
    """It is not read, so it may be of a later release, which has its reasons; its segments are read one by one."""
    end = put_segments(store, 0, 1, 2)
    large = bytes(CACHE_OBJECT_BYTES + 1)
    store.put(KEYS.cache_object(0), large)
    with pytest.raises(NewerFormat, match=f"has {CACHE_OBJECT_BYTES + 1} bytes"):
        write_cache_object(store, KEYS, end)
    assert store.get(KEYS.cache_object(0))[0] == large
    assert_true(store)


def test_a_cache_object_ends_before_a_segment_of_a_later_release(store: ObjectStore) -> None:
    """Entries below it are kept, and not read again at each attempt."""
    put_segments(store, 0, 1)
    later = {**dict(store.head(KEYS.segment(SegmentName(10))).metadata), "ts-version": "2"}
    store.put(KEYS.segment(SegmentName(20)), batches((20, 30)), metadata=later)
    end = put_segments(store, 3)
    assert write_cache_object(store, KEYS, end) == (0, 2)
    assert cache_objects(store) == {0: [0, 10]}
    asked = AskedStore(store)
    assert write_cache_object(asked, KEYS, end) == (0, 0)
    assert asked.headed == [KEYS.segment(SegmentName(20))]
    assert cache_objects(store) == {0: [0, 10]}


def test_of_two_agents_that_write_at_once_the_second_is_refused(store: ObjectStore) -> None:
    """An object that was not read is not overwritten."""
    end = put_segments(store, 0, 1, 2)

    class Late(WrappedStore):
        def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
            write_cache_object(store, KEYS, end)
            return super().put(*arguments, **named)

    with pytest.raises(PreconditionFailed):
        write_cache_object(Late(store, threads=1), KEYS, end - 10)
    put_segments(store, 3)
    end += 10
    with pytest.raises(PreconditionFailed):
        write_cache_object(Late(store, threads=1), KEYS, end)
    assert cache_objects(store) == {0: [0, 10, 20, 30]}


def test_commits_make_a_cache_object_due_by_the_segments_they_passed(store: ObjectStore) -> None:
    """No request is sent to the store before the commits have passed enough segments."""
    asked: list[str] = []

    def store_of(topic: str) -> ObjectStore:
        asked.append(topic)
        return store

    writer = CacheWriter(store_of)
    for number in range(EVERY - 1):
        writer.committed(KEYS, put_segments(store, number), 1)
    writer.close()
    writer.run()
    assert asked == []
    assert cache_objects(store) == {}
    with Running(store) as writer:
        for number in range(EVERY):
            writer.committed(KEYS, put_segments(store, number), 1)
        wait_for(lambda: cache_objects(store), "a cache object")
    assert cache_objects(store) == {0: [number * 10 for number in range(EVERY)]}


def test_an_attempt_includes_what_was_committed_while_it_waited(store: ObjectStore) -> None:
    """A writer that is behind leaves nothing out: these segments are counted for no later attempt."""
    running = Running(store)
    for number in range(2 * EVERY):
        running.writer.committed(KEYS, put_segments(store, number), 1)
    with running:
        wait_for(lambda: cache_objects(store), "a cache object")
    assert cache_objects(store) == {0: [number * 10 for number in range(2 * EVERY)]}


def test_cache_objects_are_not_listed_again_while_the_newest_has_room(store: ObjectStore) -> None:
    """One more listing would be a quarter of its cost; if the object is missing or full, all are listed."""
    asked = AskedStore(store)
    with Running(asked) as writer:

        def grown(*numbers: int) -> int:
            """Return how often cache objects were listed until one contains these segments."""
            asked.listed.clear()
            writer.committed(KEYS, put_segments(store, *numbers), len(numbers))
            wait_for(
                lambda: any(numbers[-1] * 10 in bases for bases in cache_objects(store).values()), "the cache object"
            )
            return asked.listed.count(KEYS.cache_objects)

        assert grown(*range(EVERY)) == 1
        assert grown(*range(EVERY, 2 * EVERY)) == 0
        store.delete([KEYS.cache_object(0)])
        assert grown(*range(2 * EVERY, 3 * EVERY)) == 1
        assert cache_objects(store) == {0: [number * 10 for number in range(3 * EVERY)]}
        grown(*range(3 * EVERY, CACHE_OBJECT_SEGMENTS))
        # So many at once that more may be missing: the writer continues by itself.
        wait_for(lambda: asked.listed.count(KEYS.cache_objects) == 1, "the look for more")
        assert grown(*range(CACHE_OBJECT_SEGMENTS, CACHE_OBJECT_SEGMENTS + EVERY)) == 1
    assert sorted(cache_objects(store)) == [0, CACHE_OBJECT_SEGMENTS * 10]
    assert_true(store)


def test_segments_that_this_process_put_need_no_listing_and_no_metadata(store: ObjectStore) -> None:
    """Once a listing has shown that it has the ETags of puts; the entries are those that readers check."""
    asked, as_put = AskedStore(store), set[str]()
    end, own = put_own(store, 0, 1)
    assert write_cache_object(asked, KEYS, end, None, own, as_put) == (0, 2)
    assert (KEYS.prefix in asked.listed, asked.headed, as_put) == (True, [], {store.location})
    asked.listed.clear()
    end, own = put_own(store, 2, 3)
    assert write_cache_object(asked, KEYS, end, 0, own, as_put) == (0, 2)
    assert (asked.listed, asked.headed) == ([], [])
    assert cache_objects(store) == {0: [0, 10, 20, 30]}
    assert_true(store)


def test_a_segment_that_this_process_did_not_put_is_listed(store: ObjectStore) -> None:
    """It was found in the store, or the attempt before failed: the own entries leave a hole there or end below."""
    for own_numbers in ((1, 3), (1, 2), (2, 3)):
        store.delete([info.key for info in store.list()])
        write_cache_object(store, KEYS, put_segments(store, 0))
        end, own = put_own(store, 1, 2, 3)
        chosen = [entry for entry in own if entry.name.base // 10 in own_numbers]
        assert write_cache_object(store, KEYS, end, 0, chosen, {store.location}) == (0, 3)
        assert cache_objects(store) == {0: [0, 10, 20, 30]}
    assert_true(store)


def test_where_listings_have_other_etags_than_puts_the_listed_ones_are_written(store: ObjectStore) -> None:
    """Azure lists them without quotes, and readers compare with a listing."""
    asked, as_put = AskedStore(store), set[str]()
    end, own = put_own(store, 0, 1)
    others = [replace(entry, etag=f"W/{entry.etag}") for entry in own]
    assert write_cache_object(asked, KEYS, end, None, others, as_put) == (0, 2)
    assert (len(asked.headed), as_put) == (2, set())
    assert_true(store)


def test_own_entries_are_kept_from_the_commit_to_the_attempt(store: ObjectStore) -> None:
    """The second attempt of a running writer sends no listing of the partition."""
    asked = AskedStore(store)
    with Running(asked) as writer:
        for numbers in (range(EVERY), range(EVERY, 2 * EVERY)):
            asked.listed.clear()
            end, own = put_own(store, *numbers)
            writer.committed(KEYS, end, EVERY, own)
            wait_for(lambda: (end - 10) in cache_objects(store).get(0, ()), "the cache object")  # noqa: B023
    assert (asked.listed, asked.headed) == ([], [])


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_cache_object_that_fails_is_made_up_for_by_the_next(store: ObjectStore, fault: str) -> None:
    """Whether the store accepts it or not, the writer continues, and other partitions are written meanwhile."""
    failing = Failing(store)
    failing.fault = fault
    with Running(failing) as writer:
        writer.committed(KEYS, put_segments(store, *range(EVERY)), EVERY)
        assert failing.failed.wait(10)
        assert_true(store)
        writer.committed(KEYS, put_segments(store, *range(EVERY, 2 * EVERY)), EVERY)
        wait_for(
            lambda: len(cache_objects(store).get(0, ())) == 2 * EVERY,
            "the cache object",
            state=lambda: cache_objects(store),
        )
    assert cache_objects(store) == {0: [number * 10 for number in range(2 * EVERY)]}
    assert_true(store)


def test_no_cache_object_is_written_while_a_store_throttles_requests(store: ObjectStore) -> None:
    """The first commit after that is the next attempt."""
    running = Running(store)
    running.throttled = True
    running.writer.committed(KEYS, put_segments(store, *range(EVERY)), EVERY)
    with running as writer:
        wait_for(lambda: not writer.waiting, "the attempt to be passed over")
        assert cache_objects(store) == {}
        running.throttled = False
        writer.committed(KEYS, put_segments(store, EVERY), 1)
        wait_for(lambda: cache_objects(store), "a cache object")
    assert cache_objects(store) == {0: [number * 10 for number in range(EVERY + 1)]}


def test_an_archive_from_before_cache_objects_gets_all_of_them(store: ObjectStore) -> None:
    """Once the first is due the others follow, one after the other."""
    end = put_segments(store, *range(2 * CACHE_OBJECT_SEGMENTS + 1))
    with Running(store) as writer:
        writer.committed(KEYS, end, EVERY)
        wait_for(lambda: len(cache_objects(store)) == 3, "three cache objects", state=lambda: cache_objects(store))
    assert [len(bases) for bases in cache_objects(store).values()] == [CACHE_OBJECT_SEGMENTS, CACHE_OBJECT_SEGMENTS, 1]


@pytest.mark.full
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_agent_killed_at_a_cache_object_leaves_a_correct_view(
    cluster: LocalCluster, archive_of: ArchiveOf, proxy: S3FaultProxy, moment: Moment
) -> None:
    """Killed while it writes one: readers see the same, and the next agent continues."""
    topic = f"cached-{moment}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(3000), partition=0)

    def cache_object(step: Step, met: frozenset[Step]) -> bool:
        return f"{step.directory}/" == CACHE_DIRECTORY and not met

    victim = Victim(archive, proxy, moment, cache_object)
    victim.live()
    assert victim.struck.wait(60)
    assert archive.read() == archive.oracle(end=archive.next_offset())
    agent = victim.live()
    cluster.produce(topic, records(3000, start=3000), partition=0)
    end = archive.wait_until_shipped()
    keys = archive.partition_keys()

    def entries() -> int:
        found = read_catalog(archive.store, keys).cache_objects
        return sum(
            len(CacheObject(archive.store.get(keys.cache_object(first))[0], keys, "").entries()) for first in found
        )

    segments = [segment for segment in read_catalog(archive.store, keys).segments if segment.name.base < end]
    wait_for(lambda: entries() > len(segments) - EVERY, "the cache objects", state=lambda: agent.tail(20))
    agent.stop()
    assert archive.read() == archive.oracle(end=end)
    assert describe(archive.store, keys, segments, read_catalog(archive.store, keys).cache_objects) == describe(
        archive.store, keys, segments
    )


@pytest.mark.parametrize(("formats", "seals"), [({"seal.json": 1}, True), (None, False)], ids=["all", "not all"])
def test_a_partition_is_sealed_when_a_cache_object_is_full(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, formats: dict[str, int] | None, seals: bool
) -> None:
    """Unless an agent of an earlier release repairs without a token."""
    sealed: list[str] = []
    monkeypatch.setattr(metadata_cache_writer, "CACHE_OBJECT_SEGMENTS", EVERY)
    monkeypatch.setattr(metadata_cache_writer, "seal", lambda _, keys: sealed.append(keys.prefix))
    store.put(KEYS.cluster.ends_of(1), Ends(1, 1, {}, "0.1.0", formats).encode())
    with Running(store) as writer:
        for number in range(3):
            writer.committed(KEYS, put_segments(store, *range(number * EVERY, (number + 1) * EVERY)), EVERY)
            wait_for(lambda wanted=number: len(cache_objects(store)) > wanted, "a cache object")  # type: ignore[misc]
    assert sealed == ([KEYS.prefix] * 2 if seals else [])
