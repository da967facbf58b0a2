"""The ends of a broker's partitions: their content, and content that is rejected."""

from pathlib import Path

import pytest

from ts_common.archive.ends import End, Ends, brokers_with_ends, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod", 5)
KEY = KEYS.ends_of(1)
ENDS = Ends(1, 1700000000000, {TopicPartition("b-1", 10): End(5, 2), TopicPartition("a", 0): End(4711, 1)})
TEXT = b'{"version":1,"broker":1,"time":1700000000000,"partitions":{"a-0":[4711,1],"b-1-10":[5,2]}}\n'


def test_ends_are_written_as_one_line_and_read_back_unchanged() -> None:
    """The partitions have a fixed order, and fields of later releases are ignored."""
    assert KEY == "ts-uploader~cluster~prod/ends/1.json"
    assert ENDS.encode() == TEXT
    assert Ends.decode(TEXT, KEY, broker=1) == ENDS
    assert Ends.decode(TEXT.replace(b"{", b'{"more":[1],', 1), KEY, broker=1) == ENDS


def test_ten_thousand_partitions_are_below_a_megabyte(tmp_path: Path) -> None:
    """Topic names of forty characters are read back as they were written."""
    partitions = {TopicPartition(f"{n % 100:040d}", n): End(1 << 40, 1700000000000) for n in range(10_000)}
    ends = Ends(1, 1, partitions)
    assert len(ends.encode()) < 1 << 20
    with open_store(tmp_path.as_uri()) as store:
        assert read_ends(store, KEYS, 1) is None
        store.put(KEY, ends.encode())
        assert read_ends(store, KEYS, 1) == ends


def test_brokers_are_found_by_the_names_of_their_objects(tmp_path: Path) -> None:
    """Other names in the directory are ignored."""
    with open_store(tmp_path.as_uri()) as store:
        assert brokers_with_ends(store, KEYS) == []
        for name in ("10.json", "9.json", "9.json.bak", "x.json", "-1.json"):
            store.put(KEYS.ends + name, b"x")
        assert brokers_with_ends(store, KEYS) == [9, 10]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>maintenance</html>",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"partitions":' * 100_000,
        TEXT.replace(b'"broker":1', b'"broker":2'),
        TEXT.replace(b'"broker":1', b'"broker":-1'),
        TEXT.replace(b"1700000000000", b"1e3"),
        TEXT.replace(b'{"a-0":[4711,1],"b-1-10":[5,2]}', b"[]"),
        TEXT.replace(b"a-0", b"a"),
        TEXT.replace(b"a-0", b"a/b-0"),
        TEXT.replace(b"a-0", b"a-00"),
        TEXT.replace(b"[4711,1]", b"4711"),
        TEXT.replace(b"[4711,1]", b"[4711]"),
        TEXT.replace(b"[4711,1]", b"[4711,1,1]"),
        TEXT.replace(b"[4711,1]", b"[-1,1]"),
        TEXT.replace(b"[4711,1]", b"[true,1]"),
        TEXT.replace(b"[4711,1]", b'["4711",1]'),
        TEXT.replace(b"[4711,1]", b"[9223372036854775808,1]"),
        TEXT.replace(b"[4711,1]", b"[4711,null]"),
        TEXT.replace(b'"version":1', b'"version":0'),
    ],
)
def test_what_are_no_ends_is_corrupt(data: bytes) -> None:
    """The error names the object, whatever its content."""
    with pytest.raises(CorruptData, match=r"ts-uploader~cluster~prod/ends/1\.json"):
        Ends.decode(data, KEY, broker=1)


def test_ends_of_a_later_release_are_refused_as_that() -> None:
    """The numbers can have another meaning in a later version."""
    with pytest.raises(NewerFormat, match="version 2"):
        Ends.decode(TEXT.replace(b'"version":1', b'"version":2'), KEY, broker=1)
