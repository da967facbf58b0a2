"""Produces with three producers in turn, one codec each, so that each partition has batches of all three."""

from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import Producer

from dev.demo.journal import Journal
from dev.demo.records import Day
from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.topics import Record

CODECS = ("lz4", "zstd", "gzip")

_TURNS = 60
_POLL_EVERY = 250  # records
_DELIVERY_SECONDS = 60


def produce(cluster: LocalCluster, topic: str, day: Day, journal: Journal, moment: Callable[[], None]) -> None:
    """Produce a day's views, and return when all are acknowledged and in the journal.

    A turn ends with its last acknowledgement and idempotent producers keep their order, so timestamps never fall as
    offsets rise.

    Args:
        topic: the topic; the key chooses the partition.
        day: the views.
        journal: receives the acknowledgements.
        moment: called often, to show the progress.

    Raises:
        NotDeliveredError: a record was rejected or not acknowledged within a minute.
    """
    producers = [
        cluster.producer(
            {
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.size": 65_536,
                "message.timeout.ms": _DELIVERY_SECONDS * 1000,
            }
        )
        for codec in CODECS
    ]
    turn_size = max(1000, -(-day.count // _TURNS))
    try:
        for turn, first in enumerate(range(0, day.count, turn_size)):
            views = map(day.view, range(first, min(first + turn_size, day.count)))
            _send(producers[turn % len(producers)], topic, views, journal, moment)
    finally:
        for producer in producers:  # on Ctrl-C: drop what was not acknowledged
            producer.purge()


def close_segments(cluster: LocalCluster, topic: str, day: Day, partitions: Iterable[int], journal: Journal) -> None:
    """Produce one record in each partition, which begins a new segment and closes the previous one."""
    records = map(day.closing, partitions)
    _send(cluster.producer({"enable.idempotence": True}), topic, records, journal, lambda: None)


def _send(
    producer: Producer, topic: str, records: Iterable[Record], journal: Journal, moment: Callable[[], None]
) -> None:
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    on_delivery=partial(journal.acknowledged, record),
                    timestamp=record.timestamp or 0,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
            moment()
    while producer.flush(0.2):  # ends at the delivery timeout if the broker does not answer
        moment()
    moment()
