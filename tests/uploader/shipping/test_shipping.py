"""The agent with a real broker: what it ships, where to, and the effect of a restart or a kill."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import ON_BOTH, PREFIX, ROLLS, Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records
from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import read_incarnations
from ts_uploader.log_dirs.local_log import closed_at

pytestmark = ON_BOTH
CHECKOUT = Path(__file__).parents[3]


def test_every_record_below_the_next_offset_is_read_back_once(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Keys, values, headers, timestamps and types equal those of Kafka's own consumer, in order, codec by codec."""
    archive = archive_of("all-codecs")
    cluster.create_topic("all-codecs", partitions=2, assignment=[[1], [1]])
    archive.agent()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for partition in (0, 1):
            cluster.produce("all-codecs", records(700), partition=partition, config={"compression.type": codec})
    ends = [archive.wait_until_shipped(partition=partition) for partition in (0, 1)]
    oracle = archive.oracle(None)
    for partition, end in enumerate(ends):
        assert end > 2000
        assert archive.read(partition) == [r for r in oracle if r.partition == partition and r.offset < end]


def test_the_keys_of_a_topic_are_exactly_the_layout(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Segments, indexes, the commit, log.start and the list of incarnations, and nothing else."""
    archive = archive_of("layout-1")
    cluster.create_topic("layout-1", assignment=[[1]])
    cluster.produce("layout-1", records(2000), partition=0)
    archive.agent()
    end = archive.wait_until_shipped()
    keys = list(archive.objects())
    partition = re.escape(archive.partition_keys().prefix)
    incarnations = archive.keys.incarnations("layout-1")
    assert re.fullmatch(r"[01]{5}/prod/layout-1/incarnations\.json", incarnations)
    assert re.fullmatch(r"[01]{5}/prod/layout-1-0/", archive.partition_keys().prefix)
    names = r"(\d{20}\.(log|index|timeindex)|offset\.wm|log\.start)"
    assert [key for key in keys if key != incarnations and not re.fullmatch(partition + names, key)] == []
    logs = sorted(key for key in keys if key.endswith(".log"))
    for log in logs:
        assert {log[:-4] + ".index", log[:-4] + ".timeindex"} <= set(keys)
    text = archive.store.get(archive.partition_keys().commit)[0].decode()
    assert text.split("\n")[0] == logs[-1].rpartition("/")[2].removesuffix(".log")
    commit = archive.commit()
    assert commit is not None
    assert commit.next_offset == end
    assert commit.last_stable_offset == end
    known, _ = read_incarnations(archive.store, archive.keys, "layout-1")
    assert [entry.topic_id for entry in known.entries] == [commit.topic_id]


def test_a_restart_ships_nothing_twice_and_continues(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Progress is stored in the store: no object is written again, and segments closed meanwhile are shipped."""
    archive = archive_of("restarted")
    cluster.create_topic("restarted", assignment=[[1]])
    cluster.produce("restarted", records(2000), partition=0)
    agent = archive.agent()
    archive.wait_until_shipped()
    agent.stop()
    before = archive.objects()
    agent = archive.agent()
    wait_for(lambda: "ts_uploader_partition_next_offset" in str(agent.metrics()), "the position to be read")
    assert agent.metrics()["ts_uploader_bytes_total"] == 0
    assert archive.objects() == before
    cluster.produce("restarted", records(2000, start=2000), partition=0)
    end = archive.wait_until_shipped()
    after = archive.objects()
    assert {key: after[key] for key in before if not key.endswith("offset.wm")} == {
        key: etag for key, etag in before.items() if not key.endswith("offset.wm")
    }
    assert archive.read() == archive.oracle(end=end)


@pytest.mark.full
@pytest.mark.parametrize(("kills", "produced"), [(20, 20_000)])
def test_u03_killed_in_mid_upload_it_completes_after_a_restart(
    cluster: LocalCluster, archive_of: ArchiveOf, kills: int, produced: int
) -> None:
    """Killed between a segment's index and its log, again and again: every view is correct, nothing is lost."""
    topic = f"killed-{kills}"
    archive = archive_of(topic)
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(produced), partition=0)
    oracle = archive.oracle()
    for _ in range(kills):
        agent = archive.agent()
        wait_for(lambda: stopped_in_mid_upload(archive, agent), "the agent in mid-upload", every=0.0)  # noqa: B023
        agent.kill()
        if archive.commit() is not None:
            assert archive.read() == oracle[: archive.next_offset()]
    archive.agent()
    end = archive.wait_until_shipped()
    assert archive.read() == oracle[:end]
    # A kill before the first commit looks like a lost one: segments above it are shipped again, as variants.
    commit = archive.commit()
    assert isinstance(commit, Commit)
    again = range(0) if commit.lineage is None else range(commit.lineage.begin, commit.lineage.highest)
    variants = {int(match[1]) for key in archive.objects() if (match := re.search(r"/(\d{20})\.e\d", key))}
    assert variants <= set(again)


def stopped_in_mid_upload(archive: Archive, agent: AgentProcess) -> bool:
    """Whether the agent, paused now, has put an index whose log is not there."""
    agent.pause()
    keys = set(archive.objects())
    if any(key.endswith(".index") and key.removesuffix("index") + "log" not in keys for key in keys):
        return True
    agent.resume()
    return False


@pytest.mark.full
def test_u04_leaders_with_other_boundaries_leave_no_hole(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Two brokers that roll at different sizes, the leader moved under both agents: every record is read once."""
    archive = archive_of("moved")
    cluster.create_topic("moved", assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    for broker in (1, 2):
        archive.agent(broker, waits=False)
    produced = 0
    for leader, follower in ((1, 2), (2, 1), (1, 2)):
        cluster.brokers[follower].stop()
        wait_for(lambda: cluster.leader("moved", 0) == leader, f"broker {leader} to lead")  # noqa: B023
        cluster.alter_config("moved", {"segment.bytes": ROLLS[leader]["log.segment.bytes"]})
        cluster.produce("moved", records(1500, start=produced), partition=0)
        produced += 1500
        archive.wait_until_shipped(leader)
        cluster.alter_config("moved", {"segment.bytes": ROLLS[follower]["log.segment.bytes"]})
        cluster.brokers[follower].start()
        wait_for(lambda: cluster.in_sync("moved", 0) == {1, 2}, "both brokers in sync")
    assert boundaries(cluster, 1) != boundaries(cluster, 2)
    end = archive.wait_until_shipped(cluster.leader("moved", 0) or 1)
    commit = archive.commit()
    assert commit is not None
    assert len(commit.epochs.pairs) >= 3
    assert archive.read() == archive.oracle(end=archive.next_offset())
    assert end <= archive.next_offset()


def boundaries(cluster: LocalCluster, broker: int) -> set[str]:
    return {path.name for path in cluster.brokers[broker].partition_directory("moved", 0).glob("*.log")}


def test_u34_latest_begins_where_it_first_began(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """With LATEST the archive begins with the segment active at first sight, also after a kill and more segments."""
    archive = archive_of("latest", properties={PREFIX + "offset.reset.strategy": "LATEST"})
    cluster.create_topic("latest", assignment=[[1]])
    cluster.produce("latest", records(1500), partition=0)
    directory = cluster.brokers[1].partition_directory("latest", 0)
    active = max(int(path.stem) for path in directory.glob("*.log"))
    assert active > 0
    agent = archive.agent()
    log_start = archive.partition_keys().log_start
    wait_for(lambda: log_start in archive.objects(), "log.start")
    agent.kill()
    assert archive.commit() is None
    cluster.produce("latest", records(1500, start=1500), partition=0)
    archive.agent()
    end = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=end)[active:]


def test_a_segment_counts_as_closed_from_when_the_next_one_began(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Not from when it was written last, which may be long before; by the broker's own files."""
    archive_of("closed")
    cluster.create_topic("closed", assignment=[[1], [1]])
    cluster.produce("closed", records(1500), partition=0)
    directory = cluster.brokers[1].partition_directory("closed", 0)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert len(bases) > 2
    for base, following in pairwise(bases):
        closed = closed_at(directory, base)
        assert closed is not None
        written, after = ((directory / f"{at:020d}.log").stat().st_mtime for at in (base, following))
        assert written <= closed <= after
    assert closed_at(directory, 12345678) is None


def test_metrics_and_health_report_what_was_shipped(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """Bytes, segments, lag and oldest unshipped are served, and `/healthz` reports ok."""
    archive = archive_of("measured")
    cluster.create_topic("measured", assignment=[[1]])
    cluster.produce("measured", records(1500), partition=0)
    agent = archive.agent()
    end = archive.wait_until_shipped()
    labels = '{partition="0",topic="measured"}'
    wait_for(lambda: agent.metrics().get("ts_uploader_partition_next_offset" + labels) == end, "the committed position")
    metrics = agent.metrics()
    logs = [key for key in archive.objects() if key.endswith(".log")]
    assert metrics['ts_uploader_segments_total{outcome="sent"}'] == len(logs)
    assert metrics["ts_uploader_bytes_total"] > sum(archive.store.head(key).size for key in logs)
    assert metrics["ts_uploader_partition_oldest_unshipped_age_seconds" + labels] == 0
    assert metrics["ts_uploader_partition_lag_offsets" + labels] == 1500 - end
    assert metrics["ts_uploader_commit_lag_seconds_count"] == len(logs)
    assert metrics["ts_uploader_files_total"] == 3 * len(logs)
    assert metrics["ts_uploader_led_partitions"] == metrics["ts_uploader_watched_partitions"] == 1
    assert metrics["ts_uploader_unshipped_segments"] == metrics["ts_uploader_position_unknown_partitions"] == 0
    wait_for(lambda: agent.metrics()["ts_uploader_leadership_age_seconds"] == 0, "leadership to be watched")
    assert metrics["ts_uploader_scan_seconds_count"] >= 1
    assert metrics['ts_uploader_broker_info{broker_id="1",cluster_id="prod"}'] == 1
    wait_for(lambda: agent.health()["partitions_led"], "the agent's next look at what it leads")
    health = agent.health()
    assert (health["status"], health["partitions_led"], health["leadership"]) == ("ok", 1, "watched")
    status = agent.status()
    assert (status["ready"], status["healthy"], status["phase"]) == (True, True, "running")
    (partition,) = status["partitions"]
    assert (partition["topic"], partition["next_offset"], partition["lag_offsets"]) == ("measured", end, 1500 - end)
    assert (partition["unshipped_segments"], partition["hole"], partition["waits_for"]) == (0, False, None)
    assert "All is well." in agent.page("/")
    assert '"status": "ready"' in agent.page("/readyz")


def test_an_agent_with_a_stalled_worker_is_not_healthy(cluster: LocalCluster, archive_of: ArchiveOf) -> None:
    """It names the worker and the partition; once the worker makes progress again, it is healthy and ships."""
    still = {"storage.service.endpoint.provider.class": "tests.uploader.shipping.standing_still:StandingStill"}
    archive = archive_of("held-up", properties=still)
    cluster.create_topic("held-up", assignment=[[1]])
    cluster.produce("held-up", records(1000), partition=0)
    agent = archive.agent(environment={**archive.s3.environment(), "PYTHONPATH": str(CHECKOUT)})
    wait_for(lambda: agent.health()["status"] == "failing", "the agent to notice", state=agent.tail, seconds=60)
    assert [name.partition("-")[0] for name in agent.health()["stuck"]] == ["lookup"]
    assert "(ReadPosition held-up-0)" in agent.page("/")
    (agent.config_dir / "go").touch()
    archive.wait_until_shipped()
    wait_for(lambda: agent.health()["status"] == "ok", "the agent to be well again", state=agent.tail, seconds=60)
