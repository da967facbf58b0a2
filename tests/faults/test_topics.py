"""Topics that are deleted, re-created or extended, and directories without a topic id (fault U09)."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # its public name, imported without `as`

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import dump
from tests.faults.conftest import ArchiveOf
from tests.faults.files import (
    SECONDS,
    live_bases,
    look,
    newest_keys,
    paused,
    records,
    sample,
    text_of,
    wait_for_backlog,
)
from tests.uploader.beside import BUCKET, Archive
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import read_incarnations

SMALL = {"segment.bytes": "20000"}


def wait_until_newest_shipped(archive: Archive, directory: Path, partition: int = 0) -> int:
    """Wait until a later incarnation has every closed segment of a directory; return the next offset."""
    active = live_bases(directory)[-1]

    def next_offset() -> int:
        keys = newest_keys(archive, partition)
        if keys == archive.partition_keys(partition):
            return 0
        commit, _ = read_commit(archive.store, keys)
        return commit.next_offset if isinstance(commit, Commit) else 0

    wait_for(lambda: next_offset() >= active, f"{directory} shipped up to {active}", SECONDS, state=next_offset)
    return active


def reborn(cluster: LocalCluster, topic: str, words: bytes) -> list[Record]:
    """Delete a topic, create it again, and return other records for it."""
    cluster.delete_topic(topic)

    def created() -> bool:
        try:
            cluster.create_topic(topic, assignment=[[1]], config=SMALL)
        except KafkaException as error:  # the brokers have forgotten it, but the controller has not yet
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(created, f"{topic} to be created again", SECONDS)
    return [Record(words + (record.value or b""), key=record.key) for record in records(700)]


def test_u09_a_recreated_topic_is_stored_next_to_the_deleted_one(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Its offsets begin at 0 again: old objects are unchanged, and readers see the new incarnation alone."""
    topic = "reborn"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    cluster.produce(topic, records(1000), partition=0)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    first, before = archive.oracle(end=end), archive.objects()
    assert archive.read() == first
    new = reborn(cluster, topic, b"second")
    cluster.produce(topic, new, partition=0)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    second = wait_until_newest_shipped(archive, directory)
    incarnations, _ = read_incarnations(archive.store, archive.keys, topic)
    assert [entry.directory for entry in incarnations.entries] == [topic, f"{topic}~{incarnations.entries[1].topic_id}"]
    assert newest_keys(archive).prefix != archive.partition_keys().prefix
    after = archive.objects()
    # The list of incarnations is the one object that both share.
    kept = {key: etag for key, etag in before.items() if key != archive.keys.incarnations(topic)}
    assert {key: after.get(key) for key in kept} == kept
    assert {key for key in after if key.startswith(archive.partition_keys().prefix)} == {
        key for key in before if key.startswith(archive.partition_keys().prefix)
    }
    assert archive.read() == archive.oracle(end=second)
    assert all((record.value or b"").startswith(b"second") for record in archive.read())
    assert "died" not in text_of(agent)


@pytest.mark.full
def test_u09_uploads_of_a_first_incarnation_never_appear_in_the_recreated_topic(
    cluster: LocalCluster, archive_of: ArchiveOf, repetition: int
) -> None:
    """Uploads of the first incarnation are held while it is re-created: none of them appears in the second."""
    topic = f"reborn-meanwhile-{repetition}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    cluster.produce(topic, records(300), partition=0)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    first, before = archive.oracle(), archive.objects()
    with paused(archive.s3):
        cluster.produce(topic, records(1000, start=300), partition=0)
        wait_for_backlog(agent, archive, 8)
        new = reborn(cluster, topic, b"second")
        cluster.produce(topic, new, partition=0)
        directory = cluster.brokers[1].partition_directory(topic, 0)
        gone = cluster.brokers[1].log_dirs[0]
        assert [path for path in gone.iterdir() if path.name.startswith(topic) and path.name.endswith("-delete")]
    second = wait_until_newest_shipped(archive, directory)
    assert archive.read() == archive.oracle(end=second)
    assert all((record.value or b"").startswith(b"second") for record in archive.read())
    after, old = archive.objects(), archive.partition_keys().prefix
    assert {key for key in before if key.startswith(old)} <= {key for key in after if key.startswith(old)}
    unchanged = {key: etag for key, etag in before.items() if key.startswith(old) and not key.endswith("offset.wm")}
    assert {key: after[key] for key in unchanged} == unchanged
    # Objects of the first incarnation since then belong to it, whatever happened to its commit.
    commit = archive.commit()
    assert commit is not None
    assert commit.next_offset >= end
    assert commit.topic_id == read_incarnations(archive.store, archive.keys, topic)[0].entries[0].topic_id
    assert end <= len(first)
    assert "died" not in text_of(agent)


@pytest.mark.full
def test_u09_a_topic_that_gets_more_partitions(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """The new ones are shipped from their first record on; the old one keeps its objects and continues."""
    topic = "growing"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    cluster.produce(topic, records(500), partition=0)
    archive.agent()
    archive.wait_until_shipped()
    before = archive.objects()
    admin = cluster.admin()
    admin.create_partitions([NewPartitions(topic, 3, [[1], [1]])])[topic].result(SECONDS)
    wait_for(
        lambda: all(cluster.leader(topic, partition) == 1 for partition in (1, 2)), "leaders of the new ones", SECONDS
    )
    for partition in range(3):
        cluster.produce(topic, records(500, start=1000 * partition + 500), partition=partition)
    ends = [archive.wait_until_shipped(partition=partition) for partition in range(3)]
    assert all(ends)
    after = archive.objects()
    kept = {key: etag for key, etag in before.items() if not key.endswith("offset.wm")}
    assert {key: after.get(key) for key in kept} == kept
    produced = dump(cluster.bootstrap, topic)
    for partition, end in enumerate(ends):
        assert archive.read(partition) == [r for r in produced if r.partition == partition and r.offset < end]
    assert len(read_incarnations(archive.store, archive.keys, topic)[0].entries) == 1


@pytest.mark.full
def test_u09_a_directory_that_names_no_topic_id_waits(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """`partition.metadata` is missing: nothing is shipped, objects stay, and once it is back shipping continues."""
    topic = "unnamed"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config=SMALL)
    directory = cluster.brokers[1].partition_directory(topic, 0)
    cluster.produce(topic, records(500), partition=0)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    agent.stop()
    before, read = archive.objects(), archive.read()
    broker = cluster.brokers[1]
    broker.stop()
    metadata = directory / "partition.metadata"
    named = metadata.read_bytes()
    metadata.unlink()
    broker.start()
    wait_for(lambda: cluster.leader(topic, 0) == 1, "the broker to lead again", SECONDS)
    agent = archive.agent()
    cluster.produce(topic, records(500, start=500), partition=0)
    # A broker that has the topic's id rewrites the file when it becomes leader; one that lacks the id never does.
    wait_for(metadata.exists, "the broker to name the directory again", SECONDS)
    assert metadata.read_bytes() == named
    further = archive.wait_until_shipped()
    assert further > end
    assert archive.read()[: len(read)] == read
    assert archive.read() == archive.oracle(end=further)
    after = archive.objects()
    kept = {key: etag for key, etag in before.items() if not key.endswith("offset.wm")}
    assert {key: after.get(key) for key in kept} == kept

    metadata.unlink()
    cluster.produce(topic, records(500, start=1000), partition=0)
    wait_for_backlog(agent, archive, 4)
    assert sample(agent, "next_offset", archive) == further
    assert len(read_incarnations(archive.store, archive.keys, topic)[0].entries) == 1
    assert look(archive).end == further
    elsewhere = tmp_path / "partition.metadata"
    elsewhere.write_bytes(named)
    elsewhere.replace(metadata)  # as the broker does
    last = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=last)
    assert len(read_incarnations(archive.store, archive.keys, topic)[0].entries) == 1


@pytest.mark.full
def test_u09_brokers_without_topic_ids(tmp_path: Path) -> None:
    """As before Kafka 2.8: directories have no `partition.metadata`, and only the plain directory exists."""
    topic = "no-ids"
    with LocalCluster(
        s3=True, buckets=[BUCKET], properties={"inter.broker.protocol.version": "2.7"}, name="old"
    ) as cluster:
        archive = Archive(cluster, tmp_path, topic)
        try:
            cluster.create_topic(topic, assignment=[[1]], config=SMALL)
            cluster.produce(topic, records(500), partition=0)
            directory = cluster.brokers[1].partition_directory(topic, 0)
            assert live_bases(directory)[-1] > 0
            assert not (directory / "partition.metadata").exists()
            archive.agent().stop()
            archive.agent()
            end = archive.wait_until_shipped()
            assert end > 0
            assert archive.read() == archive.oracle(end=end)
            commit = archive.commit()
            assert commit is not None
            assert commit.topic_id is None
            assert archive.keys.incarnations(topic) not in archive.objects()
        finally:
            archive.close()
