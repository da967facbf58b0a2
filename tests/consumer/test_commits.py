"""What is committed: every record that the application has, and no other, whatever happens to partitions meanwhile."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from dev.local.kafka.cluster import Record
from dev.local.waiting import wait_for
from tests.consumer.archives import FILLER, Both, ship
from tests.matrix import cases
from ts_consumer import TieredConsumer, TierMode


def poll(consumer: Any, count: int) -> list[int]:
    """Poll the offsets of the next records."""
    return [wait_for(partial(consumer.poll, 0.5), "a message").offset() for _ in range(count)]


def committed(both: Both, group: str, topic: str) -> list[int]:
    """Return the committed offset of partitions 0 and 1."""
    consumer = both.plain(group)
    try:
        return [each.offset for each in consumer.committed([TopicPartition(topic, number) for number in range(2)], 10)]
    finally:
        consumer.close()


GETS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda consumer: poll(consumer, 10),
    "consume": lambda consumer: wait_for(lambda: consumer.consume(10, 5.0), "ten messages"),
    "arrow": lambda consumer: wait_for(lambda: consumer.consume_arrow(10, 5.0).num_rows, "ten rows"),
}


@pytest.mark.parametrize("get", cases(GETS, quick=["poll", "consume"]))
def test_what_was_got_is_committed_while_the_application_works(both: Both, get: str) -> None:
    """It makes no further call. Else a lot that takes longer than max.poll.interval.ms would be read again for ever."""
    topic = f"works-{get}"
    both.cluster.create_topic(topic, partitions=1)
    both.cluster.produce(topic, [Record(b"value")] * 100, partition=0)
    with both.consumer(TierMode.KAFKA_PREFERRED, topic, auto_commit_interval_ms=100) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        GETS[get](consumer)
        (position,) = consumer.position([TopicPartition(topic, 0)])
        assert position.offset == 10 or get == "arrow"  # which returns as soon as there is something
        wait_for(lambda: committed(both, topic, topic)[0] == position.offset, "the commit")


CHANGES: dict[str, Callable[[Any, TopicPartition], Any]] = {
    "unassign": lambda consumer, _: consumer.unassign(),
    "incremental": lambda consumer, place: consumer.incremental_unassign([place]),
    "assign": lambda consumer, place: consumer.assign([TopicPartition(place.topic, 1, 0)]),
}


@pytest.mark.parametrize("change", cases(CHANGES, quick=["unassign"]))
def test_what_was_got_is_committed_when_a_partition_is_unassigned(both: Both, change: str) -> None:
    """Although the application got it from a lot that was ready: no other member gets it again."""
    topic, group = f"commits-{change}", f"group-{change}"
    both.cluster.create_topic(topic, partitions=2)
    both.cluster.produce(topic, [Record(b"value")] * 100, partition=0)
    with both.consumer(TierMode.KAFKA_PREFERRED, group) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert poll(consumer, 10) == [*range(10)]
        CHANGES[change](consumer, TopicPartition(topic, 0))
        consumer.poll(0.5)
        wait_for(lambda: committed(both, group, topic)[0] == 10, "the commit")
        consumer.assign([TopicPartition(topic, 0)])
        assert poll(consumer, 1) == [10]


@pytest.mark.parametrize("is_unassigned", cases([False, True], quick=[True]), ids=["replaced", "unassigned"])
def test_an_assign_continues_at_what_is_being_committed(both: Both, is_unassigned: bool) -> None:
    """The plain client waits for the commit of the former assign before it requests the group's offset."""
    topic = f"again-{is_unassigned}".lower()
    both.cluster.create_topic(topic, partitions=1)
    both.cluster.produce(topic, [Record(b"value")] * 100, partition=0)
    with both.consumer(TierMode.KAFKA_PREFERRED, topic) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        poll(consumer, 10)
        if is_unassigned:
            consumer.unassign()
        consumer.assign([TopicPartition(topic, 0)])
        assert poll(consumer, 1) == [10]


@pytest.mark.parametrize("isolation", cases(["read_committed", "read_uncommitted"], quick=["read_committed"]))
def test_positions_and_commits_pass_the_markers_of_transactions(both: Both, isolation: str) -> None:
    """After each transaction they are those of the plain client: an idle topic has no lag, and expires as a whole."""
    topic = f"markers-{isolation}"
    both.cluster.create_topic(topic, partitions=2)
    end = 0
    producer = Producer({"bootstrap.servers": both.cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    oracle = both.plain(f"plain-{topic}", isolation_level=isolation, enable_auto_commit=False)
    tiered = both.consumer(TierMode.KAFKA_PREFERRED, topic, isolation_level=isolation, enable_auto_commit=False)
    try:
        for consumer in (oracle, tiered):
            consumer.assign([TopicPartition(topic, 0, 0)])
        for count, is_aborted in ((5, False), (1, False), (30, False), (2, True), (1, False)):
            producer.begin_transaction()
            for _ in range(count):
                producer.produce(topic, b"value", partition=0)
            producer.flush()
            (producer.abort_transaction if is_aborted else producer.commit_transaction)(30)
            end += count + 1
            for consumer in (oracle, tiered):
                wait_for(partial(_reaches, consumer, topic, end), f"position {end}", every=0.0)
                (done,) = consumer.commit(asynchronous=False) or []
                assert done.offset == end
    finally:
        oracle.close()
        tiered.close()


def _reaches(consumer: Any, topic: str, end: int) -> bool:
    consumer.consume(500, 0.1)
    position: int = consumer.position([TopicPartition(topic, 0)])[0].offset
    return position == end


@pytest.mark.parametrize("by_hand", cases([False, True], quick=[False]), ids=["stored", "stored-by-hand"])
def test_a_partition_that_is_assigned_again_changes_no_stored_offset(both: Both, by_hand: bool) -> None:
    """Retention passes partition 0 of an eager group: the offset of partition 1 is committed nevertheless."""
    topic = f"revived-{by_hand}".lower()
    both.cluster.create_topic(topic, partitions=2, config={"segment.bytes": str(1 << 20)})
    both.cluster.produce(topic, [Record(os.urandom(FILLER)) for _ in range(40)], partition=0)
    both.cluster.produce(topic, [Record(b"value")] * 30, partition=1)
    (shipped,) = ship(both.archive, both.cluster, topic, 1)
    small = {"queued_min_messages": 1, "queued_max_messages_kbytes": 1, "fetch_message_max_bytes": FILLER}
    more: dict[str, Any] = {**small, "enable_auto_commit": False, "enable_auto_offset_store": not by_hand}

    def step() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            got[message.partition()].append(message.offset())
            if by_hand:
                consumer.store_offsets(message=message)
        return message is not None

    with TieredConsumer(both.config(TierMode.KAFKA_PREFERRED, topic, **more)) as consumer:
        got: dict[int | None, list[int | None]] = {0: [], 1: []}
        consumer.subscribe([topic])
        wait_for(lambda: step() and len(got[0]) > 2 and len(got[1]) == 30, "partition 1", every=0.0)
        both.cluster.delete_records(topic, {0: shipped - 1})
        wait_for(lambda: step() and got[0][-1] == 39, "partition 0", every=0.0)
        assert got == {0: [*range(40)], 1: [*range(30)]}
        statistics = consumer.tier_statistics()
        assert statistics is not None
        assert statistics.back
        assert sorted((each.partition, each.offset) for each in consumer.commit(asynchronous=False) or []) == [
            (0, 40),
            (1, 30),
        ]
