"""Messages that are ready before a call wants them: each is handed out once, in order, whatever is called between."""

import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from tests.consumer.archives import Both, fill, ship
from ts_consumer import Mode, TieredConsumer
from ts_consumer.partitions import Assigned, Assignment
from ts_consumer.ready import Ready
from ts_local.waiting import wait_for

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
        self.ready = Ready(self.assignment)

    def add(self, places: Sequence[tuple[int, int]]) -> None:
        """Add one lot of messages."""
        messages = [Message(TOPIC, number, offset) for number, offset in places]
        self.ready.add(
            messages,
            {self.parts[at]: each for each in messages if (at := each.partition()) is not None},
            is_archived=False,
        )

    def take(self, count: int) -> list[Place]:
        """Return partition and offset of the next messages."""
        return [(each.partition(), each.offset()) for each in self.ready.take(count).messages]


def test_a_lot_of_two_partitions_moves_the_position_of_each() -> None:
    """A call can end in the middle of a lot: then each partition's last message is the last one of that call."""
    made = Made()
    made.add([(0, 0), (0, 1), (1, 7), (0, 2), (1, 8)])
    taken = made.ready.take(3)
    assert {part.key[1]: last.offset() for part, last in taken.lasts.items()} == {0: 1, 1: 7}
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


def test_what_is_ready_of_a_former_assign_is_dropped() -> None:
    """A seek makes another object of the partition: what was fetched for the former one is not handed out."""
    made = Made()
    made.add([(0, 0), (1, 0), (0, 1)])
    assert made.ready.one() is None  # a lot of several partitions needs a search
    assert made.take(1) == [(0, 0)]
    made.parts[0] = Assigned((TOPIC, 0), 40)
    made.assignment.put(made.parts[0])
    made.add([(0, 40)])
    assert made.take(9) == [(1, 0), (0, 40)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", [Mode.KAFKA_PREFERRED, Mode.TIERED_STORAGE_PREFERRED, Mode.TIERED_STORAGE_ONLY])
def test_a_mix_of_calls_returns_each_record_once_in_order(
    both: Both, ends: tuple[list[int], list[int]], mode: Mode, seed: int
) -> None:
    """`poll`, `consume` and `consume_arrow` alternate, between pauses; positions follow what was handed out."""
    draw = random.Random(seed)
    nexts, last = [0, 0], ends[0] if mode is Mode.TIERED_STORAGE_ONLY else ends[1]
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
    with both.consumer(Mode.KAFKA_PREFERRED, "seek-ready") as consumer:
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


def test_a_callback_that_raises_an_error_loses_nothing_that_was_ready(
    both: Both, ends: tuple[list[int], list[int]]
) -> None:
    """The call raises the callback's error, and the next call returns what the first one had of the archive."""
    failures: list[int] = []
    found: list[int | None] = []
    last = ends[0][0] - 1

    def statistics(_: str) -> None:
        # The binding waits for ever if a callback raises an error in `close`.
        if found and found[-1] != last and len(failures) < 5:
            failures.append(1)
            raise ValueError("a mistake of the application")

    def step() -> bool:
        with suppress(ValueError):
            found.extend(each.offset() for each in consumer.consume(3, 0.2) if each.partition() == 0)
        return found[-1:] == [last]

    config = both.config(Mode.TIERED_STORAGE_ONLY, "raises", statistics_interval_ms=1) | {"stats_cb": statistics}
    with TieredConsumer(config) as consumer:
        consumer.subscribe([TOPIC])  # without a group it has no callbacks
        try:
            wait_for(step, "the archive's records", every=0.0)
        finally:
            found.append(last)
    assert found == [*range(last + 1), last]
    assert failures
