from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_uploader.retention.topic_retention import (
    BROKER_KEYS,
    TOPIC_KEYS,
    BrokerDefaults,
    TopicRetention,
    fraction_left,
    is_late,
    retention_of,
)

HOUR_MS = 3_600_000
DAY_SECONDS = 86_400.0
KAFKAS = BrokerDefaults()


def topic(**overrides: str) -> TopicRetention:
    return retention_of(KAFKAS, {key.replace("_", "."): value for key, value in overrides.items()})


def test_without_settings_kafkas_defaults_count() -> None:
    """168 hours, no bound on bytes, delete; a day for tombstones, a minute for renamed files, 5 s for checkpoints."""
    assert BrokerDefaults(TopicRetention(168 * HOUR_MS, None, False, True, 24 * HOUR_MS, 60_000), 5_000) == KAFKAS
    assert KAFKAS.overridden_by({}) == KAFKAS
    assert retention_of(KAFKAS, {}) == KAFKAS.retention


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": " 4 "}, 4),
        ({"log.retention.hours": "2", "log.retention.ms": "-1"}, None),
        ({"log.retention.minutes": "-1", "log.retention.hours": "2"}, None),
        ({"log.retention.hours": "-1"}, None),
        ({"log.retention.ms": "0"}, 0),
    ],
)
def test_the_brokers_finer_unit_wins(properties: Mapping[str, str], retention_ms: int | None) -> None:
    """Milliseconds before minutes before hours, and a negative one is unlimited."""
    assert KAFKAS.overridden_by(properties).retention.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("overrides", "retention_ms", "retention_bytes"),
    [
        ({}, 1_000, 500),
        ({"remote.storage.enable": "false", "local.retention.ms": "7"}, 1_000, 500),
        ({"remote.storage.enable": "true"}, 100, 500),
        ({"remote.storage.enable": "True", "local.retention.ms": "7", "local.retention.bytes": "8"}, 7, 8),
        ({"remote.storage.enable": "true", "local.retention.ms": "-2", "local.retention.bytes": "-2"}, 1_000, 500),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "-1"}, None, 500),
        ({"remote.storage.enable": "true", "retention.ms": "-1"}, 100, 500),
        ({"remote.storage.enable": "true", "local.retention.ms": "2000"}, 1_000, 500),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "7"}, 1_000, 500),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact", "local.retention.ms": "7"}, 1_000, 500),
        ({"remote.storage.enable": "true", "local.retention.ms": "-3"}, 100, 500),
    ],
)
def test_of_a_topic_in_kafkas_tiered_storage_the_local_retention_counts(
    overrides: Mapping[str, str], retention_ms: int | None, retention_bytes: int
) -> None:
    """What the broker's disk keeps is what the agent has time for, and that ends long before the topic's retention."""
    broker = KAFKAS.overridden_by({"log.retention.ms": "1000", "log.retention.bytes": "500"})
    found = retention_of(broker.overridden_by({"log.local.retention.ms": "100"}), overrides)
    assert (found.retention_ms, found.retention_bytes) == (retention_ms, retention_bytes)
    assert bool(found.problems) == ("-3" in overrides.values())
    assert overrides.keys() <= TOPIC_KEYS
    assert "log.local.retention.ms" in BROKER_KEYS


def test_the_brokers_settings_apply_where_the_topic_sets_nothing() -> None:
    """Each setting by itself, under the broker's name and under the topic's."""
    broker = KAFKAS.overridden_by(
        {
            "log.retention.minutes": "10",
            "log.retention.bytes": "1000",
            "log.cleanup.policy": "compact, delete",
            "log.cleaner.delete.retention.ms": "11",
            "log.segment.delete.delay.ms": "12",
            "replica.high.watermark.checkpoint.interval.ms": "13",
            "num.io.threads": "8",
        }
    )
    assert broker == BrokerDefaults(TopicRetention(600_000, 1_000, True, True, 11, 12), 13)
    assert retention_of(broker, {"retention.ms": "5"}) == TopicRetention(5, 1_000, True, True, 11, 12)
    overrides = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "6",
    }
    assert retention_of(broker, overrides) == TopicRetention(None, None, False, True, 0, 6)


def test_dynamic_settings_win_over_the_brokers_file() -> None:
    """They have milliseconds only; for all other keys the file counts."""
    file = KAFKAS.overridden_by({"log.retention.minutes": "10", "log.retention.bytes": "7"})
    dynamic = file.overridden_by({"log.retention.ms": "5"})
    assert (dynamic.retention.retention_ms, dynamic.retention.retention_bytes) == (5, 7)


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        (" Delete , COMPACT ", True, True),
        ("", False, False),
    ],
)
def test_a_cleanup_policy_is_a_list(policy: str, compacted: bool, deletes: bool) -> None:
    """It has both policies, one or none, in any case."""
    retention = topic(cleanup_policy=policy)
    assert (retention.compacted, retention.deletes) == (compacted, deletes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "a week"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1.5"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "${file:/etc/kafka:retention}"),
        ("retention.bytes", "1GB"),
        ("cleanup.policy", "compact,shred"),
        ("delete.retention.ms", "-1"),
        ("file.delete.delay.ms", "-1"),
    ],
)
def test_an_unreadable_value_becomes_the_default_and_is_reported(key: str, value: str) -> None:
    """The broker's own default counts, the others are read, and the reason names key and value."""
    broker = KAFKAS.overridden_by({"log.retention.hours": "1", "log.retention.bytes": "7"})
    found = retention_of(broker, {"retention.ms": "5", "retention.bytes": "6", key: value})
    (problem,) = found.problems
    assert problem.startswith(f"{key}={value!r} ")
    assert found.retention_ms == (HOUR_MS if key == "retention.ms" else 5)
    assert found.retention_bytes == (7 if key == "retention.bytes" else 6)
    assert (found.compacted, found.deletes) == (False, True)
    assert (found.delete_retention_ms, found.file_delete_delay_ms) == (24 * HOUR_MS, 60_000)


def test_a_brokers_unreadable_age_leaves_the_coarser_one() -> None:
    """The reason is reported, and the next unit that is set counts."""
    found = KAFKAS.overridden_by({"log.retention.ms": "x", "log.retention.hours": "1"})
    assert found.retention.retention_ms == HOUR_MS
    assert len(found.problems) == 1
    assert found.retention.problems == retention_of(found, {}).problems == ()


def test_age_spends_retention_where_kafka_deletes() -> None:
    """Half of it after half the time, nothing from the end on, and all of it for one from the future."""
    week = topic()
    assert fraction_left(week, 3.5 * DAY_SECONDS, 0) == 0.5
    assert fraction_left(week, 7 * DAY_SECONDS, 0) == 0.0
    assert fraction_left(week, 700 * DAY_SECONDS, 0) == 0.0
    assert fraction_left(week, -DAY_SECONDS, 0) == 1.0
    assert fraction_left(topic(retention_ms="0"), 0, 0) == 0.0


def test_bytes_behind_spend_retention_where_kafka_deletes() -> None:
    """Kafka deletes the oldest segment once the others alone reach the limit."""
    sized = topic(retention_bytes="1000", retention_ms="-1")
    assert fraction_left(sized, 10**9, 250) == 0.75
    assert fraction_left(sized, 0, 999) > 0
    assert fraction_left(sized, 0, 1000) == 0.0


def test_the_nearest_limit_counts() -> None:
    """Age or bytes, whichever leaves less."""
    both = topic(retention_bytes="1000", retention_ms="1000")
    assert fraction_left(both, 0.9, 100) == pytest.approx(0.1)
    assert fraction_left(both, 0.1, 900) == pytest.approx(0.1)


def test_a_compacted_topic_is_limited_by_its_tombstones() -> None:
    """Neither its retention time nor its bytes count, the life of its tombstones does; with both policies all do."""
    compacted = topic(cleanup_policy="compact", retention_ms="1", retention_bytes="1", delete_retention_ms="4000")
    assert fraction_left(compacted, 1, 10**9) == 0.75
    both = topic(cleanup_policy="compact,delete", retention_ms="2000", delete_retention_ms="4000")
    assert fraction_left(both, 1, 0) == 0.5


@pytest.mark.parametrize("overrides", [{"cleanup_policy": ""}, {"retention_ms": "-1"}])
def test_where_nothing_deletes_all_is_left(overrides: Mapping[str, str]) -> None:
    """However old and however far behind."""
    assert fraction_left(topic(**overrides), 10**12, 10**18) == 1.0


def test_late_means_beyond_the_retention_of_tombstones() -> None:
    """Only on a compacted topic, and only when it is over."""
    compacted = topic(cleanup_policy="compact", delete_retention_ms="4000")
    assert not is_late(compacted, 4)
    assert is_late(compacted, 4.001)
    assert not is_late(topic(delete_retention_ms="4000"), 10**9)


LIMITS = st.none() | st.integers(0, 2**63 - 1)


@given(
    st.builds(TopicRetention, LIMITS, LIMITS, st.booleans(), st.booleans(), st.integers(0, 2**63 - 1)),
    st.floats(-1e12, 1e12),
    st.integers(0, 2**63 - 1),
    st.floats(0, 1e12),
    st.integers(0, 2**63 - 1),
)
def test_what_is_left_is_a_fraction_that_only_falls(
    retention: TopicRetention, age: float, behind: int, later: float, more: int
) -> None:
    """Between 0 and 1, never more with age or with bytes behind, and nothing where Kafka's own conditions hold."""
    left = fraction_left(retention, age, behind)
    assert 0.0 <= fraction_left(retention, age + later, behind + more) <= left <= 1.0
    if retention.deletes and retention.retention_bytes is not None and behind >= retention.retention_bytes:
        assert left == 0.0
    if retention.deletes and retention.retention_ms is not None and age * 1_000 > retention.retention_ms:
        assert left == 0.0
    if is_late(retention, age):
        assert left == 0.0
