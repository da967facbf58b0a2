"""A broker and an endpoint over an archive of the broker's own bytes, and their replies to recorded requests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, TopicPartition

from tests.endpoint.recorded.comparison import Difference, Names, differences, plain
from tests.endpoint.recorded.explained import Markers
from tests.endpoint.recorded.frames import Frame, Recording
from tests.endpoint.recorded.replay import Replay, parsed
from tests.endpoint.recorded.topics import PARTITIONS, PREFIX, TOPICS, TX, ship, topic_id
from tests.endpoint.running import running
from tests.made_archive import CLUSTER, MadeArchive
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_endpoint.protocol.versions import Api
from ts_local.kafka.cluster import LocalCluster

_MOST_FETCHES: Final = 50  # an endpoint replies with what is in memory; clients repeat the request


@dataclass(frozen=True)
class Server:
    """The broker or the endpoint.

    Attributes:
        address: that clients connect to.
        names: what it calls itself.
    """

    address: str
    names: Names


@dataclass(frozen=True)
class Beside:
    """A broker, and an endpoint over an archive of the broker's own bytes.

    Attributes:
        broker: with the topics.
        endpoint: with the same topics.
        topic_ids: of the topics, the same in both.
        markers: offsets of the markers.
    """

    broker: Server
    endpoint: Server
    topic_ids: dict[str, UUID]
    markers: Markers


@contextmanager
def beside_of(cluster: LocalCluster, directory: Path) -> Iterator[Beside]:
    """Run an endpoint over an archive of a broker's topics.

    Args:
        cluster: of one broker, with filled topics.
        directory: for the archive and the log.
    """
    archive = MadeArchive(directory / "archive")
    ship(cluster, archive)
    waiting = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{PREFIX}first"})
    waiting.committed([TopicPartition(TX, 0)], 60)  # the broker has its coordinator now
    waiting.close()
    with running(archive.location, directory, options=["--groups", "memory"]) as (endpoint,):
        yield Beside(
            _server(cluster.bootstrap, 1, cluster.cluster_id),
            _server(endpoint.address, 0, CLUSTER),
            {topic: topic_id(cluster, topic) for topic in TOPICS},
            {
                (topic, number): _markers(cluster, topic, number)
                for topic, count in PARTITIONS.items()
                for number in range(count)
            },
        )


def _server(address: str, node_id: int, cluster_id: str) -> Server:
    host, _, port = address.rpartition(":")
    return Server(address, Names(node_id, (host, int(port)), cluster_id))


def _markers(cluster: LocalCluster, topic: str, partition: int) -> frozenset[int]:
    found = set()
    for path in cluster.brokers[1].partition_directory(topic, partition).glob("*.log"):
        log, at = path.read_bytes(), 0
        while isinstance(header := parse_header(log, at, len(log) - at), BatchHeader):
            if header.is_control:
                found.add(header.base_offset)
            at += header.size_in_bytes
    return frozenset(found)


def compared(beside: Beside, recording: Recording) -> Iterator[Difference]:
    """Yield what differs between the replies to the requests of a recording, in its order."""
    ends = [(Replay(each.address, beside.topic_ids), each.names) for each in (beside.broker, beside.endpoint)]
    try:
        for frame in recording.frames:
            for replay, _ in ends:
                replay.send(frame, recording)
            broker, endpoint = (plain(replay.receive(frame), names) for replay, names in ends)
            for _ in range(_MOST_FETCHES):
                if not _lacks_records(frame, broker, endpoint):
                    break
                time.sleep(0.01)
                replay, names = ends[1]
                replay.send(frame, recording)
                endpoint = plain(replay.receive(frame), names)
            yield from differences(parsed(frame), broker, endpoint)
    finally:
        for replay, _ in ends:
            replay.close()


def _lacks_records(frame: Frame, *replies: Any) -> bool:
    """Return whether the endpoint's reply has fewer bytes of records than the broker's: it loads them."""
    if frame.api is not Api.FETCH:
        return False
    sizes = [
        sum(len(each["records"] or b"") for topic in reply["responses"] for each in topic["partitions"])
        for reply in replies
    ]
    return sizes[1] < sizes[0]
