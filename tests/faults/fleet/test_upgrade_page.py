"""The commands of docs/upgrade.md, run on a host whose directories and systemd are the test's."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.local.agent import write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.docs.commands import CHECKOUT, CommandFailedError, blocks
from tests.faults.conftest import ArchiveOf
from tests.faults.fleet.hosts import host_beside, wait_release
from tests.faults.fleet.java_uploader import JavaUploader, wait_taken_over
from tests.faults.fleet.java_uploaders import wait_java_shipped
from tests.faults.leaders import PATIENCE, Load, assert_shown, bases, logged, wait_in_sync
from tests.http_servers import Handler, serving
from tests.operator.broker_host import Host

pytestmark = pytest.mark.usefixtures("mended")

PAGE = CHECKOUT / "docs" / "upgrade.md"
UNIT = CHECKOUT / "deploy" / "ts-uploader.service"
UNIT_BEFORE = f"# of the release before\n{UNIT.read_text()}"
(VARIABLES,) = blocks(PAGE, "", language="sh")
*_, LOOK = blocks(PAGE, "The agent of one broker")


@pytest.mark.full
def test_the_page_upgrades_an_agent_and_its_broker_and_goes_back(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """Install, switch, check, restart the broker, and go back: each block does what the page describes, under load."""
    topic = "by-the-page"
    archive = archive_of(topic, cluster_id=cluster.cluster_id)
    cluster.create_topic(topic, assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    install, check, take, look = blocks(PAGE, "The agent of one broker")
    (with_broker,) = blocks(PAGE, "With its broker")
    (back,) = blocks(PAGE, "Back to the previous release")
    broker = cluster.brokers[1]
    with Load(cluster, topic, 1) as load, host_beside(archive, tmp_path, kafka=lambda _: broker.restart()) as host:
        write_config(host.etc / "conf", cluster.cluster_id, archive.properties)
        host.agent.start()
        wait_release(archive, later=False)
        variables = {"AGENT": f"http://{host.agent.address}", "STEADY": "3"}
        assert "ts-uploader 0." in host.run(VARIABLES, install, check, **variables)
        assert host.asked == []
        (host.systemd / "ts-uploader.service").write_text(UNIT_BEFORE)
        assert '"status": "ready"' in host.run(VARIABLES, take, look, **variables)
        assert (host.systemd / "ts-uploader.service").read_text() == UNIT.read_text()
        wait_release(archive, later=True)
        host.run(VARIABLES, with_broker, **variables)
        wait_in_sync(cluster, topic, 1, 2)
        host.run(VARIABLES, back, look, **variables)
        assert (host.systemd / "ts-uploader.service").read_text() == UNIT_BEFORE
        assert host.asked == [
            "daemon-reload",
            "restart ts-uploader",
            "stop ts-uploader",
            "restart kafka",
            "start ts-uploader",
            "daemon-reload",
            "restart ts-uploader",
        ]
        archive.agent(2)  # the leader moved there while its broker was down
        wait_for(lambda: cluster.leader(topic, 0) is not None, "a leader", PATIENCE)
        archive.wait_for_offset(archive.next_offset() + 1, seconds=PATIENCE)
    assert (host.opt / "venv").readlink() == Path("0.1.0")
    assert_shown(archive, load.acknowledged[0], archive.next_offset())


def test_u29_the_page_moves_a_broker_over_from_the_java_uploader(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """With its own cluster id, in its own keys, under load; the log has the lines that the page quotes."""
    topic = "java-by-the-page"
    archive = archive_of(topic, cluster_id="prod")
    cluster.create_topic(topic, assignment=[[1]])
    variables, check, move = blocks(PAGE, "From the Java uploader")
    with ExitStack() as running:
        load = running.enter_context(Load(cluster, topic, 1))
        java = running.enter_context(ExitStack())
        java.enter_context(JavaUploader(archive, 1))
        stopped = {"kafka-segment-uploader": lambda _: java.close()}
        host = running.enter_context(host_beside(archive, tmp_path, **stopped))
        wait_java_shipped(archive, 0)
        write_config(host.etc / "conf", "prod", archive.properties)
        host.run(VARIABLES, variables, check)
        assert host.asked == []
        said = host.run(VARIABLES, variables, move, LOOK, AGENT=f"http://{host.agent.address}", STEADY="3")
        assert '"status": "ready"' in said
        assert host.asked == ["disable --now kafka-segment-uploader", "enable --now ts-uploader"]
        commit = wait_taken_over(archive)
        archive.wait_for_offset(commit.next_offset + 1, seconds=PATIENCE)
    wait_for(lambda: archive.next_offset() >= 0 and logged(host.agent.log, "run_walked")(), "the walk", PATIENCE)
    assert archive.next_offset() <= bases(cluster, 1, topic)[-1]
    assert_shown(archive, load.acknowledged[0], archive.next_offset())


def bare_host(directory: Path) -> Host:
    """A host without a broker; no agent is started there."""
    return Host(directory / "host", directory, {}, directory / "server.properties")


def test_a_release_is_switched_only_where_a_link_names_the_running_one(tmp_path: Path) -> None:
    """If it is a directory nothing changes: no empty name is kept, and no link is made inside it."""
    *_, take, _ = blocks(PAGE, "The agent of one broker")
    with bare_host(tmp_path) as host:
        venv = host.opt / "venv"
        venv.unlink()
        venv.mkdir()
        with pytest.raises(AssertionError):
            host.run(VARIABLES, take)
        assert host.asked == []
    assert list(venv.iterdir()) == []
    assert not (host.opt / "previous").exists()


def test_switching_to_a_release_twice_keeps_the_previous_one(tmp_path: Path) -> None:
    """Its name and its unit stay unchanged."""
    *_, take, _ = blocks(PAGE, "The agent of one broker")
    with bare_host(tmp_path) as host:
        (host.opt / "0.2.0" / "bin").mkdir(parents=True)
        shutil.copy(host.opt / "0.1.0" / "bin" / "ts-uploader", host.opt / "0.2.0" / "bin")
        (host.systemd / "ts-uploader.service").write_text(UNIT_BEFORE)
        for _ in range(2):
            host.run(VARIABLES, take)
    assert (host.opt / "venv").readlink() == Path("0.2.0")
    assert (host.opt / "previous").read_text() == "0.1.0\n"
    assert (host.opt / "previous.service").read_text() == UNIT_BEFORE


def test_the_look_ends_with_the_log_of_an_agent_that_was_refused(tmp_path: Path) -> None:
    """No operator waits for it: the unit does not start it again."""
    with bare_host(tmp_path) as host:
        host.agent.launch()
        wait_for(lambda: host.agent.refused, "the agent to refuse what is not there", PATIENCE)
        with pytest.raises(CommandFailedError, match=r"server\.properties"):
            host.shell.run(VARIABLES, LOOK, AGENT=f"http://{host.agent.address}")


CONNECTED = "ts_uploader_leadership_connected 1.0\n"
WELL = CONNECTED + 'ts_uploader_waiting_partitions{reason="store"} 0.0\n'
for _reason in ("hole", "gap", "below_high_watermark"):  # which an upgrade does not mend
    WELL += f'ts_uploader_waiting_partitions{{reason="{_reason}"}} 12.0\n'
# None: no answer. The last is healthy, by its own page.
UNWELL = [None, "ts_uploader_leadership_connected 0.0\n", WELL.replace("0.0", "1.0"), CONNECTED]


@pytest.mark.full
def test_the_look_ends_when_the_agent_was_well_for_some_time(tmp_path: Path) -> None:
    """A missing answer, missing leadership, or partitions without a report yet do not count."""
    answers = [*UNWELL, WELL, None, WELL, CONNECTED, WELL]
    asked: list[str | None] = []

    class Agent(Handler):
        def do_GET(self) -> None:
            answer: str | None = "ok"
            if self.path == "/metrics":
                asked.append(answers[min(len(asked), len(answers) - 1)])
                answer = asked[-1]
            self.answer(503 if answer is None else 200, (answer or "").encode())

    with serving(Agent) as port, bare_host(tmp_path) as host:
        host.run(VARIABLES, LOOK, AGENT=f"http://127.0.0.1:{port}", STEADY="3")
    assert asked == answers


def test_the_page_quotes_what_the_agent_logs() -> None:
    """Each message that the page quotes is one that the agent logs."""
    page = PAGE.read_text()
    sources = "\n".join(
        path.read_text() for name in ("ts_uploader", "ts_common") for path in (CHECKOUT / name).rglob("*.py")
    )
    for said in (
        "upgrade this one",
        "run_walked",
        "committed",
        "segment_overwritten",
    ):
        assert f"`{said}`" in page
        assert said in sources
