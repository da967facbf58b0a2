"""A fleet that migrates from the Java uploader, broker by broker and under load (U29)."""

from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.conftest import ArchiveOf
from tests.faults.fleet.java_uploader import JavaUploader, wait_taken_over
from tests.faults.fleet.java_uploaders import wait_java_shipped
from tests.faults.leaders import (
    PATIENCE,
    Load,
    assert_shown,
    bases,
    logged,
    move_leader,
    produce,
    wait_in_sync,
    wait_leadership_shipped,
    zookeeper_of,
)
from tests.faults.store_faults import variants
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_catalog, read_commit
from ts_common.archive.commit import ForeignCommit
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import open_view

pytestmark = pytest.mark.usefixtures("mended")

PARTITIONS = 2


@pytest.mark.full
def test_u29_a_fleet_moves_over_broker_by_broker(cluster: LocalCluster, archive_of: ArchiveOf, repetition: int) -> None:
    """Leaders move between brokers of both kinds that roll at different sizes: in the end each record is there once."""
    topic = f"moved-over-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2], [2, 1]])
    with ExitStack() as running, zookeeper_of(cluster).client() as client:
        load = running.enter_context(Load(cluster, topic, PARTITIONS))
        first, second = running.enter_context(ExitStack()), running.enter_context(ExitStack())
        first.enter_context(JavaUploader(archive, 1, PARTITIONS))
        second.enter_context(JavaUploader(archive, 2, PARTITIONS))
        for partition in range(PARTITIONS):
            wait_java_shipped(archive, 0, partition)
        # Broker 1: the Java uploader ends; the agent starts, and takes over the partitions that broker 1 leads.
        first.close()
        archive.agent(1)
        wait_taken_over(archive, 0)
        # Broker 2 still has the Java uploader; each partition is led by either in turn.
        for leader in (2, 1):
            for partition in range(PARTITIONS):
                move_leader(client, topic, leader, 3 - leader, partition)
            if leader == 2:
                for partition in range(PARTITIONS):
                    before = archive.next_offset(partition)
                    wait_java_shipped(archive, before, partition)
            else:
                for partition in range(PARTITIONS):
                    wait_taken_over(archive, partition)
        # Broker 2.
        second.close()
        archive.agent(2)
        move_leader(client, topic, 2, 1, 1)
        wait_for(lambda: (archive.commit(1) or wait_taken_over(archive, 1)).broker == 2, "broker 2 to commit", PATIENCE)
    for partition, leader in ((0, 1), (1, 2)):
        wait_in_sync(cluster, topic, 1, 2, partition=partition)
        end = wait_leadership_shipped(archive, leader, partition)
        assert_shown(archive, load.acknowledged[partition], end, partition)


def test_u29_what_a_java_uploader_uploads_late_costs_nothing(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Its broker no longer leads; it overwrites a segment with a shorter one, and the commit with an old name."""
    topic = f"late-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    agent = archive.agent(2)
    with JavaUploader(archive, 1) as java, zookeeper_of(cluster).client() as client:
        java.hold()
        sent = produce(cluster, topic, "before", 900)
        wait_for(lambda: len(java.queued()) > 1, "the Java uploader to fall behind", PATIENCE)
        move_leader(client, topic, 2, 1)
        committed = wait_leadership_shipped(archive, 2)
        assert variants(archive) == []
        java.release_one()
        assert read_commit(archive.store, archive.partition_keys())[0] == ForeignCommit(0)
    sent |= produce(cluster, topic, "after", 900)
    end = wait_leadership_shipped(archive, 2)
    assert end > committed
    wait_for(logged(agent.log, "gap_filled"), "what was written over to be shipped beside it", PATIENCE)
    assert logged(agent.log, "segment_overwritten")()
    # The plain name is used; a rebuilt commit ships segments below its lineage's third element as variants, too.
    assert [name for name in variants(archive) if name.endswith(".log")]
    assert_shown(archive, sent, end)


@pytest.mark.full
def test_u29_a_hole_below_a_java_uploaders_name_is_shipped(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """It compares names only, and passes over records that the next leader has under a lower one; those are there."""
    topic = f"passed-over-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1, 2]])
    with JavaUploader(archive, 1), JavaUploader(archive, 2), zookeeper_of(cluster).client() as client:
        sent = produce(cluster, topic, "first", 900)
        *_, name, reached = bases(cluster, 1, topic)
        assert bases(cluster, 2, topic)[1] < name < reached
        wait_java_shipped(archive, name - 1)
        move_leader(client, topic, 2, 1)
        sent |= produce(cluster, topic, "second", 700)
        shipped = wait_java_shipped(archive, name)
    holes = [step for step in steps(archive) if isinstance(step, Hole)]
    assert [(hole.start, hole.end) for hole in holes] == [(reached, shipped)]
    archive.agent(2)
    end = wait_leadership_shipped(archive, 2)
    assert_shown(archive, sent, end)


def steps(archive: Archive) -> Sequence[ReadRange | Hole]:
    """Return the records that a reader of the whole topic sees."""
    view = open_view(archive.store, read_catalog(archive.store, archive.partition_keys()))
    return view.plan(view.start, view.end)
