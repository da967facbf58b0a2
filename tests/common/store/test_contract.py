"""The contract of `ts_common.store.contract`, held against every driver."""

import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.store.conftest import Place
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    ObjectNotFound,
    PreconditionFailed,
    SegmentChanged,
    TieredStorageError,
)
from ts_common.store.contract import ByteRange, IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.bandwidth import Allowance

DIRECTORIES = {"file", "webhdfs"}
LARGE = bytes(range(256)) * (3 << 12)  # 3 MiB: beyond what a driver sends in one piece


def _keys(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, start_after=start_after)]


def _outcomes(count: int, work: Callable[[int], object]) -> list[object]:
    """What `work` returned or raised in each of several threads that begin together."""
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        try:
            return work(number)
        except TieredStorageError as error:
            return type(error)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def test_what_is_put_is_got(store: ObjectStore) -> None:
    """Bytes, size, etag, time and metadata come back from get and head as put told them."""
    metadata = {"coverage": "0-100", "epochs": "[[1, 0], [2, 50]]"}
    put = store.put("topic-0/00000000000000000000.log", b"content", metadata=metadata)
    content, got = store.get("topic-0/00000000000000000000.log")
    head = store.head("topic-0/00000000000000000000.log")
    assert content == b"content"
    assert put.key == got.key == head.key == "topic-0/00000000000000000000.log"
    assert put.size == got.size == head.size == 7
    assert put.etag == got.etag == head.etag
    assert dict(put.metadata) == dict(got.metadata) == dict(head.metadata) == metadata
    assert got.modified == head.modified
    assert abs(put.modified - got.modified) < 5


def test_a_listing_tells_size_etag_and_time_as_head_does(store: ObjectStore) -> None:
    """All but the metadata, which no listing knows."""
    store.put("a/b", b"content", metadata={"x": "y"})
    (listed,) = store.list()
    head = store.head("a/b")
    assert (listed.key, listed.size, listed.etag) == (head.key, head.size, head.etag)
    assert int(listed.modified) == int(head.modified)
    assert not listed.metadata


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    """A .txnindex may be empty; it is found, listed and read as such."""
    store.put("t-0/0.txnindex", b"", condition=IfAbsent())
    assert store.get("t-0/0.txnindex")[0] == b""
    assert store.head("t-0/0.txnindex").size == 0
    assert _keys(store) == ["t-0/0.txnindex"]


def test_an_unconditional_put_replaces_content_and_metadata(store: ObjectStore) -> None:
    """Nothing of the object before is left, also where the new one has no metadata."""
    first = store.put("key", b"first", metadata={"number": "1", "old": "yes"})
    second = store.put("key", b"second", metadata={"number": "2"})
    assert first.etag != second.etag
    assert store.get("key")[0] == b"second"
    assert dict(store.head("key").metadata) == {"number": "2"}
    store.put("key", b"third")
    assert dict(store.get("key")[1].metadata) == {}


def test_if_absent_writes_once(store: ObjectStore) -> None:
    """The second writer is refused, and neither content nor metadata changes."""
    first = store.put("key", b"first", metadata={"by": "one"}, condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        store.put("key", b"other", metadata={"by": "two"}, condition=IfAbsent())
    content, info = store.get("key")
    assert content == b"first"
    assert info.etag == first.etag
    assert dict(info.metadata) == {"by": "one"}
    assert _keys(store) == ["key"]


def test_if_absent_of_sixteen_threads_has_one_winner(store: ObjectStore) -> None:
    """Whoever is told that it wrote is the one whose bytes stand there; all others are refused."""
    outcomes = _outcomes(
        16, lambda number: store.put("key", b"%d" % number, metadata={"by": str(number)}, condition=IfAbsent()).etag
    )
    (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    assert outcomes.count(PreconditionFailed) == 15
    content, info = store.get("key")
    assert content == b"%d" % winner
    assert dict(info.metadata) == {"by": str(winner)}


def test_if_match_of_sixteen_threads_has_one_winner(store: ObjectStore) -> None:
    """Sixteen agents that saw the same commit: one moves it, fifteen are refused."""
    before = store.put("offset.wm", b"before").etag
    outcomes = _outcomes(
        16, lambda number: store.put("offset.wm", b"after %02d" % number, condition=IfMatch(before)).etag
    )
    (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    assert outcomes.count(PreconditionFailed) == 15
    assert store.get("offset.wm")[0] == b"after %02d" % winner


def test_if_match_writes_over_what_it_names(store: ObjectStore) -> None:
    """The etag of put, head, get and listing is one that a write can name."""
    etag = store.put("key", b"put").etag
    etag = store.put("key", b"head", metadata={"n": "2"}, condition=IfMatch(etag)).etag
    assert store.head("key").etag == etag
    store.put("key", b"get", condition=IfMatch(store.head("key").etag))
    store.put("key", b"list", condition=IfMatch(store.get("key")[1].etag))
    store.put("key", b"last", metadata={"n": "5"}, condition=IfMatch(next(store.list()).etag))
    content, info = store.get("key")
    assert content == b"last"
    assert dict(info.metadata) == {"n": "5"}


def test_if_match_over_something_else_is_refused(store: ObjectStore) -> None:
    """A stale etag writes nothing, and neither does one over an object that is gone or never was."""
    stale = store.put("key", b"first").etag
    store.put("key", b"second", metadata={"n": "2"})
    with pytest.raises(PreconditionFailed):
        store.put("key", b"third", condition=IfMatch(stale))
    assert store.get("key")[0] == b"second"
    assert dict(store.head("key").metadata) == {"n": "2"}
    with pytest.raises(PreconditionFailed):
        store.put("never", b"third", condition=IfMatch(stale))
    assert _keys(store) == ["key"]


def test_contents_of_one_size_have_different_etags(store: ObjectStore) -> None:
    """A commit that changed between two looks, however quickly, is seen to have changed."""
    etags = [store.put("offset.wm", b"%04d" % number).etag for number in range(50)]
    assert len(set(etags)) == 50


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
    """Also from the end, over the end, and beyond it, where there is nothing to read."""
    put = store.put("key", b"0123456789", metadata={"x": "y"})
    content, info = store.get("key", byte_range)
    assert content == expected
    assert (info.size, info.etag, dict(info.metadata)) == (10, put.etag, {"x": "y"})


@pytest.mark.parametrize("byte_range", [ByteRange(0), ByteRange(0, 5), ByteRange(3), ByteRange(-3)])
def test_a_range_of_an_empty_object_is_empty(store: ObjectStore, byte_range: ByteRange) -> None:
    """S3 answers 416 here; there is nothing wrong with reading nothing."""
    store.put("key", b"")
    content, info = store.get("key", byte_range)
    assert content == b""
    assert info.size == 0


def test_a_stream_is_read_in_pieces(store: ObjectStore) -> None:
    """`read` gives what was asked until the end; so does `readinto`; after the end there is nothing."""
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
    """`readinto` with a larger buffer fills what the range has."""
    store.put("key", LARGE)
    buffer = bytearray(1 << 20)
    with store.open("key", ByteRange(1000, 1500)) as stream:
        assert stream.readinto(memoryview(buffer)) == 500
        assert stream.readinto(memoryview(buffer)) == 0
    assert bytes(buffer[:500]) == LARGE[1000:1500]


def test_a_stream_may_be_left_early(store: ObjectStore) -> None:
    """Leaving the block gives everything back; the store serves on."""
    store.put("key", LARGE)
    for _ in range(3):
        with store.open("key") as stream:
            assert stream.read(10) == LARGE[:10]
    assert store.get("key")[0] == LARGE


def test_an_open_stream_is_not_disturbed_by_a_replacement(store: ObjectStore) -> None:
    """What is read is one whole object, the one that `info` tells of, never a mix."""
    store.put("key", b"before", metadata={"n": "1"})
    with store.open("key") as stream:
        store.put("key", b"after!", metadata={"n": "2"})
        assert stream.read(6) == b"before"
        assert dict(stream.info.metadata) == {"n": "1"}
    assert store.get("key")[0] == b"after!"


def test_a_reader_never_meets_a_mix_of_content_and_metadata(store: ObjectStore) -> None:
    """While a writer replaces an object again and again, readers see content and metadata of one put."""
    store.put("key", b"0", metadata={"n": "0"})
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(1, 60):
                store.put("key", b"%d" % number, metadata={"n": str(number)})
        finally:
            done.set()

    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(write)
        while not done.is_set():
            content, info = store.get("key")
            assert dict(info.metadata) == {"n": content.decode()}
        written.result()


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("checked", [True, False])
def test_of_a_reader_only_its_size_is_sent(store: ObjectStore, tmp_path: Path, content: bytes, checked: bool) -> None:
    """A segment that grows while it is shipped goes up as long as it was, from wherever the reader stands."""
    path = tmp_path / "segment.log"
    path.write_bytes(content + b"what was appended since")
    with path.open("rb") as reader:
        reader.seek(7)
        put = store.put("key", reader, size=len(content), crc32c=crc32c(content) if checked else None)
    assert put.size == len(content)
    assert store.get("key")[0] == content


def test_a_body_is_never_held_as_a_whole(store: ObjectStore) -> None:
    """A segment of 1 GiB costs the broker's host neither a gigabyte nor a call for every page, however often it is gone
    through: it is read in pieces of a megabyte at most and 64 KiB at least.
    """
    asked = []

    class Large(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size)
            return super().read(size)

    store.put("key", Large(LARGE), size=len(LARGE), condition=IfAbsent(), crc32c=crc32c(LARGE))
    assert all(size is not None and 0 < size <= 1 << 20 for size in asked)
    assert len(asked) <= 3 * len(LARGE) // (64 << 10)
    assert store.get("key")[0] == LARGE


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_a_reader_that_ends_early_writes_nothing(store: ObjectStore, content: bytes) -> None:
    """A segment that was cut while it was shipped is no segment any more."""
    with pytest.raises(SegmentChanged, match=str(len(content))):
        store.put("key", io.BytesIO(content), size=len(content) + 1, crc32c=crc32c(content))
    assert _keys(store) == []


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_what_a_reader_raises_comes_through(store: ObjectStore, content: bytes) -> None:
    """A local disk that fails is no failure of the store, and nothing was written."""

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "the disk is broken")

    with pytest.raises(OSError, match="the disk is broken"):
        store.put("key", Failing(content), size=len(content), crc32c=crc32c(content))
    assert _keys(store) == []


@pytest.mark.parametrize("content", [b"0123456789", LARGE], ids=["small", "large"])
def test_bytes_of_another_checksum_are_refused(store: ObjectStore, content: bytes) -> None:
    """The store compares what arrives with the checksum that the caller knows."""
    with pytest.raises(CorruptData):
        store.put("key", io.BytesIO(content), size=len(content), crc32c=crc32c(content) ^ 1)
    with pytest.raises(CorruptData):
        store.put("key", content, crc32c=crc32c(content) ^ 1)
    assert _keys(store) == []


def test_asynchronous_puts_carry_results_and_errors(store: ObjectStore) -> None:
    """A future returns what `put` returns, and raises what it raises."""
    futures = [store.put_async(f"key-{n:02}", b"%d" % n, metadata={"n": str(n)}) for n in range(32)]
    assert [future.result().key for future in futures] == [f"key-{n:02}" for n in range(32)]
    refused = store.put_async("key-00", b"again", condition=IfAbsent())
    assert isinstance(refused.exception(), PreconditionFailed)
    assert len(_keys(store)) == 32


def test_closing_waits_for_puts_that_have_begun(place: Place) -> None:
    """What was begun is there once `close` returns, which may be called twice."""
    began = threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            began.set()
            return super().read(size)

    store = open_store(place.location)
    future = store.put_async("key", Slow(LARGE), size=len(LARGE))
    assert began.wait(20)
    store.close()
    store.close()
    assert future.done()
    with open_store(place.location) as again:
        assert again.head("key").etag == future.result().etag


def test_what_is_not_there_is_not_found(store: ObjectStore) -> None:
    """Get and head say so, of keys, of parts of keys, and of keys below an object."""
    store.put("a/b", b"x")
    for key in ("absent", "a", "a/b/c", "a/bc"):
        with pytest.raises(ObjectNotFound, match=key):
            store.get(key)
        with pytest.raises(ObjectNotFound, match=key):
            store.head(key)
        with pytest.raises(ObjectNotFound, match=key):
            store.get(key, ByteRange(-5))


def test_deleted_objects_are_gone_and_deleting_them_again_is_nothing(store: ObjectStore) -> None:
    """Content, metadata and place in the listing go; what is not there counts as removed."""
    for key in ("a/1", "a/2", "b/1"):
        store.put(key, b"x", metadata={"k": key})
    store.delete(iter(["a/1", "b/1", "never/was", "a"]))
    store.delete(["a/1"])
    store.delete([])
    assert _keys(store) == ["a/2"]
    with pytest.raises(ObjectNotFound):
        store.head("a/1")
    store.put("a/1", b"anew", condition=IfAbsent())
    assert dict(store.head("a/1").metadata) == {}


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
    """Keys around every character that may stand in a topic's name, in their byte order, and in the store."""
    # In a directory `t-1` cannot be an object and a directory at once.
    keys = [key for key in KEYS if place.kind not in DIRECTORIES or key != "t-1"]
    for key in keys:
        store.put(key, key.encode())
    return sorted(keys, key=str.encode)


def test_a_listing_is_in_byte_order_across_directories(store: ObjectStore, listed: list[str]) -> None:
    """A slash counts as the character that it is: `t-1-x` before `t-1/x` before `t-10/x`."""
    assert _keys(store) == listed


@pytest.mark.parametrize("prefix", ["t", "t-", "t-1", "t-1/", "t-1/g", "t-1/gaps/", "t/", "topic~", "nothing", "t-1/x"])
def test_a_prefix_is_a_prefix_of_the_key(store: ObjectStore, listed: list[str], prefix: str) -> None:
    """It need not end at a slash, and finds exactly what begins with it."""
    assert _keys(store, prefix) == [key for key in listed if key.startswith(prefix)]


@pytest.mark.parametrize("prefix", ["", "t-1", "t-1/", "t/"])
def test_start_after_leaves_out_what_comes_before(store: ObjectStore, listed: list[str], prefix: str) -> None:
    """After every key, and after texts between keys, with and without a prefix."""
    for after in (*listed, "t-1/", "t-1/gaps", "t-1/w", "t-", "t", "zzz", "!"):
        expected = [key for key in listed if key.startswith(prefix) and key > after]
        assert _keys(store, prefix, after) == expected, after


def test_directories_are_what_stands_before_the_next_slash(store: ObjectStore, listed: list[str]) -> None:
    """Each once, with its slash, relative to the prefix, in byte order; objects are none."""
    plain = ["t-1/", "t-10/", "t-1~x/", "t-d/", "t.d/", "t/", "topic~uuid-0/"]
    assert list(store.list_directories()) == [".t-1/", ".t/", *plain]
    assert list(store.list_directories("t-1/")) == ["gaps/"]
    assert list(store.list_directories("t/")) == ["0/"]
    assert list(store.list_directories("nothing/")) == []


def test_more_keys_than_a_page_are_listed_and_deleted(store: ObjectStore) -> None:
    """1,100 segments and their neighbours: all of them, once, in order, from any of them on; then none."""
    keys = [f"t-0/{number:020}.log" for number in range(1100)]
    others = ["s-0/0.log", "t-0-x", "t-00/0.log", "t-0/gaps/5-6.json", "t-0/log.start", "t-0/offset.wm"]
    for future in [store.put_async(key, b"x") for key in (*keys, *others)]:
        future.result()
    in_partition = [*keys, "t-0/gaps/5-6.json", "t-0/log.start", "t-0/offset.wm"]
    assert _keys(store, "t-0/") == in_partition
    assert _keys(store) == sorted([*keys, *others], key=str.encode)
    assert _keys(store, "t-0/", keys[1050]) == in_partition[1051:]
    store.delete(keys)
    assert _keys(store) == sorted(others)


def test_two_locations_of_one_place_do_not_see_one_another(place: Place) -> None:
    """A base prefix is exact: `base` and `base-2` have nothing in common; the outer one sees the inner one's keys."""
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
        assert _keys(base) == ["x"]
        assert _keys(outer) == ["base-2/x", "base/x"]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "..", "a/.", "./a"])
def test_keys_that_some_store_cannot_hold_are_refused_by_all(store: ObjectStore, key: str) -> None:
    """Parts that are empty or one or two dots are nobody's, whatever is asked of them."""
    for ask in (
        lambda: store.put(key, b"x"),
        lambda: store.head(key),
        lambda: store.get(key),
        lambda: store.delete([key]),
    ):
        with pytest.raises(ValueError, match="not a key") as raised:
            ask()
        assert isinstance(raised.value, TieredStorageError)  # what it is the key of waits, and the rest goes on
    assert _keys(store) == []


DOTTED = [".foo", "...", ".meta", ".lock", ".put-x", ".nfs1", "..meta", "..put-0123-a"]


@pytest.mark.parametrize("part", DOTTED)
def test_a_part_of_a_key_may_begin_with_a_dot(store: ObjectStore, part: str) -> None:
    """As a topic's name may, and whatever a driver calls files of its own: nothing is in anything's way."""
    keys = [f"{part}/incarnations.json", f"{part}-0/0.log", f"t/{part}/{part}", f"{part[1:] or 't'}-1/0.log"]
    for key in keys:
        store.put(key, b"before", metadata={"key": key})
        store.put(key, key.encode(), metadata={"key": key}, condition=IfMatch(store.head(key).etag))
    for key in keys:
        content, info = store.get(key)
        assert (content, info.key, dict(info.metadata)) == (key.encode(), key, {"key": key})
    assert _keys(store) == sorted(keys)
    assert _keys(store, part) == sorted(key for key in keys if key.startswith(part))
    assert _keys(store, f"t/{part[:1]}", f"t/{part}") == [f"t/{part}/{part}"]
    assert list(store.list_directories()) == sorted({f"{key.split('/')[0]}/" for key in keys})
    assert list(store.list_directories("t/")) == [f"{part}/"]
    store.delete(keys)
    assert _keys(store) == []


@pytest.mark.parametrize(
    "metadata", [{"Upper": "x"}, {"": "x"}, {"x": "h\u00e9"}, {"x": "a\nb"}, {"x": " padded "}, {"x": "x" * 2048}]
)
def test_metadata_that_some_store_cannot_hold_is_refused_by_all(store: ObjectStore, metadata: dict[str, str]) -> None:
    """What S3 would change or refuse is refused before anything is written."""
    with pytest.raises(ValueError, match="metadata"):
        store.put("key", b"x", metadata=metadata)
    assert _keys(store) == []


def test_a_body_without_its_size_is_refused(store: ObjectStore) -> None:
    """A reader needs one, and bytes have their own."""
    with pytest.raises(ValueError, match="size"):
        store.put("key", io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="size"):
        store.put("key", b"xyz", size=2)
    assert _keys(store) == []


def test_a_place_that_exists_passes_the_check(store: ObjectStore) -> None:
    """An empty store is one."""
    store.check()


def test_a_body_is_sent_as_the_allowance_lets_it_go(place: Place) -> None:
    """One rate for all bodies of a process, whatever the driver; what is sent slowly arrives whole."""
    content = bytes(range(256)) * 100
    allowance = Allowance(len(content))  # in ten pieces, five of them at once
    with open_store(place.location, allowance=allowance) as store:
        store.put("a", io.BytesIO(content), size=len(content), crc32c=crc32c(content))
        assert store.get("a")[0] == content
    assert allowance.waited_seconds > 0


def test_a_missing_bucket_or_directory_is_an_error_and_is_not_created(place: Place) -> None:
    """Whatever is asked: not "no such key", which would mean "no commit", and nothing appears."""
    with open_store(place.missing) as store:
        for ask in (
            store.check,
            lambda: store.put("key", b"x"),
            lambda: store.put("a/b/key", b"x", condition=IfAbsent()),
            lambda: store.get("key"),
            lambda: store.head("key"),
            lambda: list(store.list()),
            lambda: list(store.list_directories("a/")),
            lambda: store.delete(["key"]),
            store.check,
        ):
            with pytest.raises(BucketMissing, match="missing"):
                ask()


def test_a_place_that_is_closed_to_this_identity_is_access_denied(place: Place) -> None:
    """The message names what was asked, where, and the way out."""
    with open_store(place.closed) as store, pytest.raises(AccessDenied, match=r"key.*(allow|give) this"):
        store.put("key", b"x")
