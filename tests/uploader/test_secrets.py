"""No credential is ever shown: not in logs at any level, not in metrics, status or pages, not in error messages.

Unlikely strings are in every place for an operator's secrets, and are searched in all output of an agent and its
commands.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dev.local import forks
from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.matrix import cases
from tests.uploader.beside import BUCKET, PREFIX
from tests.uploader.produced import records
from ts_common.model import TopicPartition
from ts_uploader.findings import as_text, error
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import Failed
from ts_uploader.status.last_errors import LastErrors

URL = "storage.service.endpoint.url"
S3 = "storage.service.endpoint.s3."
CHECKOUT = Path(__file__).parents[2]
SECONDS = 60.0
# By their place: in URLs, in the cluster's properties, in the broker's own file, in the environment.
PROXY, CLIENT, JAAS, KEYSTORE, AZURE, TRUST = (
    f"Zq7x-{name}-secret" for name in ("proxy", "client", "jaas", "store", "azure", "trust")
)
SECRETS = (PROXY, CLIENT, JAAS, KEYSTORE, AZURE, TRUST)
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PAGES = ("/", "/status.json", "/healthz", "/readyz", "/metrics")


class Host:
    """A broker's host with secrets in each place."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        assert cluster.s3 is not None
        self.cluster = cluster
        self.directory = directory
        self.location = f"s3://{BUCKET}/{directory.name}"
        self.environment = {
            **cluster.s3.environment(),
            "AZURE_STORAGE_KEY": AZURE,
            "HTTPS_PROXY": f"http://me:{PROXY}@127.0.0.1:9",
        }
        self.secrets = (*SECRETS, cluster.s3.admin.secret_key)
        self.broker = directory / "server.properties"
        known = cluster.brokers[1].server_properties.read_text()
        jaas = f'listener.name.secret.plain.sasl.jaas.config={LOGIN} username="me" password="{JAAS}";\n'
        self.broker.write_text(
            f"{known}\n{jaas}ssl.keystore.password={KEYSTORE}\nzookeeper.ssl.keystore.password={KEYSTORE}\n"
        )

    def properties(self, **more: str) -> dict[str, str]:
        """The cluster's secrets, including a client's password."""
        return {
            URL: self.location,
            PREFIX + "kafka.topics.include": "hushed",
            PREFIX + "kafka.client.sasl.password": CLIENT,
            PREFIX + "zookeeper.ssl.truststore.password": TRUST,
            **more,
        }

    def run(self, command: str, properties: Mapping[str, str]) -> str:
        """All output of a command until it ends by itself, as it should."""
        write_config(self.directory / "conf", "prod", properties)
        ended = forks.run(
            [
                *("ts-uploader", command, str(self.directory / "conf"), "--cluster-id", "prod"),
                *("--server-properties", str(self.broker)),
            ],
            env={**os.environ, **self.environment},
            cwd=CHECKOUT,
            timeout=120,
        )
        assert ended.returncode != 0
        return ended.stdout + ended.stderr


@pytest.fixture
def host(cluster: LocalCluster, tmp_path: Path) -> Host:
    return Host(cluster, tmp_path)


@pytest.fixture
def agent(host: Host) -> Iterator[AgentProcess]:
    """An agent with all its output."""
    config = host.directory / "conf"
    write_config(config, "prod", host.properties())
    agent = AgentProcess(
        host.directory,
        host.cluster.logs,
        config,
        host.broker,
        "prod",
        environment=host.environment,
        arguments=("--log-level", "debug"),
        name=f"agent-{host.directory.name}",
    )
    agent.start()
    yield agent
    if agent.alive:
        agent.kill()


def assert_hidden(host: Host, said: str, *expected: str) -> None:
    """Nothing secret is in it, and what is expected is: it was looked for in the right place."""
    for text in expected:
        assert text in said
    assert [secret for secret in host.secrets if secret in said] == []


def test_an_agent_at_work_shows_no_secret(host: Host, agent: AgentProcess) -> None:
    """On every page and in its log at every level, also after the store refused it and its file had errors."""
    cluster = host.cluster
    cluster.create_topic("hushed", assignment=[[1]])
    cluster.produce("hushed", records(1000), partition=0)
    write_config(agent.config_dir, "prod", host.properties(**{f"{S3}proxy": f"ftp://me:{PROXY}@h", "unknown": CLIENT}))
    os.kill(agent.pid, signal.SIGHUP)
    wait_for(lambda: "configuration_rejected" in agent.tail(), "the file to be refused", SECONDS)
    more = {PREFIX + "kafka.client.sasl.password": CLIENT * 2, f"{S3}proxy": f"http://me:{PROXY}@127.0.0.1:9"}
    write_config(agent.config_dir, "prod", host.properties(**more))
    os.kill(agent.pid, signal.SIGHUP)
    wait_for(lambda: "restart_needed" in agent.tail(), "the file to be taken", SECONDS)
    wait_for(lambda: agent.status()["partitions"], "the partition to be led", SECONDS)
    pages = "".join(agent.page(path) for path in PAGES)
    assert_hidden(host, pages + agent.log.read_text(), "hushed", "kafka.client.sasl.password", "agent_started")


@pytest.mark.parametrize("command", cases(["run", "check"], quick=["run"]))
def test_a_rejected_configuration_is_reported_without_its_secrets(host: Host, command: str) -> None:
    """A URL with credentials, a malformed proxy, a misspelt key, an unavailable proxy."""
    credentials = host.properties(**{URL: f"s3://AKIA:{PROXY}@{BUCKET}/base", f"{S3}proxy": f"me:{PROXY}@h"})
    assert_hidden(host, host.run(command, {**credentials, f"{S3}prox": PROXY}), "s3.proxy", "s3.prox:")
    location = {URL: f"s3://AKIA:{PROXY}@{BUCKET}/base"}
    assert_hidden(host, host.run(command, host.properties(**location)), "contains credentials")
    away = {f"{S3}proxy": f"http://me:{PROXY}@127.0.0.1:9"}
    assert_hidden(host, host.run(command, host.properties(**away)), "127.0.0.1:9")


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
def test_a_log_shows_no_local_variables_and_no_credentials_of_urls(form: str) -> None:
    """A traceback shows the place, and no value; of any URL the host is enough."""
    script = (
        "from ts_common.logs import LogFormat, configure_logs\nimport logging, structlog\n"
        f"configure_logs(LogFormat.{form})\nlog = structlog.get_logger()\n"
        f"url = 'http://me:{PROXY}@proxy:1'\n"
        "log.warning('away', proxies=[url], proxy=url)\nlogging.getLogger('theirs').warning('%s is away', url)\n"
        "def fail(password):\n    raise ZeroDivisionError(f'unforeseen at {url}')\n"
        f"try:\n    fail({JAAS[:4]!r} + {JAAS[4:]!r})\n"
        "except ZeroDivisionError:\n    log.exception('ended')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.count("http://***@proxy:1") == 4
    assert "ZeroDivisionError: unforeseen at" in ended.stderr
    assert [secret for secret in SECRETS if secret in ended.stderr] == []


def test_findings_and_last_errors_show_no_credentials_of_urls() -> None:
    """They contain messages of others."""
    url = f"http://me:{PROXY}@proxy:1"
    errors = LastErrors()
    errors.take(Failed(TopicPartition("t", 0), 0, Leadership(1, None, 0), 0, "Ship", f"{url} is away"))
    assert errors.newest()[0].message == "http://***@proxy:1 is away"
    assert PROXY not in as_text([error(url, url, url)])
