"""Counts objects by topic, class, kind, age and size, from a store."""

import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.tsctl.cost.made_parts import PRICES
from tests.tsctl.running import Run, runner
from ts_common.archive.object_keys import ClusterKeys, SegmentName, pack_name
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.cost.object_counts import OWN, ObjectKind, Part, count, find_directories

NOW = 1_800_000_000.0
DAY = 86_400.0
_MANY = 20_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "store", entropy_bits=3)


def counted(archive: MadeArchive, store: ObjectStore | None = None) -> list[Part]:
    return count(list(find_directories(store or archive.store, archive.keys)), PRICES, 7.0, NOW)


def sums(parts: list[Part], value: Callable[[Part], float]) -> dict[tuple[str, ObjectKind], float]:
    """Return a number by topic and kind."""
    found: dict[tuple[str, ObjectKind], float] = {}
    for part in parts:
        found[part.topic, part.kind] = found.get((part.topic, part.kind), 0) + value(part)
    return found


def test_every_object_of_a_cluster_counts_once(archive: MadeArchive) -> None:
    """Segments, marks and caches of earlier incarnations, of a topic `t-0`, of the cluster; of no other cluster."""
    for partition in range(3):
        archive.put_segment("t", 0, batches((0, 10)), partition=partition, index=b"12345678", timeindex=b"123456789012")
        archive.commit("t", 10, partition=partition)
    keys = archive.partition("t", 1)
    archive.store.put(keys.gap(10, 20), b"{}")
    archive.store.put(keys.cache_object(0), b"{}")
    archive.store.put(keys.prefix + "of-another-program", b"x" * 77)
    later = archive.keys.partition(keys.partition, archive.keys.later_incarnation("t", "A" * 22))
    archive.store.put(later.segment(SegmentName(5)), b"x" * 5)
    archive.put_incarnations("t", "B" * 22, "A" * 22)
    archive.put_incarnations("t-0", "C" * 22)
    archive.store.put(archive.keys.layout, b"{}")
    archive.store.put(archive.keys.ends_of(7), b"{}")
    archive.store.put("other/t-0/offset.wm", b"x")
    archive.store.put(f"010/{CLUSTER}2/t-0/offset.wm", b"x")
    parts = counted(archive)
    assert sums(parts, lambda part: part.objects) == {
        ("t", ObjectKind.LOG): 4,
        ("t", ObjectKind.INDEX): 6,
        ("t", ObjectKind.OTHER): 3 * 2 + 4,
        ("t-0", ObjectKind.OTHER): 1,
        (OWN, ObjectKind.OTHER): 2,
    }
    of_cluster = [info for info in archive.store.list() if f"{CLUSTER}/" in info.key]
    assert sum(part.size for part in parts) == sum(info.size for info in of_cluster)


def test_packs_of_the_live_tail_have_the_rate_of_those_that_are_stored(archive: MadeArchive, tmp_path: Path) -> None:
    """Numbers follow each other: of each log the first and the last that exist show how many were put since."""

    def put(key: str, seconds: float) -> None:
        archive.store.put(key, b"x" * 100)
        os.utime(tmp_path / "store" / key, (NOW - seconds, NOW - seconds))

    for number, seconds in ((1_000, 1_000.0), (1_400, 600.0), (1_999, 0.0)):
        put(archive.keys.tail("1") + pack_name(number), seconds)
    put(archive.keys.tail("1") + "merged/1400-0011aabb", 300.0)
    put(archive.keys.tail("2.group") + pack_name(7), 500.0)
    parts = [part for part in counted(archive) if part.topic == OWN]
    packs = [part for part in parts if part.kind is ObjectKind.PACK]
    assert (sum(part.objects for part in packs), sum(part.size for part in packs)) == (5, 500)
    assert sum(part.monthly for part in packs) == pytest.approx((1.0 + 0.002) * 30 * DAY)


def test_ages_are_those_of_the_objects(archive: MadeArchive, tmp_path: Path) -> None:
    """An object at an edge is in the range that begins there; one of the future has no age."""
    for base, days in ((0, -3.0), (10, 0.5), (20, 7.0), (30, 200.0)):
        name = SegmentName(base)
        archive.store.put(archive.partition("t").segment(name), b"x" * 100)
        path = tmp_path / "store" / archive.partition("t").segment(name)
        os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    found: dict[float, Any] = {part.days: (part.objects, part.byte_days) for part in counted(archive)}
    assert found == {0.0: (2, pytest.approx(50)), 7.0: (1, pytest.approx(700)), 180.0: (1, pytest.approx(20_000))}


def test_objects_on_both_sides_of_a_least_size_are_counted_apart(archive: MadeArchive) -> None:
    """A class bills the smaller ones with that size."""
    for base, size in ((0, 131_071), (10, 131_072), (20, 500_000)):
        archive.store.put(archive.partition("t").segment(SegmentName(base)), b"x" * size)
    assert [(part.objects, part.size) for part in counted(archive)] == [(1, 131_071), (2, 631_072)]


def test_a_cluster_of_zeros_and_ones_is_distinguished_from_entropy(tmp_path: Path) -> None:
    """Of `1/1/t-0/` the first part is entropy and the second the cluster; `1/t-0/` has no entropy."""
    with (store := open_store(tmp_path.as_uri())):
        keys = ClusterKeys("1", 1)
        for partition in range(6):
            store.put(keys.partition(TopicPartition("t", partition)).segment(SegmentName(0)), b"x")
        assert {info.key[:4] for info in store.list()} == {"0/1/", "1/1/"}
        store.put(ClusterKeys("1").partition(TopicPartition("u", 0)).segment(SegmentName(0)), b"x")
        directories = list(find_directories(store, keys))
        assert sums(count(directories, PRICES, None, NOW), lambda part: part.objects) == {
            ("t", ObjectKind.LOG): 6,
            ("u", ObjectKind.LOG): 1,
        }
        store.delete([info.key for info in store.list()])
        store.put(ClusterKeys("1").incarnations("1"), b"{}")
        assert [topic for _, _, topic in find_directories(store, keys)] == [OWN, "1"]


class ManyObjects(WrappedStore):
    """A partition of many objects, made as they are listed."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List segments of one partition, and nothing else."""
        del start_after
        if prefix.endswith("/t-0/"):
            for number in range(_MANY):
                yield ObjectInfo(f"{prefix}{number:020d}.log", 1 << 20, f'"{number:032d}"', NOW - number)

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """List the directories of the partition."""
        yield "t-0/" if prefix else f"{CLUSTER}/"


def test_many_objects_need_no_memory(tmp_path: Path) -> None:
    """The sums of a partition are a few kilobytes; a list of its objects would be tens of megabytes."""
    archive = MadeArchive(tmp_path / "store")
    tracemalloc.start()
    try:
        parts = counted(archive, ManyObjects(archive.store, threads=1))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(part.objects for part in parts) == _MANY
    assert most < 1 << 20


def test_s3_lists_the_class_of_each_object(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half of an archive is in GLACIER_IR; its bill has both classes, and the least size of the second."""
    bucket = f"cost-{time.time_ns()}"
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    with closing(moto_server.client()) as s3:
        s3.create_bucket(Bucket=bucket)
        archive = MadeArchive(f"s3://{bucket}/base")
        for base in (0, 10):
            archive.put_segment("t", base, batches((base, base + 10)))
        archive.commit("t", 20, highest_base=10)
        key = f"base/{archive.partition('t').segment(SegmentName(0))}"
        s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": key}, StorageClass="GLACIER_IR")
        archive.store.close()
    run: Run = runner(capfd)
    ended = run("cost", "--url", f"s3://{bucket}/base", "--cluster", CLUSTER, "--json")
    assert ended.code == 0, ended.err
    parts = {(part["storage_class"], part["kind"]): part["objects"] for part in ended.document["usage"]}
    assert parts == {("STANDARD", "log"): 1, ("GLACIER_IR", "log"): 1, ("STANDARD", "other"): 2}
    lines = {(line["item"], line["storage_class"]): line["quantity"] for line in ended.document["lines"]}
    size = len(batches((0, 10)))
    assert lines["storage", "GLACIER_IR"] == pytest.approx(size / (1 << 30))
    assert lines["minimum size", "GLACIER_IR"] == pytest.approx((131_072 - size) / (1 << 30))
    ended = run("cost", "--url", f"s3://{bucket}/base", "--cluster", CLUSTER, "--class", "GLACIER_IR", "--json")
    once = {(line["item"], line["storage_class"]): line["quantity"] for line in ended.document["after"]["once"]}
    assert once == {("transition", "GLACIER_IR"): 1}
