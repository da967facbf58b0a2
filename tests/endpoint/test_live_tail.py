"""A process of the endpoint with a live tail, read by a real client."""

from pathlib import Path
from time import monotonic

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.endpoint.running import running
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory

SECONDS = 60.0
FETCHES = 'ts_endpoint_requests_total{kind="FETCH"}'


def commit(archive: MadeArchive, next_offset: int, *, has_tail: bool = True, highest_base: int = 0) -> None:
    """Commit, with or without the log of broker 1."""
    live = Live("1", (), EpochHistory(((0, next_offset),))) if has_tail else None
    archive.commit("t", next_offset, live=live, last_stable_offset=next_offset, highest_base=highest_base)


def read_to(consumer: Consumer, end: int) -> list[int]:
    """Return the offsets that arrive, up to below an end."""
    found, deadline = list[int](), monotonic() + SECONDS
    while not found or found[-1] < end - 1:
        assert monotonic() < deadline, found
        for message in consumer.consume(100, 0.05):
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            if error is None:
                offset = message.offset()
                assert offset is not None
                found.append(offset)
    return found


def test_librdkafka_follows_a_tail_and_waits_where_its_end_falls(tmp_path: Path) -> None:
    """It resets to no other offset while its position is above the high watermark, and reads each record once."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    commit(archive, 100)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 100, batches((100, 110))))
    with running(archive.location, tmp_path, options=["--groups", "memory", "--refresh", "1"]) as (process,):
        process.wait_until_ready()
        consumer = Consumer(
            {
                "bootstrap.servers": process.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        assert read_to(consumer, 110) == list(range(110))
        tail.put(entry(archive, "t", 110, batches((110, 120))))
        assert read_to(consumer, 120) == list(range(110, 120))
        commit(archive, 100, has_tail=False)
        deadline = monotonic() + SECONDS
        while consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)[1] != 100:
            assert monotonic() < deadline
            assert all(message.error() is not None for message in consumer.consume(10, 0.05))
        fetches = process.metric(FETCHES)
        while process.metric(FETCHES) < fetches + 5:  # above the high watermark
            assert monotonic() < deadline
            events = [message.error() for message in consumer.consume(10, 0.05)]
            assert {None if event is None else event.code() for event in events} <= {KafkaError._PARTITION_EOF}
        archive.put_segment("t", 100, batches((100, 140)))
        commit(archive, 140, highest_base=100)
        assert read_to(consumer, 140) == list(range(120, 140))
        consumer.close()
