"""The settings of broker and topics, as the leadership source last reported them; thread-safe.

Settings are reported repeatedly, and each report is complete. Until the first one the broker's own file counts.
"""

import threading

import structlog

from ts_uploader.retention.topic_retention import (
    BrokerDefaults,
    BrokerSettings,
    TopicRetention,
    TopicSettings,
    retention_of,
)

log = structlog.get_logger()


class Settings:
    """The retention of topics."""

    def __init__(self, defaults: BrokerDefaults) -> None:
        self._of_file = defaults
        self._lock = threading.Lock()  # guards the following fields
        self._defaults = defaults
        self._overrides: dict[str, tuple[tuple[str, str], ...]] = {}
        self._retentions: dict[str, TopicRetention] = {}

    def take(self, said: BrokerSettings | TopicSettings) -> None:
        """Update the settings; an unchanged report has no effect."""
        with self._lock:
            if isinstance(said, BrokerSettings):
                defaults = self._of_file.overridden_by(dict(said.overrides))
                if defaults != self._defaults:
                    self._defaults = defaults
                    self._retentions.clear()
                    _warn("the broker's dynamic settings", defaults.problems)
            elif self._overrides.get(said.topic, ()) != said.overrides:
                self._overrides[said.topic] = said.overrides
                self._retentions.pop(said.topic, None)

    def retention(self, topic: str) -> TopicRetention:
        """Return how long Kafka keeps a topic's segments."""
        with self._lock:
            if topic not in self._retentions:
                retention = retention_of(self._defaults, dict(self._overrides.get(topic, ())))
                self._retentions[topic] = retention
                _warn(topic, retention.problems)
            return self._retentions[topic]


def _warn(whose: str, problems: tuple[str, ...]) -> None:
    for problem in problems:
        log.warning("setting_unreadable", of=whose, problem=problem)
