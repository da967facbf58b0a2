"""Log the requests that the broker denies this agent's identity, one message for all topics. Pure but for its log."""

from collections.abc import Set
from enum import Enum

import structlog

log = structlog.get_logger()

_NAMED = 10  # topics in one message
_SOON_SECONDS = 5.0  # after the first denial: the others of the same kind have followed by then


class DeniedRequest(Enum):
    """The request that the broker denied."""

    LEADERS = "who leads"
    TOPIC_SETTINGS = "topics' settings"
    BROKER_SETTINGS = "the broker's dynamic settings"


class DeniedRequests:
    """Collects denied requests, and logs them: soon after the first, and again if more follow.

    Args:
        broker_id: of the broker that denies.
        identity: the agent's principal on that broker, as far as its settings show it.
        log_seconds: between two messages of one kind.
    """

    def __init__(self, broker_id: int, identity: str, log_seconds: float) -> None:
        self._broker_id = broker_id
        self._identity = identity
        self._log_seconds = log_seconds
        self._denied: dict[DeniedRequest, dict[str, str]] = {kind: {} for kind in DeniedRequest}
        self._new: set[DeniedRequest] = set()
        self._log_at: dict[DeniedRequest, float] = {}

    def take(self, request: DeniedRequest, topic: str, error: str) -> None:
        """Note a denied request; for the broker's settings with an empty topic."""
        if topic not in self._denied[request]:
            self._denied[request][topic] = error
            self._new.add(request)

    def granted(self, request: DeniedRequest, topic: str) -> None:
        """Forget a denied request, because the broker answered it now."""
        self._denied[request].pop(topic, None)

    def keep(self, topics: Set[str]) -> None:
        """Forget all other topics."""
        for kind in (DeniedRequest.LEADERS, DeniedRequest.TOPIC_SETTINGS):
            for topic in self._denied[kind].keys() - topics:
                del self._denied[kind][topic]

    def log_due(self, now: float) -> None:
        """Log the messages that are due; `now` is in seconds of the monotonic clock."""
        for kind in sorted(self._new, key=lambda kind: kind.name):
            if now < self._log_at.setdefault(kind, now + _SOON_SECONDS):
                continue
            self._log_at[kind] = now + self._log_seconds
            self._new.discard(kind)
            if self._denied[kind]:
                self._log(kind)

    def _log(self, kind: DeniedRequest) -> None:
        topics = sorted(self._denied[kind])
        facts = {
            "broker": self._broker_id,
            "identity": self._identity,
            "error": self._denied[kind][topics[0]],
            **({} if kind is DeniedRequest.BROKER_SETTINGS else {"topics": topics[:_NAMED], "of": len(topics)}),
        }
        if kind is DeniedRequest.LEADERS:
            log.error(
                "topics_denied",
                message="the broker denies who leads these topics: they are not shipped. Give the agent's identity the "
                "ACLs DESCRIBE and DESCRIBE_CONFIGS on them (kafka-acls --add --allow-principal User:... "
                "--operation Describe --operation DescribeConfigs --topic ...)",
                **facts,
            )
        elif kind is DeniedRequest.TOPIC_SETTINGS:
            log.warning(
                "topic_settings_denied",
                message="the broker denies the settings of these topics: the broker's own settings are used. Give the "
                "agent's identity the ACL DESCRIBE_CONFIGS on them",
                **facts,
            )
        else:
            log.warning(
                "broker_settings_denied",
                message="the broker denies its dynamic settings; the settings of its file are used. Give the agent's "
                "identity the ACL DESCRIBE_CONFIGS on the cluster",
                **facts,
            )
