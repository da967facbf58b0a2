"""What the broker does not tell this agent's identity, said in one message for all topics. Pure but for its log."""

from collections.abc import Set
from enum import Enum

import structlog

log = structlog.get_logger()

_NAMED = 10  # topics in one message
_SOON_SECONDS = 5.0  # after the first refusal: the others of the same kind are found by then


class DeniedRequest(Enum):
    """What was asked for, and what else can be done without it."""

    LEADERS = "who leads"
    TOPIC_SETTINGS = "topics' settings"
    BROKER_SETTINGS = "the broker's dynamic settings"


class Refusals:
    """Remembers what is refused, and says it: soon after the first, and again where more came.

    Args:
        broker_id: who refuses.
        identity: under which the agent is known to the broker, as far as its settings tell.
        say_seconds: between two messages of one kind.
    """

    def __init__(self, broker_id: int, identity: str, say_seconds: float) -> None:
        self._broker_id = broker_id
        self._identity = identity
        self._say_seconds = say_seconds
        self._refused: dict[DeniedRequest, dict[str, str]] = {kind: {} for kind in DeniedRequest}
        self._new: set[DeniedRequest] = set()
        self._say_at: dict[DeniedRequest, float] = {}

    def take(self, asked: DeniedRequest, topic: str, error: str) -> None:
        """Take a refusal; of the broker's settings with an empty topic."""
        if topic not in self._refused[asked]:
            self._refused[asked][topic] = error
            self._new.add(asked)

    def granted(self, asked: DeniedRequest, topic: str) -> None:
        """It is told now."""
        self._refused[asked].pop(topic, None)

    def keep(self, topics: Set[str]) -> None:
        """Forget all other topics."""
        for kind in (DeniedRequest.LEADERS, DeniedRequest.TOPIC_SETTINGS):
            for topic in self._refused[kind].keys() - topics:
                del self._refused[kind][topic]

    def say(self, now: float) -> None:
        """Say what is due; `now` is in seconds, by the monotonic clock."""
        for kind in sorted(self._new, key=lambda kind: kind.name):
            if now < self._say_at.setdefault(kind, now + _SOON_SECONDS):
                continue
            self._say_at[kind] = now + self._say_seconds
            self._new.discard(kind)
            if self._refused[kind]:
                self._say(kind)

    def _say(self, kind: DeniedRequest) -> None:
        topics = sorted(self._refused[kind])
        facts = {
            "broker": self._broker_id,
            "identity": self._identity,
            "error": self._refused[kind][topics[0]],
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
                message="the broker denies its dynamic settings: those of its file are used. Give the agent's identity "
                "the ACL DESCRIBE_CONFIGS on the cluster",
                **facts,
            )
