"""The contract of `ts_common.store.contract` for gets and listings, checked with every driver."""

import time
from collections.abc import Sequence

import pytest

from tests.common.store.conftest import Place
from tests.common.store.contract import DIRECTORIES, LARGE, keys_of
from ts_common.errors import ObjectNotFound
from ts_common.store.contract import ByteRange, IfMatch, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store


def test_a_listing_has_the_size_etag_time_and_class_of_head(store: ObjectStore) -> None:
    """All but the metadata, which no listing contains."""
    store.put("a/b", b"content", metadata={"x": "y"})
    (listed,) = store.list()
    head = store.head("a/b")
    assert (listed.key, listed.size, listed.etag) == (head.key, head.size, head.etag)
    assert listed.storage_class == head.storage_class
    assert int(listed.modified) == int(head.modified)
    assert not listed.metadata


def test_the_current_time_is_the_stores_on_a_host_with_a_wrong_clock(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages of objects compare two times of one clock; a directory has no other clock than the host's."""
    written = store.put("a", b"content").modified
    list(store.list())
    assert store.current_time() == pytest.approx(written, abs=60)
    if not store.location.startswith("file:"):
        monkeypatch.setattr(time, "time", lambda: written + 86_400)
        assert store.current_time() == pytest.approx(written, abs=60)


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (ByteRange(0), b"0123456789"),
        (ByteRange(0, 1), b"0"),
        (ByteRange(2, 5), b"234"),
        (ByteRange(7), b"789"),
        (ByteRange(9, 10), b"9"),
        (ByteRange(5, 100), b"56789"),
        (ByteRange(-3), b"789"),
        (ByteRange(-10), b"0123456789"),
        (ByteRange(-100), b"0123456789"),
        (ByteRange(10), b""),
        (ByteRange(100, 200), b""),
    ],
)
def test_a_range_brings_its_bytes_and_the_whole_objects_info(
    store: ObjectStore, byte_range: ByteRange, expected: bytes
) -> None:
    """Also from the end, over the end, and beyond it, where the range is empty."""
    put = store.put("key", b"0123456789", metadata={"x": "y"})
    content, info = store.get("key", byte_range)
    assert content == expected
    assert (info.size, info.etag, dict(info.metadata)) == (10, put.etag, {"x": "y"})


@pytest.mark.parametrize("byte_range", [ByteRange(0), ByteRange(0, 5), ByteRange(3), ByteRange(-3)])
def test_a_range_of_an_empty_object_is_empty(store: ObjectStore, byte_range: ByteRange) -> None:
    """S3 answers 416 here, which is no error."""
    store.put("key", b"")
    content, info = store.get("key", byte_range)
    assert content == b""
    assert info.size == 0


def test_a_stream_is_read_in_pieces(store: ObjectStore) -> None:
    """`read` and `readinto` return the requested bytes up to the end, and none after it."""
    store.put("key", LARGE)
    with store.open("key") as stream:
        assert stream.info.size == len(LARGE)
        first = stream.read(100)
        buffer = bytearray(1 << 20)
        assert stream.readinto(memoryview(buffer)) == 1 << 20
        middle = bytes(buffer)
        rest = stream.read(len(LARGE))
        assert stream.read(1) == b""
        assert stream.readinto(memoryview(buffer)) == 0
    assert len(first) == 100
    assert first + middle + rest == LARGE


def test_a_stream_of_a_range_ends_with_it(store: ObjectStore) -> None:
    """`readinto` with a larger buffer reads only the range."""
    store.put("key", LARGE)
    buffer = bytearray(1 << 20)
    with store.open("key", ByteRange(1000, 1500)) as stream:
        assert stream.readinto(memoryview(buffer)) == 500
        assert stream.readinto(memoryview(buffer)) == 0
    assert bytes(buffer[:500]) == LARGE[1000:1500]


def test_a_stream_may_be_left_early(store: ObjectStore) -> None:
    """Leaving the block closes the stream; the store works afterwards."""
    store.put("key", LARGE)
    for _ in range(3):
        with store.open("key") as stream:
            assert stream.read(10) == LARGE[:10]
    assert store.get("key")[0] == LARGE


def test_an_open_stream_is_not_disturbed_by_a_replacement(store: ObjectStore) -> None:
    """A stream is one whole object, the one of its `info`, never a mix."""
    store.put("key", b"before", metadata={"n": "1"})
    with store.open("key") as stream:
        store.put("key", b"after!", metadata={"n": "2"})
        assert stream.read(6) == b"before"
        assert dict(stream.info.metadata) == {"n": "1"}
    assert store.get("key")[0] == b"after!"


def test_what_is_not_there_is_not_found(store: ObjectStore) -> None:
    """Get and head raise it for keys, for parts of keys, and for keys below an object."""
    store.put("a/b", b"x")
    for key in ("absent", "a", "a/b/c", "a/bc"):
        with pytest.raises(ObjectNotFound, match=key):
            store.get(key)
        with pytest.raises(ObjectNotFound, match=key):
            store.head(key)
        with pytest.raises(ObjectNotFound, match=key):
            store.get(key, ByteRange(-5))


KEYS = [
    "t!",
    "t-1",
    "t-1-x",
    "t-1.x",
    "t-1/gaps/7-9.json",
    "t-1/x",
    "t-10/x",
    "t-1_x",
    "t-1~x/y",
    "t-1/.x",
    ".t-1/x",
    ".t/y",
    "..t",
    "t-d/a",
    "t.d/a",
    "t/0/1",
    "t/1",
    "T",
    "_metadata",
    "topic~uuid-0/00000000000000000000.e5.0badcafe.log",
    "~",
]


@pytest.fixture
def listed(place: Place, store: ObjectStore) -> list[str]:
    """Write keys with every character of topic names, and return them in byte order."""
    # In a directory `t-1` cannot be an object and a directory at once.
    keys = [key for key in KEYS if place.kind not in DIRECTORIES or key != "t-1"]
    for key in keys:
        store.put(key, key.encode())
    return sorted(keys, key=str.encode)


def test_a_listing_is_in_byte_order_across_directories(store: ObjectStore, listed: list[str]) -> None:
    """A slash is a character like others: `t-1-x` before `t-1/x` before `t-10/x`."""
    assert keys_of(store) == listed


def test_a_prefix_is_a_prefix_of_the_key(store: ObjectStore, listed: list[str]) -> None:
    """It need not end at a slash, and finds exactly the keys that begin with it."""
    for prefix in ("t", "t-", "t-1", "t-1/", "t-1/g", "t-1/gaps/", "t/", "topic~", "nothing", "t-1/x"):
        assert keys_of(store, prefix) == [key for key in listed if key.startswith(prefix)], prefix


def test_start_after_omits_the_keys_up_to_it(store: ObjectStore, listed: list[str]) -> None:
    """After every key, and after texts between keys, with and without a prefix."""
    for prefix in ("", "t-1", "t-1/", "t/"):
        for after in (*listed, "t-1/", "t-1/gaps", "t-1/w", "t-", "t", "zzz", "!"):
            expected = [key for key in listed if key.startswith(prefix) and key > after]
            assert keys_of(store, prefix, after) == expected, (prefix, after)


@pytest.mark.parametrize("prefix", ["", "t-1/", "t-"])
def test_ranges_of_keys_are_skipped(store: ObjectStore, listed: list[str], prefix: str) -> None:
    """Both bounds are skipped, what is between two ranges is listed, and a short listing is not shortened."""
    begun: list[str] = []

    def skipped(infos: Sequence[ObjectInfo]) -> list[tuple[str, str]]:
        begun.extend(info.key for info in infos)
        return ranges

    every = [key for key in listed if key.startswith(prefix)]
    for ranges in (
        [],
        [("", "~~")],
        [("t", "t-1/g")],
        [(every[0], every[0]), (every[-1], every[-1])],
        [("t-1", "t-1/"), ("t-1/gaps/", "t-1~x/1")],
    ):
        found = [info.key for info in store.list_skipping(prefix, 2, skipped)]
        assert found == [key for key in every if not any(low <= key <= high for low, high in ranges)], ranges
        assert [info.key for info in store.list_skipping(prefix, len(every) + 1, skipped)] == every
    assert set(begun) <= set(every)


def test_directories_are_the_parts_before_the_next_slash(store: ObjectStore, listed: list[str]) -> None:
    """Each once, with its slash, relative to the prefix, in byte order; objects are omitted."""
    plain = ["t-1/", "t-10/", "t-1~x/", "t-d/", "t.d/", "t/", "topic~uuid-0/"]
    assert list(store.list_directories()) == [".t-1/", ".t/", *plain]
    assert list(store.list_directories("t-1/")) == ["gaps/"]
    assert list(store.list_directories("t/")) == ["0/"]
    assert list(store.list_directories("nothing/")) == []


def test_more_keys_than_a_page_are_listed_and_deleted(store: ObjectStore) -> None:
    """1,100 segments and their neighbours are listed once, in order, from any key on, and removed by a delete."""
    keys = [f"t-0/{number:020}.log" for number in range(1100)]
    others = ["s-0/0.log", "t-0-x", "t-00/0.log", "t-0/gaps/5-6.json", "t-0/log.start", "t-0/offset.wm"]
    for future in [store.put_async(key, b"x") for key in (*keys, *others)]:
        future.result()
    in_partition = [*keys, "t-0/gaps/5-6.json", "t-0/log.start", "t-0/offset.wm"]
    assert keys_of(store, "t-0/") == in_partition
    assert keys_of(store) == sorted([*keys, *others], key=str.encode)
    assert keys_of(store, "t-0/", keys[1050]) == in_partition[1051:]
    store.delete(keys)
    assert keys_of(store) == sorted(others)


def test_two_locations_of_one_place_do_not_see_one_another(place: Place) -> None:
    """A base prefix is exact: `base` and `base-2` share nothing; the outer store lists the keys of the inner one."""
    with (
        open_store(f"{place.location}/base") as base,
        open_store(f"{place.location}/base-2") as other,
        open_store(place.location) as outer,
    ):
        if place.kind in DIRECTORIES:
            outer.put("base/x", b"")
            outer.put("base-2/x", b"")
        base.put("x", b"1")
        other.put("x", b"2")
        assert base.get("x")[0] == b"1"
        assert keys_of(base) == ["x"]
        assert keys_of(outer) == ["base-2/x", "base/x"]


DOTTED = [".foo", "...", ".meta", ".lock", ".put-x", ".nfs1", "..meta", "..put-0123-a"]


@pytest.mark.parametrize("part", DOTTED)
def test_a_part_of_a_key_may_begin_with_a_dot(store: ObjectStore, part: str) -> None:
    """Names of topics may, and names of a driver's own files do: neither affects the other."""
    keys = [f"{part}/incarnations.json", f"{part}-0/0.log", f"t/{part}/{part}", f"{part[1:] or 't'}-1/0.log"]
    for key in keys:
        store.put(key, b"before", metadata={"key": key})
        store.put(key, key.encode(), metadata={"key": key}, condition=IfMatch(store.head(key).etag))
    for key in keys:
        content, info = store.get(key)
        assert (content, info.key, dict(info.metadata)) == (key.encode(), key, {"key": key})
    assert keys_of(store) == sorted(keys)
    assert keys_of(store, part) == sorted(key for key in keys if key.startswith(part))
    assert keys_of(store, f"t/{part[:1]}", f"t/{part}") == [f"t/{part}/{part}"]
    assert list(store.list_directories()) == sorted({f"{key.split('/')[0]}/" for key in keys})
    assert list(store.list_directories("t/")) == [f"{part}/"]
    store.delete(keys)
    assert keys_of(store) == []


def test_a_place_that_exists_passes_the_check(store: ObjectStore) -> None:
    """An empty store exists."""
    store.check()
