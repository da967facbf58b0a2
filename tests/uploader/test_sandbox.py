"""The agent under what deploy/ts-uploader.service takes away from it: see tests/deploy/sandbox.py."""

import os
import sys
from pathlib import Path

from tests.uploader.beside import ON_BOTH
from tests.uploader.conftest import ArchiveOf
from tests.uploader.test_guest import READER
from tests.uploader.test_shipping import records
from ts_local.cluster import LocalCluster

UNIT = Path(__file__).parents[2] / "deploy" / "ts-uploader.service"


def sandbox(kind: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.deploy.sandbox", kind, str(UNIT))


# Mounting needs root, and what comes next takes it away.
CONFINED = (*(sandbox("disks") if os.geteuid() == 0 else ()), *READER, *sandbox("calls"))


@ON_BOTH
def test_the_agent_ships_inside_the_sandbox_of_its_unit(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """With each forbidden system call deadly, no memory both writable and executable, and every disk read-only."""
    topic = f"confined-{'zookeeper' if cluster.zookeeper else 'kraft'}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(1000), partition=0)
    agent = archive.agent(prefix=CONFINED)
    end = archive.wait_until_shipped()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines())
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    agent.page("/")
    assert "process_start_time_seconds" in agent.metrics()
    agent.stop()
    assert "the agent runs with the priority" not in agent.log.read_text()
    assert archive.read() == archive.oracle(end=end)
