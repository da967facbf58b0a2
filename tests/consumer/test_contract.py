"""The same behaviour as `confluent_kafka.Consumer`, in every mode; what a mode does otherwise is in the table here.

Each case is a function of a consumer that returns what it saw. It runs over the plain client first.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from dev.local.waiting import wait_for
from tests.consumer.archives import Both, fill, ship
from ts_consumer import TieredConsumer, TierMode

TOPIC = "contract"
FIRST, SECOND, UNKNOWN = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 7)
Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}
# What `TIERED_STORAGE_ONLY` with assign() does otherwise: it has no group, and no broker.
WITHOUT_GROUP = {
    "commits-what-was-handed-out": "_UNKNOWN_GROUP",
    "commits-a-message": "_UNKNOWN_GROUP",
    "refuses-to-store-by-hand": "_UNKNOWN_GROUP",
    "commits-nothing": "_UNKNOWN_GROUP",
    "commits-what-was-got-before-a-seek": "_UNKNOWN_GROUP",
    "reads-to-the-end-after-a-seek": 0,  # the archive's end is not that of the log
    "ends-of-partitions": [],  # the archive's end is not that of the log
}


def case(name: str) -> Callable[[Case], Case]:
    """Add a case."""

    def add(function: Case) -> Case:
        CASES[name] = function
        return function

    return add


def take(consumer: Any, count: int) -> list[tuple[int, int]]:
    """Return partition and offset of the next messages."""
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(found), 0.5):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))
        return len(found) == count

    wait_for(enough, f"{count} messages")
    return found


def offsets(found: list[TopicPartition]) -> list[tuple[int, int]]:
    """Return partition and offset of each."""
    return [(each.partition, each.offset) for each in found]


def raised(call: Callable[[], Any]) -> str:
    """Return the name of what a call raises."""
    try:
        call()
    except KafkaException as error:
        return str(error.args[0].name())
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__
    return "nothing"


@case("positions")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 5), TopicPartition(TOPIC, 1, 0)])
    before = offsets(consumer.position([FIRST, SECOND, UNKNOWN]))
    consumer.pause([SECOND])
    found = take(consumer, 3)
    consumer.seek(TopicPartition(TOPIC, 0, 50))
    return before, found, offsets(consumer.position([FIRST]))[0][1] in {OFFSET_INVALID, 8}, take(consumer, 2)


@case("assignment")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.incremental_assign([TopicPartition(TOPIC, 1, 0)])
    both = sorted(each.partition for each in consumer.assignment())
    consumer.incremental_unassign([FIRST])
    one = [each.partition for each in consumer.assignment()]
    found = take(consumer, 2)
    consumer.unassign()
    return both, one, found, consumer.assignment(), consumer.poll(0.2)


@case("wrong-calls")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    take(consumer, 1)
    return (
        raised(lambda: consumer.incremental_assign([FIRST])),
        raised(lambda: consumer.consume(-1, 0)),
        raised(lambda: consumer.consume(1_000_001, 0)),
        raised(lambda: consumer.subscribe([TOPIC], on_assign=1)),
        raised(lambda: consumer.assign("x")),
        raised(lambda: consumer.poll("x")),
    )


@case("pause-and-resume")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    first = take(consumer, 2)
    consumer.pause([FIRST, UNKNOWN])
    silent = consumer.consume(1, 0.5)
    consumer.resume([FIRST])
    return first, silent, take(consumer, 2)


@case("consumes-up-to-a-number")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    take(consumer, 1)
    return consumer.consume(0, 0.1), len(take(consumer, 7))


@case("commits-what-was-handed-out")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 10)])
    take(consumer, 4)
    committed = raised_or(lambda: offsets(consumer.commit(asynchronous=False)))
    return committed if isinstance(committed, str) else (committed, offsets(consumer.committed([FIRST, SECOND], 10)))


@case("commits-a-message")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 20)])
    message = wait_for(partial(consumer.poll, 0.5), "a message")
    return raised_or(lambda: offsets(consumer.commit(message=message, asynchronous=False)))


@case("commits-nothing")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 20)])
    return raised(lambda: consumer.commit(asynchronous=False))


@case("commits-what-was-got-before-a-seek")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 10)])
    for _ in range(4):  # from one lot
        wait_for(partial(consumer.poll, 0.5), "a message")
    consumer.seek(TopicPartition(TOPIC, 0, 50))
    return raised_or(lambda: offsets(consumer.commit(asynchronous=False)))


@case("reads-to-the-end-after-a-seek")
def _(consumer: Any) -> Any:
    start = TopicPartition(TOPIC, 0, ENDS[0] - 20)
    if raised(lambda: consumer.cluster_id(timeout=10)) != "nothing":
        return 0
    consumer.assign([start])
    for _ in range(4):  # the event of the end may be behind the rest of the lot
        wait_for(partial(consumer.poll, 0.5), "a message")
    consumer.seek(start)
    found = 0
    while wait_for(partial(consumer.poll, 0.5), "a message or the end").error() is None:
        found += 1
    return found


@case("ends-a-subscription")
def _(consumer: Any) -> Any:
    consumer.subscribe([TOPIC])
    for _ in range(3):
        wait_for(partial(consumer.poll, 0.5), "a message")
    consumer.unsubscribe()
    return consumer.consume(5, 0.5), consumer.assignment()


@case("refuses-numbers-that-are-no-offsets")
def _(consumer: Any) -> Any:
    wrong = raised(lambda: consumer.assign([TopicPartition(TOPIC, 0, -5)]))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    take(consumer, 1)
    return wrong, raised(lambda: consumer.seek(TopicPartition(TOPIC, 0, -1000)))


@case("refuses-to-store-by-hand")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    take(consumer, 1)
    return raised(lambda: consumer.store_offsets(offsets=[TopicPartition(TOPIC, 0, 3)]))


@case("ends-of-partitions")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, ENDS[0] - 2)])
    found: list[Any] = []
    has_brokers = raised(lambda: consumer.cluster_id(timeout=10)) == "nothing"
    for _ in range(100 if has_brokers else 8):
        found += [message for message in consumer.consume(10, 0.3) if message.error() is not None]
        if found:
            break
    return [(message.partition(), message.offset(), message.error().name()) for message in found]


@case("metadata-of-a-topic")
def _(consumer: Any) -> Any:
    return sorted(consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)


@case("closed")
def _(consumer: Any) -> Any:
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.close()
    return [
        raised(partial(getattr(consumer, name), *arguments))
        for name, arguments in (
            ("poll", (0,)),
            ("consume", (1, 0)),
            ("assign", ([FIRST],)),
            ("seek", (FIRST,)),
            ("assignment", ()),
            ("commit", ()),
        )
    ]


def raised_or(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the name of what it raises."""
    result: list[Any] = []
    name = raised(lambda: result.append(call()))
    return result[0] if result else name


ENDS: list[int] = []
EXPECTED: dict[str, Any] = {}  # what the plain client returned
WITH_ENDS: dict[str, Any] = {"enable_partition_eof": True, "enable_auto_commit": False}
IN_FULL = (TierMode.KAFKA_ONLY, TierMode.TIERED_STORAGE_PREFERRED)
MODES = [pytest.param(mode, marks=pytest.mark.full) if mode in IN_FULL else mode for mode in TierMode]


@pytest.fixture(scope="module")
def ready(both: Both) -> Iterator[Both]:
    """Kafka has all of it; the archive has all but the last segment."""
    fill(both.cluster, TOPIC)
    ship(both.archive, both.cluster, TOPIC)
    ENDS[:] = [both.cluster.latest(TOPIC, partition) for partition in range(2)]
    yield both
    ENDS.clear()
    EXPECTED.clear()


def config_of(both: Both, mode: TierMode, group: str) -> dict[str, Any]:
    """Return a configuration that reports the ends of partitions."""
    return both.config(mode, group, **WITH_ENDS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_a_mode_behaves_as_the_plain_client(ready: Both, name: str, mode: TierMode) -> None:
    """Or as the table has it, where it has no group."""
    config = config_of(ready, mode, f"{name}-{mode}")
    if name not in EXPECTED:
        plain = ready.plain(f"plain-{name}", **WITH_ENDS)
        try:
            EXPECTED[name] = CASES[name](plain)
        finally:
            plain.close()
    expected = EXPECTED[name]
    if mode is TierMode.TIERED_STORAGE_ONLY:
        expected = WITHOUT_GROUP.get(name, expected)
    with TieredConsumer(config) as consumer:
        assert CASES[name](consumer) == expected


def test_offsets_are_stored_by_hand_if_the_application_requests_it(ready: Both) -> None:
    """A message and offsets, as with the plain client; nothing else is committed."""
    for kind, place in ((Consumer, "plain"), (TieredConsumer, "tiered")):
        config = config_of(ready, TierMode.KAFKA_PREFERRED, f"by-hand-{place}") | {"enable.auto.offset.store": False}
        if kind is Consumer:
            config = {key: value for key, value in config.items() if not key.startswith(("tiered", "kafka", "storage"))}
        consumer: Any = kind(config)
        try:
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            take(consumer, 5)
            with pytest.raises(KafkaException) as nothing:
                consumer.commit(asynchronous=False)
            assert nothing.value.args[0].code() == KafkaError._NO_OFFSET
            consumer.store_offsets(offsets=[TopicPartition(TOPIC, 0, 3)])
            assert offsets(consumer.commit(asynchronous=False)) == [(0, 3)]
            consumer.store_offsets(message=wait_for(partial(consumer.poll, 0.5), "a message"))
            assert offsets(consumer.commit(asynchronous=False)) == [(0, 6)]
        finally:
            consumer.close()
