"""A real cluster and the store: offsets that only the cluster has, and records that differ."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from tests.made_archive import CLUSTER
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.object_keys import SegmentName
from tsctl.verify import audit

SMALL = {"segment.bytes": "20000"}
DAY = 86_400_000


@pytest.fixture(scope="module")
def cluster(one_broker: LocalCluster) -> LocalCluster:
    """Return the broker that tests share."""
    return one_broker


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Return an empty store; the agents' file ships every topic that begins with `t-`."""
    made = Archive(tmp_path / "store")
    (tmp_path / f"{CLUSTER}.properties").write_text(
        f"storage.service.endpoint.url={made.location}\nts.segment.uploader.kafka.topics.include=t-.*\n"
    )
    return made


def produce(cluster: LocalCluster, topic: str, *, age_ms: int = 0, replace_first: bool = False) -> None:
    began = int(time.time() * 1000) - age_ms
    values = [Record(b"%06d" % n + bytes(150), key=b"k", timestamp=began) for n in range(700)]
    if replace_first:
        values[0] = Record(b"another" + bytes(150), key=b"k", timestamp=began)
    cluster.produce(topic, values, partition=0, config={"batch.size": 4000})


def ship(cluster: LocalCluster, archive: Archive, topic: str) -> int:
    return archive.ship(cluster.brokers[1].partition_directory(topic, 0))


def audited(
    run: Run, cluster: LocalCluster, tmp_path: Path, *arguments: str
) -> tuple[int, dict[str, dict[str, object]], list[dict[str, object]]]:
    """Return the exit code, the findings by their code, and both sides of each partition."""
    ended = run(
        *("verify", "--json", "--in-flight-hours", "0", "--bootstrap-server", cluster.bootstrap),
        *("--config", tmp_path / f"{CLUSTER}.properties", *arguments),
    )
    assert ended.code in {0, 1}, ended.err
    document = json.loads(ended.out)
    return ended.code, {str(found["code"]): found for found in document["findings"]}, document["cluster_sides"]


def test_what_the_cluster_holds_and_the_store_does_not(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """Each partition has both ranges; a topic without shipped records is named, and one that the cluster deleted."""
    for topic in ("t-shipped", "t-forgotten", "other"):
        cluster.create_topic(topic, config=SMALL)
        produce(cluster, topic)
    cluster.create_topic("t-empty")
    end = ship(cluster, archive, "t-shipped")
    archive.commit("t-gone", 0)
    code, found, sides = audited(run, cluster, tmp_path)
    assert code == 1
    assert {code: finding["where"] for code, finding in found.items()} == {
        "topic-not-shipped": "t-forgotten",
        "topic-gone": "t-gone",
    }
    by_partition = {side["partition"]: side for side in sides}
    assert by_partition["t-shipped-0"] == {
        "partition": "t-shipped-0",
        "cluster_start": 0,
        "cluster_end": 700,
        "store_start": 0,
        "store_end": end,
        "behind": 700 - end,
    }
    assert "other-0" not in by_partition
    _, found, _ = audited(run, cluster, tmp_path, "--in-flight-hours", "24")
    assert "topic-not-shipped" not in found
    code, found, _ = audited(run, cluster, tmp_path, "t-shipped", "--depth", "full")
    assert (code, found) == (0, {})


def test_a_topic_that_was_created_again_is_named_until_its_new_incarnation_is_shipped(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """The commit has the topic id of the deleted topic."""
    cluster.create_topic("t-again", config=SMALL)
    produce(cluster, "t-again")
    ship(cluster, archive, "t-again")
    key = archive.partition("t-again").commit
    commit = decode_commit(archive.store.get(key)[0], key)
    assert isinstance(commit, Commit)
    archive.store.put(key, replace(commit, topic_id="AAAAAAAAAAAAAAAAAAAAAQ").encode())
    archive.put_incarnations("t-again", "AAAAAAAAAAAAAAAAAAAAAQ")
    _, found, sides = audited(run, cluster, tmp_path, "t-again")
    assert {code: finding["where"] for code, finding in found.items()} == {"incarnation-not-shipped": "t-again"}
    assert sides == []


def test_partitions_that_are_not_selected_have_no_finding(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """Only one of three partitions was checked, and the store has it; no finding is about the others."""
    cluster.create_topic("t-wide", partitions=3, config={**SMALL, "retention.ms": str(7 * DAY)})
    old = int(time.time() * 1000) - 6 * DAY
    for partition in range(3):
        records = [Record(b"%06d" % n + bytes(150), key=b"k", timestamp=old) for n in range(300)]
        cluster.produce("t-wide", records, partition=partition, config={"batch.size": 4000})
    archive.ship(cluster.brokers[1].partition_directory("t-wide", 0))
    archive.commit("t-wide", 300)
    code, found, sides = audited(run, cluster, tmp_path, "t-wide", "--partition", "0", "--depth", "listing")
    assert (code, found) == (0, {})
    assert [side["partition"] for side in sides] == ["t-wide-0"]
    _, found, sides = audited(run, cluster, tmp_path, "t-wide")
    assert "topic-not-shipped" in found
    assert len(sides) == 3


def test_what_was_deleted_before_it_was_shipped_is_data_loss(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """The cluster's log begins above the store's next offset."""
    cluster.create_topic("t-lost", config=SMALL)
    produce(cluster, "t-lost")
    end = ship(cluster, archive, "t-lost")
    cluster.delete_records("t-lost", {0: 700})
    code, found, _ = audited(run, cluster, tmp_path, "t-lost")
    assert code == 1
    lost = found["lost-before-shipped"]
    assert (lost["from"], lost["to"], lost["severity"]) == (end, 700, "data-loss")


def test_what_was_shipped_while_verify_looked_is_not_lost(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents continue during a run of hours: what is in the store by now was not lost."""
    cluster.create_topic("t-meanwhile", config={**SMALL, "retention.ms": str(7 * DAY)})
    produce(cluster, "t-meanwhile", age_ms=6 * DAY)
    archive.commit("t-meanwhile", 0)

    def meanwhile(*arguments: Any, **keywords: Any) -> audit.Audit:
        end = ship(cluster, archive, "t-meanwhile")
        cluster.delete_records("t-meanwhile", {0: end - 1})
        archive.commit("t-meanwhile", 700)
        return audit.audit(*arguments, **keywords)

    monkeypatch.setattr("tsctl.verify.run.audit", meanwhile)
    code, found, _ = audited(run, cluster, tmp_path, "t-meanwhile")
    assert (code, found) == (0, {})


def test_records_that_retention_will_soon_delete_are_named(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """Records are six days old in a topic with a retention of seven, and not in the store."""
    for topic, age in (("t-young", DAY), ("t-old", 6 * DAY)):
        cluster.create_topic(topic, config={**SMALL, "retention.ms": str(7 * DAY)})
        produce(cluster, topic, age_ms=age)
    end = ship(cluster, archive, "t-old")
    assert ship(cluster, archive, "t-young") > 0
    _, found, _ = audited(run, cluster, tmp_path, "t-old", "t-young")
    assert list(found) == ["about-to-be-lost"]
    risk = found["about-to-be-lost"]
    assert (risk["where"], risk["from"], risk["to"]) == ("t-old-0", end, 700)


def test_the_store_may_not_be_ahead_of_the_cluster(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """An election lost records; a store that began later than the cluster's log is in order."""
    cluster.create_topic("t-ahead", config=SMALL)
    produce(cluster, "t-ahead")
    archive.commit("t-ahead", 900, log_start=800)
    _, found, _ = audited(run, cluster, tmp_path, "t-ahead")
    assert (found["store-ahead"]["from"], found["store-ahead"]["to"]) == (700, 900)
    assert found["store-begins-later"]["severity"] == "information"


def test_records_that_differ_are_found_by_reading_both_sides(
    run: Run, cluster: LocalCluster, archive: Archive, tmp_path: Path
) -> None:
    """The store has another record at offset 0, in a segment without damage."""
    for topic in ("t-one", "t-two"):
        cluster.create_topic(topic, config=SMALL)
        produce(cluster, topic, replace_first=topic == "t-two")
    ship(cluster, archive, "t-one")
    ship(cluster, archive, "t-two")
    _, found, _ = audited(run, cluster, tmp_path, "t-one", "--depth", "full")
    assert found == {}
    one, two = archive.partition("t-one"), archive.partition("t-two")
    for suffix in (".index", ".timeindex", ".log"):
        name = SegmentName(0)
        body, info = archive.store.get(two.segment(name, suffix))
        metadata = archive.store.head(info.key).metadata
        archive.store.put(one.segment(name, suffix), body, metadata=metadata)
    code, found, _ = audited(run, cluster, tmp_path, "t-one", "--depth", "full")
    assert code == 1
    assert found["records-differ"]["from"] == 0


def test_settings_that_no_client_supports_are_reported_in_one_message(
    run: Run, archive: Archive, tmp_path: Path
) -> None:
    """The message has the names of librdkafka for settings of Java clients."""
    settings = tmp_path / "client.properties"
    settings.write_text("sasl.jaas.config=x\nssl.truststore.location=/t.jks\n")
    named = ("--config", tmp_path / f"{CLUSTER}.properties", "--bootstrap-server", "127.0.0.1:1")
    refused = run("verify", *named, "--command-config", settings)
    assert refused.code == 2
    assert "sasl.username" in refused.err
    assert "ssl.ca.location" in refused.err
    settings.write_text("no.such.setting=1\n")
    refused = run("verify", *named, "--command-config", settings)
    assert refused.code == 2
    assert "no.such.setting" in refused.err
