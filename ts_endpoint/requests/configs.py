"""DescribeConfigs: the settings that are true of an archive, because tools and frameworks read some of them.

- Quix Streams ends without `retention.ms`, and `kafka-topics --under-min-isr-partitions` without `min.insync.replicas`.
- MirrorMaker 2 writes to its target each setting that is neither a default nor read-only. So retention is shown as a
  setting of the topic: a target with its own default of seven days would delete old records at once.
- Settings that the topic has in the archived cluster are its settings here, by the newest metadata snapshot: a mirror
  should have them. Those in `_OF_CLUSTER` are not, because they concern the cluster's brokers or its retention.
- All others are read-only defaults, which MirrorMaker 2 leaves out. Without a snapshot, a compacted topic is `delete`
  here: nothing compacts it any more.
- What an archive has no answer for is left out, for instance `message.timestamp.type` without a snapshot.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ts_common.archive.snapshots import Configs
from ts_common.errors import TieredStorageError
from ts_common.kafka_configs import ConfigSource, ResourceType
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_endpoint.contract import Session, in_lots, permitted_first
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.requests.context import Context, error_of


class _Type(IntEnum):
    """Kafka's numbers of types (`ConfigType`)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of topics, and the broker's setting that is its default.

    Attributes:
        topic: its name as a setting of topics; None if only brokers have it.
        broker: its name as a setting of brokers.
        value: what is true of the archive.
        is_topics: whether each topic has it, and mirrors of the topic should.
    """

    topic: str | None
    broker: str
    value: str
    type: _Type
    about: str
    is_topics: bool = False

    def of_topic(self, *, has_synonyms: bool, is_documented: bool) -> Values:
        """Return the entry of a topic."""
        own = {"name": self.topic, "value": self.value, "source": ConfigSource.DYNAMIC_TOPIC}
        synonyms = [own, self._default] if self.is_topics else [self._default]
        entry = self._entry(str(self.topic), synonyms if has_synonyms else [], is_documented=is_documented)
        source = ConfigSource.DYNAMIC_TOPIC if self.is_topics else ConfigSource.DEFAULT
        return {**entry, "config_source": source, "read_only": not self.is_topics}

    def of_broker(self, *, has_synonyms: bool, is_documented: bool) -> Values:
        """Return the entry of a broker."""
        entry = self._entry(self.broker, [self._default] if has_synonyms else [], is_documented=is_documented)
        return {**entry, "config_source": ConfigSource.DEFAULT, "read_only": True}

    @property
    def _default(self) -> Values:
        return {"name": self.broker, "value": self.value, "source": ConfigSource.DEFAULT}

    def _entry(self, name: str, synonyms: list[Values], *, is_documented: bool) -> Values:
        return {
            "name": name,
            "value": self.value,
            "is_sensitive": False,
            "synonyms": synonyms,
            "config_type": self.type,
            "documentation": self.about if is_documented else None,
        }


_READ_ONLY: Final = "An archive is read-only."
_SETTINGS: Final = (
    _Setting(None, "auto.create.topics.enable", "false", _Type.BOOLEAN, _READ_ONLY),
    _Setting("cleanup.policy", "log.cleanup.policy", "delete", _Type.LIST, "The endpoint compacts nothing."),
    _Setting("compression.type", "compression.type", "producer", _Type.STRING, "Batches are those that brokers had."),
    _Setting(None, "default.replication.factor", "1", _Type.INT, "Replicas are the store's own concern."),
    _Setting(None, "delete.topic.enable", "false", _Type.BOOLEAN, _READ_ONLY),
    _Setting(
        "max.message.bytes", "message.max.bytes", str(MAX_BATCH_BYTES), _Type.INT, "Larger batches are not served."
    ),
    _Setting("min.insync.replicas", "min.insync.replicas", "1", _Type.INT, "One process serves a partition."),
    _Setting("retention.bytes", "log.retention.bytes", "-1", _Type.LONG, "Size deletes nothing.", is_topics=True),
    _Setting("retention.ms", "log.retention.ms", "-1", _Type.LONG, "Age deletes nothing.", is_topics=True),
)
_OF_CLUSTER: Final = frozenset(
    {
        *("retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes", "min.insync.replicas"),
        *("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
        *("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"),
        "unclean.leader.election.enable",
    }
)
_OF_TOPICS: Final = tuple(sorted((each for each in _SETTINGS if each.topic), key=lambda each: str(each.topic)))
_OF_BROKERS: Final = tuple(sorted(_SETTINGS, key=lambda each: each.broker))


class DescribeConfigsHandler:
    """Answers DescribeConfigs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, request: Request, session: Session) -> Values:
        """Return the values of the reply."""
        body = request.body
        shown = {
            "has_synonyms": body.include_synonyms,
            "is_documented": getattr(body, "include_documentation", False),
        }
        # One entry serves all topics of the reply, because an archive has the same defaults for each.
        of_topics = [each.of_topic(**shown) for each in _OF_TOPICS]
        of_brokers = [each.of_broker(**shown) for each in _OF_BROKERS]
        results = []
        distinct = _distinct(body.resources)
        for some in in_lots(permitted_first(distinct, lambda each: self._is_permitted(each, session))):
            results += [
                await self._one(
                    *each, distinct[each], session, of_topics, of_brokers, has_synonyms=body.include_synonyms
                )
                for each in some
            ]
            await asyncio.sleep(0)
        return {"results": results}

    async def _one(
        self,
        kind: int,
        name: str,
        names: Collection[str] | None,
        session: Session,
        of_topics: list[Values],
        of_brokers: list[Values],
        *,
        has_synonyms: bool,
    ) -> Values:
        error, message, entries = ErrorCode.none, "", list[Values]()
        if kind == ResourceType.TOPIC:
            error = await self._topic_error(name, session)
            if error is ErrorCode.none:
                entries = _with_own(of_topics, await self._context.configs(name), has_synonyms=has_synonyms)
        elif kind != ResourceType.BROKER:
            error, message = ErrorCode.invalid_request, "this endpoint has settings of topics and of brokers only"
        elif name == str(self._context.nodes.self_id):
            entries = of_brokers
        elif name:  # without a name, these are the dynamic defaults of all brokers: an empty list
            error = ErrorCode.invalid_request
            message = f"unexpected broker id {name!r}; expected {self._context.nodes.self_id}, or no id"
        return {
            "error_code": error,
            "error_message": message,
            "resource_type": kind,
            "resource_name": name,
            "configs": _named(entries, names),
        }

    def _is_permitted(self, resource: tuple[int, str], session: Session) -> bool:
        kind, name = resource
        return kind != ResourceType.TOPIC or self._context.may_read(session, name)

    async def _topic_error(self, name: str, session: Session) -> ErrorCode:
        if not self._context.may_read(session, name):
            return ErrorCode.topic_authorization_failed
        try:
            known = await self._context.archive.catalog.use(name)
        except TieredStorageError as error:
            return error_of(error)
        return ErrorCode.none if known is not None else ErrorCode.unknown_topic_or_partition


def _distinct(resources: Iterable[Any]) -> dict[tuple[int, str], set[str] | None]:
    """Return type and name of each resource once, with the settings that a client named; None if it wants all.

    A request of some bytes for each resource would otherwise fill the memory with repeated settings.
    """
    found: dict[tuple[int, str], set[str] | None] = {}
    for each in resources:
        named = found.setdefault((each.resource_type, each.resource_name), set())
        if not each.configuration_keys:
            found[each.resource_type, each.resource_name] = None
        elif named is not None:
            named.update(each.configuration_keys)
    return found


def _with_own(entries: list[Values], configs: Configs, *, has_synonyms: bool) -> list[Values]:
    """Return the entries of a topic with the settings that it has in the archived cluster."""
    own = {name: value for name, value in configs.items() if name not in _OF_CLUSTER}
    if not own:
        return entries
    found = {each["name"]: each for each in entries}
    for name, value in own.items():
        default = found.get(name, {"config_type": _Type.UNKNOWN, "documentation": None, "synonyms": []})
        synonym = {"name": name, "value": value, "source": ConfigSource.DYNAMIC_TOPIC}
        found[name] = {
            **default,
            "name": name,
            "value": value,
            "is_sensitive": False,
            "synonyms": [synonym, *default["synonyms"]] if has_synonyms else [],
            "config_source": ConfigSource.DYNAMIC_TOPIC,
            "read_only": False,
        }
    return [found[name] for name in sorted(found)]


def _named(entries: Iterable[Values], names: Collection[str] | None) -> list[Values]:
    """Return the entries that a client named; all if it named none."""
    return [each for each in entries if not names or each["name"] in names]
