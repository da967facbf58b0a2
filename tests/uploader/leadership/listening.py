"""A leadership source in its thread, and its reports."""

import threading
from collections.abc import Callable

from dev.local.waiting import wait_for
from ts_common.model import TopicPartition
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.messages.observations import Leadership, Led, NotLed
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings


class Listener:
    """A source in its thread, and its reports: of leadership, and of settings."""

    def __init__(self, make: Callable[[Callable[[LeadershipEvent], None]], LeadershipSource]) -> None:
        self.said: list[Led | NotLed] = []
        self.settings: list[TopicSettings | BrokerSettings] = []
        self.source = make(self.take)
        self.thread = threading.Thread(target=self.source.run)

    def take(self, said: LeadershipEvent) -> None:
        if isinstance(said, Led | NotLed):
            self.said.append(said)
        else:
            self.settings.append(said)

    def watch(self, *partitions: TopicPartition) -> None:
        self.source.watch(frozenset(partitions))

    def last(self, partition: TopicPartition) -> Led | NotLed | None:
        return next((said for said in reversed(self.said) if said.partition == partition), None)

    def leadership(self, partition: TopicPartition) -> tuple[int, str | None] | None:
        last = self.last(partition)
        return (last.leadership.epoch, last.leadership.topic_id) if isinstance(last, Led) else None

    def wait_leadership(self, partition: TopicPartition, epoch: int, topic_id: str | None) -> Leadership:
        wait_for(
            lambda: self.leadership(partition) == (epoch, topic_id), f"{partition} at {epoch}", state=lambda: self.said
        )
        last = self.last(partition)
        assert isinstance(last, Led)
        return last.leadership

    def overrides(self, topic: str | None) -> dict[str, str] | None:
        """The last report of a topic's settings, or with None of the broker's; None without a report."""
        for said in reversed(self.settings):
            if (said.topic if isinstance(said, TopicSettings) else None) == topic:
                return dict(said.overrides)
        return None

    def wait_overrides(self, topic: str | None, expected: dict[str, str]) -> None:
        wait_for(lambda: self.overrides(topic) == expected, f"{topic}: {expected}", state=lambda: self.settings)

    def close(self) -> None:
        self.source.stop()
        if self.thread.ident is not None:
            self.thread.join(20)
        assert not self.thread.is_alive()
