"""A live tail continues the archive: it is read like closed segments, and Kafka has what follows."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from dev.local.kafka.cluster import Record
from dev.local.waiting import wait_for
from tests.consumer.archives import Both, fill, in_directory, offsets_of, place, read_until, ship
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry
from tests.transactions import COMMIT, data, ended
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.tail_logs import TailLogs
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_consumer import TieredConsumer, TierMode, archive_tier
from ts_consumer.configuration import parse_configuration

TOPIC = "clicks"
FIRST = TopicPartition(TOPIC, 0, 0)


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """A closed segment `[0, 100)`, and its commit with a tail."""
    made = in_directory(tmp_path)
    made.put_segment(TOPIC, 0, batches(*steps(0, 100)))
    commit(made, 100)
    return made


@pytest.fixture
def _logs_are_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer reads the logs of packs once a second."""
    monkeypatch.setattr(archive_tier, "_LOGS_SECONDS", 0.05)


def commit(archive: MadeArchive, next_offset: int, topic: str = TOPIC, log: str = "1", **fields: Any) -> None:
    """Commit with a log of packs."""
    live = Live(log, (), EpochHistory(((0, next_offset),)))
    archive.commit(topic, next_offset, **{"live": live, "last_stable_offset": next_offset, **fields})


def alone(archive: MadeArchive, **more: str) -> TieredConsumer:
    """Return a consumer without a broker."""
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {**place(archive), "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY, "auto.offset.reset": "earliest"}
    return TieredConsumer({**config, "tiered.storage.refresh.ms": "100", **given})


@pytest.mark.usefixtures("_logs_are_read_soon")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_tail_is_read_after_closed_segments_and_so_is_a_later_pack(archive: MadeArchive, isolation: str) -> None:
    """The consumer waits at the end, and looks again after `tiered.storage.refresh.ms`."""
    tail = MadeTail(archive)
    tail.put(entry(archive, TOPIC, 95, batches((95, 100), (100, 110))))
    with alone(archive, isolation_level=isolation) as consumer:
        consumer.assign([FIRST])
        found = read_until(consumer, {0: 110})
        assert consumer.get_watermark_offsets(FIRST) == (0, 110)
        assert consumer.consume(1, 0.2) == []
        tail.put(entry(archive, TOPIC, 110, batches((110, 120))))
        assert offsets_of(read_until(consumer, {0: 120}, found)[0]) == list(range(120))


@pytest.mark.usefixtures("_logs_are_read_soon")
def test_read_committed_ends_at_the_last_stable_offset_of_the_tail(archive: MadeArchive) -> None:
    """A later pack has the marker."""
    tail = MadeTail(archive)
    tail.put(entry(archive, TOPIC, 100, batches((100, 105)) + data(105, 1000) + batches((106, 110)), stable=105))
    with alone(archive, isolation_level="read_committed") as consumer:
        consumer.assign([FIRST])
        found = read_until(consumer, {0: 105})
        assert consumer.consume(1, 0.2) == []
        tail.put(entry(archive, TOPIC, 110, ended(110, 1000, kind=COMMIT), stable=111))
        assert offsets_of(read_until(consumer, {0: 110}, found)[0]) == list(range(110))


def test_a_position_above_an_end_that_fell_waits(archive: MadeArchive) -> None:
    """An agent dropped the tail; the closed segment that follows has the offset again."""
    MadeTail(archive).put(entry(archive, TOPIC, 100, batches((100, 130))))
    with alone(archive) as consumer:
        consumer.assign([FIRST])
        found = read_until(consumer, {0: 130})
        archive.commit(TOPIC, 100, last_stable_offset=100)
        wait_for(lambda: consumer.get_watermark_offsets(FIRST) == (0, 100), "the end to fall")
        assert consumer.consume(1, 0.2) == []
        archive.put_segment(TOPIC, 100, batches((100, 140)))
        archive.commit(TOPIC, 140, highest_base=100, last_stable_offset=140)
        assert offsets_of(read_until(consumer, {0: 140}, found)[0]) == list(range(140))


def test_an_archive_without_a_tail_needs_no_look_at_packs(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs exist, and the commit names no log."""
    MadeTail(archive).put(entry(archive, TOPIC, 100, batches((100, 130))))
    archive.commit(TOPIC, 100, last_stable_offset=100)

    def refuse(*_: object) -> None:
        raise AssertionError("packs are looked for")

    monkeypatch.setattr(archive_tier, "TailLogs", refuse)
    with alone(archive) as consumer:
        consumer.assign([FIRST])
        assert offsets_of(read_until(consumer, {0: 100})[0]) == list(range(100))
        assert consumer.consume(1, 0.2) == []


def test_partitions_that_wait_look_at_a_log_once_a_second(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and however often they look at their commits."""
    for partition in range(1, 5):
        archive.put_segment(TOPIC, 0, batches(*steps(0, 100)), partition=partition)
        commit(archive, 100, partition=partition)
    MadeTail(archive).put(entry(archive, TOPIC, 100, batches((100, 110))))
    made, now = list[object](), [1000.0]

    class Counted(TailLogs):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(archive_tier, "TailLogs", Counted)
    monkeypatch.setattr(archive_tier, "monotonic", lambda: now[0])
    given = {**place(archive), "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY}
    tier = archive_tier.ArchiveTier(parse_configuration(given))

    def look() -> int:
        for partition in [*range(5)] * 3:
            found = tier.look(archive.partition(TOPIC, partition).partition)
            assert found is not None
            assert found.extent.end == (100 if partition else 110)
        return len(made)

    first = look()
    now[0] += 1.0
    assert look() == first + 1


def test_kafka_follows_the_tail_without_a_seam(both: Both) -> None:
    """Kafka's log starts inside the tail: each record arrives once, with every field as the plain client has it."""
    topic, log = "tailed", "7"
    fill(both.cluster, topic, partitions=1, rounds=2)
    (shipped,) = ship(both.archive, both.cluster, topic, partitions=1)
    directory = both.cluster.brokers[1].partition_directory(topic, 0)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    active = whole_batches((directory / f"{bases[-1]:020d}.log").read_bytes())
    made = entry(both.archive, topic, shipped, active)
    commit(both.archive, shipped, topic, log, highest_base=bases[-2])
    MadeTail(both.archive, log).put(made)
    end = made[0].end
    both.cluster.produce(topic, [Record(b"after the tail")] * 5, partition=0)
    rows = both.plain_rows(topic, [both.cluster.latest(topic, 0)])
    both.cluster.delete_records(topic, {0: (shipped + end) // 2})
    for mode in (TierMode.KAFKA_PREFERRED, TierMode.TIERED_STORAGE_PREFERRED):
        with both.consumer(mode, f"tail-{mode}", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = read_until(consumer, {0: rows[0][-1][2] + 1})
            statistics = consumer.tier_statistics()
        assert found == rows, mode
        assert statistics is not None
        assert statistics.archive_records == len([row for row in rows[0] if row[2] < end]), mode


def whole_batches(data: bytes) -> bytes:
    """Return the batches of an active segment, without the zeros that follow."""
    position = 0
    while isinstance(header := parse_header(data, position, len(data) - position), BatchHeader):
        position += header.size_in_bytes
    return data[:position]
