"""High watermarks of a real broker, by each of the two ways to request them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.leadership.kraft.secured_brokers import LISTENERS, PASSWORD, TOKEN
from tests.uploader.leadership.kraft_records import records
from ts_common.broker_connection.connection import NoAnswer
from ts_common.config.cluster_config import ClusterConfig, parse_config
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment, ServerPropertiesEnvironment
from ts_uploader.leadership.broker_settings import security_of_broker
from ts_uploader.leadership.kraft.broker import Latest
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.tail import broker_watermarks, high_watermarks
from ts_uploader.tail.broker_watermarks import BrokerWatermarks, ClientHighWatermarks
from ts_uploader.tail.high_watermarks import HighWatermarks
from ts_uploader.tracking.backlog import Backlog

_CLIENT = "ts.segment.uploader.kafka.client."


def config_of(client: Mapping[str, str]) -> ClusterConfig:
    given = {_CLIENT + key: value for key, value in client.items()}
    return parse_config({"storage.service.endpoint.url": "file:///tmp", **given}, "a test")[0]


def through(cluster: LocalCluster, listener: str) -> Environment:
    environment = ServerPropertiesEnvironment(cluster.brokers[1].server_properties, "prod").load()
    changes = {"inter.broker.listener.name": listener, **LISTENERS.get(listener, {})}
    return replace(environment, broker_properties={**environment.broker_properties, **changes})


def first_answer(requests: BrokerWatermarks, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """On a slow machine a client needs longer for its first connection than a request waits."""

    def answer() -> dict[TopicPartition, int] | None:
        with suppress(NoAnswer):
            return requests.request(epochs)
        return None

    return wait_for(answer, "the first answer", 60) or {}


@pytest.mark.parametrize(("listener", "client"), [("SCRAM", {}), ("TOKEN", TOKEN)], ids=["raw", "librdkafka"])
def test_high_watermarks_are_requested_with_each_mechanism_of_sasl(
    secured_kraft: LocalCluster, listener: str, client: dict[str, str]
) -> None:
    """Each is that of the leader epoch, an answer is returned once, and another leader epoch has none."""
    names = [TopicPartition(f"watermarks-{listener.lower()}", number) for number in range(3)]
    secured_kraft.create_topic(names[0].topic, assignment=[[1]] * 3)
    secured_kraft.produce(names[0].topic, records(700), partition=0)
    backlog = {
        name: Backlog(listing, None, 0, None, None, hole=False, wait=None)
        for name in names
        if (listing := list_partition(name, secured_kraft.brokers[1].partition_directory(*name).parent)) is not None
    }
    requests = BrokerWatermarks(through(secured_kraft, listener), lambda: config_of(client), lambda: backlog)
    epochs = {names[0]: 0, names[1]: 0, names[2]: 4}
    assert first_answer(requests, epochs) == {names[0]: 700, names[1]: 0}
    assert requests.request(epochs) == {}
    secured_kraft.produce(names[1].topic, records(10), partition=1)
    found: dict[TopicPartition, int] = {}
    wait_for(lambda: found.update(requests.request(epochs)) is None and found, "the new high watermark")
    assert found == {names[1]: 10}
    assert requests.request({names[2]: 0}) == {names[2]: 0}
    requests.close()


def test_a_quiet_partition_has_its_turn_and_a_moving_one_each_time(
    secured_kraft: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of many waits for three requests or two seconds with its first record, and with no other one."""
    monkeypatch.setattr(high_watermarks, "_FEW", 8)
    names = [TopicPartition("watermarks-turns", number) for number in range(9)]
    secured_kraft.create_topic(names[0].topic, assignment=[[1]] * 9)
    security, now = security_of_broker(through(secured_kraft, "SCRAM"), config_of({})), 100.0
    requests = HighWatermarks(lambda: security, lambda: now)
    epochs = dict.fromkeys(names, 0)
    wait_for(lambda: len(requests.request(dict(epochs))) == 9, "all to be led")
    assert len(requests.request(epochs)) == 9

    def found(*moved: int) -> set[int]:
        for number in moved:
            secured_kraft.produce(names[0].topic, records(1), partition=number)
        return {name.partition for name in requests.request(epochs)}

    assert [found(0, 1, 2), found(), found(), found()] == [{0}, {1}, {2}, set()]
    assert found(0, 1, 2) == {0, 1, 2}
    now += 2.0
    assert found(7, 8) == {7, 8}
    for _ in range(2):  # none of them moves
        now += 30.0
        assert found() == set()
    assert [found(0, 1, 2), found(), found()] == [{2}, {0}, {1}]
    assert [found(5), found(3, 4, 5, 6), found()] == [{5}, {3, 5, 6}, {4}]  # most of them move
    requests.close()


def test_all_high_watermarks_are_returned_after_a_change_of_rights(
    secured_kraft: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints counted for a denied topic, and the turn that shows the new right has a part of its partitions."""
    monkeypatch.setattr(high_watermarks, "_FEW", 2)
    names = [TopicPartition("watermarks-rights", number) for number in range(6)]
    secured_kraft.create_topic(names[0].topic, assignment=[[1]] * 6)
    guest = config_of({"sasl.username": "guest2", "sasl.password": PASSWORD})
    security = security_of_broker(through(secured_kraft, "SECRET"), guest)
    requests, epochs = HighWatermarks(lambda: security), dict.fromkeys(names, 0)
    assert (requests.request(epochs), requests.denied) == ({}, {names[0].topic})
    right = (ResourceType.TOPIC, names[0].topic, ResourcePatternType.LITERAL, "User:guest2", "*")
    admin = secured_kraft.admin()
    found: list[dict[TopicPartition, int]] = []

    def is_allowed() -> bool:
        found.append(requests.request(epochs))
        return not requests.denied

    for done in admin.create_acls([AclBinding(*right, AclOperation.DESCRIBE, AclPermissionType.ALLOW)]).values():
        done.result(30)
    wait_for(is_allowed, "the right")
    assert found[-1] == dict.fromkeys(names, 0)
    for gone in admin.delete_acls([AclBindingFilter(*right, AclOperation.DESCRIBE, AclPermissionType.ALLOW)]).values():
        gone.result(30)
    wait_for(lambda: requests.request(epochs) == {} and requests.denied == {names[0].topic}, "the denial")
    requests.close()


def test_a_mechanism_that_neither_way_has_is_an_error(secured_kraft: LocalCluster) -> None:
    """It is librdkafka's; the password of the settings is not in it."""
    client = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "agent", "sasl.password": PASSWORD}
    requests = BrokerWatermarks(through(secured_kraft, "SCRAM"), lambda: config_of(client), dict)
    with pytest.raises(ConfigurationError, match="librdkafka rejects") as raised:
        requests.request({TopicPartition("t", 0): 0})
    assert PASSWORD not in str(raised.value)


def test_an_answer_is_returned_later_if_another_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are requested in lots. The high watermark may move no more, and records would wait for it."""
    monkeypatch.setattr(broker_watermarks, "_AT_ONCE", 1)
    names = [TopicPartition("t", number) for number in range(2)]
    asked: list[TopicPartition] = []

    class Client:
        def latest(self, wanted: list[TopicPartition]) -> Latest:
            asked.extend(wanted)
            return Latest(
                dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 7), frozenset(), "" if len(asked) != 2 else "no"
            )

        def close(self, _: float) -> None:
            """Nothing runs."""

    requests = ClientHighWatermarks(cast("Any", Client), dict)
    epochs = dict.fromkeys(names, 0)
    with pytest.raises(NoAnswer):
        requests.request(epochs)
    assert requests.request(epochs) == dict.fromkeys(names, 7)
