"""The alerts of the endpoint and their runbook: by Prometheus' own tool, with consistent names, next to a process."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands import Shell, blocks, commands
from tests.endpoint.running import TOPIC, Running, made_archive, running
from tests.monitoring.files import CHECKOUT, PROMETHEUS
from tests.monitoring.test_files import SAMPLES, promtool
from ts_endpoint.status.metric_families import FAMILIES, PREFIX

ALERTS = PROMETHEUS / "endpoint-alerts.yml"
PAGE = CHECKOUT / "docs" / "running-the-endpoint.md"
RUNBOOK = PAGE.read_text().partition("\n## Runbook\n")[2]
BLOCKS = [block for block in blocks(PAGE, language="sh") if block.text in RUNBOOK]
_PROGRAMS = {
    "journalctl": 'cat "$LOG"',  # a line of each event, as JSON, because a process that is well logs none of them
    "systemctl": "true",
    "tsctl": f"PYTHONPATH={CHECKOUT} {sys.executable} -m tsctl.cli",
}


def alert_names() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Return a shell with a running endpoint in the places of the page."""
    directory = tmp_path_factory.mktemp("endpoint-runbook")
    archive = made_archive(directory / "archive")
    conf, programs = directory / "conf", directory / "programs"
    for made in (conf, programs):
        made.mkdir()
    (conf / "prod.properties").write_text(f"storage.service.endpoint.url={archive.location}\n")
    for name, line in _PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/bash\n{line} "$@"\n' if name == "tsctl" else f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    log = directory / "log"
    log.write_text("".join(f'{{"event": "{event}", "level": "warning"}}\n' for event in sorted(selected_events())))
    with running(archive.location, directory) as (process,):
        yield Shell(directory, places(process, conf), programs, {"LOG": str(log)})


def selected_events() -> set[str]:
    """Return the events that commands of the runbook search for."""
    selected = re.findall(r"grep (?:-E )?'?([a-z_|]+_[a-z_|]+)'?(?: |$|`)", RUNBOOK)
    return {event for pattern in selected for event in pattern.split("|")}


def places(process: Running, conf: Path) -> dict[str, str]:
    return {"http://127.0.0.1:9465": f"http://{process.http_address}", "/etc/ts-endpoint/conf": str(conf)}


def test_prometheus_accepts_the_rules_and_the_job() -> None:
    """By its own tool."""
    assert f"{len(alert_names())} rules found" in promtool("check", "rules", ALERTS.name)
    promtool("check", "config", "endpoint-scrape.yml")


def test_each_alert_fires_where_it_should_and_nowhere_else() -> None:
    """On series made for it, after its time, until the cause ends; by Prometheus' own engine."""
    promtool("test", "rules", "endpoint-alerts.test.yml")
    tried = set(re.findall(r'alertname="(\w+)"', (PROMETHEUS / "endpoint-alerts.test.yml").read_text()))
    assert tried == set(alert_names())


def test_each_alert_names_its_section_of_the_runbook() -> None:
    """And each section is of an alert, in the same order."""
    sections = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == alert_names()
    urls = re.findall(r"runbook_url: docs/running-the-endpoint\.md#(\S+)$", ALERTS.read_text(), re.MULTILINE)
    assert urls == [name.lower() for name in sections]


@pytest.mark.parametrize("path", [ALERTS, PAGE], ids=lambda path: path.name)
def test_each_metric_that_is_named_exists(path: Path) -> None:
    """A rule about a metric that nothing exposes never fires."""
    suffixes = {**SAMPLES, "gauge": ("",)}
    exposed = {f"{PREFIX}_{family.name}{suffix}" for family in FAMILIES for suffix in suffixes[family.kind]}
    named = set(re.findall(rf"\b{PREFIX}_[a-z_]+[a-z]\b(?![_(])", path.read_text()))
    assert len(named) >= 3
    assert named - exposed == set()


def test_the_job_and_the_labels_of_the_alerts_are_those_of_the_example() -> None:
    """Alerts on another job would never fire."""
    jobs = set(re.findall(r'job="([^"]+)"', ALERTS.read_text()))
    assert jobs == {*re.findall(r"job_name: (\S+)", (PROMETHEUS / "endpoint-scrape.yml").read_text())}


def test_the_commands_of_the_runbook_show_the_state_of_a_process(shell: Shell) -> None:
    """Each command finds what it selects; `tsctl gaps` reads the archive that the endpoint serves."""
    variables, *others = BLOCKS
    every = [command for block in others for command in commands(block)]
    assert len(every) >= 8
    for command in every:
        shown = shell.run(variables, command, TOPIC=TOPIC)
        if "curl" in command or "journalctl" in command:
            assert shown.strip(), command


def test_every_event_that_the_runbook_names_exists() -> None:
    """A search for an event that no longer exists finds nothing, which looks like good news."""
    sources = "".join(path.read_text() for path in (CHECKOUT / "ts_endpoint").rglob("*.py"))
    selected = re.findall(r"grep (?:-E )?'?([a-z_|]+_[a-z_|]+)'?(?: |$|`)", RUNBOOK)
    events = {event for pattern in selected for event in pattern.split("|")}
    assert {
        "hole_reached",
        "fetch_failed",
        "topics_not_listed",
        "hole_passed_over",
        "group_offsets_not_flushed",
    } <= events
    assert [event for event in sorted(events) if f'"{event}"' not in sources] == []
