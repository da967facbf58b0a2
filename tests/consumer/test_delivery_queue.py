"""Messages that are ready before a call wants them: each is handed out once, in order, whatever is called between."""

import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from dev.local.kafka.cluster import Record
from dev.local.waiting import wait_for
from tests.consumer.archives import PROTOCOLS, Both, fill, ship
from tests.matrix import cases
from ts_consumer import TieredConsumer, TierMode
from ts_consumer.delivery_queue import DeliveryQueue
from ts_consumer.live import LivePart, place_after
from ts_consumer.partitions import Assigned, Assignment

TOPIC = "ready"
Place = tuple[int | None, int | None]


@pytest.fixture(scope="module")
def ends(both: Both) -> tuple[list[int], list[int]]:
    """A topic of two partitions, with its ends in the archive and in Kafka; Kafka lacks the first half of it."""
    fill(both.cluster, TOPIC)
    shipped = ship(both.archive, both.cluster, TOPIC)
    both.cluster.delete_records(TOPIC, {number: end // 2 for number, end in enumerate(shipped)})
    return shipped, [both.cluster.latest(TOPIC, number) for number in range(2)]


class Made:
    """Two assigned partitions, and what is ready of them."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.parts = [Assigned((TOPIC, number), 0) for number in range(2)]
        for part in self.parts:
            self.assignment.put(part)
        self.ready = DeliveryQueue(self.assignment)

    def add(self, places: Sequence[tuple[int, int]]) -> None:
        """Add one lot of messages."""
        messages = [Message(TOPIC, number, offset) for number, offset in places]
        self.ready.add(
            messages,
            {self.parts[at]: place_after(each) for each in messages if (at := each.partition()) is not None},
            is_archived=False,
        )

    def take(self, count: int) -> list[Place]:
        """Return partition and offset of the next messages."""
        self.ready.settle()
        return [(each.partition(), each.offset()) for each in self.ready.take(count).messages]


def test_a_lot_of_two_partitions_moves_the_position_of_each() -> None:
    """A call can end in the middle of a lot: then each partition's last message is the last one of that call."""
    made = Made()
    made.add([(0, 0), (0, 1), (1, 7), (0, 2), (1, 8)])
    taken = made.ready.take(3)
    assert {part.key[1]: end for part, (end, _) in taken.ends.items()} == {0: 2, 1: 8}
    assert made.take(9) == [(0, 2), (1, 8)]


def test_what_is_ready_of_a_paused_partition_stays_in_order() -> None:
    """A pause holds back what was fetched before it, and a resume continues with that."""
    made = Made()
    made.add([(0, 0), (1, 0), (0, 1)])
    made.parts[0].is_paused = True
    assert made.ready.settle() == 1
    made.add([(0, 2), (1, 1)])
    assert made.take(9) == [(1, 0), (1, 1)]
    assert made.ready.settle() == 0
    made.parts[0].is_paused = False
    assert made.take(2) == [(0, 0), (0, 1)]
    assert made.take(9) == [(0, 2)]


def test_e04_what_is_ready_of_a_former_assign_is_dropped() -> None:
    """A seek makes another object of the partition. Messages and events of the former one are not handed out."""
    made = Made()
    made.add([(0, 0), (1, 0), (0, 1)])
    assert made.ready.one() is None  # a lot of several partitions needs a search
    assert made.take(1) == [(0, 0)]
    made.parts[0] = Assigned((TOPIC, 0), 40)
    made.assignment.put(made.parts[0])
    made.add([(0, 40)])
    assert made.take(9) == [(1, 0), (0, 40)]
    made.ready.add_events([Message(TOPIC, number, 5, error=KafkaError(KafkaError._PARTITION_EOF)) for number in (0, 1)])
    made.ready.add_events([Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))])
    made.assignment.put(Assigned((TOPIC, 0), 0))
    assert made.ready.one() is None
    assert made.take(9) == [(1, 5), (None, None)]


def test_the_end_of_a_paused_partition_waits_behind_its_messages() -> None:
    """An application that reads to the end would stop before it has them."""
    made = Made()
    made.add([(0, 0), (1, 0)])
    made.ready.add_events([Message(TOPIC, 0, 1, error=KafkaError(KafkaError._PARTITION_EOF))])
    made.parts[0].is_paused = True
    assert made.take(9) == [(1, 0)]
    made.parts[0].is_paused = False
    assert made.take(9) == [(0, 0), (0, 1)]


def test_a_lot_that_is_split_keeps_the_markers_behind_it() -> None:
    """Also those of a partition without a message in the lot."""
    made = Made()
    messages = [Message(TOPIC, 0, offset) for offset in range(3)]
    made.ready.add(messages, {made.parts[0]: (5, 0), made.parts[1]: (9, 0)}, is_archived=False)
    found: dict[int, int] = {}
    for _ in range(4):
        taken = made.ready.take(1)
        found |= {part.key[1]: end for part, (end, _) in taken.ends.items()}
    assert found == {0: 5, 1: 9}
    assert not made.ready.extend(made.parts[0], (6, 0))
    made.add([(0, 6), (1, 9)])
    assert made.ready.extend(made.parts[0], (8, 0))
    assert {part.key[1]: end for part, (end, _) in made.ready.take(9).ends.items()} == {0: 8, 1: 10}


@pytest.mark.parametrize("seed", cases(range(3), quick=[0]))
@pytest.mark.parametrize(
    "mode", [TierMode.KAFKA_PREFERRED, TierMode.TIERED_STORAGE_PREFERRED, TierMode.TIERED_STORAGE_ONLY]
)
def test_a_mix_of_calls_returns_each_record_once_in_order(
    both: Both, ends: tuple[list[int], list[int]], mode: TierMode, seed: int
) -> None:
    """`poll`, `consume` and `consume_arrow` alternate, between pauses; positions follow what was handed out."""
    draw = random.Random(seed)
    nexts, last = [0, 0], ends[0] if mode is TierMode.TIERED_STORAGE_ONLY else ends[1]
    with both.consumer(mode, f"mix-{seed}") as consumer:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(2)])
        paused: set[int] = set()

        def step() -> bool:
            for number, offset in _next(consumer, draw):
                assert (number, offset) == (number, nexts[number])
                assert number not in paused
                nexts[number] += 1
            for number, offset in enumerate(nexts):
                assert consumer.position([TopicPartition(TOPIC, number)])[0].offset == (offset or -1001)
            change = draw.randrange(12)
            if change in {0, 1}:
                consumer.pause([TopicPartition(TOPIC, change)])
                paused.add(change)
            elif change < 5:
                consumer.resume([TopicPartition(TOPIC, number) for number in paused])
                paused.clear()
            return nexts == last

        wait_for(step, "all records", every=0.0)


def _next(consumer: TieredConsumer, draw: random.Random) -> list[tuple[int, int]]:
    """Return partition and offset of what one call returns."""
    kind = draw.randrange(3)
    if kind == 2:
        rows = consumer.consume_arrow(draw.choice([1, 7, 300]), 0.05)
        return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    messages: list[Any] = (
        consumer.consume(draw.choice([1, 7, 600]), 0.05)
        if kind
        else [each for _ in range(draw.choice([1, 40])) if (each := consumer.poll(0.02)) is not None]
    )
    assert [each.error() for each in messages if each.error() is not None] == []
    return [(each.partition(), each.offset()) for each in messages]


def test_a_seek_between_polls_continues_there(both: Both, ends: tuple[list[int], list[int]]) -> None:
    """What was ready before the seek is dropped, on the archive's side of the seam and on Kafka's."""
    first, last = ends[0][0] // 4, ends[1][0] - 3
    with both.consumer(TierMode.KAFKA_PREFERRED, "seek-ready") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        for offset in (0, last, first, last):
            consumer.seek(TopicPartition(TOPIC, 0, offset))
            found: list[int | None] = []
            wait_for(partial(_polled, consumer, found, 3), "three messages")
            assert found == [offset, offset + 1, offset + 2]


def _polled(consumer: TieredConsumer, found: list[int | None], count: int) -> bool:
    message = consumer.poll(0.5)
    if message is not None:
        found.append(message.offset())
    return len(found) == count


class Mistake(Exception):
    """An error of the application's callback."""


@pytest.mark.parametrize("mode", [TierMode.KAFKA_PREFERRED, TierMode.TIERED_STORAGE_ONLY])
def test_a_callback_that_raises_an_error_loses_nothing(
    both: Both, ends: tuple[list[int], list[int]], mode: TierMode
) -> None:
    """The call raises the callback's error, the next call returns all that the first one had, and `close` ends."""
    raised: list[int] = []
    found: list[int | None] = []
    end = ends[0][0] if mode is TierMode.TIERED_STORAGE_ONLY else ends[1][0]

    def statistics(_: str) -> None:
        if len(raised) < 40:
            raised.append(1)
            raise Mistake

    def step() -> bool:
        with suppress(Mistake):
            found.extend(each.offset() for each in consumer.consume(30, 0.2) if each.partition() == 0)
        return found[-1:] == [end - 1] and len(raised) == 40

    config = both.config(mode, f"raises-{mode}", statistics_interval_ms=1) | {"stats_cb": statistics}
    with TieredConsumer(config) as consumer:
        consumer.subscribe([TOPIC])  # without a group it has no callbacks
        wait_for(step, "all records, and all errors", every=0.0)
    assert found == [*range(end)]


@pytest.mark.parametrize("protocol", cases(PROTOCOLS, quick=["eager"]))
def test_a_rebalance_callback_that_raises_an_error_changes_no_assignment(
    both: Both, ends: tuple[list[int], list[int]], protocol: str
) -> None:
    """The partitions are assigned and revoked nevertheless, and each call raises the error of its callback."""

    def fail(*_: Any) -> None:
        raise Mistake

    found: list[int | None] = []
    consumer = TieredConsumer(both.config(TierMode.KAFKA_PREFERRED, f"rebalance-{protocol}") | PROTOCOLS[protocol])
    consumer.subscribe([TOPIC], on_assign=fail, on_revoke=fail)
    try:
        with pytest.raises(Mistake):
            wait_for(partial(consumer.poll, 1.0), "the assignment", every=0.0)
        wait_for(partial(_reached, consumer, found, ends[1][0]), "all records", every=0.0)
        assert found == [*range(ends[1][0])]
    finally:
        with pytest.raises(Mistake):
            consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_an_interrupted_call_loses_nothing(both: Both) -> None:
    """A signal's handler raises an error while the call waits for more: the next call returns what it had already."""
    raised, found, sent = list[int](), list[int | None](), list[tuple[int, int]]()

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is LivePart.consume.__code__:
            raised.append(1)
            raise Mistake

    def step() -> bool:
        if len(raised) < 5 and len(found) == len(sent):
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            sent.extend(both.cluster.produce("interrupted", [Record(b"value")] * 10))
        with suppress(Mistake):  # a call for more than there is waits to its end
            found.extend(each.offset() for each in consumer.consume(500, 0.19))
        return len(raised) == 5 and len(found) >= len(sent)

    both.cluster.create_topic("interrupted", partitions=1)
    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        with both.consumer(TierMode.KAFKA_PREFERRED, "interrupted", fetch_wait_max_ms=10) as consumer:
            consumer.assign([TopicPartition("interrupted", 0, 0)])
            wait_for(step, "all records, and five interrupts", every=0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert found == [*range(len(sent))]


def _reached(consumer: TieredConsumer, found: list[int | None], end: int) -> bool:
    """Consume once, and return whether the last record of partition 0 was found."""
    found.extend(each.offset() for each in consumer.consume(30, 0.2) if each.partition() == 0)
    return found[-1:] == [end - 1]
