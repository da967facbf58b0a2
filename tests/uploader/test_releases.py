"""Agents of two releases, and two agents of one broker: an upgrade in place, as the store sees it."""

from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.leaders import CommitWatch, Load, assert_shown, logged, move_leader, zookeeper_of
from tests.faults.store_faults import variants
from tests.uploader.beside import Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.later_release import MARK
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from tests.uploader.produced import records
from ts_common.archive.metadata_cache import encode_cache_object
from ts_common.errors import NewerFormat
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import ReadPosition, Shipped, WriteCommit
from ts_uploader.shipping.metadata_cache_writer import write_cache_object

PATIENCE = 90.0
CHECKOUT = Path(__file__).parents[2]
LATER_COMMIT = b'00000000000000000000\n{"version":3,"run":["what only a later release knows"]}\n'
LEADERSHIP = Leadership(5, ID, 0)
LATER = ("--environment-provider", "tests.uploader.later_release:Later")


def commit_text(archive: Archive) -> str:
    return archive.store.get(archive.partition_keys().commit)[0].decode()


@pytest.mark.full
def test_agents_of_two_releases_ship_one_cluster(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The leader moves between brokers, and only one of them is upgraded: each agent continues the other's archive."""
    topic = "two-releases"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    archive.agent(1)
    archive.agent(2, environment={**archive.s3.environment(), "PYTHONPATH": str(CHECKOUT)}, arguments=LATER)
    written = []
    with zookeeper_of(cluster).client() as client:
        for turn, leader in enumerate((1, 2, 1)):
            move_leader(client, topic, leader, 3 - leader)
            cluster.produce(topic, records(700, start=700 * turn), partition=0)
            archive.wait_until_shipped(leader)
            wait_for(
                lambda: (commit := archive.commit()) is not None and commit.broker == leader,  # noqa: B023
                f"a commit of broker {leader}",
                PATIENCE,
            )
            written.append(MARK in commit_text(archive))
    assert written == [False, True, False]
    assert archive.read() == archive.oracle(end=archive.next_offset())


@pytest.mark.full
def test_a_commit_of_a_later_version_is_waited_for_and_never_written_over(
    cluster: LocalCluster, archive_of: ArchiveOf
) -> None:
    """The agent names the agent to upgrade, shows the waiting partition, and continues once it can read the commit."""
    topic = "later-version"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(900), partition=0)
    agent = archive.agent()
    archive.wait_until_shipped()
    agent.stop()
    key = archive.partition_keys().commit
    known, _ = archive.store.get(key)
    archive.store.put(key, LATER_COMMIT)
    agent = archive.agent()
    cluster.produce(topic, records(900, start=900), partition=0)
    waiting = f'ts_uploader_partition_waiting{{partition="0",topic="{topic}"}}'
    refused = "offset.wm is written in version 3 of its format by a later release"
    wait_for(
        logged(agent.log, f"the position in the store: NewerFormat: {archive.partition_keys().prefix}{refused}"),
        "it to say so",
        PATIENCE,
    )
    assert agent.metrics()[waiting] == 1
    assert archive.store.get(key)[0] == LATER_COMMIT
    archive.store.put(key, known)
    end = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=end)


def test_a_commit_of_a_later_version_is_not_written_over(store: ObjectStore, local: LocalDirectory) -> None:
    """Neither by an agent that reads the position, nor by one that has read it before."""
    local.segments(0, 10, 20)
    local.epochs((5, 0))
    commits = CommitLog(CLUSTER, 1, lambda _: store)
    ask = ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, None, 0)
    position = commits.read(ask).position
    store.put(KEYS.commit, LATER_COMMIT)
    segment = Shipped(TP, 0, LEADERSHIP, 0, 10, 10, ((5, 0),), 10, 1, 0, 0.0)
    with pytest.raises(NewerFormat, match=r"offset\.wm is written in version 3 .* upgrade this one"):
        commits.write(WriteCommit(TP, 0, LEADERSHIP, position, (segment,)))
    with pytest.raises(NewerFormat, match=r"offset\.wm is written in version 3 .* upgrade this one"):
        commits.read(ask)
    assert store.get(KEYS.commit)[0] == LATER_COMMIT


def test_incarnations_of_a_later_version_are_not_written_over(store: ObjectStore, local: LocalDirectory) -> None:
    """An agent that cannot decide which incarnation of a topic is the newest opens none."""
    later = b'{"version":2,"lives":[]}'
    store.put(CLUSTER.incarnations(TP.topic), later)
    local.segments(0, 10)
    local.epochs((5, 0))
    with pytest.raises(NewerFormat, match=r"incarnations\.json is written in version 2"):
        CommitLog(CLUSTER, 1, lambda _: store).read(ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, None, 0))
    assert store.get(CLUSTER.incarnations(TP.topic))[0] == later


def test_a_cache_object_of_a_later_version_is_kept(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of two releases do not write each other's cache objects over in turns."""
    with monkeypatch.context() as later:
        later.setattr("ts_common.archive.metadata_cache.json.dumps", lambda *_, **__: '{"version":2,"of":"t-0"}')
        text = encode_cache_object(KEYS, [])
    store.put(KEYS.cache_object(0), text)
    with pytest.raises(NewerFormat, match="version 2"):
        write_cache_object(store, KEYS, 100)
    assert store.get(KEYS.cache_object(0))[0] == text


def test_two_agents_on_one_broker_lose_and_repeat_nothing(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The new one starts before the old one ends, under load: both log it, no segment is stored twice."""
    topic = "beside-each-other"
    archive = archive_of(topic)
    small = {"segment.bytes": "8000", "segment.index.bytes": "1000"}  # many commits, so that two meet soon
    cluster.create_topic(topic, assignment=[[1]], config=small)
    old = archive.agent()
    with CommitWatch(archive) as watch, Load(cluster, topic, 1) as load:
        wait_for(lambda: archive.next_offset() > 0, "a first commit", PATIENCE)
        new = archive.agent()
        refused = [logged(agent.log, "was written by another agent") for agent in (old, new)]
        wait_for(lambda: any(told() for told in refused), "a commit of one to be refused, for the other's", PATIENCE)
        old.stop()
        archive.wait_for_offset(archive.next_offset() + 1, seconds=PATIENCE)
    end = archive.wait_until_shipped()
    assert_shown(archive, load.acknowledged[0], end)
    assert variants(archive) == []
    assert watch.pairs == sorted(watch.pairs)
