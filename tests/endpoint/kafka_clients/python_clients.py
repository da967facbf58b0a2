"""Clients in this process: librdkafka by confluent_kafka, aiokafka and kafka-python."""

import asyncio
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import aiokafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from dev.local.oracle import Isolation, OracleRecord
from tests.endpoint.kafka_clients.interface import SECONDS, ClientFailedError

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

Settings = Mapping[str, str | int | bool]


def librdkafka(bootstrap: str, isolation: Isolation = "read_uncommitted", settings: Settings | None = None) -> Consumer:
    """Return a consumer with librdkafka's own settings, in a new group, that returns the ends of partitions."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"matrix-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
            **(settings or {}),
        }
    )


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """Return the partitions of a topic.

    Raises:
        ClientFailedError: it does not exist.
    """
    found = consumer.list_topics(topic, SECONDS).topics[topic]
    if found.error is not None:
        raise ClientFailedError(f"{topic}: {found.error}")
    return sorted(found.partitions)


def by_assign(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    """Read with librdkafka's `assign`."""
    consumer = librdkafka(bootstrap, isolation)
    try:
        partitions = partitions_of(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return to_the_ends(consumer, len(partitions))
    finally:
        consumer.close()


def by_subscribe(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    """Read with librdkafka's `subscribe`, as the only member of a group, and commit."""
    consumer = librdkafka(bootstrap, isolation)
    try:
        partitions = partitions_of(consumer, topic)
        consumer.subscribe([topic])
        records = to_the_ends(consumer, len(partitions))
        if records:
            consumer.commit(asynchronous=False)
        return records
    finally:
        consumer.close()


def to_the_ends(consumer: Consumer, count: int) -> list[OracleRecord]:
    """Return the records of `count` partitions up to the end of each.

    Raises:
        ClientFailedError: librdkafka returned an error, or no end for `SECONDS`.
    """
    records: list[OracleRecord] = []
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + SECONDS
    while len(ended) < count:
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((str(message.topic()), int(message.partition() or 0)))
            else:
                raise ClientFailedError(f"{message.topic()}-{message.partition()}: {error}")
        if time.monotonic() > deadline:
            raise ClientFailedError(f"{len(records)} records and {len(ended)} of {count} ends in {SECONDS} s")
    return records


def up_to_an_error(bootstrap: str, topic: str, partition: int) -> tuple[list[OracleRecord], int | None]:
    """Return the records of a partition up to the first error of librdkafka, and its code; None at the end."""
    consumer = librdkafka(bootstrap)
    records: list[OracleRecord] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.consume(1, SECONDS)[0]
            error = message.error()
            if error is not None:
                return records, None if error.code() == KafkaError._PARTITION_EOF else error.code()
            records.append(record_of(message))
    finally:
        consumer.close()


def read_from(bootstrap: str, topic: str, partition: int, offsets: Sequence[int], count: int) -> list[list[int]]:
    """Return `count` offsets that librdkafka's consumer returns after each seek; fewer at the end."""
    consumer = librdkafka(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        consumer.consume(1, SECONDS)
        found: list[list[int]] = []
        for offset in offsets:
            consumer.seek(TopicPartition(topic, partition, offset))
            read: list[int] = []
            while len(read) < count:
                message = consumer.consume(1, SECONDS)[0]
                error = message.error()
                if error is None:
                    read.append(int(message.offset() or 0))
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
                else:
                    raise KafkaException(error)
            found.append(read)
        return found
    finally:
        consumer.close()


def offsets_for_times(bootstrap: str, topic: str, partition: int, times: Sequence[int]) -> list[int]:
    """Return librdkafka's offset for each time in ms; -1 (the end) where no record is so late."""
    consumer = librdkafka(bootstrap)
    try:
        return [
            found.offset
            for time_ in times
            for found in consumer.offsets_for_times([TopicPartition(topic, partition, time_)], SECONDS)
        ]
    finally:
        consumer.close()


def record_of(message: Message) -> OracleRecord:
    """Return a record of librdkafka, whose types of timestamps begin at 0 for none."""
    kind, milliseconds = message.timestamp()
    headers: Any = message.headers() or ()
    return OracleRecord(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp=milliseconds if kind else -1,
        timestamp_type=kind - 1,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in headers),
    )


def by_aiokafka(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    """Read with aiokafka's `assign`, from the first offset to the end, or to the last stable offset."""
    return asyncio.run(asyncio.wait_for(_aiokafka(bootstrap, topic, isolation), SECONDS))


async def _aiokafka(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False, auto_offset_reset="none"
    )
    await consumer.start()
    try:
        # Its metadata has no topic that it does not read, so it is assigned the first partition to learn the others.
        partitions = await _partitions(consumer, topic)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[OracleRecord] = []
        while True:
            for found in (await consumer.getmany(timeout_ms=100)).values():
                records += map(_of_python_client, found)
            left = [one for one in partitions if await consumer.position(one) < ends[one]]
            # With an open transaction the position stays at the last stable offset, which a reply of a fetch has.
            if isolation == "read_committed":
                stable = {one: consumer.last_stable_offset(one) for one in left}
                left = [one for one in left if (at := stable[one]) is None or await consumer.position(one) < at]
            if not left:
                return [record for record in records if record.offset < ends[_place(record)]]
    finally:
        await consumer.stop()


async def _partitions(consumer: Any, topic: str) -> list[Any]:
    consumer.assign([aiokafka.TopicPartition(topic, 0)])
    found = None
    while not found:
        found = consumer.partitions_for_topic(topic)
        await asyncio.sleep(0.01)
    return [aiokafka.TopicPartition(topic, partition) for partition in sorted(found)]


def by_kafka_python(bootstrap: str, topic: str, isolation: Isolation) -> list[OracleRecord]:
    """Read with kafka-python's `assign`, from the first offset to the end.

    Raises:
        ClientFailedError: the end was not reached in `SECONDS`.
    """
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="none",
    )
    try:
        found = consumer.partitions_for_topic(topic)
        partitions = [kafka.TopicPartition(topic, partition) for partition in sorted(found)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        records: list[OracleRecord] = []
        deadline = time.monotonic() + SECONDS
        while any(consumer.position(one) < ends[one] for one in partitions):
            for read in consumer.poll(timeout_ms=200).values():
                records += map(_of_python_client, read)
            if time.monotonic() > deadline:
                raise ClientFailedError(f"{topic}: {len(records)} records, the ends are {ends}")
        return [record for record in records if record.offset < ends[_place(record)]]
    finally:
        consumer.close()


def _place(record: OracleRecord) -> Any:
    return aiokafka.TopicPartition(record.topic, record.partition)


def _of_python_client(record: Any) -> OracleRecord:
    """Return a record of aiokafka or kafka-python; both have None for what a record of magic 0 lacks."""
    return OracleRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=-1 if record.timestamp is None else record.timestamp,
        timestamp_type=-1 if record.timestamp_type is None else record.timestamp_type,
        key=_bytes(record.key),
        value=_bytes(record.value),
        headers=tuple((name, _bytes(value)) for name, value in record.headers),
    )


def _bytes(data: Any) -> bytes | None:
    return None if data is None else data.encode() if isinstance(data, str) else bytes(data)
