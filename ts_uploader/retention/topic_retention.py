"""Computes how much of its retention a waiting segment has left, from the settings of broker and topic. Pure.

A topic's own setting has precedence, then the broker's dynamic one, then the broker's file, then Kafka's default
(`org.apache.kafka.storage.internals.log.LogConfig`, `kafka.server.DynamicBrokerConfig`, KIP-226)::

    topic                   broker
    retention.ms            log.retention.ms, else log.retention.minutes, else log.retention.hours     -1: unlimited
    retention.bytes         log.retention.bytes                                                        -1: unlimited
    cleanup.policy          log.cleanup.policy                        delete, compact, both, or neither
    delete.retention.ms     log.cleaner.delete.retention.ms
    file.delete.delay.ms    log.segment.delete.delay.ms
    local.retention.ms      log.local.retention.ms                            -2: as retention.ms, -1: unlimited
    local.retention.bytes   log.local.retention.bytes                         -2: as retention.bytes, -1: unlimited
    remote.storage.enable, remote.log.copy.disable

The last three lines are those of Kafka's own tiered storage (KIP-405): a broker's disk keeps the segments of such a
topic for `local.retention.*`, once they are in Kafka's remote tier (`UnifiedLog.localRetentionMs`). Kafka rejects it
for compacted topics, and if the broker has no remote tier. With `remote.log.copy.disable` (KIP-950) `retention.*`
counts again.

DeleteRecords is not considered: no setting predicts it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_CHECKPOINT_INTERVAL = "replica.high.watermark.checkpoint.interval.ms"
_FOLLOWS = -2  # LogConfig.DEFAULT_LOCAL_RETENTION_MS: as long as the whole log
_REMOTE = "remote.storage.enable"
_COPY_DISABLED = "remote.log.copy.disable"
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")  # as Java's Long.parseLong; int() would also accept "1_000"
_LONGEST = 2**63 - 1


class _Keys(NamedTuple):
    """The names of the settings at one level; `ages` in order of precedence, each with its unit in milliseconds."""

    ages: tuple[tuple[str, int], ...]
    size: str
    policy: str
    delete_retention: str
    file_delete_delay: str
    local_age: str
    local_size: str

    def all(self) -> frozenset[str]:
        ages, *others = self
        return frozenset({*(key for key, _ in ages), *others})


_OF_TOPIC = _Keys(
    ages=(("retention.ms", 1),),
    size="retention.bytes",
    policy="cleanup.policy",
    delete_retention="delete.retention.ms",
    file_delete_delay="file.delete.delay.ms",
    local_age="local.retention.ms",
    local_size="local.retention.bytes",
)
_OF_BROKER = _Keys(
    ages=(("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    size="log.retention.bytes",
    policy="log.cleanup.policy",
    delete_retention="log.cleaner.delete.retention.ms",
    file_delete_delay="log.segment.delete.delay.ms",
    local_age="log.local.retention.ms",
    local_size="log.local.retention.bytes",
)

TOPIC_KEYS = _OF_TOPIC.all() | {_REMOTE, _COPY_DISABLED}
BROKER_KEYS = _OF_BROKER.all() | {_CHECKPOINT_INTERVAL}


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """What Kafka does with a topic's old segments; without arguments, Kafka's defaults.

    Attributes:
        retention_ms: a segment of this age may be deleted from the broker's disk; None for unlimited.
        retention_bytes: a larger log of a partition loses its oldest segments; None for unlimited.
        compacted: whether the log cleaner rewrites its segments.
        deletes: whether the two limits above count at all.
        delete_retention_ms: how long the cleaner keeps a tombstone or a transaction marker.
        file_delete_delay_ms: from the rename to `.deleted` to the unlink.
        problems: settings that could not be read, and the values used instead; to be logged.
    """

    retention_ms: int | None = 7 * 24 * _HOUR_MS
    retention_bytes: int | None = None
    compacted: bool = False
    deletes: bool = True
    delete_retention_ms: int = 24 * _HOUR_MS
    file_delete_delay_ms: int = _MINUTE_MS
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """The settings of topics without their own; without arguments, Kafka's defaults.

    Attributes:
        retention: of a topic without settings of its own.
        checkpoint_interval_ms: `replica.high.watermark.checkpoint.interval.ms`.
        local_retention_ms: of topics in Kafka's own tiered storage, as in its setting: -2 as the whole, -1 unlimited.
        local_retention_bytes: the same for the size.
        problems: settings that could not be read, and the values used instead; to be logged.
    """

    retention: TopicRetention = field(default_factory=TopicRetention)
    checkpoint_interval_ms: int = 5 * _SECOND_MS
    local_retention_ms: int = _FOLLOWS
    local_retention_bytes: int = _FOLLOWS
    problems: tuple[str, ...] = ()

    def overridden_by(self, properties: Mapping[str, str]) -> "BrokerDefaults":
        """Return these defaults, overridden by a broker's `server.properties` or its dynamic settings.

        Other keys are ignored. `problems` are those of these properties alone. As in Kafka's
        `KafkaConfig.logRetentionTimeMillis`, milliseconds override minutes, and minutes override hours.
        """
        reader = _Reader(properties)
        retention = _read(reader, _OF_BROKER, self.retention)
        interval = reader.number(_CHECKPOINT_INTERVAL, self.checkpoint_interval_ms, lowest=0)
        local_ms = reader.number(_OF_BROKER.local_age, self.local_retention_ms, lowest=_FOLLOWS)
        local_bytes = reader.number(_OF_BROKER.local_size, self.local_retention_bytes, lowest=_FOLLOWS)
        return BrokerDefaults(retention, interval, local_ms, local_bytes, tuple(reader.problems))


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's own settings that bear on retention. Reported repeatedly; each report is complete.

    Attributes:
        overrides: (key, value) pairs with keys among `TOPIC_KEYS`, ascending; for `retention_of`.
    """

    topic: str
    overrides: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's dynamic settings that bear on retention. Reported repeatedly; each report is complete.

    Attributes:
        overrides: (key, value) pairs with keys among `BROKER_KEYS`, ascending; for `BrokerDefaults.overridden_by`.
    """

    overrides: tuple[tuple[str, str], ...]


def retention_of(defaults: BrokerDefaults, overrides: Mapping[str, str]) -> TopicRetention:
    """Return a topic's retention.

    Args:
        overrides: the topic's own settings; other keys are ignored.

    Returns:
        The retention. Its `problems` name each override that could not be read; the broker's default replaces it.
    """
    reader = _Reader(overrides)
    retention = _read(reader, _OF_TOPIC, defaults.retention)
    local_ms = reader.number(_OF_TOPIC.local_age, defaults.local_retention_ms, lowest=_FOLLOWS)
    local_bytes = reader.number(_OF_TOPIC.local_size, defaults.local_retention_bytes, lowest=_FOLLOWS)
    if reader.true(_REMOTE) and not reader.true(_COPY_DISABLED) and not retention.compacted:
        retention = replace(
            retention,
            retention_ms=_shorter(retention.retention_ms, local_ms),
            retention_bytes=_shorter(retention.retention_bytes, local_bytes),
        )
    return replace(retention, problems=tuple(reader.problems))


def fraction_left(retention: TopicRetention, age_seconds: float, bytes_behind: int) -> float:
    """Return the share of a closed segment's retention until Kafka may delete some of it: 1 if new, 0 if due.

    It is the minimum over the limits; 1.0 without a limit:

    - age, if Kafka deletes: `UnifiedLog.deleteRetentionMsBreachedSegments` deletes a segment whose largest timestamp
      is more than `retention.ms` ago;
    - size, if Kafka deletes: `UnifiedLog.deleteRetentionSizeBreachedSegments` deletes the oldest segment while log
      size - segment size >= `retention.bytes`; log size - segment size is the size of the log after the oldest one;
    - age, if Kafka compacts: a tombstone or a transaction marker may be removed `delete.retention.ms` after the cleaner
      first met it (KIP-534), which is no sooner than that time after it was written.

    The delay before the unlink is not counted: protocol rule 10 uses it when the retention is spent.

    Args:
        age_seconds: since the segment's largest timestamp; since its last write if that is unknown, which is too young
            by as much as its producers' clocks are behind. Below 0 counts as 0.
        bytes_behind: of the partition's log from this segment's end on, including the active segment.
    """
    age_ms = max(0.0, age_seconds * _SECOND_MS)
    left = [1.0]
    if retention.deletes and retention.retention_ms is not None:
        left.append(_left(age_ms, retention.retention_ms))
    if retention.deletes and retention.retention_bytes is not None:
        left.append(_left(bytes_behind, retention.retention_bytes))
    if retention.compacted:
        left.append(_left(age_ms, retention.delete_retention_ms))
    return min(left)


def seconds_left(retention: TopicRetention, age_seconds: float, bytes_behind: int, written_seconds_ago: float) -> float:
    """Return the seconds until `fraction_left` is 0, by the clock; infinite without a limit.

    For the limit by size, the bytes after the segment and the time since its last write give the growth of the log. If
    no bytes follow it, size deletes nothing.

    Args:
        age_seconds: as in `fraction_left`.
        bytes_behind: as in `fraction_left`.
        written_seconds_ago: since the segment's last write.
    """
    age_ms = max(0.0, age_seconds * _SECOND_MS)
    left = [math.inf]
    if retention.deletes and retention.retention_ms is not None:
        left.append((retention.retention_ms - age_ms) / _SECOND_MS)
    if retention.deletes and retention.retention_bytes is not None:
        missing = retention.retention_bytes - bytes_behind
        if missing <= 0:
            left.append(0.0)
        elif bytes_behind > 0:
            left.append(missing * max(0.0, written_seconds_ago) / bytes_behind)
    if retention.compacted:
        left.append((retention.delete_retention_ms - age_ms) / _SECOND_MS)
    return max(0.0, min(left))


def is_late(retention: TopicRetention, age_seconds: float) -> bool:
    """Return whether the cleaner may have removed tombstones or markers of a segment of this age: `fraction_left`."""
    return retention.compacted and age_seconds * _SECOND_MS > retention.delete_retention_ms


def _shorter(whole: int | None, local: int) -> int | None:
    """Return the shorter of two limits: that of the whole log, and the local one; below 0 it is unset."""
    if local < 0:
        return whole
    return local if whole is None else min(whole, local)


def _left(spent: float, limit: int) -> float:
    return 0.0 if spent >= limit else 1.0 - spent / limit


class _Reader:
    """Reads settings as Kafka's `ConfigDef` does, but records a problem where that would reject a value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.problems: list[str] = []

    def number(self, key: str, default: int, lowest: int = -_LONGEST - 1) -> int:
        """Return a setting's value; the default if it is missing or malformed."""
        number = self.number_or_none(key, lowest)
        return default if number is None else number

    def number_or_none(self, key: str, lowest: int = -_LONGEST - 1) -> int | None:
        text = self.values.get(key)
        if text is None:
            return None
        if _NUMBER.fullmatch(text.strip()) and lowest <= int(text) <= _LONGEST:
            return int(text)
        at_least = "" if lowest < 0 else f" of at least {lowest}"
        self.problems.append(f"{key}={text!r} is no whole number{at_least}; the default counts")
        return None

    def true(self, key: str) -> bool:
        """Return a switch as Java does: any other text is off, and so is a missing one."""
        return self.values.get(key, "").strip().lower() == "true"

    def policies(self, key: str) -> frozenset[str] | None:
        """Return the words of a cleanup policy, which may be empty; None if it is missing or unknown."""
        text = self.values.get(key)
        if text is None:
            return None
        words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
        if words <= {"delete", "compact"}:
            return words
        self.problems.append(f"{key}={text!r} is no list of delete and compact; the default counts")
        return None


def _read(reader: _Reader, keys: _Keys, default: TopicRetention) -> TopicRetention:
    retention_ms = default.retention_ms
    for key, unit in keys.ages:
        age = reader.number_or_none(key)
        if age is not None:
            retention_ms = None if age < 0 else age * unit
            break
    size = reader.number_or_none(keys.size)
    policies = reader.policies(keys.policy)
    return TopicRetention(
        retention_ms=retention_ms,
        retention_bytes=default.retention_bytes if size is None else None if size < 0 else size,
        compacted=default.compacted if policies is None else "compact" in policies,
        deletes=default.deletes if policies is None else "delete" in policies,
        delete_retention_ms=reader.number(keys.delete_retention, default.delete_retention_ms, lowest=0),
        file_delete_delay_ms=reader.number(keys.file_delete_delay, default.file_delete_delay_ms, lowest=0),
    )
