"""A real Prometheus reads a real agent beside a real broker: alerts that fire and clear, the dashboard's queries."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.store_faults import ANY_TIMES
from tests.monitoring.receivers import graphite
from tests.monitoring.test_files import ALERTS, DASHBOARD
from tests.uploader.beside import BUCKET, Archive, archives
from tests.uploader.test_shipping import records
from ts_local.agent import AgentProcess
from ts_local.cluster import LocalCluster, wait_for
from ts_local.ports import free_port
from ts_local.prometheus import PrometheusServer
from ts_local.proxy.actions import CutBefore
from ts_local.proxy.rules import Rule
from ts_local.proxy.s3 import S3FaultProxy

TOPIC = "watched"
SECONDS = 120.0
SCRAPED = {"cluster": "local"}
ALERT = "TsUploaderRetentionNear"
# What Grafana puts in their place.
VARIABLES = {"$cluster": ".+", "$instance": ".+", "$__rate_interval": "1m", "$__range": "1h"}


@dataclass
class Stage:
    """What the tests look at."""

    directory: Path
    cluster: LocalCluster
    proxy: S3FaultProxy
    archive: Archive
    agent: AgentProcess
    prometheus: PrometheusServer

    def fill(self) -> None:
        """Some more closed segments."""
        self.cluster.produce(TOPIC, records(800), partition=0)

    def firing(self) -> set[str]:
        """The alerts that fire, as Prometheus says."""
        return {name for name, state in self.prometheus.alerts().items() if state == "firing"}

    def value(self, expression: str) -> float:
        """Of the one series that a query answers with."""
        (series,) = self.prometheus.query(expression)
        return float(series["value"][1])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """An agent behind a proxy, a topic that is kept for six seconds by a broker that looks once an hour, and rules that
    wait a second where they wait for minutes.
    """
    directory = tmp_path_factory.mktemp("prometheus")
    properties = {
        "log.retention.check.interval.ms": "3600000",
        "replica.high.watermark.checkpoint.interval.ms": "500",
        "log.segment.bytes": "60000",
    }
    rules = directory / "alerts.yml"
    rules.write_text(re.sub(r"\bfor: \w+", "for: 1s", ALERTS.read_text()))
    with (
        LocalCluster(s3=True, buckets=[BUCKET], properties=properties, name="monitoring") as cluster,
        S3FaultProxy(_server(cluster)) as proxy,
        archives(cluster, directory) as archive_of,
    ):
        cluster.create_topic(TOPIC, assignment=[[1]], config={"retention.ms": "6000"})
        archive = archive_of(TOPIC, proxy=proxy)
        agent = archive.agent()
        prometheus = PrometheusServer(
            directory / "server", cluster.logs, {agent.address: SCRAPED}, job="ts-uploader", rules=[rules]
        )
        prometheus.start()
        try:
            yield Stage(directory, cluster, proxy, archive, agent, prometheus)
        finally:
            prometheus.kill()


def _server(cluster: LocalCluster) -> Any:
    assert cluster.s3 is not None
    return cluster.s3


def test_the_alert_fires_while_the_store_is_cut_off_and_clears_when_it_is_back(stage: Stage) -> None:
    """What is closed meanwhile spends its retention; then it is shipped, and nobody is woken any more."""
    stage.fill()
    stage.archive.wait_until_shipped()
    state = stage.prometheus.alerts
    scraped = 'up{job="ts-uploader",cluster="local"} == 1 and on (instance) ts_uploader_commits_total > 0'
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
        assert stage.prometheus.query('ts_uploader_errors_total{reason="unavailable"} > 0')
    finally:
        stage.proxy.clear()
    stage.archive.wait_until_shipped()
    wait_for(lambda: ALERT not in stage.firing(), "the alert to clear", SECONDS, state=state)
    assert stage.value("ts_uploader_urgent_retention_left_seconds") == float("inf")
    gaps = stage.prometheus.query("ts_uploader_gaps_total")
    assert [series["value"][1] for series in gaps] == ["0"] * 3


@pytest.mark.full
def test_the_agent_that_is_gone_raises_an_alert(stage: Stage) -> None:
    """And one that is back ends it."""
    wait_for(lambda: "TsUploaderAgentDown" not in stage.firing(), "the agent to be scraped", SECONDS)
    stage.agent.kill()
    try:
        wait_for(lambda: "TsUploaderAgentDown" in stage.firing(), "the alert to fire", SECONDS)
    finally:
        stage.agent.start()
    wait_for(lambda: "TsUploaderAgentDown" not in stage.firing(), "the alert to clear", SECONDS)


def queries() -> list[tuple[str, str]]:
    """(title, expression) of each query of the dashboard, as Grafana would ask it."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            found.append((f"{panel['title']} {target['refId']}", expression))
    return found


def test_each_query_of_the_dashboard_finds_something(stage: Stage) -> None:
    """Of an agent that has shipped, and met a store that did not answer: no panel stays empty."""
    stage.proxy.script(Rule(CutBefore(), times=3))
    stage.fill()
    stage.archive.wait_until_shipped()
    stage.proxy.clear()
    asked = queries()
    assert len(asked) > 40
    assert not [expression for _, expression in asked if "$" in expression]
    found: dict[str, bool] = {}

    def empty() -> list[str]:
        for title, expression in asked:
            found[title] = found.get(title, False) or bool(stage.prometheus.query(expression))
        return [title for title, _ in asked if not found[title]]

    # A rate takes two scrapes after the first error.
    wait_for(lambda: not empty(), "every query to find something", SECONDS, every=1.0, state=empty)


def test_the_variables_of_the_dashboard_find_clusters_and_agents(stage: Stage) -> None:
    """By what the targets are labelled with."""
    listed = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = {variable["name"]: variable["definition"] for variable in listed if variable["type"] == "query"}
    wait_for(lambda: stage.prometheus.query("ts_uploader_broker_info"), "the agent to be scraped", SECONDS)
    for name, value in (("cluster", "local"), ("instance", stage.agent.address)):
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", asked[name])
        assert match is not None
        (series,) = stage.prometheus.query(match[1].replace("$cluster", ".+"))
        assert series["metric"][match[2]] == value


def test_an_agent_whose_graphite_is_away_ships_and_reports_when_it_comes(stage: Stage) -> None:
    """It is said once in the log, and what was shipped by then is told."""
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
        said = "metrics cannot be reported, trying on"
        wait_for(lambda: said in agent.log.read_text(), "it to be said", SECONDS)
        with graphite(port) as (_, lines):
            wait_for(lambda: "metrics are reported again" in agent.log.read_text(), "a report", SECONDS)
            name = "reported.1.ts_uploader_segments_total.outcome.sent "
            sent = wait_for(lambda: [line for line in lines if line.startswith(name)], "the report", SECONDS)
        assert float(sent[0].split()[1]) == sum(key.endswith(".log") for key in archive.objects())
        assert agent.log.read_text().count(said) == 1
