"""One broker's host with Prometheus, set up by the commands of docs/quick-start.md.

with stage_of(directory) as stage:
    stage.output["check"]                 the output of a step of the page
    stage.prometheus.alerts()
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster
from dev.local.prometheus import PrometheusServer
from dev.local.proxy.s3 import S3FaultProxy
from tests.docs.commands import CHECKOUT, Block, blocks
from tests.operator.broker_host import Host
from tests.uploader.beside import BUCKET, Archive, archives
from tests.uploader.produced import records

PAGE = CHECKOUT / "docs" / "quick-start.md"
DEPLOY = CHECKOUT / "docs" / "deploy.md"
MONITORING = CHECKOUT / "docs" / "monitoring.md"
RULES = "ts-uploader.yml"  # as the page names it
TOPIC = "watched"
SCRAPED = {"cluster": "prod"}  # the label in deploy/prometheus/scrape.yml
# Intervals in Prometheus' files that are too slow for a test: patterns and their replacements.
HURRIED = {
    r"\bscrape_interval: \w+": "scrape_interval: 1s",
    r"\bfor: \w+": "for: 1s",
}
_TARGETS = r"\[broker-1\.example:9464.*\]"


def section(page: Path, name: str, language: str = "sh") -> list[Block]:
    """Return the blocks of a section."""
    return blocks(page, name, language=language)


@dataclass
class Stage:
    """The parts of the stage.

    Attributes:
        output: the output of the page's commands, by step.
    """

    directory: Path
    cluster: LocalCluster
    proxy: S3FaultProxy
    archive: Archive
    host: Host
    prometheus: PrometheusServer
    output: dict[str, str]

    @property
    def agent(self) -> AgentProcess:
        """Return the agent that the page's unit runs."""
        return self.host.agent

    def fill(self) -> None:
        """Produce more closed segments."""
        self.cluster.produce(TOPIC, records(800), partition=0)

    def firing(self) -> set[str]:
        """Return the alerts that fire in Prometheus."""
        return {name for name, state in self.prometheus.alerts().items() if state == "firing"}

    def value(self, expression: str) -> float:
        """Return the value of a query's only series."""
        (series,) = self.prometheus.query(expression)
        return float(series["value"][1])


@contextmanager
def stage_of(directory: Path) -> Iterator[Stage]:
    """Set up an agent behind a proxy, a topic with a retention of six seconds, and rules that wait for a second.

    The broker enforces retention only once an hour.
    """
    properties = {
        "log.retention.check.interval.ms": "3600000",
        "replica.high.watermark.checkpoint.interval.ms": "500",
        "log.segment.bytes": "60000",
    }
    with (
        LocalCluster(s3=True, buckets=[BUCKET], properties=properties, name="operator") as cluster,
        proxy_of(cluster) as proxy,
        archives(cluster, directory) as archive_of,
    ):
        cluster.create_topic(TOPIC, assignment=[[1]], config={"retention.ms": "6000"})
        archive = archive_of(TOPIC, cluster_id=cluster.cluster_id)
        prometheus = PrometheusServer(directory / "prometheus", cluster.logs)
        places = {
            "/etc/prometheus": str(prometheus.directory),
            "http://127.0.0.1:9090": f"http://127.0.0.1:{prometheus.port}",
        }
        reload = {"prometheus": lambda _: prometheus.start()}
        with host_of(archive, directory / "host", proxy.environment(), places, reload) as host:
            stage = Stage(directory, cluster, proxy, archive, host, prometheus, {})
            try:
                follow(stage)
                yield stage
            finally:
                prometheus.kill()


def proxy_of(cluster: LocalCluster) -> S3FaultProxy:
    """Return a proxy between the agent and the cluster's store."""
    assert cluster.s3 is not None
    return S3FaultProxy(cluster.s3)


def host_of(
    archive: Archive,
    root: Path,
    environment: Mapping[str, str],
    places: Mapping[str, str],
    units: Mapping[str, Callable[[str], object]],
    *,
    for_real: bool = False,
) -> Host:
    """Return the host of broker 1, without an installed agent."""
    broker = archive.cluster.brokers[1]
    return Host(
        root,
        archive.cluster.logs,
        environment,
        broker.server_properties,
        units=units,
        installed=False,
        for_real=for_real,
        places={
            "/var/lib/kafka": str(broker.log_dirs[0]),
            "s3://bucket/base/prefix": archive.location,
            "/opt/tsctl": str(root / "opt" / "tsctl"),
            "/opt/history": str(root / "opt" / "history"),
            **places,
        },
    )


def follow(stage: Stage) -> None:
    """Run the page's commands, from its top to the query of Prometheus."""
    output, run = stage.output, stage.host.run
    (variables,) = section(PAGE, "An operator")
    check, start = section(PAGE, "Check, then start")
    (install,), (configure,) = section(DEPLOY, "Install"), section(PAGE, "Configure it")
    output["check"] = run(variables, install, configure, check)
    output["start"] = run(variables, start)
    rules, asked = section(PAGE, "Monitor it")
    output["rules"] = run(rules)
    configure_prometheus(stage)
    output["watched"] = run(asked)


def configure_prometheus(stage: Stage) -> None:
    """Write what an operator writes by hand, with short intervals."""
    (naming,) = section(PAGE, "Monitor it", "yaml")
    job = (CHECKOUT / "deploy" / "prometheus" / "scrape.yml").read_text()
    job, count = re.subn(_TARGETS, f"[{stage.agent.address}]", job)
    assert count == 1
    directory = stage.prometheus.directory
    written = {"prometheus.yml": f"global: {{evaluation_interval: 1s, scrape_timeout: 1s}}\n{naming.text}{job}"}
    written[RULES] = (directory / RULES).read_text()
    for name, text in written.items():
        hurried = text
        for slow, quick in HURRIED.items():
            hurried = re.sub(slow, quick, hurried)
        (directory / name).write_text(hurried)
