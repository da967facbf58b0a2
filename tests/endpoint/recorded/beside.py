"""A broker and an endpoint over an archive of the broker's own bytes, and their replies to recorded requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, TopicPartition

from dev.local.kafka.cluster import LocalCluster
from dev.local.waiting import wait_for
from tests.endpoint.recorded.comparison import Difference, Names, differences, plain
from tests.endpoint.recorded.frames import Frame, Recording
from tests.endpoint.recorded.replay import Replay, parsed
from tests.endpoint.recorded.topics import PREFIX, TOPICS, TX, ship, topic_id
from tests.endpoint.running import running
from tests.made_archive import CLUSTER, MadeArchive
from ts_endpoint.protocol.versions import Api

_SECONDS: Final = 60.0  # until the endpoint has loaded the records of a request


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
    """

    broker: Server
    endpoint: Server
    topic_ids: dict[str, UUID]


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
        )


def _server(address: str, node_id: int, cluster_id: str) -> Server:
    host, _, port = address.rpartition(":")
    return Server(address, Names(node_id, (host, int(port)), cluster_id))


def compared(beside: Beside, recording: Recording) -> Iterator[Difference]:
    """Yield what differs between the replies to the requests of a recording, in its order."""
    ends = [(Replay(each.address, beside.topic_ids), each.names) for each in (beside.broker, beside.endpoint)]
    try:
        for frame in recording.frames:
            for replay, _ in ends:
                replay.send(frame, recording)
            broker, endpoint = (plain(replay.receive(frame), names) for replay, names in ends)
            if _lacks_records(frame, broker, endpoint):
                endpoint = _with_records(frame, recording, broker, *ends[1])
            yield from differences(parsed(frame), broker, endpoint)
    finally:
        for replay, _ in ends:
            replay.close()


def _with_records(frame: Frame, recording: Recording, broker: Any, replay: Replay, names: Names) -> Any:
    """Return the endpoint's reply with all records: it has what is in memory, so clients repeat the request."""
    replies: list[Any] = []

    def has_all() -> bool:
        replay.send(frame, recording)  # the endpoint awaits what it loads
        replies[:] = [plain(replay.receive(frame), names)]
        return not _lacks_records(frame, broker, replies[0])

    wait_for(has_all, f"the records of {frame.api.name} {frame.version}", _SECONDS, every=0)
    return replies[0]


def _lacks_records(frame: Frame, *replies: Any) -> bool:
    """Return whether the endpoint's reply has fewer bytes of records than the broker's: it loads them."""
    if frame.api is not Api.FETCH:
        return False
    sizes = [
        sum(len(each["records"] or b"") for topic in reply["responses"] for each in topic["partitions"])
        for reply in replies
    ]
    return sizes[1] < sizes[0]
