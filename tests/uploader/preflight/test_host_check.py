"""The findings of `ts-uploader check` on the broker's host."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ts_common.config.cluster_config import parse_config
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, Severity
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT
from ts_uploader.preflight.host_check import Limits, host_findings
from ts_uploader.retention.topic_retention import BrokerDefaults

PLENTY = Limits(watches=10_000, instances=128, descriptors=10_000)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Two log dirs with three partitions, one of a topic that is not shipped."""
    for place in ("disk-1/kept-0", "disk-1/__internal-0", "disk-2/kept-1"):
        directory = tmp_path / place
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(b"x" * 1_000_000)
    for name in ("disk-1", "disk-2"):
        (tmp_path / name / HIGH_WATERMARK_CHECKPOINT).write_text("0\n0\n")
    raised = BrokerDefaults().overridden_by({"log.segment.delete.delay.ms": "3600000"})
    return Environment("prod", 1, (tmp_path / "disk-1", tmp_path / "disk-2"), "z:1", kraft=False, defaults=raised)


def found(environment: Environment, limits: Limits = PLENTY, **changed: str) -> list[Finding]:
    """The findings with this configuration."""
    prefix = "ts.segment.uploader."
    properties = {f"{prefix}{key.replace('_', '.')}": value for key, value in changed.items()}
    config, _ = parse_config({prefix + "kafka.topics.exclude": "__.*", **properties}, "c")
    return host_findings(environment, config, 1, limits)


def said(findings: list[Finding], severity: Severity) -> str:
    """All findings of a severity, as one text."""
    return "\n".join(f"{each.about}: {each.found} {each.way_out}" for each in findings if each.severity is severity)


def test_a_host_with_room_is_fine(environment: Environment) -> None:
    """What is shipped is counted, and what is watched."""
    findings = found(environment)
    assert {each.severity for each in findings} == {Severity.OK}
    assert "disk-1: readable, 1 partition to ship" in said(findings, Severity.OK)
    assert "the log dirs need 5" in said(findings, Severity.OK)


def test_limits_of_the_kernel_are_held_against_what_is_watched(environment: Environment) -> None:
    """Too few is an error, hardly enough a warning; each names the setting to raise."""
    few = found(environment, Limits(watches=4, instances=0, descriptors=30))
    errors = said(few, Severity.ERROR)
    assert "max_user_watches: 4, and the log dirs need 5" in errors
    assert "sysctl -w fs.inotify.max_user_instances=2" in errors
    assert "LimitNOFILE" in errors
    assert "max_user_watches" in said(found(environment, replace(PLENTY, watches=9)), Severity.WARNING)
    unknown = found(environment, replace(PLENTY, watches=None))
    assert "does not report" in said(unknown, Severity.HINT)
    assert Limits.here().descriptors > 0


def test_a_log_dir_that_may_only_be_listed_is_named(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read without search, as mode 744 gives others: one error, and no further check of it."""
    log_dir = environment.log_dirs[0]
    monkeypatch.setattr("ts_uploader.preflight.host_check.os.access", lambda path, _: Path(path) != log_dir)
    findings = found(environment)
    assert "disk-1: this user may list it, but open no file in it" in said(findings, Severity.ERROR)
    assert "disk-1: readable" not in said(findings, Severity.OK)
    assert "disk-2: readable" in said(findings, Severity.OK)


def test_what_this_user_may_not_read_is_named(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition, a checkpoint, a whole disk; a symbolic link is not followed."""
    first = environment.log_dirs[0]
    (first / "linked-0").symlink_to(environment.log_dirs[1] / "kept-1")
    refused = {str(first / "kept-0" / f"{0:020d}.log"), str(first / HIGH_WATERMARK_CHECKPOINT)}
    # Root may read everything, and the suite may run as root.
    monkeypatch.setattr("ts_uploader.preflight.host_check.os.access", lambda path, _: os.fspath(path) not in refused)
    gone = replace(environment, log_dirs=(*environment.log_dirs, first / "nowhere"))
    findings = found(gone)
    errors = said(findings, Severity.ERROR)
    assert "kept-0 cannot be read by this user" in errors
    assert f"{HIGH_WATERMARK_CHECKPOINT} cannot be read" in errors
    assert "nowhere: cannot be read: No such file" in errors
    assert "linked-0: a symbolic link" in said(findings, Severity.WARNING)


def test_settings_of_the_broker_that_leave_no_time_are_hints(environment: Environment) -> None:
    """Each with what to do; none keeps an agent from its work."""
    hasty = BrokerDefaults().overridden_by(
        {"log.retention.minutes": "90", "replica.high.watermark.checkpoint.interval.ms": "600000"}
    )
    properties = {"unclean.leader.election.enable": "true"}
    findings = found(replace(environment, defaults=hasty, broker_properties=properties))
    hints = said(findings, Severity.HINT)
    for text in ("log.segment.delete.delay.ms is 60000", "log.retention is 1.5 h", "checkpoint", "unclean"):
        assert text in hints
    assert said(findings, Severity.ERROR) == said(findings, Severity.WARNING) == ""


def test_an_upload_rate_below_the_write_rate_is_a_warning(environment: Environment) -> None:
    """By the bytes on the disks within the retention."""
    hour = environment.defaults.overridden_by({"log.retention.hours": "25"})
    slow = replace(environment, defaults=hour)
    for log_dir in environment.log_dirs:
        for log in log_dir.glob("kept-*/*.log"):
            os.truncate(log, 1 << 30)  # sparse
    assert "limited to 1024" in said(found(slow, upload_max_bytes_per_second="1024"), Severity.WARNING)
    assert said(found(slow, upload_max_bytes_per_second="100000"), Severity.WARNING) == ""
