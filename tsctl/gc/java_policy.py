"""The policy that the Java uploader's keys in a cluster's file mean, for `tsctl gc` without a file of a policy.

::

    ts.segment.uploader.segment.manager.class=com.pinterest.kafka.tieredstorage.uploader.management.S3SegmentManager
    ts.segment.uploader.segment.manager.gc.interval.seconds=3600
    ts.segment.uploader.segment.manager.gc.retention.seconds=34560000
    ts.segment.uploader.segment.manager.gc.orders.retention.seconds=-1

The Java uploader (pinterest/tiered-storage, `SegmentManager`) deletes every segment whose time is earlier than now
minus the topic's retention, else the general one; an interval below 1 switches it off. What no value names differs:

- Its defaults (an interval of an hour, a retention of three days) do not apply. A value that is absent deletes nothing.
- A negative retention deletes everything there, since it makes the time a future one. Here it keeps everything.
- A segment also stays for its retention, or for a week if that is less, after its shipping. A retention below an hour
  is an error; one of an hour or more needs no confirmation.
"""

from typing import Any, Final

from ts_common.config.cluster_config import ClusterConfig
from ts_common.config.java_keys import (
    COLLECTING_MANAGER,
    INTERVAL_KEY,
    MANAGER_KEY,
    RETENTION_KEY,
    topic_of_retention,
)
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from tsctl.gc.policy import Policy, parse_policy

_ALL: Final = ".*"
_SOURCE: Final = "the cluster's file"
_HOUR_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 7 * 24 * _HOUR_SECONDS
_MOST_SECONDS: Final = 2**31 - 1  # Java's int


def policy_of_java(config: ClusterConfig, cluster: str) -> Policy | None:
    """Return the policy that a cluster's file has for the Java uploader; None if it deletes nothing.

    Raises:
        ConfigurationError: a value is no number, or a topic has no legal name; with every problem.
    """
    keys = config.java_collection
    problems: list[str] = []
    interval = _number(INTERVAL_KEY, keys.get(INTERVAL_KEY, "0"), problems)
    if keys.get(MANAGER_KEY, "").rpartition(".")[2] != COLLECTING_MANAGER or (interval < 1 and not problems):
        return None
    ages: dict[str, int] = {}
    for key, value in keys.items():
        topic = topic_of_retention(key)
        if key == RETENTION_KEY or topic is not None:
            if topic is not None and not is_topic_name(topic):
                problems.append(f"{key}: {topic!r} is no name of a topic")
            ages[_ALL if topic is None else topic] = _age(key, value, problems)
    if problems:
        raise ConfigurationError(_SOURCE, sorted(problems))
    if max(ages.values(), default=-1) < 0:
        return None
    named = sorted(ages, key=lambda topic: (topic == _ALL, topic))  # the general one is last
    return parse_policy({"cluster": cluster, "rules": [_rule(topic, ages[topic]) for topic in named]}, _SOURCE)


def _rule(topic: str, seconds: int) -> dict[str, Any]:
    if seconds < 0:
        return {"topics": topic, "keep": True}
    least = f"{min(seconds, _LEAST_SECONDS)}s"
    return {"topics": topic, "max_age": f"{seconds}s", "least_time": least, "confirm_small": True}


def _age(key: str, value: str, problems: list[str]) -> int:
    """Return seconds; -1 to keep everything."""
    seconds = _number(key, value, problems)
    if 0 <= seconds < _HOUR_SECONDS:
        problems.append(f"{key}={value}: {_HOUR_SECONDS} or more is expected, or -1 to keep everything")
    return max(-1, seconds)


def _number(key: str, value: str, problems: list[str]) -> int:
    try:
        number = int(value)
    except ValueError:
        number = _MOST_SECONDS + 1
    if abs(number) > _MOST_SECONDS:
        problems.append(f"{key}={value}: a whole number of seconds is expected")
        return -1
    return number
