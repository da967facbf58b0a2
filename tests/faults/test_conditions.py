"""What an agent shows of itself while nothing is shipped: the cause, by page, probes, status and metrics."""

import json
from collections.abc import Callable

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import Action, Answer, CutBefore, Hold
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.files import SECONDS
from tests.faults.store_faults import ANY_TIMES, TINY, fill, wait_led
from tests.matrix import cases
from ts_uploader.health.conditions import NAMED_WITHIN_SECONDS, Condition

FAULTS: dict[str, tuple[Callable[[], Action], Condition]] = {
    "denied": (lambda: Answer(403, "AccessDenied"), Condition.STORE_DENIED),
    "full": (lambda: Answer(507, "InsufficientStorage"), Condition.STORE_FULL),
    "clock": (lambda: Answer(403, "RequestTimeTooSkewed"), Condition.WRONG_CLOCK),
    "bucket": (lambda: Answer(404, "NoSuchBucket"), Condition.STORE_MISSING),
    "down": (CutBefore, Condition.STORE_FAILS),
    "hangs": (Hold, Condition.STORE_HANGS),
}


def condition_of(agent: AgentProcess) -> str:
    """Return the condition in `/status.json`."""
    found: str = agent.status()["state"]["condition"]
    return found


def check_everywhere(agent: AgentProcess, condition: Condition) -> None:
    """Compare page, `/readyz` and metrics with a condition, and require that no place reassures."""
    ready = json.loads(agent.page("/readyz"))
    assert (ready["status"], ready["state"]["condition"]) == ("waiting", condition.value)
    assert ready["leadership" if condition is Condition.BROKER_AWAY else "store"] is False
    page = agent.page("/")
    assert '<p class="verdict bad">' in page
    assert "All is well" not in page
    found = {name: value for name, value in agent.metrics().items() if name.startswith("ts_uploader_condition{")}
    assert [name for name, value in found.items() if value] == [
        f'ts_uploader_condition{{condition="{condition.value}"}}'
    ]


@pytest.mark.parametrize("fault", cases(FAULTS, quick=["denied"]))
def test_u46_a_store_that_accepts_no_segment_is_named_on_every_page(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, fault: str
) -> None:
    """Within the time that the page promises; once the store answers again, all is well."""
    topic, (made, condition) = f"condition-{fault}", FAULTS[fault]
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    agent = archive.agent()
    wait_led(agent, 1)
    action = made()
    proxy.script(Rule(action, methods={"PUT"}, target=rf"/{topic}-0/", times=ANY_TIMES))
    fill(cluster, topic, 6)
    wait_for(
        lambda: condition_of(agent) == condition,
        f"the agent to show {condition}",
        NAMED_WITHIN_SECONDS + SECONDS,
        state=lambda: agent.status()["state"],
    )
    check_everywhere(agent, condition)
    proxy.clear()
    if isinstance(action, Hold):
        action.release()
    wait_for(lambda: condition_of(agent) == Condition.WELL, "the agent to be well", 4 * SECONDS)
    assert json.loads(agent.page("/readyz"))["status"] == "ready"


@pytest.mark.full
def test_u46_a_broker_that_is_away_is_named_on_every_page(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Its partitions are led elsewhere, so nothing waits here: the agent must not look well."""
    topic = "condition-away"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[2, 1]], config=TINY)
    agent = archive.agent(2)
    wait_led(agent, 1)
    cluster.brokers[2].kill()
    try:
        wait_for(lambda: condition_of(agent) == Condition.BROKER_AWAY, "the cause", NAMED_WITHIN_SECONDS + SECONDS)
        check_everywhere(agent, Condition.BROKER_AWAY)
    finally:
        cluster.brokers[2].start()
    wait_for(lambda: condition_of(agent) == Condition.WELL, "the agent to be well", 2 * SECONDS)
