"""How often ZooKeeper is read again although no watch reported a change."""

import pytest

from tests.uploader.leadership.zookeeper.listening_zookeeper import opened
from ts_common.config.cluster_config import parse_config
from ts_uploader.environment import Environment
from ts_uploader.leadership.factory import open_source
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership

NOWHERE = "127.0.0.1:1"


def test_watches_report_changes_so_polls_are_rare_unless_an_operator_sets_them() -> None:
    """With 30,000 partitions a poll each minute costs 6 % of a core, and ZooKeeper as much for each broker."""
    assert opened(NOWHERE, {}).poll_seconds == 600
    config, _ = parse_config({"ts.segment.uploader.leadership.watcher.poll.interval.seconds": "7"}, "c.properties")
    environment = Environment("c", 1, (), NOWHERE, kraft=False)
    assert open_source(environment, config, lambda _: None).poll_seconds == 7


def test_agents_that_connected_together_do_not_poll_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an election of ZooKeeper all agents of a fleet connect within seconds."""
    monkeypatch.setattr(ZookeeperLeadership, "_read_registration", lambda *_: False)
    polls = set()
    for _ in range(20):
        source = opened(NOWHERE, {})
        assert isinstance(source, ZookeeperLeadership)
        source._read_noted(1_000.0)
        polls.add(source._poll_at)
    assert len(polls) > 10
    assert 1_000 + 450 <= min(polls) < max(polls) <= 1_000 + 750
