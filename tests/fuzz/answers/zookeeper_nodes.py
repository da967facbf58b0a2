"""What nodes of ZooKeeper may hold: `ZookeeperState` and the check, without a server.

An input is a line with the kind of node (`topic`, `state`, `settings`, `broker`, `cluster`), and the node.
"""

import json
import random
from collections.abc import Callable
from typing import Any, cast

import structlog
from kazoo.client import KazooClient

from tests.fuzz.mutate import NUMERALS, TEXTS, json_text
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.zookeeper import connection_check as zookeeper_check
from ts_uploader.leadership.zookeeper.state import Node, ZookeeperState, settings_path, state_path, topic_path
from ts_uploader.messages.observations import Led
from ts_uploader.retention.topic_retention import (
    BrokerDefaults,
    BrokerSettings,
    TopicSettings,
    fraction_left,
    is_late,
    retention_of,
)

_PARTITION = TopicPartition("t", 0)
_STATE = state_path(_PARTITION)
_TOPIC = topic_path(_STATE)
_GOOD: dict[str, Any] = {
    "topic": {"version": 3, "topic_id": "5fWnyHqTQDqQDqQDqQDqQA", "partitions": {"0": [1, 2]}, "adding_replicas": {}},
    "state": {"controller_epoch": 7, "leader": 1, "version": 1, "leader_epoch": 7, "isr": [1, 2]},
    "settings": {
        "version": 1,
        "config": {"retention.ms": "60000", "retention.bytes": "-1", "cleanup.policy": "delete"},
    },
    "broker": {
        "version": 1,
        "config": {"log.retention.ms": "60000", "log.retention.hours": "1", "log.cleanup.policy": "compact"},
    },
    "cluster": {"version": "1", "id": "5fWnyHqTQDqQDqQDqQDqQA"},
}
_KEYS = (
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "segment.bytes",
    "cleanup.policy",
    "remote.storage.enable",
    "local.retention.ms",
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.retention.bytes",
    "log.segment.bytes",
    "log.roll.ms",
)


class ZookeeperNodes(Target):
    """Nodes that Kafka writes."""

    def open(self) -> None:
        """Silence the log, which no test reads."""
        structlog.configure(
            processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.ReturnLoggerFactory()
        )

    def draw(self, chance: random.Random) -> bytes:
        """A node that is nearly what Kafka writes."""
        kind = chance.choice(list(_GOOD))
        said = json.loads(json.dumps(_GOOD[kind]))
        if "config" in said and chance.random() < 0.6:
            said["config"][chance.choice(_KEYS)] = chance.choice((*NUMERALS, *TEXTS))
        return kind.encode() + b"\n" + json_text(chance, said)

    def run(self, data: bytes) -> None:
        """Parse the node, and use its content as the agent does."""
        (kind, *_), node = split_input(data)
        _TAKE.get(kind, _take_state)(node)


def _known() -> ZookeeperState:
    knowledge = ZookeeperState(1)
    knowledge.follow({_PARTITION})
    return knowledge


def _take_topic(data: bytes) -> None:
    knowledge = _known()
    knowledge.take_topic(_TOPIC, Node(data, 5, 5))
    said = knowledge.take_state(_STATE, Node(json.dumps(_GOOD["state"]).encode(), 6, 6), 0)
    _check_led(said)


def _take_state(data: bytes) -> None:
    knowledge = _known()
    knowledge.take_topic(_TOPIC, Node(json.dumps(_GOOD["topic"]).encode(), 5, 5))
    _check_led(knowledge.take_state(_STATE, Node(data, 6, 6), 0))


def _check_led(said: object) -> None:
    if not isinstance(said, Led):
        return
    epoch, topic_id = said.leadership.epoch, said.leadership.topic_id
    if not 0 <= epoch < 1 << 31:
        raise Mismatch(f"the leader epoch {epoch}")
    if topic_id is not None and not (len(topic_id) <= 64 and topic_id.isascii() and topic_id.isprintable()):
        raise Mismatch(f"the topic id {topic_id!r}")


def _take_settings(data: bytes) -> None:
    said = _known().take_settings(settings_path("t"), Node(data, 5, 5))
    if isinstance(said, TopicSettings):
        _use(BrokerDefaults(), dict(said.overrides))


def _take_broker(data: bytes) -> None:
    knowledge = _known()
    for path in sorted(knowledge.settings):
        if path.startswith("/config/brokers/"):
            said = knowledge.take_settings(path, Node(data, 5, 5))
            if isinstance(said, BrokerSettings):
                _use(BrokerDefaults().overridden_by(dict(said.overrides)), {})


def _use(defaults: BrokerDefaults, overrides: dict[str, str]) -> None:
    retention = retention_of(defaults, overrides)
    is_late(retention, 5.0)
    fraction_left(retention, 5.0, 1 << 40)


class _Client:
    """A client whose cluster's node holds these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, _path: str) -> tuple[bytes, None]:
        return self._data, None


def _check_cluster(data: bytes) -> None:
    environment = cast(Environment, type("Somewhere", (), {"cluster_id": "prod"}))
    for finding in zookeeper_check._cluster(cast(KazooClient, _Client(data)), environment, "zookeeper"):
        str(finding).encode()


_TAKE: dict[str, Callable[[bytes], None]] = {
    "topic": _take_topic,
    "state": _take_state,
    "settings": _take_settings,
    "broker": _take_broker,
    "cluster": _check_cluster,
}
