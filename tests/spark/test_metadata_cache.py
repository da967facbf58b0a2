"""Planning by cache objects: the same plan as without them, whatever they contain, for fewer requests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from awscrt.checksums import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_archive import batches
from tests.matrix import examples
from tests.spark.archives import Archive
from tests.spark.metadata_caches import Counting, write_all
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES, CACHE_OBJECT_SEGMENTS
from ts_common.archive.object_keys import SegmentName
from ts_reader.query.plan_query import plan_query
from ts_spark.options.parse import parse_options
from ts_uploader.shipping.metadata_cache_writer import write_cache_object

SEGMENTS = 12


def filled(archive: Archive, segments: int = SEGMENTS) -> Archive:
    """So many segments of ten offsets each, committed."""
    for number in range(segments):
        archive.put_segment("t", number * 10, batches((number * 10, number * 10 + 10)))
    archive.commit("t", segments * 10, highest_base=segments * 10 - 10)
    return archive


def asked(archive: Archive, **options: str) -> Counting:
    """Return the requests that planning a query makes."""
    counting = Counting(archive.store)
    plan_query(counting, parse_options(archive.options(subscribe="t", **options)).query)
    return counting


def remove_cache_objects(archive: Archive) -> list[str]:
    """Their keys, which are free then."""
    keys = [info.key for info in archive.store.list(archive.partition("t").cache_objects)]
    archive.store.delete(keys)
    return keys


def test_the_metadata_of_a_segment_in_a_cache_object_is_not_requested(archive: Archive) -> None:
    """One request for all of them, and one for each later segment; the ETag of `log.start` is enough."""
    filled(archive)
    without = asked(archive)
    assert len(without.headed) == SEGMENTS
    write_all(archive, 100)
    keys = archive.partition("t")
    counting = asked(archive)
    assert counting.headed == [keys.segment(SegmentName(base)) for base in (100, 110)]
    read = [archive.keys.layout, archive.keys.incarnations("t"), keys.commit, keys.cache_object(0)]
    assert sorted(counting.opened) == sorted(read)


def test_a_narrow_query_reads_the_cache_objects_of_its_partition_once(archive: Archive) -> None:
    """Full cache objects follow one another; each is read once, and nothing else is requested."""
    filled(archive, CACHE_OBJECT_SEGMENTS + 5)
    write_all(archive, (CACHE_OBJECT_SEGMENTS + 5) * 10)
    keys = archive.partition("t")
    firsts = [0, CACHE_OBJECT_SEGMENTS * 10]
    assert [info.key for info in archive.store.list(keys.cache_objects)] == [
        keys.cache_object(first) for first in firsts
    ]
    counting = asked(archive)
    assert counting.headed == []
    assert sorted(key for key in counting.opened if "/segment-metadata/" in key) == [
        keys.cache_object(first) for first in firsts
    ]


def test_a_log_start_that_moved_is_read(archive: Archive) -> None:
    """An ETag that differs from the expected text's proves nothing, so the object is read."""
    filled(archive)
    archive.commit("t", SEGMENTS * 10, highest_base=SEGMENTS * 10 - 10, log_start=35)
    assert archive.partition("t").log_start in asked(archive).opened
    assert archive.offsets(subscribe="t") == list(range(35, SEGMENTS * 10))


def _damaged(text: bytes) -> bytes:
    return text[:-20] + b"x" + text[-19:]


def _foreign(text: bytes) -> bytes:
    return _signed(text.partition(b"\n")[2].replace(b'"of":"t-0"', b'"of":"t-1"'))


def _of_other_sizes(text: bytes) -> bytes:
    return _changed(text, 1, 1)


def _of_other_objects(text: bytes) -> bytes:
    return _changed(text, 2, '"0123456789abcdef0123456789abcdef"')


def _of_a_later_version(text: bytes) -> bytes:
    fields = json.loads(text.partition(b"\n")[2])
    fields["segments"] = [[*row, "more"] for row in fields["segments"]]
    return _signed(json.dumps(fields).encode())


def _too_large(text: bytes) -> bytes:
    return text + b" " * CACHE_OBJECT_BYTES


def _changed(text: bytes, column: int, value: object) -> bytes:
    """Return entries with a wrong end, which must not be used, and another value in one column."""
    fields = json.loads(text.partition(b"\n")[2])
    for row in fields["segments"]:
        row[column], row[3] = value, row[3] + 5
    return _signed(json.dumps(fields).encode())


def _signed(text: bytes) -> bytes:
    text = text.removesuffix(b"\n")
    return b"%08x\n%b\n" % (crc32c(text), text)


@pytest.mark.parametrize(
    "spoil",
    [_damaged, _foreign, _of_other_sizes, _of_other_objects, _of_a_later_version, _too_large, lambda _: b""],
)
def test_a_cache_object_that_cannot_be_trusted_costs_time_and_no_rows(
    archive: Archive, spoil: Callable[[bytes], bytes]
) -> None:
    """Damaged, of another partition, of other objects, or of an unknown format: the segments' metadata is read."""
    filled(archive)
    expected = archive.plan(subscribe="t")
    write_all(archive, SEGMENTS * 10)
    key = archive.partition("t").cache_object(0)
    archive.store.put(key, spoil(archive.store.get(key)[0]))
    assert archive.plan(subscribe="t") == expected
    assert archive.offsets(subscribe="t") == list(range(SEGMENTS * 10))
    assert len(asked(archive).headed) == SEGMENTS


def test_a_cache_object_is_no_list_of_what_exists(archive: Archive) -> None:
    """Deleted segments are not planned although a cache object has them; a variant that no cache object has is."""
    filled(archive)
    write_all(archive, SEGMENTS * 10)
    keys = archive.partition("t")
    archive.store.delete([keys.segment(SegmentName(base)) for base in (0, 10)])
    archive.commit("t", SEGMENTS * 10, highest_base=SEGMENTS * 10 - 10, log_start=20)
    archive.put_segment("t", 50, batches((50, 57), epoch=0, value=b"other"), end=60, variant=True)
    archive.store.delete([keys.segment(SegmentName(50))])
    assert archive.offsets(subscribe="t") == [*range(20, 57), *range(60, SEGMENTS * 10)]


@given(
    data=st.data(),
    lengths=st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=12),
)
@settings(max_examples=examples(40, quick=12), deadline=None)
def test_plans_with_cache_objects_equal_those_without(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, lengths: list[tuple[int, bool, bool]]
) -> None:
    """Overlaps, variants, segments without metadata, holes, and cache objects of any age and number, or lost."""
    archive = Archive(tmp_path_factory.mktemp("random") / "store")
    keys = archive.partition("t")
    end = 0
    for length, overlaps, is_foreign in lengths:
        start = max(0, end - 3) if overlaps else end + (data.draw(st.integers(0, 9)) == 0)
        end = start + length
        log = batches((start, end), value=b"%d" % length)
        if is_foreign:  # a Java uploader's
            archive.store.put(keys.segment(SegmentName(start)), log)
        else:
            there = {info.key for info in archive.store.list(keys.prefix)}
            archive.put_segment("t", start, log, variant=keys.segment(SegmentName(start)) in there)
        if data.draw(st.booleans()):
            write_cache_object(archive.store, keys, data.draw(st.integers(0, end)))
    archive.commit("t", end, log_start=data.draw(st.integers(0, end)))
    options = {"failOnDataLoss": "false"}
    if data.draw(st.booleans()):
        first = data.draw(st.integers(0, end))
        options["startingOffsets"] = json.dumps({"t": {"0": first}})
        options["endingOffsets"] = json.dumps({"t": {"0": data.draw(st.integers(first, end))}})
    found = archive.plan(subscribe="t", **options)
    rows = archive.offsets(subscribe="t", **options)
    remove_cache_objects(archive)
    assert archive.plan(subscribe="t", **options) == found
    assert archive.offsets(subscribe="t", **options) == rows


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """An empty one, closed afterwards."""
    archive = Archive(tmp_path / "store")
    yield archive
    archive.store.close()
