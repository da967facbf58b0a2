"""A lifecycle rule of the bucket deletes objects of the archive (fault U30)."""

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord
from dev.local.proxy.s3 import S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.files import SECONDS, gaps_of, look, wait_until_said
from tests.faults.store_faults import (
    TINY,
    assert_complete,
    closed,
    ends_of,
    fill,
    kafkas,
    puts,
    wait_shipped,
)
from tests.uploader.beside import Archive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.view import open_view
from ts_common.errors import ObjectNotFound


@pytest.mark.parametrize(
    ("name", "down"),
    [
        pytest.param("offset.wm", True, id="offset.wm, down"),
        pytest.param("offset.wm", False, marks=pytest.mark.full, id="offset.wm, running"),
        pytest.param("log.start", True, marks=pytest.mark.full, id="log.start, down"),
        pytest.param("log.start", False, marks=pytest.mark.full, id="log.start, running"),
    ],
)
def test_u30_an_object_that_a_lifecycle_rule_removed_is_reported(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, name: str, down: bool
) -> None:
    """Commit or log.start is missing: the agent logs that, continues where it was, and every record is shown once."""
    topic = f"taken-{name}-{down}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    fill(cluster, topic, 6)
    agent = archive.agent()
    wait_shipped(archive, ends_of(archive))
    key = archive.partition_keys().prefix + name
    if down:
        agent.stop()
    archive.store.delete([key])
    with pytest.raises(ObjectNotFound):
        archive.store.head(key)
    if down:
        agent = archive.agent()
    fill(cluster, topic, 6, start=1000)
    ends = ends_of(archive)
    wait_shipped(archive, ends)
    if name == "log.start" and not down:
        # Nothing needs it while shipping continues: readers report it at once, the agent at its next start.
        view = open_view(archive.store, read_catalog(archive.store, archive.partition_keys()))
        assert key in str(view.warning)
        agent.stop()
        agent = archive.agent()
    wait_for(lambda: key in archive.objects(), f"{key} to stand again", SECONDS)
    if name == "offset.wm" and down:
        wait_until_said(agent, "run_walked", topic)  # as after a kill before the first commit
    else:
        wait_until_said(agent, "[error", "lifecycle rule", key)
    assert_complete(archive, ends, kafkas(archive))
    landed = [request.path for request in puts(proxy, r"\.log$") if request.server_status == 200]
    assert len(landed) == len(set(landed))


@pytest.mark.full
@pytest.mark.parametrize("taken", ["while it runs", "while it is down", "with the commit"])
def test_u30_a_gap_whose_record_a_lifecycle_rule_deleted_stays_a_hole(
    cluster: LocalCluster, archive_of: ArchiveOf, taken: str
) -> None:
    """Readers still see data loss there and no wrong row, and shipping continues."""
    archive, agent, (below, above), before = with_a_gap(cluster, archive_of, "taken-gap-" + taken.split()[-1])
    if taken != "while it runs":
        agent.stop()
    keys = archive.partition_keys()
    gone = [keys.gap(below, above), *([keys.commit] if taken == "with the commit" else [])]
    archive.store.delete(gone)
    assert gaps_of(archive) == []
    if taken != "while it runs":
        agent = archive.agent()
    fill(cluster, archive.topic, 3, start=2000)
    end = ends_of(archive)[0]
    wait_shipped(archive, {0: end})
    seen = look(archive)
    # Kafka no longer has the first ones.
    assert seen.records == [r for r in before if r.offset < below] + archive.oracle(end=end)
    told_anew = taken == "with the commit"
    assert [(hole.start, hole.end, hole.recorded) for hole in seen.holes] == [(below, above, told_anew)]
    if told_anew:
        wait_until_said(agent, "[error", "gap_recorded", str(below), str(above))


def with_a_gap(
    cluster: LocalCluster, archive_of: ArchiveOf, topic: str
) -> tuple[Archive, AgentProcess, tuple[int, int], list[OracleRecord]]:
    """Return an archive with a recorded gap, its agent, the gap, and the records of Kafka before that."""
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]], config={**TINY, "file.delete.delay.ms": "100"})
    fill(cluster, topic, 4)
    agent = archive.agent()
    wait_shipped(archive, ends_of(archive))
    agent.stop()
    fill(cluster, topic, 6, start=1000)
    below, above = archive.next_offset(), closed(archive)[-2]
    before = archive.oracle()
    cluster.delete_records(topic, {0: above})
    directory = cluster.brokers[1].partition_directory(topic, 0)
    wait_for(
        lambda: closed(archive)[0] == above and not list(directory.glob("*.deleted")),
        "Kafka to delete segments",
        SECONDS,
        state=lambda: closed(archive),
    )
    agent = archive.agent()
    wait_shipped(archive, ends_of(archive))
    assert gaps_of(archive) == [(below, above)]
    return archive, agent, (below, above), before
