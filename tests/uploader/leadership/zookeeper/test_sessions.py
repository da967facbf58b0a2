"""What the ZooKeeper source does when its session ends."""

import shutil
import socket
import threading
import time

import pytest
from kazoo.client import KazooClient

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.waiting import wait_for
from tests.uploader.leadership.zookeeper.kafka_nodes import SETTINGS, STATE, TOPIC, TP, all_of, create, settings, state
from tests.uploader.leadership.zookeeper.sources import Impatient, Listen, Quick, led
from ts_uploader.messages.observations import NotLed
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings


def test_u16_a_session_that_expired(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """While ZooKeeper is silent, nothing is reported; then everything is, and no leadership counts as a new one."""
    create(nodes, "t", "id", partitions=5, epoch=2)
    nodes.create(SETTINGS, settings(retention_ms="1"), makepath=True)
    listener = listen(zookeeper.connect, Impatient)
    listener.watch(*all_of("t", 5))
    before = [listener.wait_leadership(partition, 2, "id") for partition in all_of("t", 5)]
    all_settings = {TopicSettings("t", (("retention.ms", "1"),)), BrokerSettings(())}
    wait_for(lambda: set(listener.settings) == all_settings, "the settings to be said")
    zookeeper.pause()
    try:
        wait_for(lambda: not listener.source.connected, "the silence to be noticed")
        said, settings_said = len(listener.said), len(listener.settings)
        lost_at = time.monotonic()
        wait_for(lambda: time.monotonic() > lost_at + 2 * Impatient.session_seconds, "the session to expire")
        assert (len(listener.said), len(listener.settings)) == (said, settings_said)
    finally:
        zookeeper.resume()  # the next test has the same server
    wait_for(lambda: led(listener, said) == set(all_of("t", 5)), "all to be said again")
    wait_for(lambda: set(listener.settings[settings_said:]) == all_settings, "the settings to be said again")
    assert [listener.wait_leadership(partition, 2, "id") for partition in all_of("t", 5)] == before
    nodes.set(STATE, state(2, 3))
    wait_for(lambda: listener.last(TP) == NotLed(TP), "the watches to be there again")


def test_u16_zookeeper_restored_from_nothing(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """kazoo's client rejects an ensemble that restarted its transaction count forever; another client replaces it."""
    for epoch in range(3):
        create(nodes, "t", "id", epoch=epoch)
        nodes.delete(TOPIC, recursive=True)
    create(nodes, "t", "id", epoch=5)
    listener = listen(zookeeper.connect, Impatient)
    listener.watch(TP)
    listener.wait_leadership(TP, 5, "id")
    zookeeper.kill()
    shutil.rmtree(zookeeper.directory / "data")
    zookeeper.start()
    with zookeeper.client() as client:
        client.ensure_path("/brokers/topics")
        create(client, "t", "restored", epoch=1)
        listener.wait_leadership(TP, 1, "restored")


def test_u16_stop_does_not_wait_for_zookeeper(listen: Listen) -> None:
    """A source ends soon, whether no server listens or one that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        silent_port, closed_port = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        listeners = [listen(f"127.0.0.1:{port}") for port in (silent_port, closed_port)]
        silent.accept()[0].close()
        stopped_at = time.monotonic()
        for listener in listeners:
            listener.source.stop()
        for listener in listeners:
            listener.thread.join(20)
        assert time.monotonic() < stopped_at + 8
        assert [listener.said for listener in listeners] == [[], []]


@pytest.mark.full
def test_u18_threads_do_not_grow(zookeeper: ZooKeeper, nodes: KazooClient, listen: Listen) -> None:
    """2,000 partitions need no thread of their own, neither at first nor after two restarts of ZooKeeper."""
    create(nodes, "big", "id", partitions=1700)
    create(nodes, "small", "id", partitions=300)
    partitions = [*all_of("big", 1700), *all_of("small", 300)]
    listener = listen(zookeeper.connect, Quick)
    wait_for(lambda: listener.source.connected, "the session")
    threads = threading.active_count()
    listener.watch(*partitions)
    wait_for(lambda: led(listener) == set(partitions), "all to be said")
    assert threading.active_count() <= threads
    for _ in range(2):
        listener.said.clear()
        zookeeper.kill()
        wait_for(lambda: not listener.source.connected, "the loss to be noticed")
        zookeeper.start()
        wait_for(lambda: led(listener) == set(partitions), "all to be said again")
        assert threading.active_count() <= threads
