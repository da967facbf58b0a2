"""Requests configurations of topics and brokers (DescribeConfigs).

Version 1 has the source of each value (KIP-226); `?` is a value that may be null, as in Kafka's
`DescribeConfigsRequest.json`::

    resources [type, name, keys? (null: all)], synonyms
    -> throttle, results [error, message?, type, name, settings [name, value?, read-only, source, sensitive,
       synonyms [name, value?, source]]]
"""

import re
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import string
from ts_common.broker_connection.failures import CLUSTER_DENIED, TOPIC_DENIED, UNKNOWN_TOPIC, request_failed
from ts_common.errors import CorruptData
from ts_common.kafka_configs import ConfigSource, ResourceType

_ALL: Final = b"\xff\xff\xff\xff"  # a null list
_NO_SYNONYMS: Final = b"\0"
# Settings that Kafka marks as sensitive; a broker of another make, or a plugin, may forget the mark.
_SECRET: Final = re.compile(r"password|secret|jaas\.config|keystore\.key")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, without a secret value."""

    name: str
    value: str | None
    source: int


def describe_configs(
    connection: BrokerConnection, kind: ResourceType, names: Sequence[str], keys: Collection[str] | None = None
) -> dict[str, list[Setting] | None]:
    """Return settings by resource; None where they are denied. Topics that do not exist any more are missing.

    Args:
        names: of topics; or the connection's own broker; or "" for the settings of all brokers.
        keys: of the settings; a broker leaves out those that it does not have. None for all.

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: another error.
    """
    wanted = _ALL if keys is None else struct.pack(">i", len(keys)) + b"".join(map(string, sorted(keys)))
    resources = [struct.pack(">b", kind) + string(name) + wanted for name in names]
    body = struct.pack(">i", len(resources)) + b"".join(resources) + _NO_SYNONYMS
    answer = connection.request(Api.DESCRIBE_CONFIGS, 1, body)
    answer.int32()

    def setting() -> Setting:
        name, value = answer.string() or "", answer.string()
        answer.boolean()
        source, is_sensitive = answer.int8(), answer.boolean()
        answer.array(lambda: (answer.string(), answer.string(), answer.int8()))
        return Setting(name, None if is_sensitive or _SECRET.search(name) else value, source)

    def result() -> tuple[str, int, list[Setting]]:
        error, message = answer.int16(), answer.string()
        answer.int8()
        name, settings = answer.string() or "", answer.array(setting)
        if name not in names:
            raise CorruptData(f"{connection.name}: DescribeConfigs has {name!r}, which was not requested")
        if error not in {0, UNKNOWN_TOPIC, TOPIC_DENIED, CLUSTER_DENIED}:
            raise request_failed(connection, "DescribeConfigs", error, message)
        return name, error, settings

    results = answer.array(result)
    if missing := {*names} - {name for name, _, _ in results}:
        raise CorruptData(f"{connection.name}: DescribeConfigs lacks {min(missing)!r}, which was requested")
    return {name: None if error else settings for name, error, settings in results if error != UNKNOWN_TOPIC}


def configs_of(settings: Iterable[Setting] | None, *sources: ConfigSource) -> dict[str, str] | None:
    """Return the settings that were set at one of some places, without secrets; None if they are denied."""
    if settings is None:
        return None
    return {each.name: each.value for each in settings if each.source in sources and each.value is not None}
