"""`AIOTieredConsumer`: the interface of `AIOConsumer`, also where a callback calls the consumer."""

import asyncio
import inspect
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.aio import AIOConsumer

from tests.consumer.archives import Both, fill, ship
from ts_consumer import AIOTieredConsumer, TieredConsumer, TierMode

TOPIC = "asyncio"


def public(kind: type) -> set[str]:
    """Return the names of a class's public methods."""
    return {name for name in dir(kind) if not name.startswith("_")}


def test_each_method_of_the_plain_clients_exists() -> None:
    """A release of the binding with a new method fails here."""
    assert public(Consumer) <= public(TieredConsumer)
    assert public(AIOConsumer) <= public(AIOTieredConsumer)


def test_the_constructor_sets_what_that_of_the_plain_client_sets() -> None:
    """It cannot call it, which would make a plain client."""

    async def attributes() -> tuple[set[str], set[str]]:
        plain = AIOConsumer({"group.id": "g", "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        tiered = AIOTieredConsumer({"group.id": "g", "tiered.storage.mode": "KAFKA_ONLY"})
        try:
            return set(vars(plain)), set(vars(tiered))
        finally:
            await plain.close()
            await tiered.close()

    plain, tiered = asyncio.run(attributes())
    assert plain == tiered


@pytest.mark.parametrize(
    "mode", [TierMode.KAFKA_PREFERRED, pytest.param(TierMode.TIERED_STORAGE_ONLY, marks=pytest.mark.full)]
)
def test_a_callback_may_call_the_consumer(both: Both, mode: TierMode) -> None:
    """It assigns at an offset of its own, on another thread than the call that waits for it."""
    fill(both.cluster, f"{TOPIC}-{mode}", partitions=1)
    (shipped,) = ship(both.archive, both.cluster, f"{TOPIC}-{mode}", 1)
    both.cluster.delete_records(f"{TOPIC}-{mode}", {0: shipped // 2})
    end = shipped if mode is TierMode.TIERED_STORAGE_ONLY else both.cluster.latest(f"{TOPIC}-{mode}", 0)

    async def read() -> list[int]:
        consumer = AIOTieredConsumer(both.config(mode, f"asyncio-{mode}"))

        async def assign(owner: Any, partitions: list[TopicPartition]) -> None:
            assert owner is consumer
            await owner.assign([TopicPartition(each.topic, each.partition, 3) for each in partitions])

        await consumer.subscribe([f"{TOPIC}-{mode}"], on_assign=assign)
        found: list[int] = []
        while not found or found[-1] < end - 1:
            messages, _ = await asyncio.gather(consumer.consume(100, 0.2), consumer.assignment())
            found += [message.offset() for message in messages]
        await consumer.commit(asynchronous=False)
        await consumer.close()
        return found

    assert asyncio.run(asyncio.wait_for(read(), 60)) == list(range(3, end))


def test_arguments_have_the_names_of_the_plain_client() -> None:
    """An application that passes them by name changes nothing."""
    for name in ("subscribe", "poll", "consume", "commit", "store_offsets", "get_watermark_offsets", "list_topics"):
        given = set(inspect.signature(getattr(TieredConsumer, name)).parameters) - {"self"}
        documented = (getattr(Consumer, name).__doc__ or "").partition("\n\n")[0]
        assert all(each in documented for each in given), (name, given, documented)
