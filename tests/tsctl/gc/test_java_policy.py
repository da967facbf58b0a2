"""The policy that the Java uploader's keys mean."""

import pytest

from ts_common.config.cluster_config import parse_config
from ts_common.errors import ConfigurationError
from tsctl.gc.due import Rule
from tsctl.gc.policy import Policy
from tsctl.gc.policy_source import policy_of_java

PREFIX = "ts.segment.uploader.segment.manager."
ON = {
    "class": "com.pinterest.kafka.tieredstorage.uploader.management.S3SegmentManager",
    "gc.interval.seconds": "3600",
}
HOUR, DAY = 3_600_000, 86_400_000


def policy(keys: dict[str, str]) -> Policy | None:
    config, _ = parse_config({PREFIX + key: value for key, value in keys.items()}, "prod.properties")
    return policy_of_java(config, "prod")


def test_each_topic_has_its_retention_or_the_general_one() -> None:
    """A segment stays as long after its shipping, or a week; a short retention needs no confirmation."""
    keys = {"gc.retention.seconds": "8640000", "gc.a.b.retention.seconds": "7200", "gc.c.retention.seconds": "-1"}
    found = policy({**ON, **keys})
    assert found is not None
    assert (found.cluster, found.grace) == ("prod", 20 * DAY // 24)
    rules = {topic: found.rule_for(topic) for topic in ("a.b", "c", "other")}
    assert {topic: rule and rule.resolve(None) for topic, rule in rules.items()} == {
        "a.b": Rule(2 * HOUR, None, 2 * HOUR),
        "c": Rule(None, None, 7 * DAY),
        "other": Rule(100 * DAY, None, 7 * DAY),
    }


def test_a_topic_without_a_retention_keeps_everything() -> None:
    """The Java uploader would delete it after three days, a default that the file does not show."""
    found = policy({**ON, "gc.a.retention.seconds": "7200"})
    assert found is not None
    assert found.rule_for("b") is None
    assert policy(ON) is None


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"class": "NoOpSegmentManager"},
        {"class": ""},
        {"gc.interval.seconds": "-1"},
        {"gc.interval.seconds": "0", "gc.retention.seconds": "soon"},
        {"gc.retention.seconds": "-1"},
    ],
    ids=str,
)
def test_a_collection_that_is_switched_off_deletes_nothing(keys: dict[str, str]) -> None:
    """By the class, the interval, the retention, or because the file has no such key."""
    assert policy({**ON, "gc.retention.seconds": "7200", **keys} if keys else {}) is None


def test_an_interval_that_is_absent_deletes_nothing() -> None:
    """The Java uploader would delete every hour."""
    assert policy({"class": ON["class"], "gc.retention.seconds": "7200"}) is None


def test_every_wrong_value_is_named() -> None:
    """A retention of nothing would delete everything that is shipped."""
    with pytest.raises(ConfigurationError) as found:
        policy({**ON, "gc.retention.seconds": "0", "gc.a.retention.seconds": "7d", "gc.a/b.retention.seconds": "7200"})
    assert found.value.problems == (
        f"{PREFIX}gc.a.retention.seconds=7d: a whole number of seconds is expected",
        f"{PREFIX}gc.a/b.retention.seconds: 'a/b' is no name of a topic",
        f"{PREFIX}gc.retention.seconds=0: 3600 or more is expected, or -1 to keep everything",
    )
    with pytest.raises(ConfigurationError, match=r"interval\.seconds=hourly: a whole number"):
        policy({**ON, "gc.interval.seconds": "hourly"})
