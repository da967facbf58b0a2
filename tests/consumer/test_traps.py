"""What librdkafka and its binding do otherwise than one expects, and what the consumer does about it.

Other tests of this folder spring the rest of these traps:

- `auto.offset.reset` skips records behind retention: `test_seams.py`, a committed offset that Kafka removed.
- The fetcher has ended after an out-of-range error: `test_seams.py`, retention that passes a slow reader.
- `seek` right after `assign` is refused: `test_seams.py`, seeks from tier to tier.
- Stored offsets, positions and calls that are refused: `test_contract.py`.
- A `consume` waits for all it wants: `test_contract.py`, up to a number.
- The client cannot be woken, and calls inside of callbacks: `test_asyncio.py`.
- Topic ids: `test_seams.py`, the archive of a former topic of that name.
"""

import gc
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dev.local.kafka.cluster import Record
from dev.local.waiting import wait_for
from tests.consumer.archives import Both, error_of, fill, offsets_of, read_until, ship
from tests.made_archive import batches
from tests.matrix import examples
from ts_consumer import TieredConsumer, TierMode
from ts_consumer.live import LivePart

KAFKA_FIRST, ARCHIVE_FIRST, ARCHIVE = (
    TierMode.KAFKA_PREFERRED,
    TierMode.TIERED_STORAGE_PREFERRED,
    TierMode.TIERED_STORAGE_ONLY,
)
TOPIC = "traps"


@pytest.fixture(scope="module")
def ends(both: Both) -> tuple[int, int]:
    """A topic of one partition, with its end in the archive and in Kafka; Kafka lacks the first half of the archive."""
    fill(both.cluster, TOPIC, partitions=1)
    (shipped,) = ship(both.archive, both.cluster, TOPIC, 1)
    end = both.cluster.latest(TOPIC, 0)
    both.cluster.delete_records(TOPIC, {0: shipped // 2})
    return shipped, end


def test_the_binding_accepts_only_messages_of_its_own_type(both: Both, ends: tuple[int, int]) -> None:
    """Those of the archive have it, so `commit(message=)` works for them."""
    with both.consumer(KAFKA_FIRST, "own-type") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        (message,) = wait_for(lambda: consumer.consume(1, 0.5), "a message")
        assert type(message) is Message
        committed = consumer.commit(message=message, asynchronous=False)
        assert committed is not None
        assert [(each.offset, each.error) for each in committed] == [(1, None)]


def test_an_assign_validates_no_leader_epoch_and_the_seam_does(both: Both) -> None:
    """The archive's last record has an epoch that the broker never had: its log does not continue these records."""
    topic = "traps-epoch"
    both.cluster.create_topic(topic)
    both.cluster.produce(topic, [Record(b"x")] * 100, partition=0)
    both.cluster.delete_records(topic, {0: 50})
    both.archive.put_segment(topic, 0, batches((0, 50), epoch=5))
    both.archive.commit(topic, 50, epochs=((5, 0),))
    with both.consumer(KAFKA_FIRST, "epoch") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert offsets_of(read_until(consumer, {0: 50})[0]) == list(range(50))
        (event,) = wait_for(lambda: consumer.consume(1, 0.5), "the error")
        assert error_of(event).code() == KafkaError._LOG_TRUNCATION
        assert consumer.consume(1, 1.0) == []
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 50


def test_a_partition_that_is_assigned_fetches_nothing_from_brokers(both: Both, ends: tuple[int, int]) -> None:
    """A pause of a partition that the client has not seen would do nothing, in silence."""
    seen: list[dict[str, Any]] = []
    config = both.config(ARCHIVE, "silent", statistics_interval_ms=200)
    config["stats_cb"] = lambda text: seen.append(json.loads(text))
    with TieredConsumer(config) as consumer:
        consumer.subscribe([TOPIC])
        assert offsets_of(read_until(consumer, {0: ends[0]})[0]) == list(range(ends[0]))
        seen.clear()

        def known() -> Any:
            consumer.poll(0.1)
            return next((each["topics"][TOPIC]["partitions"]["0"] for each in seen if TOPIC in each["topics"]), None)

        partition = wait_for(known, "statistics of the partition")
        assert (partition["rxmsgs"], partition["rxbytes"]) == (0, 0)


def test_a_seek_directly_after_a_park_is_not_undone(both: Both) -> None:
    """librdkafka looks a logical offset up after the assign, and its answer would undo the seek."""
    topic = "traps-park"
    both.cluster.create_topic(topic)
    both.cluster.produce(topic, [Record(b"x")] * 20, partition=0)
    live = LivePart(
        {"bootstrap.servers": both.cluster.bootstrap, "group.id": "park", "auto.offset.reset": "error"}
        | {"isolation.level": "read_uncommitted"},
        {},
    )
    place, found = (topic, 0), []
    wanted = range(5, 5 + examples(10, quick=3))
    for offset in wanted:
        live.park([place], live.consumer.assign)
        wait_for(partial(live.join, place, offset, 0, paused=False), "the fetcher")
        (message,) = wait_for(lambda: live.consume(1, 0.5), f"offset {offset}")
        found.append(message.offset())
        live.consumer.unassign()
    live.consumer.close()
    assert found == [*wanted]


def test_a_jump_after_a_seek_is_accepted_after_a_second_seek(both: Both) -> None:
    """The archive ends with a transaction's records, and Kafka continues with its marker, which no client shows."""
    topic = "traps-jump"
    both.cluster.create_topic(topic)
    producer = both.cluster.producer({"transactional.id": topic})
    producer.init_transactions(30)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        producer.commit_transaction(30)
    with both.consumer(KAFKA_FIRST, "jump") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1)])
        assert offsets_of(read_until(consumer, {0: 5})[0]) == [2, 4]
        statistics = consumer.tier_statistics()
        assert statistics is not None
        assert statistics.dropped_messages >= 1


def test_the_flag_of_a_pause_does_not_outlive_the_assignment(both: Both, ends: tuple[int, int]) -> None:
    """A partition was given up while the archive was read, and is read from Kafka when it is assigned again."""
    with both.consumer(KAFKA_FIRST, "flag") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert len(consumer.consume(5, 30)) == 5
        consumer.unassign()
        consumer.assign([TopicPartition(TOPIC, 0, ends[1] - 3)])
        assert offsets_of(read_until(consumer, {0: ends[1]})[0]) == list(range(ends[1] - 3, ends[1]))


@pytest.mark.parametrize("mode", [KAFKA_FIRST, pytest.param(ARCHIVE, marks=pytest.mark.full)])
def test_callbacks_get_the_consumer_and_may_assign_nothing(both: Both, ends: tuple[int, int], mode: TierMode) -> None:
    """The binding would pass its own consumer, and would assign by itself."""
    called: list[tuple[str, Any, list[int]]] = []

    def note(name: str) -> Any:
        return lambda owner, partitions: called.append((name, owner, [each.partition for each in partitions]))

    with both.consumer(mode, f"callbacks-{mode}") as consumer:
        consumer.subscribe([TOPIC], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost"))
        assert read_until(consumer, {0: 5})[0]
    assert called == [("assign", consumer, [0]), ("revoke", consumer, [0])]


def test_a_pause_of_the_application_outlives_the_seam(both: Both, ends: tuple[int, int]) -> None:
    """librdkafka has one flag for both: a resume in history does not let Kafka's records in, nor is a pause undone."""
    shipped, end = ends
    part = [TopicPartition(TOPIC, 0)]
    with both.consumer(ARCHIVE_FIRST, "flags") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = {0: [*read_until(consumer, {0: 3})[0]]}
        consumer.pause(part)
        assert consumer.consume(1, 0.5) == []
        consumer.resume(part)
        while found[0][-1][2] < shipped - 1:
            read_until(consumer, {0: found[0][-1][2] + 2}, found)
        consumer.pause(part)
        count = len(found[0])
        assert consumer.consume(1, 2.0) == []
        consumer.resume(part)
        assert offsets_of(read_until(consumer, {0: end}, found)[0]) == list(range(end))
        assert count <= len(found[0])


def test_a_transaction_that_is_open_ends_what_both_tiers_show(both: Both) -> None:
    """The queried end is the last stable offset, and the rest follows with the commit."""
    topic = "traps-open"
    both.cluster.create_topic(topic)
    both.cluster.produce(topic, [Record(b"before")] * 3, partition=0)
    producer = both.cluster.producer({"transactional.id": topic, "transaction.timeout.ms": 600_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    both.cluster.produce(topic, [Record(b"after")], partition=0)
    with both.consumer(ARCHIVE_FIRST, "open", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [row[4] for row in read_until(consumer, {0: 3})[0]] == [b"before"] * 3
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 3)
        assert consumer.consume(1, 0.5) == []
        producer.commit_transaction(30)
        assert [row[4] for row in read_until(consumer, {0: 5})[0]] == [b"open", b"after"]


def test_offsets_of_a_transaction_are_those_that_were_handed_out(both: Both, ends: tuple[int, int]) -> None:
    """`send_offsets_to_transaction` with the wrapper's positions, over the seam."""
    group = "in-transaction"
    producer = both.cluster.producer({"transactional.id": group})
    producer.init_transactions(30)
    with both.consumer(ARCHIVE_FIRST, group, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        read_until(consumer, {0: ends[1]})
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(30)
    plain = Consumer({"bootstrap.servers": both.cluster.bootstrap, "group.id": group})
    committed = plain.committed([TopicPartition(TOPIC, 0)], 30)
    plain.close()
    assert [each.offset for each in committed] == [ends[1]]


def test_a_closed_consumer_leaves_no_thread(both: Both, ends: tuple[int, int]) -> None:
    """An admin client has no `close()`, so what refers to it decides when its threads and connections end."""
    gc.collect()
    before = _threads()
    gc.disable()
    try:
        with both.consumer(KAFKA_FIRST, "threads") as consumer:
            consumer.subscribe([TOPIC])
            assert read_until(consumer, {0: 5})[0]
            assert len(_threads()) > len(before)
        wait_for(lambda: _threads() <= before, "the consumer's threads to end", 30, state=lambda: _threads() - before)
    finally:
        gc.enable()


def _threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}
