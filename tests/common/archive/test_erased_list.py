"""The content of a list of erased offsets, content that is rejected, and which list a reader reads."""

import tracemalloc
from collections.abc import Callable

import pytest
from awscrt.checksums import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.archive.test_erased_offsets import RUNS
from tests.matrix import examples
from ts_common.archive import erased_list
from ts_common.archive.erased_list import (
    ERASED_LIST_BYTES,
    ErasedList,
    ListedErased,
    decode_erased_list,
    encode_erased_list,
    erased_key,
    greatest_listed,
    parse_erased_name,
    read_erased,
)
from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.log_format.varints import unsigned_varint, varint
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("c").partition(TopicPartition("orders", 0))
FIXED = (
    b'TSER\x01\x2e\x00{"of":"orders-0","n":4,"offsets":181,"time":1}'
    b"\x02" + b"\x00" + b"\x02" + b"\x05\x00" + b"\x04\xb2\x01" + b"\x0e" + b"\x01" + b"\x88\x27\x00"
)


def sealed(data: bytes) -> bytes:
    """Return bytes with their CRC-32C, as a list ends."""
    return data + int(crc32c(data)).to_bytes(4, "little")


def content(body: bytes, offsets: int, header: str = '{"of":"orders-0","n":1,"offsets":%d,"time":1}') -> bytes:
    text = (header % offsets if "%d" in header else header).encode()
    return sealed(b"TSER\x01" + len(text).to_bytes(2, "little") + text + body)


def section(epoch: int, *numbers: int) -> bytes:
    return varint(epoch) + unsigned_varint(len(numbers) // 2) + b"".join(map(unsigned_varint, numbers))


def test_the_bytes_of_a_list_never_change() -> None:
    """A later release reads these bytes, and writes them for the same offsets."""
    offsets = ErasedOffsets.of([(5, 6, 0), (10, 189, 0), (5000, 5001, 7)])
    assert encode_erased_list(KEYS, ErasedList(4, 1, offsets)) == sealed(FIXED)
    assert decode_erased_list(sealed(FIXED), KEYS, 4) == ErasedList(4, 1, offsets)


@settings(max_examples=examples(100, quick=30))
@given(RUNS, st.integers(1, 999_999_999), st.integers(0, 2**62))
def test_a_list_is_read_as_it_was_written(runs: list[tuple[int, int, int]], number: int, at: int) -> None:
    """Each offset keeps its epoch, and nothing else is hidden."""
    found = ErasedList(number, at, ErasedOffsets.of(runs))
    assert decode_erased_list(encode_erased_list(KEYS, found), KEYS, number) == found


@settings(max_examples=examples(100, quick=30))
@given(RUNS, st.data())
def test_each_damaged_byte_and_each_length_is_rejected(runs: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """The CRC-32C covers everything before it."""
    whole = encode_erased_list(KEYS, ErasedList(1, 1, ErasedOffsets.of(runs)))
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    for each in (bytes(changed), whole[:place], whole + b"\0"):
        with pytest.raises((CorruptData, NewerFormat)):
            decode_erased_list(each, KEYS, 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with"),
        (b"TSER\x01", "CRC-32C"),
        (sealed(b"TSER\x01\xff\xff{}"), "CRC-32C"),
        (content(b"\0", 0, '{"of":"orders-1","n":1,"offsets":0,"time":1}'), "another partition"),
        (content(b"\0", 0, '{"of":"orders-0","n":2,"offsets":0,"time":1}'), "another partition"),
        (content(b"\0", 0, '{"of":"orders-0","n":1,"time":1}'), "offsets"),
        (content(b"\0", 0, '{"of":"orders-0","n":1,"offsets":0,"time":-1}'), "-1"),
        (content(b"\0", 0, "[]"), "another partition"),
        (content(b"\0", 0, "{" * 4000), "nested"),
        (content(b"\0", 5), "0 offsets"),
        (content(b"", 0), "ends within"),
        (content(b"\x01" + section(0), 0), "from 1"),
        (content(b"\x01" + section(0, 5), 1), "from 1"),
        (content(b"\x01" + varint(0) + unsigned_varint(2) + b"\x05\0", 1), "the runs"),
        (content(b"\x01" + varint(0) + unsigned_varint(1 << 40) + b"\x05\0", 1), "from 1"),
        (content(b"\x02" + section(0, 5, 0) + section(0, 9, 0), 2), "from 1"),
        (content(b"\x02" + section(1, 5, 0) + section(0, 9, 0), 2), "from 2"),
        (content(b"\x02" + section(0, 5, 3) + section(1, 6, 0), 5), "do not follow"),
        (content(b"\x01" + section(-2, 5, 0), 1), "from -1"),
        (content(b"\x01" + section(1 << 31, 5, 0), 1), "from -1"),
        (content(b"\x01" + section(0, 5, 0) + b"\0", 1), "the runs"),
        (content(b"\x01" + section(0, 5, 0) + b"\x80", 1), "within a number"),
        (content(b"\x01" + section(0, (1 << 63) - 1, 0), 1), "too large|too big"),
        (content(b"\x01" + section(0, 0, (1 << 63) - 1), 1), "too large|too big"),
        (content(b"\x01" + section(0, 1 << 63, 0), 1), "nine bytes"),
        (content(b"\x01" + b"\x80" * 9 + b"\x01", 1), "nine bytes"),
        (content(b"\xff" * 1000, 1), "nine bytes"),
    ],
)
def test_content_that_no_eraser_writes_is_rejected(data: bytes, reason: str) -> None:
    """One error names the object and what is wrong, also if the CRC-32C is right."""
    with pytest.raises(CorruptData, match=rf"c/orders-0/erased/1\.bin: .*(?:{reason})"):
        decode_erased_list(data, KEYS, 1)


def test_a_list_of_a_later_release_is_not_guessed() -> None:
    """The message names the version, so the reader must be upgraded."""
    with pytest.raises(NewerFormat, match=r"erased/1\.bin is written in version 2"):
        decode_erased_list(sealed(b"TSER\x02"), KEYS, 1)


def test_a_list_needs_bounded_memory() -> None:
    """A run of two bytes needs some twenty bytes of memory, also while it is read."""
    runs = 1 << 15
    data = content(b"\x01" + varint(0) + unsigned_varint(runs) + b"\x01\0" * runs, runs)
    tracemalloc.start()
    try:
        assert len(decode_erased_list(data, KEYS, 1).offsets) == runs
        assert tracemalloc.get_traced_memory()[1] < 50 * runs
    finally:
        tracemalloc.stop()


def test_a_list_above_the_limits_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers would reject it, so the error is raised before the put."""
    monkeypatch.setattr(erased_list, "MAX_RUNS", 3)
    erased = ErasedOffsets.ascending((2 * at, 2 * at + 1, 0) for at in range(4))
    with pytest.raises(CorruptData, match=r"erased/1\.bin: it would have .* and 4 runs; readers accept at most"):
        encode_erased_list(KEYS, ErasedList(1, 1, erased))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1.bin", 1),
        ("999999999.bin", 999_999_999),
        ("0.bin", None),
        ("01.bin", None),
        ("1000000000.bin", None),
        ("1.bin.bak", None),
        ("-1.bin", None),
        ("\u0661.bin", None),
        ("x", None),
    ],
)
def test_the_number_is_read_in_the_name(name: str, number: int | None) -> None:
    """Another name is not that of a list."""
    assert parse_erased_name(name) == number


def put(store: ObjectStore, number: int, *offsets: int) -> ErasedOffsets:
    erased = ErasedOffsets.of((offset, offset + 1, 0) for offset in offsets)
    store.put(erased_key(KEYS, number), encode_erased_list(KEYS, ErasedList(number, 1, erased)))
    return erased


def listed(store: ObjectStore) -> ListedErased | None:
    return greatest_listed(KEYS, store.list(KEYS.prefix))


def test_the_list_with_the_greatest_number_counts(store: ObjectStore) -> None:
    """Numbers are compared, not names: 10 is above 9."""
    put(store, 9, 5)
    later = put(store, 10, 5, 7)
    store.put(KEYS.erased + "99.bin.bak", b"")
    assert read_erased(store, KEYS, listed(store), None) == later


def test_a_partition_without_a_list_costs_no_request(store: ObjectStore) -> None:
    """The listing and `log.start` suffice."""
    store.list = store.open = None  # type: ignore[assignment, method-assign]
    assert read_erased(store, KEYS, None, None) is NOTHING_ERASED


def test_a_list_is_read_once(store: ObjectStore) -> None:
    """A follower reads the partition again and again; another ETag is another object."""
    erased = put(store, 1, 5)
    found = listed(store)
    assert read_erased(store, KEYS, found, 1) == erased
    store.open = None  # type: ignore[assignment, method-assign]
    assert read_erased(store, KEYS, found, 1) == erased


def test_a_deleted_list_is_listed_again(store: ObjectStore) -> None:
    """An eraser deletes old lists; the later one has all offsets."""
    put(store, 1, 5)
    before = listed(store)
    store.delete([erased_key(KEYS, 1)])
    later = put(store, 2, 5, 7)
    assert read_erased(store, KEYS, before, None) == later


def test_a_list_with_another_etag_is_listed_again(store: ObjectStore) -> None:
    """Another writer changed what is hidden."""
    put(store, 1, 5)
    before = listed(store)
    later = put(store, 1, 5, 7)
    assert read_erased(store, KEYS, before, None) == later


def test_a_log_start_that_names_a_greater_list_lists_again(store: ObjectStore) -> None:
    """The list was put after the listing; one below the named number never counts."""
    put(store, 1, 5)
    before = listed(store)
    later = put(store, 3, 5, 7)
    assert read_erased(store, KEYS, before, 2) == later
    assert read_erased(store, KEYS, None, 3) == later


def _without_object(store: ObjectStore) -> ListedErased | None:
    found = ListedErased(3, "e")
    inner = store.list

    def ghost(prefix: str = "", *, start_after: str = "") -> object:
        put(store, 3, 5)
        infos = [*inner(prefix, start_after=start_after)]
        store.delete([erased_key(KEYS, 3)])
        return iter(infos)

    store.list = ghost  # type: ignore[method-assign, assignment]
    return found


@pytest.mark.parametrize(
    ("before", "least", "reason"),
    [
        (lambda _: None, 4, r"erased/: 5 listings do not show list 4 or a later one"),
        (lambda _: ListedErased(3, "e"), None, r"erased/: 5 listings do not show a list"),
        (_without_object, None, r"erased/3\.bin: 5 listings show it, and no get returns it"),
    ],
)
def test_a_list_that_no_listing_shows_is_damage(
    store: ObjectStore, before: Callable[[ObjectStore], ListedErased | None], least: int | None, reason: str
) -> None:
    """A reader does not continue without a list that exists."""
    with pytest.raises(CorruptData, match=reason):
        read_erased(store, KEYS, before(store), least)


def test_a_list_that_is_too_large_is_not_read(store: ObjectStore) -> None:
    """Anyone who can write to the bucket can store two gigabytes under its key."""
    store.put(erased_key(KEYS, 1), b"x" * (ERASED_LIST_BYTES + 1))
    with pytest.raises(CorruptData, match=r"erased/1\.bin: 16777217 bytes; at most 16777216 are expected"):
        read_erased(store, KEYS, listed(store), None)
