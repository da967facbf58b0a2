"""The commands that `finish` prints, and the plan's text."""

import shlex
from dataclasses import replace

from tests.tsctl.restore.test_loss import NOW, part
from ts_common.archive.restored import Ended, Outcome
from ts_common.archive.snapshots import Acl, Broker, ClusterSnapshot, Quota, User
from tsctl.restore.commands_for import commands_of
from tsctl.restore.documents import GroupsPlan, RestorePlan, TopicPlan
from tsctl.restore.partition_plan import Hole
from tsctl.restore.texts import plan_text

SNAPSHOT = ClusterSnapshot(
    time=1,
    broker=1,
    kafka="4.1",
    topics={},
    brokers={"default": Broker(None, None, None, {"log.cleaner.threads": "2"}), "1": Broker("b", 9092, None, None)},
    quotas=(Quota({"user": "etl", "client-id": None}, {"producer_byte_rate": 1048577.0}),),
    acls=(Acl("CLUSTER", "kafka-cluster", "LITERAL", "User:a b", "*", "DESCRIBE_CONFIGS", "DENY"),),
    users=(User("etl", {"SCRAM-SHA-256": 4096}),),
)


def test_commands_are_those_of_kafkas_tools() -> None:
    """Each word is one argument in a shell; a password is left to the operator."""
    common = ["--bootstrap-server", "BROKERS"]
    configs = ["kafka-configs.sh", *common, "--alter", "--entity-type"]
    assert [shlex.split(line) for line in commands_of(SNAPSHOT)] == [
        [
            *configs,
            "users",
            "--entity-name",
            "etl",
            "--add-config",
            "SCRAM-SHA-256=[iterations=4096,password=PASSWORD]",
        ],
        [
            *("kafka-acls.sh", *common, "--add", "--deny-principal", "User:a b", "--deny-host", "*"),
            *("--operation", "DescribeConfigs", "--cluster", "--resource-pattern-type", "literal"),
        ],
        [
            *(*configs, "users", "--entity-name", "etl", "--entity-type", "clients", "--entity-default"),
            *("--add-config", "producer_byte_rate=1048577"),
        ],
        [*configs, "brokers", "--entity-default", "--add-config", "log.cleaner.threads=2"],
    ]


def test_words_that_kafka_does_not_have_are_no_shell_syntax() -> None:
    """A snapshot is an object of a bucket: its texts stay arguments, and an unknown kind ends no restore."""
    acl = Acl("TOPIC", "t;a", "LITERAL;a", "User:a;a", "*;a", "READ;a", "ALLOW")
    acls = (acl, replace(acl, resource_type="LATER\na"))
    quotas = (Quota({"later;a": "x;a"}, {"rate;a": 1.5}),)
    lines = [*commands_of(replace(SNAPSHOT, users=(), brokers={}, acls=acls, quotas=quotas))]
    assert {"Read;A", "literal;a", "t;a", "User:a;a", "*;a"} <= {*shlex.split(lines[0])}
    assert lines[1].startswith("# no command for Acl(resource_type='LATER\\na'")
    assert {"later;a", "x;a", "rate;a=1.5"} <= {*shlex.split(lines[2])}


def test_the_text_of_a_plan_names_what_is_lost_and_what_kafka_deletes() -> None:
    """With its notes, brokers and groups."""
    plan = part(0, 30, NOW - 5000, NOW - 5000, NOW)
    plan = replace(
        plan,
        stored_end=40,
        replicas=(1, 2),
        lost=(Hole(5, 7, "no object has them"),),
        ended=(Ended(7, 0, 29, Outcome.ABORT),),
        notes=("a note",),
    )
    topics = {"t": TopicPlan("t", {0: plan}, {"retention.ms": "1000"})}
    whole = RestorePlan("p", NOW, "prod", (), NOW, topics, GroupsPlan("a snapshot", NOW, {"g": {}}), ("command",))
    text = "\n".join(plan_text(whole, 100, NOW))
    for expected in (
        "t-0: offsets 0 to 30, 300 bytes, brokers 1,2; the archive has 10 more",
        "LOST: offsets 5 to 6: no object has them",
        "note: a note",
        "Kafka will delete offsets below 20 (200 bytes) once the configurations are back: retention.ms=1000",
        "broker 2: 1 replica, 300 bytes",
        "groups: 1, from a snapshot",
    ):
        assert expected in text
