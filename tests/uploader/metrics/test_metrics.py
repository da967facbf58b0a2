"""The metrics of an agent's backlog: sums and extremes by default, and each partition if configured."""

import inspect
import math
import os
import re
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

import ts_uploader
from tests.uploader.local_directory import LocalDirectory
from ts_common import errors
from ts_common.model import TopicPartition
from ts_uploader.health.store_health import FAILURE_REASONS, failure_reason
from ts_uploader.messages.observations import Listing
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.metrics.counters import CountedElsewhere, Metrics
from ts_uploader.metrics.metrics_page import families
from ts_uploader.retention.topic_retention import TopicRetention, seconds_left
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason, Waits

HOUR = 3600.0
DAY_MS = 24 * 3600 * 1000
A, B, C = (TopicPartition(name, 0) for name in "abc")


def collected(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"ts_uploader_{name}", labels)


def waiting(directory: Path, base: int | None, wait: Wait | None = None, *, age_hours: float = 0.0) -> Backlog:
    """A partition with segments of 1, 2 and 4 bytes at 0, 10 and 20, the closed ones last written so long ago."""
    local = LocalDirectory(directory)
    for at, data in ((0, b"1"), (10, b"22"), (20, b"4444")):
        local.write(at, data)
        written = time.time() - age_hours * HOUR
        os.utime(local.path / f"{at:020d}.log", (written, written))
    segments = 0 if base is None else 2 - base // 10
    return Backlog(local.listing(), base, segments, 7, 5, hole=False, wait=wait)


def test_an_agent_reports_the_sum_and_the_worst_of_its_backlog(tmp_path: Path) -> None:
    """One partition kept for an hour, one for a day, one where nothing waits."""
    retentions = {"a": TopicRetention(retention_ms=DAY_MS), "b": TopicRetention(retention_ms=DAY_MS // 24)}
    backlog = {
        A: waiting(tmp_path / "a", 0, age_hours=18),
        B: waiting(tmp_path / "b", 10, Wait(WaitReason.STORE, "an answer"), age_hours=0.25),
        C: waiting(tmp_path / "c", None, age_hours=100),
    }

    def retention(topic: str) -> TopicRetention:
        return retentions.get(topic, TopicRetention())

    told = collected(BacklogCollector(lambda: backlog, retention, untold=lambda: 4))
    expected = {
        "led_partitions": 3,
        "unshipped_partitions": 2,
        "unshipped_segments": 3,
        "unshipped_bytes": 5,
        "lag_offsets": 21,
        "position_unknown_partitions": 0,
        "position_deferred_partitions": 0,
        "urgent_partitions": 1,
    }
    assert {name: value(told, name) for name in expected} == expected
    assert value(told, "oldest_unshipped_age_seconds") == pytest.approx(18 * HOUR, rel=0.1)
    assert value(told, "retention_left_ratio") == pytest.approx(0.25, rel=0.1)
    assert value(told, "retention_left_seconds") == pytest.approx(0.75 * HOUR, rel=0.1)
    assert value(told, "urgent_retention_left_seconds") == pytest.approx(6 * HOUR, rel=0.1)
    assert value(told, "waiting_partitions", reason="store") == 1
    assert value(told, "waiting_partitions", reason="hole") == 0
    assert value(told, "waiting_partitions", reason="leader") == 4


def test_where_nothing_waits_nothing_is_at_risk(tmp_path: Path) -> None:
    """Also where what was shipped long ago is old."""
    backlog = {C: waiting(tmp_path, None, age_hours=500)}
    told = collected(BacklogCollector(lambda: backlog, lambda _: TopicRetention()))
    names = ("oldest_unshipped_age_seconds", "retention_left_ratio", "retention_left_seconds", "unshipped_bytes")
    assert [value(told, name) for name in names] == [0, 1, math.inf, 0]
    assert value(told, "urgent_retention_left_seconds") == math.inf


def test_a_segment_that_retention_already_removed_has_no_time_left(tmp_path: Path) -> None:
    """Its file was removed, and so was its time."""
    gone = waiting(tmp_path, 0, age_hours=1)
    (gone.listing.directory / f"{0:020d}.log").unlink()
    told = collected(BacklogCollector(lambda: {A: gone}, lambda _: TopicRetention()))
    assert (value(told, "urgent_retention_left_seconds"), value(told, "retention_left_ratio")) == (0, 0)


def test_an_agent_reports_as_many_series_for_many_partitions_as_for_one() -> None:
    """Unless each one is configured to have a series."""

    def series(partitions: int, *, each: bool) -> int:
        backlog = {}
        for number in range(partitions):
            partition = TopicPartition("t", number)
            listing = Listing(partition, (1, number), Path("/"), (0,), (), False, None, 0)
            backlog[partition] = Backlog(listing, None, 0, 5, 10, hole=False, wait=None)
        registry = Metrics().registry
        registry.register(CountedElsewhere())
        registry.register(BacklogCollector(lambda: backlog, lambda _: TopicRetention(), lambda: each))
        return sum(1 for family in registry.collect() for _ in family.samples)

    assert series(1, each=False) == series(500, each=False) < 200
    assert series(500, each=True) == series(500, each=False) + 500 * 9


@pytest.mark.parametrize(
    ("retention", "age", "behind", "written", "left"),
    [
        (TopicRetention(retention_ms=10_000), 4, 0, 4, 6),
        (TopicRetention(retention_ms=10_000), 11, 0, 11, 0),
        (TopicRetention(retention_ms=None), 10**9, 10**9, 1, math.inf),
        # 100 bytes were written in 10 s, so the missing 50 follow in 5.
        (TopicRetention(retention_ms=None, retention_bytes=150), 10, 100, 10, 5),
        (TopicRetention(retention_ms=None, retention_bytes=150), 10, 0, 10, math.inf),
        (TopicRetention(retention_ms=None, retention_bytes=150), 10, 150, 10, 0),
        (TopicRetention(retention_ms=3_000, retention_bytes=150), 1, 100, 1, 0.5),
        (TopicRetention(retention_ms=1_000, deletes=False), 10, 0, 10, math.inf),
        (TopicRetention(deletes=False, compacted=True, delete_retention_ms=30_000), 10, 0, 10, 20),
    ],
    ids=["age", "over", "for ever", "size", "no growth", "full", "the lesser", "never deletes", "compacted"],
)
def test_the_time_left_is_that_of_the_limit_that_is_reached_first(
    retention: TopicRetention, age: float, behind: int, written: float, left: float
) -> None:
    """Limits by size are converted to time by the growth of the log."""
    assert seconds_left(retention, age, behind, written) == pytest.approx(left)


def test_every_error_that_a_task_may_end_with_has_a_reason_of_its_own() -> None:
    """A throttled request, a store without an answer, and a disk have different reasons."""
    classes = [
        found
        for found in vars(errors).values()
        if isinstance(found, type)
        and issubclass(found, errors.TieredStorageError)
        # Other rooms have subclasses of their own.
        and not any(each.__module__ == errors.__name__ for each in found.__subclasses__())
    ]
    made = [found("c", ["p"]) if found is errors.ConfigurationError else found("x") for found in classes]
    reasons = {type(error).__name__: failure_reason(error) for error in (*made, OSError(5, "x"))}
    unnamed = {"AddressInUse", "BatchTooLarge", "QueryError", "LineageUnsettled", "ShorterView"}  # not of a task
    assert {name for name, reason in reasons.items() if reason in {"other", "rejected"}} == unnamed
    named = [reason for name, reason in reasons.items() if name not in unnamed]
    assert len(set(named)) == len(named)
    assert failure_reason(errors.StoreUnavailable("x")) == "unavailable"
    assert failure_reason(errors.OperatorError("x")) == "rejected"
    assert {*named, "other", "rejected", "unavailable"} == set(FAILURE_REASONS)


def test_a_wait_is_logged_once_when_two_looks_show_it() -> None:
    """One look is the ordinary course of things; another text is news."""
    waits = Waits()
    first, second = Wait(WaitReason.STORE, "first"), Wait(WaitReason.STORE, "second")
    told = [waits.look({A: wait}) for wait in (first, first, first, second, second, second)]
    assert told == [{}, {A: "first"}, {}, {}, {A: "second"}, {}]
    ordinary = Wait(WaitReason.UPLOAD, "an upload", ordinary=True)
    assert [waits.look({A: ordinary}) for _ in range(3)] == [{}, {}, {}]


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Base units; `_total` on counters and on nothing else; a help text for each."""
    for family in families():
        assert family.documentation, family.name
        assert not family.name.endswith(("_ms", "_milliseconds", "_mib", "_kb", "_minutes", "_percent")), family.name
        assert family.type in {"counter", "gauge", "histogram", "info"}, family.name
        assert not family.name.endswith("_total"), family.name


def test_each_metric_is_increased_or_set_somewhere() -> None:
    """A counter that no part uses stays 0, and its alert silent. The tests of the parts check the values."""
    files = [file for file in Path(ts_uploader.__file__).parent.rglob("*.py") if file.name != "counters.py"]
    used = set(re.findall(r"metrics\.(\w+)\b", "\n".join(file.read_text() for file in files)))
    if "gap" in used:
        used |= set(re.findall(r"self\.(\w+)\.labels\(", inspect.getsource(Metrics.gap)))
    assert set(vars(Metrics())) - used == set()
