"""A store that denies access to an agent at its start, temporarily or permanently (U38)."""

import json
from http.client import HTTPException
from pathlib import Path

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import Answer
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.uploader.conftest import ArchiveOf
from tests.wrong_clock import wrong_clock

REFUSALS = 'ts_uploader_errors_total{{operation="CheckStores",reason="{}"}}'


def refusals(agent: AgentProcess, reason: str = "access_denied") -> float:
    """Return how often the agent was denied; 0 before its HTTP server responds."""
    try:
        return agent.metrics().get(REFUSALS.format(reason), 0)
    except (OSError, HTTPException):
        return 0


def test_u38_an_agent_that_is_denied_access_at_its_start_waits_visibly_and_continues(
    cluster: LocalCluster, archive_of: ArchiveOf, proxy: S3FaultProxy
) -> None:
    """An outage of the permission service ends no agent: metrics, pages and log report it until it is over."""
    archive = archive_of("not-admitted", proxy=proxy)
    proxy.script(Rule(Answer(403, "AccessDenied", "not now"), times=None))
    agent = archive.agent(waits=False)
    wait_for(lambda: refusals(agent) >= 2, "the agent to be refused twice")
    assert json.loads(agent.page("/readyz"))["store"] is False
    assert 0 < agent.metrics()["ts_uploader_leadership_age_seconds"] < 600  # counted from the start
    (error,) = agent.status()["last_errors"]
    assert error["operation"] == "CheckStores"
    assert "allow this identity s3:ListBucket" in error["message"]
    assert "The store denies access to this identity: ListObjectsV2" in agent.page("/")
    assert agent.log.read_text().count("store_access_denied") >= 2

    proxy.clear()

    agent.wait_ready()
    assert json.loads(agent.page("/readyz"))["store"] is True


def test_u21_an_agent_with_a_wrong_secret_reports_it_until_it_is_stopped(archive_of: ArchiveOf) -> None:
    """A real server rejects the secret, and SIGTERM arrives while the agent waits for its next attempt."""
    archive = archive_of("wrong-secret")
    agent = archive.agent(waits=False, environment={**archive.s3.environment(), "AWS_SECRET_ACCESS_KEY": "wrong"})
    wait_for(lambda: refusals(agent) >= 1, "the agent to be refused")
    (error,) = agent.status()["last_errors"]
    assert archive.location.rpartition("/")[0] in error["message"]
    assert "the secret key does not belong to this access key" in error["message"]
    agent.stop()
    assert "agent_stopping" in agent.log.read_text()


def test_an_agent_with_a_wrong_clock_keeps_running_and_reports_by_how_much(
    archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """It is not ready, and its last error names the clock; the operator may set the clock at any time."""
    archive = archive_of("wrong-clock")
    environment = {**archive.s3.environment(), **wrong_clock(tmp_path, -1200)}
    agent = archive.agent(waits=False, environment=environment)
    wait_for(lambda: refusals(agent, "wrong_clock") >= 2, "the agent to be refused twice")
    assert agent.alive
    assert json.loads(agent.page("/readyz"))["store"] is False
    (error,) = agent.status()["last_errors"]
    assert "s behind the store's: set the clock" in error["message"]
    agent.stop()
