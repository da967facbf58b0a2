"""Counts objects by topic, class, kind and age, and living bytes, from a store."""

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
from tests.tsctl.running import Run, runner
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.cost.listing import Measure, count, find_directories
from tsctl.cost.usage import OWN, Kind, Part, Usage, edges_of

NOW = 1_800_000_000.0
DAY = 86_400.0
_MANY = 20_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "store", entropy_bits=3)


def counted(archive: MadeArchive, now: float = NOW, store: ObjectStore | None = None) -> tuple[Usage, list[str]]:
    """Return what an archive holds, and the warnings."""
    warnings: list[str] = []
    measure = Measure(edges_of([]), (1000,), "STANDARD", now)
    directories = list(find_directories(store or archive.store, archive.keys))
    return count(directories, archive.keys, measure, warn=warnings.append), warnings


def sums(usage: Usage, value: Callable[[Part], float]) -> dict[tuple[str, Kind], float]:
    """Return a number by topic and kind."""
    found: dict[tuple[str, Kind], float] = {}
    for part in usage.parts:
        found[part.topic, part.kind] = found.get((part.topic, part.kind), 0) + value(part)
    return found


def test_every_object_of_a_cluster_counts_once(archive: MadeArchive) -> None:
    """Of segments, marks and caches, of earlier incarnations, of a topic `t-0`, of the cluster; of no other cluster."""
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
    usage, warnings = counted(archive)
    assert warnings == []
    assert sums(usage, lambda part: part.objects) == {
        ("t", Kind.LOG): 4,
        ("t", Kind.INDEX): 6,
        ("t", Kind.MARK): 3 * 2 + 1 + 1,
        ("t", Kind.CACHE): 1,
        ("t", Kind.OTHER): 1,
        ("t-0", Kind.MARK): 1,
        (OWN, Kind.CLUSTER): 2,
    }
    of_cluster = [info for info in archive.store.list() if f"{CLUSTER}/" in info.key]
    assert usage.total(lambda part: part.size) == sum(info.size for info in of_cluster)
    assert usage.total(lambda part: part.small[0][0]) == sum(info.size < 1000 for info in of_cluster)
    assert (usage.brokers, usage.entropy_bits, usage.partitions) == (1, 3, 4)


def test_living_bytes_are_between_log_start_and_commit(archive: MadeArchive) -> None:
    """A segment that begins below log start and ends above it is living, with its indexes and variants."""
    for base in range(0, 60, 10):
        archive.put_segment("t", base, batches((base, base + 10)), index=b"12345678")
    archive.put_segment("t", 20, batches((20, 30)), variant=True)
    archive.commit("t", 40, log_start=15)
    archive.put_segment("open", 0, batches((0, 10)))  # no commit yet
    usage, _ = counted(archive)
    logs = {info.key: info.size for info in archive.store.list(archive.partition("t").prefix) if ".log" in info.key}
    living = sum(size for key, size in logs.items() if "00000010." in key or "00000020." in key or "00000030." in key)
    assert sums(usage, lambda part: part.living) == {
        ("t", Kind.LOG): living,  # 10, 20 with its variant, 30
        ("t", Kind.INDEX): 3 * 8,
        ("t", Kind.MARK): 0,
        ("open", Kind.LOG): 0,
    }


def test_a_commit_that_cannot_be_read_is_a_warning(archive: MadeArchive) -> None:
    """All bytes of its partition count as living: doubt makes nothing look removable."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.store.put(archive.partition("t").commit, b"\xff\0{")
    usage, (warning,) = counted(archive)
    assert "all bytes of t-0 count as living" in warning
    assert usage.total(lambda part: part.living) == usage.total(
        lambda part: part.size, (part for part in usage.parts if part.kind is Kind.LOG)
    )


def test_ages_are_those_of_the_objects(archive: MadeArchive, tmp_path: Path) -> None:
    """An object at an edge is in the range that begins there; one of the future has no age."""
    for base, days in ((0, -3.0), (10, 0.5), (20, 7.0), (30, 200.0)):
        name = SegmentName(base)
        archive.store.put(archive.partition("t").segment(name), b"x" * 100)
        path = tmp_path / "store" / archive.partition("t").segment(name)
        os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    usage, _ = counted(archive)
    found: dict[float, Any] = {usage.edges[part.age]: (part.objects, part.byte_days) for part in usage.parts}
    assert found == {0.0: (2, pytest.approx(50)), 7.0: (1, pytest.approx(700)), 180.0: (1, pytest.approx(20_000))}
    assert usage.days == pytest.approx(200)


def test_an_old_mark_is_not_the_age_of_segments(archive: MadeArchive, tmp_path: Path) -> None:
    """Retention of a week leaves seven days of segments; a gap record of last year does not divide them by a month."""
    keys = archive.partition("t")
    archive.store.put(keys.gap(0, 10), b"{}")
    archive.store.put(keys.segment(SegmentName(10)), b"x")
    for key, days in ((keys.gap(0, 10), 400), (keys.segment(SegmentName(10)), 7)):
        os.utime(tmp_path / "store" / key, (NOW - days * DAY, NOW - days * DAY))
    usage, _ = counted(archive)
    assert [usage.days, usage.segment_days] == pytest.approx([400, 7])
    assert usage.to_month == pytest.approx(30 / 7)
    archive.store.delete([keys.segment(SegmentName(10))])
    usage, _ = counted(archive)
    assert (usage.segment_days, usage.to_month) == (None, 1)


def test_a_cluster_of_zeros_and_ones_is_distinguished_from_entropy(tmp_path: Path) -> None:
    """Of `1/1/t-0/` the first part is entropy and the second the cluster; `1/t-0/` has no entropy."""
    with (store := open_store(tmp_path.as_uri())):
        keys = ClusterKeys("1", 1)
        for partition in range(6):
            store.put(keys.partition(TopicPartition("t", partition)).segment(SegmentName(0)), b"x")
        assert {info.key[:4] for info in store.list()} == {"0/1/", "1/1/"}
        store.put(ClusterKeys("1").partition(TopicPartition("u", 0)).segment(SegmentName(0)), b"x")
        directories = list(find_directories(store, keys))
        usage = count(directories, keys, Measure(edges_of([]), (), "STANDARD", NOW), warn=pytest.fail)
        assert sums(usage, lambda part: part.objects) == {("t", Kind.LOG): 6, ("u", Kind.LOG): 1}
        store.delete([info.key for info in store.list()])
        store.put(ClusterKeys("1").incarnations("1"), b"{}")
        assert [each.topic for each in find_directories(store, keys)] == [OWN, "1"]


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
        usage, _ = counted(archive, store=ManyObjects(archive.store, threads=1))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert usage.total(lambda part: part.objects) == _MANY
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
    parts = {(part["storage_class"], part["kind"]): part["objects"] for part in ended.document["usage"]["parts"]}
    assert parts == {("STANDARD", "log"): 1, ("GLACIER_IR", "log"): 1, ("STANDARD", "mark"): 2}
    lines = {(line["item"], line["storage_class"]): line["quantity"] for line in ended.document["lines"]}
    size = len(batches((0, 10)))
    assert lines["storage", "GLACIER_IR"] == pytest.approx(size / (1 << 30))
    assert lines["minimum size", "GLACIER_IR"] == pytest.approx((131_072 - size) / (1 << 30))
    ended = run("cost", "--url", f"s3://{bucket}/base", "--cluster", CLUSTER, "--class", "GLACIER_IR", "--json")
    once = {(line["item"], line["storage_class"]): line["quantity"] for line in ended.document["after"]["once"]}
    assert once == {("transition", "GLACIER_IR"): 1}
