"""The raw connection to the local broker, as the leadership source uses it."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # a public name, imported without `as`

from dev.local.certificates import Certificates
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.fuzz.answers.broker import FakeBroker
from ts_common.broker_connection.connection import Api
from ts_common.broker_connection.encoding import string
from ts_common.broker_connection.failures import OFFSET_NOT_AVAILABLE
from ts_common.broker_connection.security import security_of
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.broker import BrokerAway
from ts_uploader.leadership.kraft.direct_client import DirectClient

SECONDS = 10.0
# ApiVersions 3: no error, three kinds of requests (ListOffsets from version 5 on), throttle time.
SERVED = bytes.fromhex("0000" + "04" + "00020005000700" + "00120000000400" + "00200001000100" + "00000000" + "00")


def client_of(cluster: LocalCluster, broker_id: int = 1) -> DirectClient:
    settings = {"bootstrap.servers": cluster.brokers[1].bootstrap}
    return DirectClient(broker_id, lambda: security_of(settings), SECONDS)


@pytest.fixture
def client(secured_kraft: LocalCluster) -> Iterator[DirectClient]:
    client = client_of(secured_kraft)
    yield client
    client.close(SECONDS)


def test_the_answers_of_another_broker_do_not_count(secured_kraft: LocalCluster) -> None:
    """Its address may be that of the local broker's file: a broker refuses the settings of another id."""
    other = client_of(secured_kraft, 7)
    with pytest.raises(BrokerAway, match="another broker than 7"):
        other.leaders("any")


def test_a_connection_that_the_broker_ended_is_made_again(client: DirectClient) -> None:
    """A broker ends an idle connection, and one whose login is old; the next request needs a new one."""
    assert client.leaders("absent") is None
    assert client._connection is not None
    client._connection._socket.shutdown(socket.SHUT_RDWR)
    assert client.leaders("absent") is None


def test_a_leader_without_a_high_watermark_is_a_leader_without_an_epoch() -> None:
    """Below min ISR a new leader has none; in earlier versions of the request the error is that of no leader."""
    broker = FakeBroker()
    of_partition = struct.pack(">ihqqi", 0, OFFSET_NOT_AVAILABLE, -1, -1, -1)
    topics = struct.pack(">i", 1) + string("t") + struct.pack(">i", 1) + of_partition
    broker.follow({Api.API_VERSIONS: (None, None, SERVED), Api.LIST_OFFSETS: (None, None, bytes(4) + topics)})
    client = DirectClient(1, lambda: security_of({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), SECONDS)
    assert client.latest([TopicPartition("t", 0)]).epochs == {TopicPartition("t", 0): None}
    client.close(SECONDS)
    broker.follow({})


def test_a_topic_that_changed_is_described_as_it_is_now(secured_kraft: LocalCluster, client: DirectClient) -> None:
    """An answer that is equal to the last one is not parsed again; a partition more makes another one."""
    assert client.leaders("grows") is None
    secured_kraft.create_topic("grows", assignment=[[1]])
    first = client.leaders("grows")
    assert first == {0: 1}
    assert client.leaders("grows") is first
    admin = secured_kraft.admin()
    admin.create_partitions([NewPartitions("grows", 2)])["grows"].result(30)
    wait_for(lambda: client.leaders("grows") == {0: 1, 1: 1}, "the second partition to be led")
    secured_kraft.delete_topic("grows")
    wait_for(lambda: client.leaders("grows") is None, "the topic to be gone")


def test_one_topic_that_the_broker_refuses_hides_no_settings_of_others(
    secured_kraft: LocalCluster, client: DirectClient
) -> None:
    """Each other topic has its own overrides, and no other setting of the hundreds that a broker sends."""
    secured_kraft.create_topic("set", assignment=[[1]], config={"retention.ms": "777", "max.message.bytes": "9999"})
    secured_kraft.create_topic("unset", assignment=[[1]])
    assert client.topic_settings(["set", "not allowed", "unset"]) == {"set": {"retention.ms": "777"}, "unset": {}}


def test_a_certificate_that_is_away_for_a_while_is_read_again(tmp_path: Path) -> None:
    """A broker restarts with new certificates, and their file follows later."""
    authority = tmp_path / "own-ca.pem"
    Certificates(tmp_path).authority.rename(authority)
    settings = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SSL", "ssl.ca.location": str(authority)}
    client = DirectClient(1, lambda: security_of(settings), 0.1)
    authority.rename(tmp_path / "away")
    with pytest.raises(BrokerAway, match=r"ssl\.\* is not usable"):
        client.leaders("t")
    (tmp_path / "away").rename(authority)
    with pytest.raises(BrokerAway, match="no connection"):
        client.leaders("t")
