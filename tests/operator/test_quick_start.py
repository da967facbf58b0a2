"""docs/quick-start.md and the installation of docs/deploy.md, followed on the host of a real broker.

The agent runs with the unit's own command line, a real Prometheus with the page's files.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.dist import build as build_release
from dev.local.agent import AgentProcess
from dev.local.environment import spark_variables
from dev.local.kafka.cluster import wait_for
from dev.local.ports import free_port
from dev.local.proxy.actions import CutBefore, Hold
from dev.local.proxy.rules import Rule
from dev.local.proxy.s3 import S3FaultProxy
from tests.docs.commands import Shell, commands
from tests.faults.store_faults import ANY_TIMES
from tests.monitoring.files import DASHBOARD, alert_names
from tests.monitoring.receivers import graphite
from tests.operator.stage import DEPLOY, MONITORING, PAGE, SCRAPED, TOPIC, Stage, host_of, section, stage_of
from tests.tsctl.running import Run, runner
from tests.uploader.beside import archives
from tests.uploader.produced import records

SECONDS = 120.0
ALERT = "TsUploaderRetentionNear"
# The values that Grafana inserts.
VARIABLES = {"$cluster": ".+", "$instance": ".+", "$__rate_interval": "1m", "$__range": "1h"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Set up a host by the page."""
    with stage_of(tmp_path_factory.mktemp("operator")) as made:
        yield made


@pytest.fixture
def tsctl(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `tsctl` in this process."""
    return runner(capfd)


def test_the_page_installs_checks_and_starts_the_agent(stage: Stage) -> None:
    """The check has no error, the agent is ready, and systemd received the page's commands."""
    assert re.findall(r"^ERROR.*", stage.output["check"], re.MULTILINE) == []
    assert re.search(r"^OK .*readable, 1 partition to ship$", stage.output["check"], re.MULTILINE)
    assert '{"status": "ready"' in stage.output["start"]
    assert (
        len(
            re.findall(
                r"^ts_uploader_(?:leadership_connected|unshipped_segments|commits_total) ",
                stage.output["start"],
                re.MULTILINE,
            )
        )
        == 3
    )
    assert stage.host.asked[:2] == ["daemon-reload", "enable --now ts-uploader"]
    command = stage.agent.command()
    assert command[:2] == [str(stage.host.opt / "venv/bin/ts-uploader"), "run"]
    assert stage.agent.health()["status"] == "ok"


def test_prometheus_has_what_the_pages_name(stage: Stage) -> None:
    """The target with its job and cluster, each rule, and each metric of the pages with a value."""
    assert f"{len(alert_names())} rules found" in stage.output["rules"]
    assert "SUCCESS" in stage.output["watched"]
    assert sorted(rule["name"] for rule in stage.prometheus.rules()) == sorted(alert_names())
    up = 'up{job="ts-uploader",cluster="prod"} == 1'
    wait_for(lambda: stage.prometheus.query(up), "the agent to be scraped", SECONDS, state=stage.prometheus.targets)
    text = "".join(page.read_text() for page in (PAGE, DEPLOY, MONITORING))
    named = {name for name in re.findall(r"\bts_uploader_\w+", text) if not name.endswith("_")}
    assert len(named) > 8
    missing = {name for name in named if not stage.prometheus.query(name)}
    # The first has a label `reason`, and no series before an error; the second has no series while nothing is stuck.
    assert missing <= {"ts_uploader_errors_total", "ts_uploader_partition_stuck_seconds"}
    assert "# TYPE ts_uploader_errors_total counter" in stage.agent.page("/metrics")


def test_the_alert_fires_while_the_store_is_cut_off_and_clears_when_it_is_back(stage: Stage) -> None:
    """Segments that close meanwhile use up their retention; then they are shipped, and the alert clears."""
    stage.fill()
    stage.archive.wait_until_shipped()
    state = stage.prometheus.alerts
    scraped = 'up{job="ts-uploader",cluster="prod"} == 1 and on (instance) ts_uploader_commits_total > 0'
    wait_for(
        lambda: stage.prometheus.query(scraped), "the agent to be scraped", SECONDS, state=stage.prometheus.targets
    )
    wait_for(lambda: ALERT not in stage.firing(), "nothing to be at risk", SECONDS, state=state)
    stage.proxy.script(Rule(CutBefore(), times=ANY_TIMES))
    try:
        stage.fill()
        wait_for(lambda: ALERT in stage.firing(), "the alert to fire", SECONDS, state=state)
        assert stage.value("ts_uploader_urgent_partitions") == 1
        assert stage.value("ts_uploader_urgent_retention_left_seconds") < 6
        errors = 'ts_uploader_errors_total{reason="unavailable"} > 0'
        wait_for(lambda: stage.prometheus.query(errors), "a request to be given up", SECONDS, state=state)
    finally:
        stage.proxy.clear()
    stage.archive.wait_until_shipped()
    wait_for(lambda: ALERT not in stage.firing(), "the alert to clear", SECONDS, state=state)
    assert stage.value("ts_uploader_urgent_retention_left_seconds") == float("inf")
    gaps = stage.prometheus.query("ts_uploader_gaps_total")
    assert {series["value"][1] for series in gaps} == {"0"}


def test_the_pages_commands_find_everything(stage: Stage, tmp_path: Path) -> None:
    """`ls` lists the topic, `verify` finds nothing, the report is written, and the agent is healthy."""
    stage.fill()
    stage.archive.wait_until_shipped()
    install, look = section(PAGE, "See what is in the store")
    stage.host.run(install)
    path, ls, verify, gaps, report, status = commands(look)
    assert TOPIC in stage.host.run(path, ls)
    assert "1 partition" in stage.host.run(path, verify)
    assert json.loads(stage.host.run(path, f"{verify} --json --in-flight-hours 0"))["findings"] == []
    stage.host.run(path, gaps)  # with code 0
    stage.host.run(path, report)
    assert "<html" in (stage.host.shell.directory / "archive.html").read_text()[:200]
    row = stage.host.run(path, status).splitlines()[1].split()
    assert row[:2] == [stage.agent.address, "1"]
    assert row[4:7] == ["well", "yes", "yes"]


def test_status_distinguishes_healthy_starting_and_silent_agents(stage: Stage, tmp_path: Path, tsctl: Run) -> None:
    """A real agent; one whose store does not answer yet, with code 1; no agent, with code 75."""
    ended = tsctl("status", stage.agent.address, "--json")
    assert ended.code == 0
    (agent,) = ended.document["agents"]
    assert agent["status"]["cluster"] == stage.cluster.cluster_id
    assert (TOPIC, 0) in {(each["topic"], each["partition"]) for each in agent["status"]["partitions"]}
    nobody = f"127.0.0.1:{free_port()}"
    with starting_agent(stage, tmp_path) as starting:
        ended = tsctl("status", stage.agent.address, starting)
        assert ended.code == 1
        assert [line.split()[5:7] for line in ended.out.splitlines()[1:]] == [["yes", "yes"], ["yes", "no"]]
        ended = tsctl("status", stage.agent.address, starting, nobody)
    assert ended.code == 75
    assert f"tsctl: {nobody}: no answer: " in ended.err
    assert "refused" in ended.err
    assert len(ended.out.splitlines()) == 4


@contextmanager
def starting_agent(stage: Stage, directory: Path) -> Iterator[str]:
    """Yield the address of a real agent whose store answers only when the block ends."""
    held = Hold()
    assert stage.cluster.s3 is not None
    with S3FaultProxy(stage.cluster.s3) as proxy:
        proxy.script(Rule(held, times=ANY_TIMES))
        broker = stage.cluster.brokers[1]
        agent = AgentProcess(
            directory,
            stage.cluster.logs,
            stage.host.etc / "conf",
            broker.server_properties,
            environment=proxy.environment(),
            name="starting",
        )
        agent.launch()
        try:
            checking = "it still checks its stores"
            wait_for(
                lambda: held.fired > 0 and agent.not_ready() == checking,
                "it to check its stores",
                SECONDS,
                state=agent.not_ready,
            )
            yield agent.address
        finally:
            held.release()
            agent.kill()


@pytest.mark.full
def test_a_killed_agent_raises_an_alert(stage: Stage) -> None:
    """The alert clears when the agent is back."""
    wait_for(lambda: "TsUploaderAgentDown" not in stage.firing(), "the agent to be scraped", SECONDS)
    stage.agent.kill()
    try:
        wait_for(lambda: "TsUploaderAgentDown" in stage.firing(), "the alert to fire", SECONDS)
    finally:
        stage.agent.start()
    wait_for(lambda: "TsUploaderAgentDown" not in stage.firing(), "the alert to clear", SECONDS)


def queries() -> list[tuple[str, str]]:
    """Return (title, expression) of each query of the dashboard, with Grafana's values."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            found.append((f"{panel['title']} {target['refId']}", expression))
    return found


def test_each_query_of_the_dashboard_finds_something(stage: Stage) -> None:
    """For an agent that has shipped, and whose store did not answer for a while: no panel is empty."""
    stage.proxy.script(Rule(CutBefore(), times=ANY_TIMES))
    try:
        stage.fill()
        failed = "ts_uploader_errors_total > 0"
        wait_for(lambda: stage.prometheus.query(failed), "an error", SECONDS, state=stage.prometheus.targets)
    finally:
        stage.proxy.clear()
    stage.archive.wait_until_shipped()
    # An agent writes the first snapshot up to five minutes after its start; drills have no agent.
    asked = [each for each in queries() if "metadata snapshot" not in each[0] and "ts_drill" not in each[1]]
    assert 40 < len(asked) < len(queries())
    assert not [expression for _, expression in asked if "$" in expression]
    found: dict[str, bool] = {}

    def empty() -> list[str]:
        for title, expression in asked:
            found[title] = found.get(title, False) or bool(stage.prometheus.query(expression))
        return [title for title, _ in asked if not found[title]]

    # A rate needs two scrapes after the first error.
    wait_for(lambda: not empty(), "every query to find something", SECONDS, every=1.0, state=empty)


def test_the_variables_of_the_dashboard_find_clusters_and_agents(stage: Stage) -> None:
    """By the labels of the targets."""
    listed = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = {variable["name"]: variable["definition"] for variable in listed if variable["type"] == "query"}
    wait_for(lambda: stage.prometheus.query("ts_uploader_broker_info"), "the agent to be scraped", SECONDS)
    for name, value in (("cluster", SCRAPED["cluster"]), ("instance", stage.agent.address)):
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", asked[name])
        assert match is not None
        (series,) = stage.prometheus.query(match[1].replace("$cluster", ".+"))
        assert series["metric"][match[2]] == value


def test_an_agent_whose_graphite_is_down_ships_and_reports_later(stage: Stage) -> None:
    """The log has one line, and the later report has what was shipped meanwhile."""
    port = free_port()
    properties = {
        "metrics.reporter.class": "graphite",
        "metrics.reporter.port": str(port),
        "metrics.reporter.interval.seconds": "1",
    }
    topic = "reported"
    stage.cluster.create_topic(topic, assignment=[[1]])
    stage.cluster.produce(topic, records(800), partition=0)
    with archives(stage.cluster, stage.directory / "reported") as archive_of:
        archive = archive_of(topic, cluster_id="reported", properties=properties)
        agent = archive.agent()
        archive.wait_until_shipped()
        said = "metrics_report_failed"
        wait_for(lambda: said in agent.log.read_text(), "it to be said", SECONDS)
        with graphite(port) as (_, lines):
            wait_for(lambda: "metrics_report_recovered" in agent.log.read_text(), "a report", SECONDS)
            name = "reported.1.ts_uploader_segments_total.outcome.sent "
            sent = wait_for(lambda: [line for line in lines if line.startswith(name)], "the report", SECONDS)
        assert float(sent[0].split()[1]) == sum(key.endswith(".log") for key in archive.objects())
        assert agent.log.read_text().count(said) == 1


@pytest.mark.full
def test_the_installation_downloads_and_builds_what_the_pages_name(stage: Stage, tmp_path: Path) -> None:
    """With pip, hashes and the wheel of this checkout: the installed agent passes the check, runs and ships."""
    host = host_of(stage.archive, tmp_path / "host", stage.proxy.environment(), {}, {}, for_real=True)
    (variables,), (install,) = section(PAGE, "An operator"), section(DEPLOY, "Install")
    (configure,), (check, start) = section(PAGE, "Configure it"), section(PAGE, "Check, then start")
    with host:
        said = host.run(variables, install, configure, check, STORE=f"{stage.archive.location}-for-real")
        assert re.findall(r"^ERROR.*", said, re.MULTILINE) == []
        host.run(variables, start)
        assert Path(f"/proc/{host.agent.pid}/exe").readlink().name.startswith("python")
        assert str(host.opt) in Path(f"/proc/{host.agent.pid}/cmdline").read_text()
        assert host.agent.status()["ready"]
        stage.fill()
        wait_for(lambda: host.agent.metrics()["ts_uploader_commits_total"] > 0, "a commit", SECONDS)


@pytest.mark.full
def test_an_analyst_reads_the_first_table(stage: Stage, tmp_path: Path) -> None:
    """The page's commands in their own environment; then its Python, with this bucket's names."""
    stage.fill()
    end = stage.archive.wait_until_shipped()
    release = build_release(tmp_path / "dist")
    install, setting = section(PAGE, "An analyst")
    history = Shell(release, {"/opt/history": str(tmp_path / "history")})
    history.run(history.here(install.text))
    python = tmp_path / "history/bin/python"
    (block,) = section(PAGE, "An analyst", "python")
    places = {
        '"prod"': f'"{stage.cluster.cluster_id}"',
        '"clicks"': f'"{TOPIC}"',
        '"s3://bucket/base/prefix"': f'"{stage.archive.location}"',
    }
    program = tmp_path / "first.py"
    program.write_text(Shell(tmp_path, places).here(block.text))
    given = {"PATH": "/usr/bin:/bin", "SPARK_LOCAL_DIRS": str(tmp_path), **spark_variables()}
    environment = {**stage.archive.s3.environment(), **given}
    printed = Shell(tmp_path, {}, environment=environment).run(f"{history.here(setting.text)}\n{python} {program}")
    assert re.search(rf"\|\s*{TOPIC}\|\s*0\|\s*{end}\|", printed), printed
    assert len(re.findall(r"^\|\s*0\|\s*[0-4]\|", printed, re.MULTILINE)) == 5
