"""Elections that lose records, between real brokers: the archive follows the later leader, record by record."""

import re
import shutil

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import CutBefore, Hold
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.leaders import (
    PATIENCE,
    assert_shown,
    bases,
    die,
    epochs,
    high_watermark,
    lines,
    log_bytes,
    logged,
    produce,
    start_agents,
    state,
    wait_in_sync,
    wait_leadership_shipped,
    wait_led,
)
from ts_common.archive.commit import LogStart, decode_log_start

pytestmark = pytest.mark.usefixtures("mended")

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
SHARED = 100
LOST = "committed_records_lost"


def test_u05_both_leaders_bytes_stay_and_readers_follow_the_later_leadership(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """An unclean election: under one base name two leaders wrote different bytes, and only the later one's are live."""
    topic = f"parted-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]], config=UNCLEAN)
    first, second = start_agents(archive, 1, 2).values()
    shared = produce(cluster, topic, "shared", SHARED)
    die(cluster, 2)
    wait_led(cluster, topic, 1)
    dead = produce(cluster, topic, "dead", 900)
    committed = archive.wait_until_shipped(1)
    assert lines(assert_shown(archive, shared | dead, committed)) == ["shared", "dead"]
    of_first, before = log_bytes(cluster, 1, topic, 0), archive.objects()

    die(cluster, 1)
    cluster.brokers[2].start()
    wait_led(cluster, topic, 2)
    living = produce(cluster, topic, "living", 1300)
    of_second = log_bytes(cluster, 2, topic, 0)
    assert dead.keys() & living.keys()
    assert not of_first.startswith(of_second)
    assert not of_second.startswith(of_first)
    assert epochs(cluster, 1, topic) != epochs(cluster, 2, topic)

    end = wait_leadership_shipped(archive, 2)
    after = archive.objects()
    prefix = archive.partition_keys().prefix
    names = [key for key in after if re.fullmatch(re.escape(prefix) + r"0{20}(\.e\d+\.[0-9a-f]{8})?\.log", key)]
    assert len(names) == 2
    assert {archive.store.get(name)[0] for name in names} == {of_first, of_second}
    commit = archive.commit()
    assert commit is not None
    assert commit.lineage is not None
    changed = {archive.partition_keys().commit, archive.partition_keys().log_start}
    assert {key: after.get(key) for key in before if key not in changed} == {
        key: etag for key, etag in before.items() if key not in changed
    }
    assert second.metrics()["ts_uploader_lost_offsets_total"] == committed - SHARED
    assert logged(second.log, LOST)()
    assert first.metrics()["ts_uploader_lost_offsets_total"] == 0

    cluster.brokers[1].start()
    wait_in_sync(cluster, topic, 1, 2)
    assert lines(assert_shown(archive, shared | living, end)) == ["shared", "living"]


@pytest.mark.full
def test_u06_an_agent_that_missed_an_unclean_election_commits_nothing_of_the_next_leader(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Its broker was truncated and follows; without ZooKeeper the agent reads another epoch on the disk, and waits."""
    topic = f"missed-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[2, 1]], config=UNCLEAN)  # the controller does not move it back to broker 1
    stale = archive.agent(1, surroundings=cluster.agent_surroundings(1))
    shared = produce(cluster, topic, "shared", SHARED)
    die(cluster, 2)
    wait_led(cluster, topic, 1)
    produce(cluster, topic, "dead", 900)
    committed = archive.wait_until_shipped(1)
    before = archive.commit()
    cluster.links["agent-1:zookeeper"].cut()
    stale.pause()

    die(cluster, 1)
    cluster.brokers[2].start()
    wait_led(cluster, topic, 2)
    living = produce(cluster, topic, "living", 1500)
    cluster.brokers[1].start()
    wait_in_sync(cluster, topic, 1, 2)
    assert SHARED < committed < bases(cluster, 1, topic)[-1]
    assert epochs(cluster, 1, topic) == epochs(cluster, 2, topic)
    wait_for(lambda: (high_watermark(cluster, 1, topic) or 0) > committed, "a checkpoint above the commit", PATIENCE)

    stale.resume()
    waiting = 'ts_uploader_waiting_partitions{reason="epoch"}'
    wait_for(lambda: stale.metrics()[waiting] == 1, "it to see that its broker ends with another epoch", PATIENCE)
    assert archive.commit() == before
    second = archive.agent(2)
    end = wait_leadership_shipped(archive, 2)
    assert second.metrics()["ts_uploader_lost_offsets_total"] == committed - SHARED
    assert lines(assert_shown(archive, shared | living, end)) == ["shared", "living"]
    cluster.links["agent-1:zookeeper"].heal()


# Two brokers start again, three partitions wait for each: `tests/uploader/committing/test_elections.py` has the parts.
@pytest.mark.full
def test_u26_u36_an_empty_or_outdated_last_replica_leads_and_its_later_records_are_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """The archive returns to the end of the log, shows no lost record, and then the later ones.

    This includes offsets below the former start of an archive.
    """
    topic, behind, empty, begun_above = f"came-back-{repetition}", 0, 1, 2
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]] * 3, config={"min.insync.replicas": "1"})
    produce(cluster, topic, "deleted", 900, begun_above)
    active = bases(cluster, 1, topic, begun_above)[-1]
    cluster.delete_records(topic, {begun_above: active})
    wait_for(lambda: bases(cluster, 1, topic, begun_above) == [active], "the closed segments to go", PATIENCE)
    agent = archive.agent(1)
    die(cluster, 2)
    kept = {partition: produce(cluster, topic, "kept", 400, partition) for partition in (behind, empty, begun_above)}
    wait_led(cluster, topic, 1)
    directories = {p: cluster.brokers[1].partition_directory(topic, p) for p in (behind, empty, begun_above)}
    image = cluster.directory / "image"
    shutil.copytree(directories[behind], image)
    committed = {}
    for partition in (behind, empty, begun_above):
        lost = produce(cluster, topic, "lost", 900, partition)
        committed[partition] = archive.wait_until_shipped(1, partition)
        assert_shown(archive, kept[partition] | lost, committed[partition], partition)
    assert min(committed.values()) > 400
    began = archive.read(begun_above)[0].offset
    assert began > 0

    die(cluster, 1)
    for directory in directories.values():
        shutil.rmtree(directory)
    shutil.move(image, directories[behind])
    leaderships = {partition: state(cluster, topic, partition).leader_epoch for partition in directories}
    cluster.brokers[2].start()  # not in sync, so no broker leads; but there is a controller to see the first one return
    cluster.brokers[1].start()
    for partition, end in ((behind, 400), (empty, 0), (begun_above, 0)):
        wait_led(cluster, topic, 1, partition)
        assert state(cluster, topic, partition).leader_epoch > leaderships[partition]
        assert cluster.latest(topic, partition) == end < committed[partition]
        wait_for(
            lambda: archive.next_offset(partition) == end,  # noqa: B023
            f"the commit of {topic}-{partition} to go back to {end}",
            PATIENCE,
            state=lambda: archive.commit(partition),  # noqa: B023
        )
        assert lines(assert_shown(archive, {}, end, partition)) == (["kept"] if end else [])
    assert agent.metrics()["ts_uploader_lost_offsets_total"] == sum(committed.values()) - 400
    assert logged(agent.log, LOST)()

    for partition, survived in ((behind, kept[behind]), (empty, {}), (begun_above, {})):
        later = produce(cluster, topic, "later", 2600 if partition == begun_above else 1700, partition)
        assert min(later) < committed[partition] < max(later)
        end = wait_leadership_shipped(archive, 1, partition)
        assert end > committed[partition]
        shown = assert_shown(archive, survived | later, end, partition)
        assert lines(shown) == (["kept", "later"] if survived else ["later"])
        assert shown[0].offset == 0


def answer_to_last_commit(proxy: S3FaultProxy) -> int | None:
    """Return the store's status; None before it answers."""
    asked = [request for request in proxy.requests() if request.method == "PUT" and request.path.endswith("offset.wm")]
    return asked[-1].server_status


@pytest.mark.full
@pytest.mark.parametrize("name", ["offset.wm", "log.start"])
def test_u36_killed_before_either_write_with_a_late_agent_of_the_old_lineage_and_readers_in_between(
    cluster: LocalCluster, archive_of: ArchiveOf, name: str
) -> None:
    """An empty replica leads, and its agent dies while it moves the commit and `log.start` back.

    The agent of the former leader always has a commit under way, which lands then. Readers see the old log as it was,
    or nothing; afterwards the new log from its beginning.
    """
    topic = f"between-{name.partition('.')[0]}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]], config=UNCLEAN)
    produce(cluster, topic, "deleted", 900)
    active = bases(cluster, 1, topic)[-1]
    cluster.delete_records(topic, {0: active})
    wait_for(lambda: bases(cluster, 1, topic) == [active], "the closed segments to go", PATIENCE)
    wait_in_sync(cluster, topic, 1, 2)
    directory = cluster.brokers[2].partition_directory(topic, 0)
    die(cluster, 2)
    wait_led(cluster, topic, 1)
    with S3FaultProxy(archive.s3) as of_late, S3FaultProxy(archive.s3) as of_next:
        late = archive.agent(1, environment=of_late.environment())
        lost = produce(cluster, topic, "lost", 900)
        committed = archive.wait_until_shipped(1)
        before = assert_shown(archive, lost, committed)
        assert before[0].offset > 0
        under_way = Hold()
        of_late.script(Rule(under_way, methods={"PUT"}, target=r"offset\.wm$"))
        lost |= produce(cluster, topic, "lost", 900)
        wait_for(lambda: under_way.fired > 0, "a commit of the former leader's agent on its way", PATIENCE)
        late.pause()

        die(cluster, 1)
        shutil.rmtree(directory)
        cluster.brokers[2].start()
        wait_led(cluster, topic, 2)
        assert cluster.latest(topic, 0) == 0
        killed_at = Hold(CutBefore())
        of_next.script(Rule(killed_at, methods={"PUT"}, target=re.escape(name) + "$", times=None))
        agent = archive.agent(2, environment=of_next.environment())
        wait_for(lambda: killed_at.fired > 0, f"the agent to write {name}", PATIENCE)
        agent.kill()
        killed_at.release()
        of_next.clear()
        keys = archive.partition_keys()
        start = archive.store.get(keys.log_start)[0]
        went_back = name == "log.start"
        assert archive.read() == ([] if went_back else before)

        late.resume()
        under_way.release()
        wait_for(lambda: answer_to_last_commit(of_late) is not None, "the late commit to reach the store", PATIENCE)
        assert (answer_to_last_commit(of_late) == 412) == went_back
        shown = archive.read()
        assert shown == [] if went_back else shown[: len(before)] == before
        assert archive.store.get(keys.log_start)[0] == start

        later = produce(cluster, topic, "later", 1700)
        agent.start()
        end = wait_leadership_shipped(archive, 2)
        seen = assert_shown(archive, later, end)
    assert (lines(seen), seen[0].offset) == (["later"], 0)
    commit, log_start = archive.commit(), decode_log_start(archive.store.get(keys.log_start)[0], keys.log_start)
    assert commit is not None
    assert commit.lineage is not None
    assert log_start == LogStart(0, commit.lineage)


# One unclean election is `test_u05`; `tests/lineage` and `tests/histories` have two, and kills between them.
@pytest.mark.full
def test_u32_two_unclean_elections_and_a_kill_between_two_segments_shipped_again(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """After the first broker returns, its own records are live again, and those of the middle leader are dead."""
    topic = f"there-and-back-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]], config=UNCLEAN)
    agent, other = start_agents(archive, 1, 2).values()
    shared = produce(cluster, topic, "shared", SHARED)
    die(cluster, 2)
    wait_led(cluster, topic, 1)
    first = produce(cluster, topic, "first", 900)
    first_end = archive.wait_until_shipped(1)
    die(cluster, 1)
    agent.kill()

    cluster.brokers[2].start()
    wait_led(cluster, topic, 2)
    middle = produce(cluster, topic, "middle", 1300)
    middle_end = wait_leadership_shipped(archive, 2)
    middle_epoch = state(cluster, topic).leader_epoch
    assert lines(archive.read()) == ["shared", "middle"]
    assert first.keys() & middle.keys()
    assert other.metrics()["ts_uploader_lost_offsets_total"] == first_end - SHARED
    of_second = epochs(cluster, 2, topic)
    die(cluster, 2)

    cluster.brokers[1].start()
    wait_led(cluster, topic, 1)
    last = produce(cluster, topic, "last", 1300)
    living = shared | first | last
    assert state(cluster, topic).leader_epoch > middle_epoch
    assert middle_epoch in dict(of_second)
    assert middle_epoch not in dict(epochs(cluster, 1, topic))
    with S3FaultProxy(archive.s3) as proxy:
        held = Hold()
        proxy.script(Rule(held, methods={"PUT"}, target=r"/(?!0{20})[^/]*\.log$", times=None))
        agent = archive.agent(1, environment=proxy.environment())
        wait_for(lambda: held.fired > 0, "a later segment's log on its way", PATIENCE)
        wait_for(lambda: archive.next_offset() < middle_end, "the commit to go back", PATIENCE)
        wait_for(lambda: archive.next_offset() > SHARED, "a segment to be shipped again", PATIENCE)
        agent.pause()
        stopped_at = archive.next_offset()
        agent.kill()
        held.release()
    active = bases(cluster, 1, topic)[-1]
    assert SHARED < stopped_at < active
    end = archive.next_offset()
    seen = {record.offset: record.value for record in archive.read()}
    assert seen == {offset: value for offset, value in living.items() if offset < end}
    agent = archive.agent(1)
    end = wait_leadership_shipped(archive, 1)
    assert lines(assert_shown(archive, living, end)) == ["shared", "first", "last"]
    assert agent.metrics()["ts_uploader_lost_offsets_total"] == 0
    cluster.brokers[2].start()
    wait_in_sync(cluster, topic, 1, 2)
    assert lines(assert_shown(archive, living, end)) == ["shared", "first", "last"]


@pytest.mark.full
def test_u26_a_log_that_lost_its_end_within_one_epoch_is_reported_and_not_followed(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """No controller saw the only replica return with a shorter log: one epoch, two logs, and no wrong row is shown."""
    topic = "same-epoch"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    agent = archive.agent(1)
    kept = produce(cluster, topic, "kept", 400)
    directory, image = cluster.brokers[1].partition_directory(topic, 0), cluster.directory / "image"
    shutil.copytree(directory, image)
    lost = produce(cluster, topic, "lost", 900)
    committed = archive.wait_until_shipped(1)
    assert_shown(archive, kept | lost, committed)
    shown, before = archive.read(), state(cluster, topic)

    for broker in (2, 1):
        cluster.brokers[broker].kill()
    shutil.rmtree(directory)
    shutil.move(image, directory)
    cluster.brokers[1].start()
    wait_led(cluster, topic, 1)
    assert cluster.latest(topic, 0) == len(kept) < committed
    assert state(cluster, topic) == before
    later = produce(cluster, topic, "later", 1700)
    assert min(later) < committed < bases(cluster, 1, topic)[-1]
    wait_for(lambda: "differs from the one that was committed" in agent.log.read_text(), "the agent to find it", 90)
    assert archive.read() == shown
    agent.restart()
    event = "differs from the one that was committed"
    before_restart = agent.log.read_text().count(event)
    wait_for(lambda: agent.log.read_text().count(event) > before_restart, "a restart to find it", 90)
    assert archive.read() == shown
