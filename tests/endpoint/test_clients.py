"""Unchanged clients read every kind of topic from an endpoint: each record as Kafka's Java consumer read it before.

The Java consumer read it from the broker that wrote the topics. That broker and the agent that shipped them have ended.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from dev.local.jars import LINES, Line
from dev.local.oracle import Isolation, OracleRecord
from dev.local.ports import free_ports
from tests.endpoint.kafka_clients import java_tools
from tests.endpoint.kafka_clients.interface import ByTopic
from tests.endpoint.kafka_clients.matrix import CLIENTS, CONSOLES
from tests.endpoint.kafka_clients.python_clients import offsets_for_times, read_from
from tests.endpoint.running import Running
from tests.matrix import cases
from tests.oracle_topics.kinds import CUT, KINDS, QUICK
from tests.oracle_topics.shipped import CLUSTER, ENTROPY_BITS, ISOLATIONS, Shipped

# In `make test` these read each quick topic, and every other client a few of them, in one call.
THOROUGH: Final = ("librdkafka assign", "Java consumer 4")
FEW: Final = ("transactions-lz4", "magic-0-gzip")
# Full only: a JVM for half a minute each, and packages of npm.
SLOW: Final = ("Spark's Kafka source", "Java consumer 3.9", *CONSOLES, "kafkajs", "@platformatic/kafka")
AT_ONCE: Final = 3  # clients; most of them wait for a JVM
Wanted = tuple[str, Isolation]


@dataclass(frozen=True)
class Reading:
    """An endpoint, the topics that it serves, and what each client reads of them.

    Attributes:
        shipped: the topics.
        endpoint: its process.
        found: the records of each client and isolation level, by topic.
    """

    shipped: Shipped
    endpoint: Running
    found: Mapping[Wanted, Future[ByTopic]]


def selected_readings(request: pytest.FixtureRequest) -> dict[Wanted, list[str]]:
    """Return the topics that each client reads in the tests that run."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec"):
            params = item.callspec.params
            if "client" in params:
                found[params["client"], params["isolation"]].append(params["topic"])
    return found


@pytest.fixture(scope="module")
def reading(
    request: pytest.FixtureRequest, oracle_topics: Shipped, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reading]:
    """Let clients read the topics from an endpoint, some at the same time."""
    directory, shipped = tmp_path_factory.mktemp("clients"), oracle_topics
    archive = ("--url", shipped.location, "--cluster", CLUSTER, "--entropy-bits", str(ENTROPY_BITS))
    port, http_port = free_ports(2)
    endpoint = Running(archive, directory / "endpoint.log", port, http_port)
    try:
        endpoint.wait_until_ready()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = {
                (client, isolation): pool.submit(CLIENTS[client].read, endpoint.address, topics, isolation)
                for (client, isolation), topics in selected_readings(request).items()
            }
            yield Reading(shipped, endpoint, found)
            for future in found.values():
                future.cancel()
    finally:
        endpoint.stop()


def matrix() -> list[Any]:
    """Return client, topic and isolation level of each test."""
    every = []
    for name, client in CLIENTS.items():
        for topic in KINDS:
            # A console consumer needs a JVM for each topic; the Java consumer reads every topic in one.
            if not client.is_able(topic) or (name in CONSOLES and topic not in QUICK):
                continue
            for isolation in ISOLATIONS:
                is_quick = topic in QUICK if name in THOROUGH else topic in FEW and isolation == "read_committed"
                is_quick = is_quick and name not in SLOW
                every.append(pytest.param(name, topic, isolation, marks=() if is_quick else pytest.mark.full))
    return every


@pytest.mark.parametrize(("client", "topic", "isolation"), matrix())
def test_a_client_reads_each_record_as_the_java_consumer_read_it_from_the_broker(
    reading: Reading, client: str, topic: str, isolation: Isolation
) -> None:
    """Every field that the client shows, in order, and once."""
    expected = CLIENTS[client].expected(reading.shipped.expected[isolation][topic])
    shown = reading.found[client, isolation].result()[topic]
    assert expected
    assert [record for record in shown if record.offset >= expected[0].offset] == expected
    # The archive begins with the broker's oldest segment; DeleteRecords moved the broker's start inside it.
    before = range(CUT if topic == "cut-below" else 0)
    assert [record.offset for record in shown if record.offset < expected[0].offset] == list(before)


@pytest.mark.parametrize("topic", ["transactions-lz4", "of-old-1-lz4", "mixed"])
def test_a_consumer_continues_at_each_offset_that_it_seeks(reading: Reading, topic: str) -> None:
    """The next records follow, whether the offset has a record, a marker, or is inside a batch."""
    offsets = [record.offset for record in reading.shipped.expected["read_uncommitted"][topic]]
    draw = random.Random(topic)
    seeks = [draw.randrange(offsets[0], reading.shipped.ends[topic]) for _ in range(20)]
    found = read_from(reading.endpoint.address, topic, 0, seeks, 3)
    assert found == [[offset for offset in offsets if offset >= seek][:3] for seek in seeks]


@pytest.mark.parametrize("topic", ["magic-0-gzip", "of-old-1-lz4", "mixed", "appended-snappy"])
def test_a_time_has_the_offset_of_the_first_record_that_is_not_earlier(reading: Reading, topic: str) -> None:
    """For librdkafka and for `kafka-get-offsets`; a time after all records has no offset, as of a broker."""
    records = reading.shipped.expected["read_uncommitted"][topic]
    latest = max(record.timestamp for record in records)
    times = sorted({max(record.timestamp, 0) + step for record in records[::50] for step in (0, 1)} | {0, latest + 1})
    found = offsets_for_times(reading.endpoint.address, topic, 0, times)
    assert found == [first_at(records, time) for time in times]


def first_at(records: Sequence[OracleRecord], time: int) -> int:
    """Return the offset of the first record that is not earlier; -1 if all are."""
    return next((record.offset for record in records if record.timestamp >= time), -1)


@pytest.mark.parametrize("line", cases(LINES, quick=["4"]))
@pytest.mark.parametrize("topic", ["mixed"])
def test_kafkas_tool_prints_the_offsets_of_the_archive(reading: Reading, topic: str, line: Line) -> None:
    """The first offset, the next offset, and that of a time."""
    address = reading.endpoint.address
    records = reading.shipped.expected["read_uncommitted"][topic]
    middle = records[len(records) // 2].timestamp
    assert java_tools.offsets(address, topic, "earliest", line) == {0: 0}
    assert java_tools.offsets(address, topic, "latest", line) == {0: reading.shipped.ends[topic]}
    assert java_tools.offsets(address, topic, str(middle), line) == {0: first_at(records, middle)}
