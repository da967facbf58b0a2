"""Metadata snapshots: their names, the newest before a time, and objects that are rejected."""

import gzip
import tracemalloc
import zlib
from dataclasses import replace

import pytest

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, MINUTE, ClusterSnapshot, GroupOffset, GroupsSnapshot, Quota
from ts_common.errors import CorruptData, PreconditionFailed
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("prod", 5)
AT = 1_795_964_400_000  # 2026-11-29T15:00:00Z
META = "ts-uploader~cluster~prod/meta/"


def cluster_at(time: int) -> ClusterSnapshot:
    """Return a snapshot of an empty cluster."""
    return ClusterSnapshot(time, 1, None, {}, {}, (), None, ())


def test_a_name_is_the_utc_time_to_the_minute() -> None:
    """The time of a name is read back; names that are no time are no snapshot's."""
    key = ClusterSnapshot.key(KEYS, AT + 5 * MINUTE + 999)
    assert key == META + "cluster/20261129T1505Z.json.gz"
    assert ClusterSnapshot.time_of(KEYS, key) == AT + 5 * MINUTE
    for name in (
        "20261329T1505Z.json.gz",
        "20261129T2505Z.json.gz",
        "20261129T1505Z.json",
        "x",
        "٢0261129T1505Z.json.gz",
    ):
        assert ClusterSnapshot.time_of(KEYS, META + "cluster/" + name) is None
    assert ClusterSnapshot.time_of(KEYS, GroupsSnapshot.key(KEYS, AT)) is None


def test_the_newest_at_or_before_a_time_is_found(store: ObjectStore) -> None:
    """Later snapshots and foreign names are ignored, and an old snapshot is found after days without one."""
    assert ClusterSnapshot.newest(store, KEYS, AT) is None
    old = cluster_at(AT - 100 * HOUR + 7)
    old.put(store, KEYS, AT - 100 * HOUR)
    assert ClusterSnapshot.newest(store, KEYS, AT) == old
    hourly, change, later = cluster_at(AT + 59 * MINUTE), cluster_at(AT + 5 * MINUTE + 1), cluster_at(AT + HOUR)
    hourly.put(store, KEYS, AT)
    change.put(store, KEYS, AT + 5 * MINUTE)
    later.put(store, KEYS, AT + HOUR)
    store.put(META + "cluster/zzz", b"")
    assert ClusterSnapshot.newest(store, KEYS, AT + 4 * MINUTE) == hourly
    assert ClusterSnapshot.newest(store, KEYS, AT + 5 * MINUTE) == change
    assert ClusterSnapshot.newest(store, KEYS, 0) is None
    times = [AT - 100 * HOUR, AT, AT + 5 * MINUTE, AT + HOUR]
    assert ClusterSnapshot.times(store, KEYS) == times
    assert ClusterSnapshot.times(store, KEYS, AT) == times[1:]


def test_of_two_agents_one_wins(store: ObjectStore) -> None:
    """The second put is refused, and the object stays as the first wrote it."""
    offsets = {"g": {TopicPartition("t", 0): GroupOffset(5, -1, "é")}}
    first = GroupsSnapshot(AT + FIVE_MINUTES - 1, offsets)
    first.put(store, KEYS, AT)
    with pytest.raises(PreconditionFailed):
        GroupsSnapshot(AT, {}).put(store, KEYS, AT)
    assert GroupsSnapshot.load(store, KEYS, AT) == first


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{}", "not compressed by gzip"),
        (gzip.compress(cluster_at(AT).encode())[:-9], "it ends within gzip"),
        (gzip.compress(cluster_at(AT).encode()) + b"x", "bytes follow the end of gzip"),
        (gzip.compress(b"{}"), "not a snapshot of a cluster's metadata"),
        (gzip.compress(cluster_at(AT - 1).encode()), "its content is of 20261129T1459Z"),
        (gzip.compress(cluster_at(AT + HOUR).encode()), "its content is of 20261129T1600Z"),
        (gzip.compress(cluster_at(AT).encode().replace(b"1795964400000", b"9223372036854775807")), "not a snapshot"),
    ],
    ids=["plain", "truncated", "trailing", "fields", "earlier", "later", "beyond all times"],
)
def test_an_object_that_is_no_snapshot_of_its_name_is_corrupt(store: ObjectStore, data: bytes, reason: str) -> None:
    """The error names the object and what is wrong with it."""
    store.put(ClusterSnapshot.key(KEYS, AT), data)
    with pytest.raises(CorruptData, match=rf"meta/cluster/20261129T1500Z\.json\.gz: .*{reason}"):
        ClusterSnapshot.load(store, KEYS, AT)


def test_a_bomb_is_unpacked_to_the_bound_only(store: ObjectStore) -> None:
    """Two hundred megabytes of zeros are a small object; no more than the bound is unpacked."""
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    store.put(ClusterSnapshot.key(KEYS, AT), bomb)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="unpacks to more than 67108864 bytes"):
            ClusterSnapshot.load(store, KEYS, AT)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()


def test_a_snapshot_that_readers_would_reject_is_not_written(store: ObjectStore) -> None:
    """A broker can send any number: one that is not finite would make the object no JSON."""
    quotas = (Quota({"user": "a"}, {"producer_byte_rate": float("nan")}),)
    with pytest.raises(CorruptData, match="NaN is not a number of JSON"):
        replace(cluster_at(AT), quotas=quotas).put(store, KEYS, AT)
    assert list(store.list()) == []
