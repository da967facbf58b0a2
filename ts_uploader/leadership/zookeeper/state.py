"""The nodes of the followed partitions in ZooKeeper, and what one broker leads by them. Pure but for its log.

::

    /brokers/topics/<topic>                          {"topic_id": "...", ...}            (the id: since Kafka 2.8)
    /brokers/topics/<topic>/partitions/<p>/state     {"leader": 1, "leader_epoch": 7, ...}
    /config/topics/<topic>                           {"version": 1, "config": {"retention.ms": "60000", ...}}
    /config/brokers/<default>                        the same, for all brokers
    /config/brokers/<id>                             the same, for one broker; it has precedence

- If a node is malformed, an error is logged, and its content is unknown until it changes.
- If a new session's server lags behind, a node that was modified (mzxid) before the newest one read is ignored.
- A topic can be re-created between two reads. A state is therefore read before its topic, and counts only for a topic
  that was created (czxid) before it. So an epoch is never combined with the id of another incarnation.
- Only settings that affect retention are kept. A broker's settings also contain its passwords: no other key leaves this
  module, and the content of such a node is never logged.
"""

from collections.abc import Set
from typing import Any, NamedTuple

import structlog

from ts_common.errors import CorruptData
from ts_common.json_objects import MAX_INT32, parse_json
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership, Led, NotLed
from ts_uploader.retention.topic_retention import BROKER_KEYS, TOPIC_KEYS, BrokerSettings, TopicSettings

log = structlog.get_logger()

_NODE_BYTES = 64 << 20  # far above ZooKeeper's limit for a node, which is 1 MiB unless jute.maxbuffer changes it
_ID_CHARACTERS = 64  # Kafka's have 22
TOPICS = "/brokers/topics/"
_TOPIC_SETTINGS = "/config/topics/"
_BROKER_SETTINGS = "/config/brokers/"


class Node(NamedTuple):
    """The data of a path, and the transactions that created and last modified it."""

    data: bytes | None
    czxid: int
    mzxid: int


class ZookeeperState:
    """The state of the followed partitions for one broker, without I/O except for the log.

    Attributes:
        partitions: the followed ones, by the path of their state.
        states: paths of the followed states, by the path of their topic.
        settings: paths of the settings of their topics and of the broker.
    """

    def __init__(self, broker_id: int) -> None:
        self.partitions: dict[str, TopicPartition] = {}
        self.states: dict[str, set[str]] = {}
        # In this order, so that the broker's own have precedence.
        self._broker_settings = (f"{_BROKER_SETTINGS}<default>", f"{_BROKER_SETTINGS}{broker_id}")
        self.settings = set(self._broker_settings)
        self._broker_overrides: dict[str, dict[str, str]] = {}
        self._broker_id = broker_id
        self._topics: dict[str, tuple[int, str | None] | None] = {}  # czxid and id; None: absent or unreadable
        self._leaderships: dict[str, Leadership] = {}
        self._mzxids: dict[str, int] = {}  # outlives a deleted node: a re-created one has a later

    def follow(self, wanted: Set[TopicPartition]) -> set[str]:
        """Follow these partitions and forget the others; return the paths that are new."""
        paths = {state_path(partition): partition for partition in wanted}
        for path in self.partitions.keys() - paths.keys():
            topic, settings = topic_path(path), settings_path(self.partitions[path].topic)
            self.states[topic].remove(path)
            known: tuple[dict[str, Any], ...] = (
                self.partitions,
                self.states,
                self._topics,
                self._leaderships,
                self._mzxids,
            )
            for by_path in known:
                by_path.pop(path, None)
                if not self.states.get(topic):
                    by_path.pop(topic, None)
            if topic not in self.states:
                self.settings.discard(settings)
                self._mzxids.pop(settings, None)
        new = set(paths.keys() - self.partitions.keys())
        for path in tuple(new):
            self.partitions[path] = paths[path]
            self.states.setdefault(topic_path(path), set()).add(path)
            settings = settings_path(paths[path].topic)
            if settings not in self.settings:
                self.settings.add(settings)
                new.add(settings)
        return new

    def take_topic(self, path: str, node: Node | None) -> set[str]:
        """Apply a topic's node, None if absent; return the states to read again."""
        if self._is_old(path, node):
            return set()
        topic = None
        if node is not None and (fields := _fields(path, node, topic_id=(str, type(None)))) is not None:
            topic = (node.czxid, fields["topic_id"])
        changed = path in self._topics and self._topics[path] != topic
        self._topics[path] = topic
        return self.states[path] if changed else set()

    def take_state(self, path: str, node: Node | None, now: int) -> Led | NotLed | None:
        """Apply a state, None if absent, after its topic; return what to emit, if anything.

        Args:
            node: as read.
            now: nanoseconds since the epoch.
        """
        if self._is_old(path, node):
            return None
        fields = {} if node is None else _fields(path, node, leader=(int,), leader_epoch=(int,))
        if fields is None:
            return None
        if node is not None and fields["leader_epoch"] < 0:
            _log_malformed(path, node, "a leader epoch below 0")
            return None
        if node is None or fields["leader"] != self._broker_id:
            self._leaderships.pop(path, None)
            return NotLed(self.partitions[path])
        topic = self._topics.get(topic_path(path))
        if topic is None or topic[0] > node.czxid:
            return None
        leadership = self._leaderships.get(path)
        if leadership is None or (leadership.epoch, leadership.topic_id) != (fields["leader_epoch"], topic[1]):
            leadership = self._leaderships[path] = Leadership(fields["leader_epoch"], topic[1], now)
        return Led(self.partitions[path], leadership)

    def take_settings(self, path: str, node: Node | None) -> TopicSettings | BrokerSettings | None:
        """Apply one of `settings`, None if absent; return what to emit, if anything."""
        if self._is_old(path, node):
            return None
        if path not in self._broker_settings:
            overrides = _overrides(path, node, TOPIC_KEYS)
            return None if overrides is None else TopicSettings(path.removeprefix(_TOPIC_SETTINGS), _pairs(overrides))
        overrides = _overrides(path, node, BROKER_KEYS)
        if overrides is None:
            return None
        self._broker_overrides[path] = overrides
        if len(self._broker_overrides) < len(self._broker_settings):
            return None
        everyones, own = (self._broker_overrides[level] for level in self._broker_settings)
        return BrokerSettings(_pairs(everyones | own))

    def forget_versions(self) -> None:
        """Accept the next nodes whatever their mzxid, because a restored ensemble restarts its transaction count."""
        self._mzxids.clear()

    def _is_old(self, path: str, node: Node | None) -> bool:
        if node is None:
            return False  # an absent node has no transaction; its watch reports later changes
        if node.mzxid < self._mzxids.get(path, node.mzxid):
            log.warning("zookeeper_state_outdated", message="ignored", path=path)
            return True
        self._mzxids[path] = node.mzxid
        return False


def topic_id_in(topic: str, node: Node) -> str | None:
    """Return the topic id in a topic's node; None if it has none, or is malformed."""
    fields = _fields(f"{TOPICS}{topic}", node, topic_id=(str, type(None)))
    return None if fields is None else fields["topic_id"]


def state_path(partition: TopicPartition) -> str:
    """Return `/brokers/topics/<topic>/partitions/<partition>/state`."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"


def settings_path(topic: str) -> str:
    """Return `/config/topics/<topic>`."""
    return f"{_TOPIC_SETTINGS}{topic}"


def topic_path(path: str) -> str:
    """Return `/brokers/topics/<topic>` for the path of a state, or for itself."""
    return "/".join(path.split("/", 4)[:4])


def _overrides(path: str, node: Node | None, keys: Set[str]) -> dict[str, str] | None:
    """Return these settings of a node, None if malformed. An absent or empty node has no settings, as in Kafka."""
    if node is None or not node.data:
        return {}
    fields = _fields(path, node, config=(dict, type(None)))
    if fields is None:
        return None
    overrides = {key: value for key, value in (fields["config"] or {}).items() if key in keys}
    if not all(isinstance(value, str) for value in overrides.values()):
        _log_malformed(path, node, "a setting is no string")
        return None
    return overrides


def _pairs(overrides: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(overrides.items()))


def _fields(path: str, node: Node, **types: tuple[type, ...]) -> dict[str, Any] | None:
    """Return these fields of a node; None, after logging an error, if it is malformed."""
    try:
        content = parse_json(node.data or b"", path, _NODE_BYTES)
        if isinstance(content, dict) and all(_is(content.get(name), types[name]) for name in types):
            return {name: content.get(name) for name in types}
        error = f"no object with {', '.join(types)}"
    except CorruptData as unreadable:
        error = str(unreadable)
    _log_malformed(path, node, error)
    return None


def _is(value: object, types: tuple[type, ...]) -> bool:
    """Whether a field is of one of these types, and can be a broker, an epoch or an id."""
    if type(value) not in types:
        return False
    if isinstance(value, int):
        return -MAX_INT32 <= value <= MAX_INT32  # a topic that is being deleted has the leader -2
    return not isinstance(value, str) or (len(value) <= _ID_CHARACTERS and value.isascii() and value.isprintable())


def _log_malformed(path: str, node: Node, error: str) -> None:
    found = None if path.startswith(_BROKER_SETTINGS) else (node.data or b"")[:200]
    log.error("zookeeper_node_malformed", path=path, found=found, error=error)
