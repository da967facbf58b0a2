"""What the agent serves over HTTP: the page of metrics, whole or not at all, and without a copy of it in memory."""

import http.client
import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from ts_common.model import TopicPartition
from ts_uploader.backlog import Backlog
from ts_uploader.backlog_metrics import BacklogCollector
from ts_uploader.events import Listing
from ts_uploader.health import HealthServer, metrics_page
from ts_uploader.metrics import Metrics
from ts_uploader.retention import TopicRetention
from ts_uploader.waiting import Wait, WaitReason


def backlog(partitions: int) -> dict[TopicPartition, Backlog]:
    """Nothing waits but an answer."""
    waiting = {}
    for number in range(partitions):
        partition = TopicPartition("topic", number)
        listing = Listing(partition, Path("/log"), (1, number), Path("/"), (0,), (), False, None, 0)
        waiting[partition] = Backlog(listing, None, 0, 5, 10, hole=False, wait=Wait(WaitReason.STORE, "an answer"))
    return waiting


def registry_of(backlog: Callable[[], Mapping[TopicPartition, Backlog]]) -> CollectorRegistry:
    registry = Metrics().registry
    registry.register(BacklogCollector(backlog, lambda _: TopicRetention(), lambda: True))
    return registry


@contextmanager
def served(registry: CollectorRegistry) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server of this page."""
    server = HealthServer("127.0.0.1:0", registry, lambda: (True, {"partitions_led": 3}))
    server.start()
    try:
        with closing(http.client.HTTPConnection(server.address, timeout=10)) as connection:
            yield connection
    finally:
        server.stop()


def without_the_process(page: bytes) -> list[str]:
    """Its lines but for those that are others at each look."""
    return [line for line in page.decode().splitlines() if "process_" not in line]


@pytest.mark.parametrize("version", [11, 10], ids=["HTTP/1.1", "HTTP/1.0"])
def test_the_page_comes_in_pieces_and_is_the_one_that_prometheus_knows(version: int) -> None:
    """To clients that know of chunks, and to those that do not."""
    registry = registry_of(lambda: backlog(3))
    with served(registry) as connection:
        connection._http_vsn = version  # type: ignore[attr-defined]  # it has no setting for that
        connection._http_vsn_str = f"HTTP/1.{version - 10}"  # type: ignore[attr-defined]
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read()
    assert answer.status == http.client.OK
    assert (answer.headers["Transfer-Encoding"] == "chunked") == (version == 11)
    assert without_the_process(page) == without_the_process(generate_latest(registry))
    assert 'ts_uploader_partition_waiting{partition="2",topic="topic"} 1.0' in page.decode().splitlines()


def test_a_page_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    """The tracker does not answer: what was sent by then is no page."""

    def fail() -> Mapping[TopicPartition, Backlog]:
        raise TimeoutError("the tracker does not answer")

    with served(registry_of(fail)) as connection:
        connection.request("GET", "/metrics")
        with pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()


def test_the_page_takes_less_memory_than_it_is_long() -> None:
    """Neither all of its samples nor all of its text ever stand there at once."""
    waiting = backlog(2000)
    registry = registry_of(lambda: waiting)
    size = sum(len(piece) for piece in metrics_page(registry))
    tracemalloc.start()
    try:
        for _ in metrics_page(registry):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 1_000_000
    assert peak < size


def test_health_is_told_with_its_facts() -> None:
    """As JSON, and the connection ends with it."""
    with served(registry_of(dict)) as connection:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"status": "ok", "partitions_led": 3})
        assert answer.headers["Connection"] == "close"
