"""The alert rules, the runbook and the dashboard, as files: by Prometheus' own tool, and with consistent names."""

import json
import os
import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from dev.local.prometheus import program
from tests.monitoring.files import ALERTS, CHECKOUT, DASHBOARD, PROMETHEUS, alert_names
from ts_tables.run_metrics import families as families_of_tables
from ts_uploader.metrics.metrics_page import families
from ts_uploader.tracking.blocked import WaitReason
from tsctl.drill.metrics import GAUGES as DRILL_GAUGES
from tsctl.erase.metrics import GAUGES as ERASE_GAUGES
from tsctl.gc.metrics import GAUGES as GC_GAUGES

RUNBOOK = CHECKOUT / "docs" / "runbook.md"
SAMPLES = {
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
    "histogram": ("_bucket", "_sum", "_count"),
}


def promtool(*arguments: str) -> str:
    """Return its output; its exit code must be 0. It collects garbage rarely: that is a fifth of its time."""
    done = subprocess.run(
        [program("promtool"), *arguments],
        cwd=PROMETHEUS,
        env={**os.environ, "GOGC": "800"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sample_names() -> set[str]:
    """Return the names of all samples that an agent, its process, and runs of tables and of commands have."""
    of_commands = (gauges.families() for gauges in (GC_GAUGES, DRILL_GAUGES, ERASE_GAUGES))
    every = (*families(), *families_of_tables(), *chain.from_iterable(of_commands))
    own = {family.name + suffix for family in every for suffix in SAMPLES[family.type]}
    return own | {"process_start_time_seconds"}


def test_prometheus_accepts_the_rules_and_the_example() -> None:
    """By its own tool."""
    assert f"{len(alert_names())} rules found" in promtool("check", "rules", ALERTS.name)
    promtool("check", "config", "scrape.yml")


def test_each_alert_fires_where_it_should_and_nowhere_else() -> None:
    """On series made for it, after its time, until the cause ends; by Prometheus' own engine."""
    files = ("alerts.test.yml", "alerts-of-days.test.yml")
    promtool("test", "rules", *files)
    tried = {name for file in files for name in re.findall(r'alertname="(\w+)"', (PROMETHEUS / file).read_text())}
    assert tried == set(alert_names())


@pytest.mark.parametrize("reason", WaitReason)
def test_u35_each_reason_to_be_stuck_has_an_alert_that_fires_and_an_entry_in_the_runbook(reason: WaitReason) -> None:
    """The rules' own test has a series and an alert of each; promtool runs it above."""
    tests = (PROMETHEUS / "alerts.test.yml").read_text()
    assert re.search(rf'series: \'ts_uploader_partition_stuck_seconds{{.*reason="{reason}"}}', tests)
    assert f'alertname="TsUploaderPartitionStuck",alertstate="firing",reason="{reason}"' in tests
    section = RUNBOOK.read_text().partition("## TsUploaderPartitionStuck\n")[2].partition("\n## ")[0]
    assert section.count(f"\n| `{reason}` | ") == 1


def test_each_alert_names_its_section_of_the_runbook() -> None:
    """And each section is of an alert, in the same order."""
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == alert_names()
    urls = re.findall(r"runbook_url: docs/runbook\.md#(\S+)$", ALERTS.read_text(), re.MULTILINE)
    assert urls == [name.lower() for name in sections]


@pytest.mark.parametrize(
    "path", [ALERTS, DASHBOARD, RUNBOOK, CHECKOUT / "docs" / "monitoring.md"], ids=lambda path: path.name
)
def test_each_metric_that_is_named_exists(path: Path) -> None:
    """A rule about a metric that nothing exposes never fires."""
    named = set(re.findall(r"\b(?:ts_(?:uploader|tables|gc|drill|erase)|process)_[a-z_]+[a-z]\b", path.read_text()))
    assert named
    prefixes = {"ts_uploader_partition"}  # written with a star
    assert named - sample_names() - prefixes == {"ts_uploader"} & named


def test_every_family_of_the_agent_is_on_the_dashboard() -> None:
    """Except the one that only identifies the agent."""
    text = json.dumps(json.loads(DASHBOARD.read_text())["panels"])
    absent = {
        family.name
        for family in families()
        if family.name.startswith("ts_uploader_") and not family.name.startswith("ts_uploader_partition_")
        if not any(f"{family.name}{suffix}{{" in text for suffix in SAMPLES[family.type])
    }
    assert absent == {"ts_uploader_broker"}
