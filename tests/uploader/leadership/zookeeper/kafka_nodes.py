"""ZooKeeper nodes as Kafka writes them."""

import json

from kazoo.client import KazooClient

from ts_common.model import TopicPartition
from ts_uploader.leadership.zookeeper.state import settings_path, state_path, topic_path

BROKER = 1
TP = TopicPartition("t", 0)
STATE = state_path(TP)
TOPIC = topic_path(STATE)
SETTINGS = settings_path("t")
EVERYONES, OWN = "/config/brokers/<default>", f"/config/brokers/{BROKER}"


def state(leader: int, epoch: int) -> bytes:
    return json.dumps(
        {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": epoch, "isr": []}
    ).encode()


def topic(topic_id: str | None) -> bytes:
    return json.dumps({"version": 3, "partitions": {}} | ({"topic_id": topic_id} if topic_id else {})).encode()


def settings(**config: object) -> bytes:
    return json.dumps(
        {"version": 1, "config": {key.replace("_", "."): value for key, value in config.items()}}
    ).encode()


def create(nodes: KazooClient, name: str, topic_id: str | None, partitions: int = 1, epoch: int = 0) -> None:
    requests = [
        nodes.create_async(f"/brokers/topics/{name}", topic(topic_id)),
        nodes.create_async(f"/brokers/topics/{name}/partitions"),
    ]
    for partition in range(partitions):
        path = state_path(TopicPartition(name, partition))
        requests.append(nodes.create_async(path.removesuffix("/state")))
        requests.append(nodes.create_async(path, state(BROKER, epoch)))
    for request in requests:
        request.get(timeout=30)


def all_of(name: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(name, partition) for partition in range(partitions)]
