"""The agent under the restrictions of deploy/ts-uploader.service: see tests/deploy/sandbox.py."""

from pathlib import Path

import pytest

from dev.local.certificates import Certificates
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.stores.s3 import S3Server
from tests.uploader.beside import BUCKET, ON_BOTH
from tests.uploader.conftest import ArchiveOf
from tests.uploader.process.confined import CONFINED
from tests.uploader.produced import records

S3 = "storage.service.endpoint.s3."


@ON_BOTH
def test_the_agent_ships_inside_the_sandbox_of_its_unit(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """With each forbidden system call deadly, no memory both writable and executable, and every disk read-only."""
    topic = f"confined-{'zookeeper' if cluster.zookeeper else 'kraft'}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(1000), partition=0)
    agent = archive.agent(prefix=CONFINED)
    end = archive.wait_until_shipped()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines())
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    agent.page("/")
    assert "process_start_time_seconds" in agent.metrics()
    agent.stop()
    assert "priority_not_lowered" not in agent.log.read_text()
    assert archive.read() == archive.oracle(end=end)


@pytest.mark.full
@ON_BOTH
def test_tls_and_a_hosts_name_need_no_more(cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path) -> None:
    """A store by its name and over TLS, with certificates on both sides."""
    files = Certificates(tmp_path)
    with S3Server(tmp_path, tmp_path, certificates=files) as server:
        server.create_bucket(BUCKET)
        topic = f"confined-tls-{'zookeeper' if cluster.zookeeper else 'kraft'}"
        properties = {
            f"{S3}endpoint.url": server.endpoint.replace("127.0.0.1", "localhost"),
            f"{S3}ca.bundle": str(files.authority),
            f"{S3}client.certificate": str(files.client),
            f"{S3}client.key": str(files.client_key),
        }
        archive = archive_of(topic, properties=properties)
        cluster.create_topic(topic, assignment=[[1]])
        cluster.produce(topic, records(1000), partition=0)
        agent = archive.agent(prefix=CONFINED, environment=server.environment())
        shipped = 'ts_uploader_partition_next_offset{partition="0",topic="' + topic + '"}'
        wait_for(lambda: agent.metrics().get(shipped, 0) > 0, "a commit", 120, state=lambda: agent.tail(20))
        agent.stop()
