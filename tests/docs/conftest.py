"""One broker with an S3 server, and an agent that shipped to it, as the pages assume."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.proxy.s3 import S3FaultProxy
from tests.uploader.beside import PREFIX, Archive, archives

TOPIC = "counted"
SEGMENT_BYTES = 20_000


@dataclass(frozen=True)
class Beside:
    """An agent on a broker's host that shipped the closed segments of the topic.

    Attributes:
        archive: the archive of `TOPIC`, which has one partition on the broker.
        agent: the agent.
        proxy: the proxy between agent and store.
        config: the directory of the agent's `prod.properties`.
    """

    archive: Archive
    agent: AgentProcess
    proxy: S3FaultProxy
    config: Path


def produce(archive: Archive, segments: int) -> None:
    """Produce records for `segments` closed segments and an active one."""
    each = [Record(bytes(SEGMENT_BYTES // 2 - 200)) for _ in range(2 * segments)]
    archive.cluster.produce(archive.topic, each, partition=0, config={"batch.size": 1})


@pytest.fixture(scope="package")
def beside(one_broker: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Start one agent for all pages."""
    directory = tmp_path_factory.mktemp("pages")
    assert one_broker.s3 is not None
    with archives(one_broker, directory) as archive_of, S3FaultProxy(one_broker.s3) as proxy:
        one_broker.create_topic(TOPIC, config={"segment.bytes": str(SEGMENT_BYTES)})
        archive = archive_of(TOPIC, properties={PREFIX + "s3.prefix.entropy.bits": "5"}, proxy=proxy)
        produce(archive, 3)
        agent = archive.agent()
        archive.wait_until_shipped()
        yield Beside(archive, agent, proxy, directory / "conf")
