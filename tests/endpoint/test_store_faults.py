"""E03: an S3 store that is away, slow or truncates answers, while a librdkafka client reads."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.actions import Action, Answer, CutAfter, CutBefore, Delay, TruncateAnswer
from dev.local.proxy.s3 import Rule, S3FaultProxy
from dev.local.waiting import wait_for
from tests.endpoint.running import PARTITIONS, RECORDS, TOPIC, Running, put_topic, running
from tests.made_archive import MadeArchive
from tests.matrix import cases

BUCKET = "endpoint-faults"
TIMES = 12
REFUSED = 'error="KAFKA_STORAGE_ERROR"'
WEATHER: dict[str, Callable[[], Action]] = {
    "SlowDown": lambda: Answer(503, "SlowDown"),
    "500": lambda: Answer(500, "InternalError"),
    "reset": CutBefore,
    "reset in the body": lambda: CutAfter(50),
    "truncated answers": lambda: TruncateAnswer(40),
    "slow": lambda: Delay(1.0),
}


@pytest.fixture(scope="module")
def proxy() -> Iterator[S3FaultProxy]:
    """An S3 server with an archive, behind a proxy that injects faults."""
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="endpoint-faults") as cluster:
        assert cluster.s3 is not None
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.s3.environment().items():
                patch.setenv(name, value)
            archive = MadeArchive(f"s3://{BUCKET}/base")
            put_topic(archive)
            archive.store.close()
        with S3FaultProxy(cluster.s3) as proxy:
            yield proxy


@pytest.fixture
def endpoint(proxy: S3FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A process that reads the archive through the proxy."""
    proxy.clear()
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    with running(f"s3://{BUCKET}/base", tmp_path) as (process,):
        yield process


def read(endpoint: Running) -> dict[int, list[int]]:
    """Return the offsets that a client gets of each partition, until it has all of them."""
    consumer = Consumer({"bootstrap.servers": endpoint.address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    def all_read() -> bool:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            found[number].append(offset)
        return all(len(offsets) >= RECORDS for offsets in found.values())

    try:
        wait_for(all_read, "all records", 120, state=lambda: {number: len(each) for number, each in found.items()})
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("weather", cases(WEATHER, quick=["truncated answers"]))
def test_e03_a_client_outlasts_a_faulty_store(proxy: S3FaultProxy, endpoint: Running, weather: str) -> None:
    """It gets each record once and in order by itself, and no error."""
    action = WEATHER[weather]()
    proxy.script(Rule(action, target=r"(\.log|offset\.wm)$", methods={"GET"}, times=TIMES))

    found = read(endpoint)

    assert action.fired == TIMES
    assert found == {number: list(range(RECORDS)) for number in range(PARTITIONS)}
    assert endpoint.process.poll() is None


def test_e03_a_client_waits_for_a_store_that_is_away(proxy: S3FaultProxy, endpoint: Running) -> None:
    """The first reads fail for longer than a request is repeated; then the client continues."""
    proxy.script(Rule(CutBefore(), target=r"(\.log|offset\.wm)$", methods={"GET"}, times=None))
    consumer = Consumer({"bootstrap.servers": endpoint.address, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        wait_for(lambda: not consumer.consume(1, 0.1) and REFUSED in endpoint.page("/metrics")[1], "an error", 60)
    finally:
        consumer.close()
    proxy.clear()

    assert read(endpoint) == {number: list(range(RECORDS)) for number in range(PARTITIONS)}
