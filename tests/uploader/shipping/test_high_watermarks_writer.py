"""The ends of what a broker leads, as its agent writes them to each store."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dev.local.waiting import wait_for
from tests.uploader.local_directory import LocalDirectory
from tests.uploader.tracking.messages import LEADERSHIP, LOG_DIR, TP, listing, watermarks
from ts_common.archive.catalog import StoredLogStart
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.high_watermarks import End, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.positions import Idle, Positions, Row
from ts_common.config.cluster_config import OffsetReset
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_uploader.messages.observations import HighWatermarks, Led, NotLed
from ts_uploader.messages.tasks import Position
from ts_uploader.metrics.counters import Metrics
from ts_uploader.shipping.high_watermarks_writer import HighWatermarksWriter, ends_in
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.tracker import Tracker

KEYS = ClusterKeys("prod", 5)
ORDERS, CLICKS, UNKNOWN = (TopicPartition(topic, 0) for topic in ("orders", "clicks", "unknown"))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, ObjectStore]]:
    """Topics in two places."""
    for name in ("orders", "clicks"):
        (tmp_path / name).mkdir()
    with open_store((tmp_path / "orders").as_uri()) as orders, open_store((tmp_path / "clicks").as_uri()) as clicks:
        yield {"orders": orders, "clicks": clicks}


def waiting(local: LocalDirectory, high_watermark: int | None, counted_at: int | None) -> Backlog:
    return Backlog(local.listing(), None, 0, None, None, False, None, high_watermark, counted_at)


def writer(
    backlog: Mapping[TopicPartition, Backlog], places: Mapping[str, ObjectStore], metrics: Metrics, every: float = 300
) -> HighWatermarksWriter:
    def store_of(topic: str) -> ObjectStore:
        if topic not in places:
            raise ConfigurationError("places", [f"{topic} has none"])
        return places[topic]

    return HighWatermarksWriter(KEYS, 7, lambda: backlog, store_of, metrics, every_seconds=every)


def test_each_place_gets_the_ends_of_its_topics(places: dict[str, ObjectStore], local: LocalDirectory) -> None:
    """A partition without a counted high watermark, or without a location, is left out; the object is overwritten."""
    backlog = {
        ORDERS: waiting(local, 42, 1_700_000_000_123_456_789),
        CLICKS: waiting(local, 5, 1_700_000_000_000_000_000),
        UNKNOWN: waiting(local, 5, 1),
        TopicPartition("orders", 1): waiting(local, None, None),
    }
    metrics = Metrics()
    ends = writer(backlog, places, metrics)
    ends.write()
    found = read_ends(places["orders"], KEYS, 7)
    assert found is not None
    assert (found.broker, found.partitions) == (7, {ORDERS: End(42, 1_700_000_000_123)})
    clicks = read_ends(places["clicks"], KEYS, 7)
    assert clicks is not None
    assert clicks.partitions == {CLICKS: End(5, 1_700_000_000_000)}
    assert writer({}, places, metrics).written(CLICKS) == End(5, 1_700_000_000_000)
    assert writer({}, places, metrics).written(TopicPartition("clicks", 1)) is None
    places["clicks"].put(KEYS.ends_of(7), b"damaged")
    assert writer({}, places, metrics).written(CLICKS) is None
    backlog[ORDERS] = waiting(local, 43, 1_700_000_005_000_000_000)
    ends.write()
    found = read_ends(places["orders"], KEYS, 7)
    assert found is not None
    assert found.partitions == {ORDERS: End(43, 1_700_000_005_000)}


def test_where_nothing_is_led_nothing_is_written(places: dict[str, ObjectStore], local: LocalDirectory) -> None:
    """A broker without partitions in a location writes nothing there."""
    writer({ORDERS: waiting(local, 42, 1)}, places, Metrics()).write()
    assert list(places["clicks"].list()) == []
    writer({}, places, Metrics()).write()
    assert {info.key for info in places["orders"].list()} == {KEYS.ends_of(7), KEYS.positions_of(7)}


def test_positions_are_written_and_read_at_the_next_start(
    places: dict[str, ObjectStore], local: LocalDirectory
) -> None:
    """A row that still defers a read stays; one of a partition that is not led any more is dropped."""
    commit = Commit(0, 100, 3, EpochHistory(((3, 0),)), 100, "5fWnyHqTQDqQDqQDqQDqQA", 7, 0, "0011")
    start = StoredLogStart(LogStart(0), '"s"')
    known = Position(KEYS.partition(ORDERS), 0, 100, 0, commit.epochs, '"e"', commit, start=start)
    led = replace(waiting(local, 120, 1), position=known)
    moved = TopicPartition("orders", 1)
    first = writer({ORDERS: led, moved: replace(led, position=replace(known, gaps=((0, 50),)))}, places, Metrics())
    assert first.read_idle(places.values()) == {}
    first.write()
    rows = {ORDERS: Row(commit.encode().decode(), '"e"', f"{0:020d}\n", '"s"', False, 0)}
    assert stored(places) == rows | {moved: replace(rows[ORDERS], has_gaps=True)}
    deferred = {ORDERS: replace(waiting(local, 120, 1), is_deferred=True), CLICKS: waiting(local, 5, 1)}
    second = writer(deferred, places, Metrics())
    assert second.read_idle(places.values()) == {ORDERS: Idle(3, "5fWnyHqTQDqQDqQDqQDqQA", 100)}
    for _ in range(2):
        second.write()
        assert stored(places) == rows
    places["orders"].put(KEYS.positions_of(7), b"damaged")
    assert writer(deferred, places, Metrics()).read_idle(places.values()) == {}


def test_without_conditional_writes_there_are_no_positions(
    places: dict[str, ObjectStore], local: LocalDirectory
) -> None:
    """Nothing would reject the write of an agent whose row is old."""
    ends = HighWatermarksWriter(
        KEYS, 7, lambda: {ORDERS: waiting(local, 42, 1)}, lambda _: places["orders"], Metrics(), lambda: False
    )
    ends.write()
    assert [info.key for info in places["orders"].list()] == [KEYS.ends_of(7)]
    Positions(7, 0, {}).put(places["orders"], KEYS)
    assert ends.read_idle(places.values()) == {}


def stored(places: Mapping[str, ObjectStore]) -> Mapping[TopicPartition, Row]:
    found = Positions.load(places["orders"], KEYS, 7)
    assert found is not None
    return found.partitions


def test_a_store_that_accepts_no_ends_is_counted_and_the_others_receive_theirs(
    places: dict[str, ObjectStore], local: LocalDirectory, tmp_path: Path
) -> None:
    """Nothing else depends on it."""
    (tmp_path / "orders").rmdir()
    metrics = Metrics()
    backlog = {ORDERS: waiting(local, 42, 1), CLICKS: waiting(local, 5, 1)}
    writer(backlog, places, metrics).write()
    assert read_ends(places["clicks"], KEYS, 7) is not None
    counted = metrics.registry.get_sample_value(
        "ts_uploader_errors_total", {"operation": "WriteEnds", "reason": "bucket_missing"}
    )
    assert counted == 1


def test_ends_are_written_repeatedly_until_the_writer_is_closed(
    places: dict[str, ObjectStore], local: LocalDirectory
) -> None:
    """On a thread of its own, which ends with the agent."""
    ends = writer({ORDERS: waiting(local, 42, 1)}, places, Metrics(), every=0.02)
    thread = threading.Thread(target=ends.run)
    thread.start()

    def etags() -> set[str]:
        return {info.etag for info in places["orders"].list(KEYS.ends)}

    try:
        first = wait_for(etags, "the ends to be written")
        wait_for(lambda: etags() - first, "the ends to be written again")
    finally:
        ends.close()
        thread.join(30)
    assert not thread.is_alive()


def test_only_a_high_watermark_that_counts_is_an_end() -> None:
    """Not before the second file of this leadership, with that file's time, and not when the leadership is over."""
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(listing(0, 100))
    assert ends_in(tracker.backlog()) == {}
    watermarks(tracker, 80)
    counted = ends_in(tracker.backlog())[TP]
    assert counted.high_watermark == 80
    later = HighWatermarks(LOG_DIR, ((1, 9_000_000_000_000, 0), 1), {("t", 0): 90})
    tracker.observe(later)
    assert ends_in(tracker.backlog()) == {TP: End(90, 9_000_000)}
    tracker.observe(replace(later, file=((1, 9_001_000_000_000, 0), 1), offsets={}))
    assert ends_in(tracker.backlog()) == {}
    tracker.observe(later)
    tracker.observe(NotLed(TP))
    assert ends_in(tracker.backlog()) == {}
