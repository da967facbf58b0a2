"""The topics that clients read while they are recorded, and that replays read: the same offsets each time.

| topic | what |
| --- | --- |
| recorded-tx | two partitions, three producers with interleaved transactions, some of them aborted; several segments |
| recorded-open | one transaction is open, another one was aborted before |
| recorded-plain | three partitions with every field of a record, compressed with gzip; the last one is empty |
| recorded-codecs | the other codecs |
| recorded-compacted | the cleaner has compacted it |
"""

import random
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from confluent_kafka import Producer

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.waiting import wait_for
from tests.every_field import TIME
from tests.made_archive import MadeArchive

PREFIX: Final = "recorded-"
TX, OPEN, PLAIN, CODECS, COMPACTED = (f"{PREFIX}{name}" for name in ("tx", "open", "plain", "codecs", "compacted"))
PARTITIONS: Final = {TX: 2, OPEN: 1, PLAIN: 3, CODECS: 1, COMPACTED: 1}
TOPICS: Final = tuple(PARTITIONS)
WITH_GZIP_ALONE: Final = tuple(topic for topic in TOPICS if topic != CODECS)  # what kafkajs decompresses by itself
_SMALL: Final = {"segment.bytes": "8000", "index.interval.bytes": "1000"}
OPENED: Final = 22  # where the open transaction begins
_SECONDS: Final = 60.0
_STEPS: Final = 36


def fill(cluster: LocalCluster) -> Producer:
    """Create and fill the topics; return the producer whose transaction is open; keep it."""
    cleaned = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    for topic, partitions in PARTITIONS.items():
        cluster.create_topic(topic, partitions=partitions, config=cleaned if topic == COMPACTED else _SMALL)
    cluster.produce(COMPACTED, [_record(n, key=n % 9) for n in range(120)], partition=0, config=_batches_of(6))
    # The cleaner keeps the active segment, and the last batch of a live producer.
    cluster.produce(
        COMPACTED, [_record(n, key=100 + n, size=900) for n in range(12)], partition=0, config=_batches_of(1)
    )
    for partition in range(2):
        config = {**_batches_of(7), "compression.type": "gzip"}
        cluster.produce(PLAIN, [_record(n) for n in range(150 + partition)], partition=partition, config=config)
    for codec in ("none", "snappy", "lz4", "zstd"):
        config = {**_batches_of(5), "compression.type": codec}
        cluster.produce(CODECS, [_record(n) for n in range(30)], partition=0, config=config)
    _interleave(cluster)
    producer = _leave_open(cluster)
    _wait_for_the_cleaner(cluster)
    return producer


def ship(cluster: LocalCluster, archive: MadeArchive) -> None:
    """Put all segments of the topics into an archive, the active ones too, so that it has the broker's own ends."""
    broker = cluster.brokers[1]
    for topic in TOPICS:
        archive.put_incarnations(topic, _printed_id(cluster, topic))
    places = [(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]
    with ThreadPoolExecutor(len(places)) as pool:  # the directory waits for the disk
        list(
            pool.map(
                lambda place: archive.ship_whole(
                    broker.partition_directory(*place), OPENED if place[0] == OPEN else None
                ),
                places,
            )
        )


def topic_id(cluster: LocalCluster, topic: str) -> UUID:
    """Return the topic's id."""
    return UUID(bytes=urlsafe_b64decode(f"{_printed_id(cluster, topic)}=="))


def _printed_id(cluster: LocalCluster, topic: str) -> str:
    lines = (cluster.brokers[1].partition_directory(topic, 0) / "partition.metadata").read_text().splitlines()
    return dict(line.split(": ") for line in lines)["topic_id"]


def _record(number: int, *, key: int | None = None, size: int | None = None) -> Record:
    value = None if number % 7 == 0 and size is None else b"%d" % number * (size or number % 20)
    headers: Sequence[tuple[str, bytes | None]] = [("h", b"%d" % number), ("h", b"")] if number % 3 == 0 else []
    return Record(value, b"key-%d" % (number if key is None else key), headers, timestamp=TIME + number * 1000)


def _batches_of(count: int) -> dict[str, object]:
    return {"batch.num.messages": count, "linger.ms": 100, "enable.idempotence": False}


def _interleave(cluster: LocalCluster) -> None:
    """Run three producers; a transaction that begins first often ends last."""
    draw = random.Random(1)
    producers = [cluster.producer({"transactional.id": f"{TX}-{n}", "linger.ms": 5}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(_SECONDS)
    began: set[int] = set()
    for step in range(_STEPS):
        which = draw.randrange(3)
        producer = producers[which]
        if which not in began:
            producer.begin_transaction()
            began.add(which)
        for partition in range(2):
            for n in range(draw.randrange(1, 6)):
                value = b"%d-%d-%d" % (which, step, n) * draw.randrange(1, 30)
                producer.produce(TX, value, b"key-%d" % n, partition=partition, timestamp=TIME + step * 1000)
        producer.flush(_SECONDS)
        if draw.random() < 0.45 or step >= _STEPS - 3:
            end = producer.abort_transaction if draw.random() < 0.6 else producer.commit_transaction
            end(_SECONDS)
            began.discard(which)
    for which in began:
        producers[which].abort_transaction(_SECONDS)
    for which in (0, 1):  # the first to begin is the last to abort, so markers and first offsets differ in order
        producers[which].begin_transaction()
        producers[which].produce(TX, b"late" if which == 0 else b"early", partition=1, timestamp=TIME)
        producers[which].flush(_SECONDS)
    for which in (1, 0):
        producers[which].abort_transaction(_SECONDS)
    cluster.produce(TX, [_record(n) for n in range(3)], partition=1)


def _leave_open(cluster: LocalCluster) -> Producer:
    cluster.produce(OPEN, [_record(n) for n in range(20)], partition=0)
    producer = cluster.producer({"transactional.id": OPEN, "transaction.timeout.ms": 900_000})
    producer.init_transactions(_SECONDS)
    for ends in (True, False):
        producer.begin_transaction()
        producer.produce(OPEN, b"hidden", partition=0, timestamp=TIME)
        producer.flush(_SECONDS)
        if ends:
            producer.abort_transaction(_SECONDS)
    cluster.produce(OPEN, [_record(n) for n in range(10)], partition=0)
    return producer


def _wait_for_the_cleaner(cluster: LocalCluster) -> None:
    """Wait until the cleaner has reached the active segment."""
    directory = cluster.brokers[1].partition_directory(COMPACTED, 0)
    checkpoint = cluster.brokers[1].log_dirs[0] / "cleaner-offset-checkpoint"
    active = max(int(path.stem) for path in directory.glob("*.log"))
    wait_for(
        lambda: checkpoint.exists() and f"{COMPACTED} 0 {active}" in checkpoint.read_text().splitlines(),
        "the cleaner to reach the active segment",
        _SECONDS,
    )
