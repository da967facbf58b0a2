"""Reading the broker's files does not change the page cache.

The files are next to those of the local clusters, below the checkout: on a tmpfs, as /tmp may be, no page is ever cold.
A host that is short of memory evicts pages at any time, and keeps one for a moment before: hence `NOISE`.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog

from dev.local.cached_pages import PAGE_BYTES, cache, cached_pages, uncache
from tests.common.log_format import build
from tests.uploader.local_directory import KEYS, TP, LocalDirectory
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore
from ts_uploader.log_dirs import page_cache
from ts_uploader.log_dirs.local_log import largest_timestamp, last_index_entries, read_indexes
from ts_uploader.log_dirs.segment_file import open_log, read_file
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import Ship
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.uploader import Uploader

PAGES = 1500  # six blocks of the reader's, the last one a part
_ATTEMPTS = 20
NOISE = PAGES // 100
BUILD = Path(__file__).parents[3] / "build"


@pytest.fixture
def local() -> Iterator[LocalDirectory]:
    """As the folder's, on a disk."""
    BUILD.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=BUILD, prefix="page-cache-") as directory:
        yield LocalDirectory(Path(directory))


@pytest.fixture
def cold(local: LocalDirectory) -> LocalDirectory:
    """One closed segment of some MiB without a cached page, and the active one after it."""
    value = random.Random(7).randbytes(60_000)
    batches, offset, size = [], 0, 0
    while size < PAGES * PAGE_BYTES:
        batches.append(build.batch(offset, [build.record(0, value=value)]))
        size += len(batches[-1])
        offset += 1
    local.write(0, b"".join(batches))
    (local.path / f"{0:020d}.index").write_bytes(bytes(20 * PAGE_BYTES))
    (local.path / f"{0:020d}.timeindex").write_bytes(bytes(12 * 3 * PAGE_BYTES))
    local.write(offset, b"")
    for path in local.path.iterdir():
        uncache(path)
    return local


def log_of(local: LocalDirectory) -> Path:
    return local.path / f"{0:020d}.log"


def ship(local: LocalDirectory, store: ObjectStore) -> None:
    listing = local.listing()
    task = Ship(TP, 0, Leadership(1, None, 0), KEYS, listing, 0, listing.bases[1])
    assert Uploader(lambda _: store, lambda _: TopicRetention()).ship(task).bytes_sent > PAGES * PAGE_BYTES


def test_of_a_cold_segment_nothing_stays(cold: LocalDirectory, store: ObjectStore) -> None:
    """Log and indexes are shipped, and not one page of them is cached afterwards."""
    files = [cold.path / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    ship(cold, store)
    assert all(sum(cached_pages(file)) <= most for file, most in zip(files, (NOISE, 2, 2), strict=True))


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param([(0, PAGES // 2)], id="first half"),
        pytest.param([(PAGES // 2 + 3, PAGES)], id="second half"),
        pytest.param([(0, PAGES + 100)], id="all"),
        pytest.param([(start, start + 11) for start in range(5, PAGES, 40)], id="pieces"),
    ],
)
def test_what_the_broker_had_cached_stays_to_the_page(
    cold: LocalDirectory, store: ObjectStore, ranges: Sequence[tuple[int, int]]
) -> None:
    """Those pages are cached after shipping that were before: none fewer, and none more."""
    log, beside = log_of(cold), cold.path / "beside"
    beside.write_bytes(bytes(PAGES * PAGE_BYTES))
    for _ in range(_ATTEMPTS):
        uncache(log)
        cache(beside, 0, PAGES * PAGE_BYTES)
        for start, end in ranges:
            cache(log, start * PAGE_BYTES, end * PAGE_BYTES)
        before = cached_pages(log)
        ship(cold, store)
        after = cached_pages(log)
        assert sum(now > was for was, now in zip(before, after, strict=True)) <= NOISE
        wanted = min(PAGES, sum(end - start for start, end in ranges)) - 11
        if sum(before) >= wanted and sum(cached_pages(beside)) >= PAGES - 5:
            assert sum(now < was for was, now in zip(before, after, strict=True)) <= NOISE
            return
        store.delete([info.key for info in store.list()])  # the host is short of memory and evicted pages by itself
    pytest.fail("the host never left a file alone that nobody opens")


def test_a_segment_is_read_from_the_disk_once_for_scan_and_upload(cold: LocalDirectory) -> None:
    """Pages that the scan added stay until the file is closed, and are dropped then."""
    log = log_of(cold)
    with open_log(cold.path, 0) as opened:
        scan_segment(opened.reader(), opened.size)
        assert sum(cached_pages(log)) >= len(cached_pages(log)) - NOISE
        reader = opened.reader()
        while reader.read(100_000):
            pass
        assert sum(cached_pages(log)) >= len(cached_pages(log)) - NOISE
    assert sum(cached_pages(log)) <= NOISE


def queries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the positions of queries, which are added as they are sent."""
    asked: list[int] = []

    def counting(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            asked.append(position)
        return preadv(descriptor, buffers, position, flags)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", counting)
    return asked


def test_a_cached_segment_is_queried_once_and_rarely(cold: LocalDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is read, a page in thirty at most is queried: queries cost as much as reads."""
    cache(log_of(cold), 0, log_of(cold).stat().st_size)
    asked = queries(monkeypatch)
    with open_log(cold.path, 0) as opened:
        for _ in range(3):
            reader = opened.reader()
            while reader.read(100_000):
                pass
    assert 2 <= len(asked) <= PAGES // 30


def test_pages_that_were_cached_before_are_not_dropped_if_they_were_evicted_meanwhile(cold: LocalDirectory) -> None:
    """A second read restores the pages that the host evicted in between, since they were cached at first."""
    log = log_of(cold)
    cache(log, 0, PAGES * PAGE_BYTES)
    with open_log(cold.path, 0) as opened:
        for _ in range(2):
            reader = opened.reader()
            while reader.read(100_000):
                pass
            uncache(log)
        opened.reader().read()
    assert sum(cached_pages(log)) >= PAGES - NOISE


def test_a_look_at_one_place_reads_little_else(cold: LocalDirectory) -> None:
    """A header in the middle of a segment costs the pages around it, whatever the disk's read-ahead is."""
    with open_log(cold.path, 0) as opened:
        opened.read_at(700 * PAGE_BYTES, 61)
        assert 1 <= sum(cached_pages(log_of(cold))) <= 2 * page_cache._SAMPLE_PAGES + 1
    assert sum(cached_pages(log_of(cold))) <= 2


def test_a_walk_over_the_headers_of_a_cold_segment_reads_each_page_once(cold: LocalDirectory) -> None:
    """Pages of small ranges stay until the file is closed. Those that were cached before stay after it too."""
    log = log_of(cold)
    data = log.read_bytes()
    uncache(log)
    cache(log, 0, 20 * PAGE_BYTES)
    with open_log(cold.path, 0) as opened:
        for position in range(0, 40 * PAGE_BYTES, 500):
            assert opened.read_at(position, 61) == data[position : position + 61]
        assert sum(cached_pages(log)[:40]) >= 40 - NOISE
    cached = cached_pages(log)
    assert sum(cached[:20]) >= 20 - NOISE
    assert sum(cached[20:]) <= NOISE


def test_a_disk_that_answers_within_the_query_does_not_make_pages_the_brokers(
    cold: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reads a missing page that is queried; each query here returns after that."""

    def patient(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            with suppress(BlockingIOError):
                return preadv(descriptor, buffers, position, flags)
        return preadv(descriptor, buffers, position)

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", patient)
    with open_log(cold.path, 0) as opened:
        opened.reader().read()
    assert sum(cached_pages(log_of(cold))) <= NOISE


def test_what_the_disk_still_reads_for_a_cut_upload_does_not_stay(local: LocalDirectory) -> None:
    """Forty files are closed at their first byte, each while the kernel reads the block ahead."""
    block = random.Random(7).randbytes(1 << 20)
    bases = range(40)
    for base in bases:
        local.write(base, block)
    logs = [local.path / f"{base:020d}.log" for base in bases]
    for log in logs:
        uncache(log)
    for base in bases:
        with open_log(local.path, base) as opened:
            opened.reader().read(1)
    assert sum(sum(cached_pages(log)) for log in logs) <= len(logs)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (".index", read_indexes),
        (".index", last_index_entries),
        (".timeindex", largest_timestamp),
    ],
)
def test_small_looks_at_indexes_leave_no_page(
    cold: LocalDirectory, name: str, read: Callable[[Path, int], object]
) -> None:
    """Indexes are read in whole or at their end, and the pages go back."""
    read(cold.path, 0)
    assert sum(cached_pages(cold.path / f"{0:020d}{name}")) <= 2


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_small_file_is_cached_after_a_read_as_before(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch, *, is_cached: bool
) -> None:
    """One query reads each of the two files of a listed directory. Their page stays only if it was there."""
    files = [local.path / f"leader-epoch-checkpoint.{number}" for number in range(40)]
    for file in files:
        file.write_text("0\n1\n3 0\n")
        uncache(file)
        if is_cached:
            cache(file, 0, PAGE_BYTES)
    asked = queries(monkeypatch)
    assert {read_file(file) for file in files} == {b"0\n1\n3 0\n"}
    assert len(asked) == len(files)
    cached = sum(sum(cached_pages(file)) for file in files)
    assert cached >= 38 if is_cached else cached <= 2


def test_no_page_is_dropped_where_the_kernel_cannot_report_cached_pages(
    cold: LocalDirectory, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the kernel rejects the query, segments are shipped all the same, and the log reports it once."""
    monkeypatch.setattr(os, "RWF_NOWAIT", 0x4000_0000)  # a flag that no file system supports
    monkeypatch.setattr(page_cache, "_told", type(page_cache._told)())
    cache(log_of(cold), 0, 100 * PAGE_BYTES)
    with structlog.testing.capture_logs() as logs:
        ship(cold, store)
    assert sum(cached_pages(log_of(cold))[:100]) >= 100 - NOISE
    assert [event["log_level"] for event in logs if event["event"] == "page_cache_not_released"] == ["warning"]
