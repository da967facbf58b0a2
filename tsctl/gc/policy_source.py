"""Where `tsctl gc run` has its policy from, and what of the policy or of holds does not fit the archive.

Without a file of a policy, the Java uploader's keys in the cluster's file mean one::

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

import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

from ts_common.archive.holds import Hold
from ts_common.config.cluster_config import ClusterConfig, load_config
from ts_common.config.java_keys import (
    COLLECTING_MANAGER,
    INTERVAL_KEY,
    MANAGER_KEY,
    RETENTION_KEY,
    topic_of_retention,
)
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.suggestions import nearest
from ts_reader.options.archive_name import SOURCE, ArchiveName
from tsctl.archive_options import chooser
from tsctl.gc.policy import Policy, parse_policy, read_policy, useless_rules

_ALL: Final = ".*"
_SOURCE: Final = "the cluster's file"
_HOUR_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 7 * 24 * _HOUR_SECONDS
_MOST_SECONDS: Final = 2**31 - 1  # Java's int
_NO_KEYS: Final = "--policy is missing, and the file of --config has no retention of the Java uploader that applies"


def read_policy_of(path: Path | None, name: ArchiveName) -> Policy:
    """Return the policy of a file, or that of the Java uploader's keys in the cluster's file.

    Args:
        path: of the policy; None for the Java uploader's keys.

    Raises:
        ConfigurationError: it is malformed, or there is no policy.
    """
    if path is not None:
        return read_policy(path)
    if name.file is None:
        raise ConfigurationError(SOURCE, ["--policy is missing"])
    found = policy_of_java(load_config(name.file.path)[0], name.keys.cluster)
    if found is None:
        raise ConfigurationError(SOURCE, [_NO_KEYS])
    return found


def check_policy(policy: Policy, cluster: str, topics: Collection[str]) -> None:
    """Check that a policy is for the cluster of an archive, and that no rule is useless for the archive's topics.

    Raises:
        ConfigurationError: with each problem.
    """
    problems = useless_rules(policy, topics)
    if policy.cluster != cluster:
        own = f"the policy is for cluster {policy.cluster}, and the archive is of cluster {cluster}"
        problems = [f"{own}: give the policy of {cluster}, or correct `cluster` in it"]
    if problems:
        raise ConfigurationError("the policy", problems)


def findings_of(policy: Policy, topics: Collection[str], holds: Iterable[Hold]) -> list[str]:
    """Return a sentence for each text of a rule, and each hold that has not expired, that matches no topic.

    A misspelt one would have no effect without a message. Holds are those of all stores; a name counts once.
    """
    found = []
    for at, text in ((at, text) for at, rule in enumerate(policy.rules) for text in rule.topics):
        if not any(map(chooser([text]), topics)):
            lacks = "has this name" if is_topic_name(text) else "matches this regular expression with its whole name"
            found.append(f"rules.{at}: {text}: no topic of the archive {lacks}{nearest(text, topics)}")
    now = int(time.time() * 1000)
    for name, hold in sorted({hold.name: hold for hold in holds}.items()):
        if not hold.is_expired(now) and not any(map(hold.matches, topics)):
            found.append(f"hold {name}: it matches no topic of the archive, so it keeps nothing; correct its topics")
    return found


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
