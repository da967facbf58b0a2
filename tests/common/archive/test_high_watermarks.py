"""The ends of a broker's partitions: their content, and content that is rejected."""

from pathlib import Path

import pytest

from ts_common.archive.high_watermarks import End, Ends, all_agents_read, brokers_with_ends, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod", 5)
KEY = KEYS.ends_of(1)
TEXT = b'{"version":1,"broker":1,"time":1700000000000,"partitions":{"a-0":[4711,1],"b-1-10":[5,2]}}\n'


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
        TEXT.replace(b'"broker":1', b'"broker":2'),
        TEXT.replace(b"a-0", b"a"),
        TEXT.replace(b"a-0", b"a/b-0"),
        TEXT.replace(b"a-0", b"a-00"),
        TEXT.replace(b"[4711,1]", b"[4711]"),
        TEXT.replace(b"[4711,1]", b"[4711,1,1]"),
        TEXT.replace(b"[4711,1]", b"[-1,1]"),
    ],
)
def test_what_are_no_ends_is_corrupt(data: bytes) -> None:
    """The error names the object, whatever its content."""
    with pytest.raises(CorruptData, match=r"ts-uploader~cluster~prod/ends/1\.json"):
        Ends.decode(data, KEY, broker=1)


def test_all_agents_read_a_format_only_if_each_one_reports_it(tmp_path: Path) -> None:
    """An agent of an earlier release has no formats in its object."""
    with open_store(tmp_path.as_uri()) as store:
        store.put(KEY, Ends(1, 1, {}, "0.4.0", {"seal.json": 1}).encode())
        assert all_agents_read(store, KEYS, "seal.json", 1)
        assert not all_agents_read(store, KEYS, "seal.json", 2)
        store.put(KEYS.ends_of(2), Ends(2, 1, {}).encode())
        assert not all_agents_read(store, KEYS, "seal.json", 1)


def test_an_object_of_more_than_four_mebibytes_is_not_read(tmp_path: Path) -> None:
    """Each agent reads those of all brokers, and 16 MiB of empty objects would need 400 MiB of its memory."""
    with open_store(tmp_path.as_uri()) as store:
        partitions = {TopicPartition("t", number): End(number, 1) for number in range(80_000)}
        store.put(KEYS.ends_of(1), Ends(1, 1, partitions).encode())
        assert read_ends(store, KEYS, 1) is not None
        store.put(KEYS.ends_of(1), b'{"version":1,"broker":1,"time":1,"partitions":{}}'.ljust((4 << 20) + 1))
        with pytest.raises(CorruptData, match="at most 4194304 are expected"):
            read_ends(store, KEYS, 1)
