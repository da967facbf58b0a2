"""The new cluster: topics without retention, groups without epochs, and what is refused."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.kafka.tools import CONFIGS, output_of
from tests.tsctl.restore.test_loss import part
from tests.tsctl.running import runner
from ts_common.errors import OperatorError, QueryError
from ts_common.model import TopicPartition
from tsctl.restore.documents import Done, GroupsPlan, HostRecord, Replica, RestorePlan, TopicPlan
from tsctl.restore.new_cluster import UNLIMITED, NewCluster, check_offsets, configure_topics, create_topics
from tsctl.restore.partition_plan import Source, Step
from tsctl.restore.restore_directory import RestoreDirectory
from tsctl.verify.kafka_cluster import ClusterAway, KafkaCluster


@pytest.fixture
def cluster(one_broker: LocalCluster) -> NewCluster:
    return NewCluster(one_broker.bootstrap, {})


def plan_of(topic: str, partitions: int = 1, **configurations: str) -> RestorePlan:
    """Return a plan of empty partitions on broker 1."""
    parts = {number: replace(part(0, 0), replicas=(1,)) for number in range(partitions)}
    topics = {topic: TopicPlan(topic, parts, configurations)}
    return RestorePlan("p", 1, "prod", (), None, topics, GroupsPlan("none", None, {}), ())


def test_created_topics_keep_everything_until_their_configurations_are_set(cluster: NewCluster) -> None:
    """A repeated create accepts them; what the plan does not set is Kafka's default again."""
    plan = plan_of("created", 2, **{"retention.ms": "5000"})
    created = create_topics(cluster, plan)
    assert create_topics(cluster, plan) == created
    kept = ("cleanup.policy", "retention.ms", "retention.bytes")
    before = cluster.reading.settings(["created"])["created"]
    assert [before[name] for name in kept] == ["delete", "-1", "-1"]
    check_offsets(cluster, plan, created)
    configure_topics(cluster, plan)
    assert cluster.reading.settings(["created"])["created"]["retention.ms"] == "5000"


def test_a_topic_that_a_client_created_meanwhile_keeps_everything_too(cluster: NewCluster) -> None:
    """It is as planned, but has the brokers' retention: Kafka would delete the restored records."""
    cluster.create("meanwhile", [[1]], {"retention.ms": "1000", "cleanup.policy": "compact"})
    create_topics(cluster, plan_of("meanwhile"))
    found = cluster.reading.settings(["meanwhile"])["meanwhile"]
    assert {name: found[name] for name in UNLIMITED} == UNLIMITED


def test_configurations_are_set_after_a_kill_although_kafka_has_deleted_meanwhile(
    cluster: NewCluster, one_broker: LocalCluster
) -> None:
    """A killed `finish --configurations` has set some; before it the first offset is the plan's."""
    plan = plan_of("begun")
    created = create_topics(cluster, plan)
    one_broker.produce("begun", [Record(b"v")] * 3, partition=0)
    one_broker.delete_records("begun", {0: 2})
    with pytest.raises(QueryError, match="begun-0: offsets 2 to 3; 0 to 0 are expected"):
        check_offsets(cluster, plan, created)
    check_offsets(cluster, plan, created, is_limited=True)
    later = replace(plan, topics={"begun": TopicPlan("begun", {0: replace(part(3, 3), replicas=(1,))}, {})})
    with pytest.raises(QueryError, match="begun-0: offsets 2 to 3; 3 to 3 are expected"):
        check_offsets(cluster, later, created, is_limited=True)


def test_offsets_that_a_broker_does_not_have_yet_are_requested_again(
    cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker can lead a new partition before another one has the topic."""
    asked, bounds = list[object](), KafkaCluster.bounds

    def unknown_at_first(reading: KafkaCluster, partitions: Mapping[TopicPartition, object]) -> object:
        asked.append(partitions)
        if len(asked) == 1:
            raise ClusterAway("Unknown topic or partition")
        return bounds(reading, partitions)

    monkeypatch.setattr(KafkaCluster, "bounds", unknown_at_first)
    assert [*create_topics(cluster, plan_of("late")).topics] == ["late"]
    assert len(asked) == 2


def test_p03_a_topic_that_is_not_empty_or_not_as_planned_is_refused(
    cluster: NewCluster, one_broker: LocalCluster
) -> None:
    """Its files would be replaced."""
    one_broker.create_topic("used")
    one_broker.produce("used", [Record(b"v")], partition=0)
    with pytest.raises(QueryError, match="has records there"):
        create_topics(cluster, plan_of("used"))
    one_broker.create_topic("wider", partitions=2)
    with pytest.raises(QueryError, match="2 partitions"):
        create_topics(cluster, plan_of("wider", 1))


def test_a_partition_that_is_not_as_planned_is_named(cluster: NewCluster) -> None:
    """Before a group's offsets are set: another start or end, or another topic id."""
    plan = plan_of("named")
    created = create_topics(cluster, plan)
    other = replace(plan, topics={"named": TopicPlan("named", {0: replace(part(0, 7), replicas=(1,))}, {})})
    with pytest.raises(QueryError, match="named-0: offsets 0 to 0; 0 to 7 are expected"):
        check_offsets(cluster, other, created)
    with pytest.raises(QueryError, match="topic named: another id"):
        check_offsets(cluster, plan, replace(created, topics={"named": "x"}))


def test_a_group_with_members_is_refused(cluster: NewCluster, one_broker: LocalCluster) -> None:
    """The error is one of the partition, not of the request."""
    one_broker.create_topic("read")
    one_broker.produce("read", [Record(b"v")] * 5, partition=0)
    settings = {"bootstrap.servers": one_broker.bootstrap, "group.id": "living", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["read"])
    try:
        assert consumer.poll(60) is not None
        with pytest.raises(OperatorError, match="the group has members"):
            cluster.set_offsets("living", {TopicPartition("read", 0): 3})
    finally:
        consumer.close()
    cluster.set_offsets("living", {TopicPartition("read", 0): 3})
    assert cluster.reading.group_offsets("living") == {TopicPartition("read", 0): 3}


@pytest.mark.parametrize("code", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"])
def test_a_request_to_a_coordinator_that_is_away_is_repeated(code: str) -> None:
    """A broker of the group's coordinator was restarted for its files; librdkafka calls the error final."""
    error = KafkaException(KafkaError(getattr(KafkaError, code)))
    answers: list[object] = [SimpleNamespace(members=[SimpleNamespace(client_id="reports-1")]), error]

    def describe(groups: list[str], **_: object) -> dict[str, Future[object]]:
        future, answer = Future[object](), answers.pop()
        (future.set_exception if answer is error else future.set_result)(answer)  # type: ignore[arg-type]
        return dict.fromkeys(groups, future)

    found = NewCluster("127.0.0.1:1", {})
    found.reading = cast("KafkaCluster", SimpleNamespace(admin=SimpleNamespace(describe_consumer_groups=describe)))
    assert found.members("g") == ["reports-1"]


def test_approval_counts_the_retention_of_the_clusters_brokers(
    cluster: NewCluster, one_broker: LocalCluster, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The topic has no `retention.ms`, and the brokers keep a minute instead of Kafka's seven days."""
    run, now = runner(capfd), int(time.time() * 1000)
    plan = plan_of("kept")
    created = create_topics(cluster, plan)
    one_broker.produce("kept", [Record(b"v")], partition=0)
    segment = Source(f"prod/kept-0/{0:020d}.log", 100, None, now - 3_600_000)
    held = replace(part(0, 1), replicas=(1,), steps=(Step(0, 1, (segment,)),))
    plan = replace(plan, topics={"kept": TopicPlan("kept", {0: held}, {})})
    plan.save(RestoreDirectory.plan_file(tmp_path))
    created.save(tmp_path / "created.json")
    finish = ("restore", "finish", tmp_path, "--bootstrap-server", one_broker.bootstrap, "--configurations")
    before = cluster.reading.retention_defaults([1])[1]
    to = ["--bootstrap-server", one_broker.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default"]
    output_of(CONFIGS, [*to, "--add-config", "log.retention.ms=60000"])
    try:
        wait_for(lambda: cluster.reading.retention_defaults([1])[1]["retention.ms"] == "60000", "the broker's setting")
        refused = run(*finish)
    finally:
        output_of(CONFIGS, [*to, "--delete-config", "log.retention.ms"])
    assert refused.code != 0
    assert "kept-0: Kafka deletes offsets below 1, 100 bytes: retention.ms=60000" in refused.out
    assert "repeat the command with --approve" in refused.err
    wait_for(lambda: cluster.reading.retention_defaults([1])[1] == before, "the broker's own setting again")
    assert run(*finish).code == 0


def test_finish_sets_groups_once_after_all_hosts_and_before_configurations(
    cluster: NewCluster, one_broker: LocalCluster, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Consumers have continued before a repeated call, and Kafka deletes records once retention is set."""
    run, partition = runner(capfd), TopicPartition("finished", 0)
    plan = plan_of("finished")
    created = create_topics(cluster, plan)
    one_broker.produce("finished", [Record(b"v")] * 9, partition=0)
    held = replace(part(0, 9), replicas=(1,))
    groups = GroupsPlan("a snapshot", 1, {"once": {partition: 4}}, metadata={"once": {partition: "of Streams"}})
    plan = replace(plan, topics={"finished": replace(plan.topics["finished"], partitions={0: held})}, groups=groups)
    plan.save(RestoreDirectory.plan_file(tmp_path))
    created.save(tmp_path / "created.json")
    finish = ("restore", "finish", tmp_path, "--bootstrap-server", one_broker.bootstrap)
    unplaced = run(*finish)
    assert (unplaced.code, "not placed: broker 1" in unplaced.err) == (2, True)
    HostRecord("p", 1, Done.PLACED, 1, {partition: Replica(9, 0, 0)}).save(tmp_path / "broker-1.json")
    skipped = run(*finish, "--configurations")
    assert (skipped.code, "groups.json: missing; run `tsctl restore finish` without" in skipped.err) == (2, True)
    assert "1 group: offsets set" in run(*finish).out
    asked = cluster.reading.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("once")])
    (committed,) = asked["once"].result(60).topic_partitions
    assert (committed.offset, committed.metadata) == (4, "of Streams")
    cluster.set_offsets("once", {partition: 7})
    assert "are left as they are; to set them again, remove" in run(*finish).out
    assert cluster.reading.group_offsets("once") == {partition: 7}
    one_broker.delete_records("finished", {0: 5})
    assert run(*finish).code == 2
    for _ in range(2):
        assert run(*finish, "--configurations").code == 0


def test_an_address_without_a_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request of `create` is one of a topic, whose name does not help."""
    monkeypatch.setattr("tsctl.restore.new_cluster.REQUEST_SECONDS", 0.1)
    with pytest.raises(ClusterAway, match=r"127\.0\.0\.1:1: no answer"):
        NewCluster("127.0.0.1:1", {}).create("t", [[1]], {})
