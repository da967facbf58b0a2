"""Answers to the requests of a snapshot: whole ones, each beginning of one, and mutated ones."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.fuzz.mutate import mutate_bytes
from tests.matrix import examples
from ts_common.archive.snapshots import Acl, GroupOffset, Quota, User
from ts_common.broker_connection.configs import Setting, configs_of, describe_configs
from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, compact_string, string
from ts_common.broker_connection.failures import RequestFailed
from ts_common.broker_connection.metadata import Metadata, Node, Right, Topic, describe_metadata
from ts_common.errors import CorruptData
from ts_common.kafka_configs import ConfigSource, ResourceType
from ts_common.log_format.varints import unsigned_varint
from ts_common.model import TopicPartition
from ts_uploader.snapshots.access_requests import describe_acls, describe_client_quotas, describe_scram_users
from ts_uploader.snapshots.group_requests import fetch_offsets, list_groups


class Answering:
    """A connection that has one answer."""

    name = "broker"

    def __init__(self, body: bytes) -> None:
        self._body = body

    def request(self, api: Api, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        del version, body, flexible
        return Reader(self._body, f"the response to {api.name}")


def asked(ask: Callable[[BrokerConnection], Any], body: bytes) -> Any:
    return ask(cast("BrokerConnection", Answering(body)))


def one(value: bytes) -> bytes:
    """An ARRAY of one."""
    return struct.pack(">i", 1) + value


def compact(value: bytes) -> bytes:
    """A COMPACT_ARRAY of one."""
    return b"\2" + value


HEAD = struct.pack(">ih", 0, 0)  # throttle time, and no error
FAILED = struct.pack(">ih", 0, 42)
NUMBERS = compact(struct.pack(">i", 1))
PARTITION = struct.pack(">hiii", 0, 0, 1, 5) + NUMBERS * 3 + b"\0"
TOPIC = b"\0\0" + compact_string("t") + b"\1" * 16 + b"\0" + compact(PARTITION) + struct.pack(">i", 0) + b"\0"
SETTING = string("retention.ms") + string("5") + b"\0\1\0" + one(string("log.retention.ms") + string("7") + b"\5")
SECRET = string("sasl.jaas.config") + string("hush") + b"\0\1\1" + one(string("x") + string(None) + b"\5")
ANSWERS: dict[str, tuple[Callable[[BrokerConnection], Any], bytes, Any]] = {
    "Metadata": (
        describe_metadata,
        struct.pack(">i", 0)
        + compact(struct.pack(">i", 1) + compact_string("h") + struct.pack(">i", 9092) + b"\0" + b"\0")
        + compact_string("id")
        + struct.pack(">i", 1)
        + compact(TOPIC)
        + struct.pack(">i", 1 << Right.DESCRIBE)
        + b"\0",
        Metadata((Node(1, "h", 9092, None),), {"t": Topic(0, "AQEBAQEBAQEBAQEBAQEBAQ", {0: 1}, ((1,),))}, 1 << 8),
    ),
    "DescribeConfigs": (
        lambda connection: configs_of(
            describe_configs(connection, ResourceType.TOPIC, ["t"]).get("t"), ConfigSource.DYNAMIC_TOPIC
        ),
        struct.pack(">i", 0)
        + one(b"\0\0" + string(None) + b"\2" + string("t") + struct.pack(">i", 2) + SETTING + SECRET),
        {"retention.ms": "5"},
    ),
    "ListGroups": (list_groups, HEAD + one(string("g") + string("consumer")), ["g"]),
    "OffsetFetch": (
        lambda connection: fetch_offsets(connection, "g"),
        struct.pack(">i", 0)
        + one(string("t") + one(struct.pack(">iqi", 3, 5, 7) + string("note") + b"\0\0"))
        + b"\0\0",
        {TopicPartition("t", 3): GroupOffset(5, 7, "note")},
    ),
    "DescribeAcls": (
        describe_acls,
        HEAD + string(None) + one(b"\2" + string("t") + b"\4" + one(string("User:a") + string("*") + b"\x63\3")),
        (Acl("TOPIC", "t", "PREFIXED", "User:a", "*", "UNKNOWN_99", "ALLOW"),),
    ),
    "DescribeClientQuotas": (
        describe_client_quotas,
        HEAD
        + string(None)
        + one(one(string("user") + string(None)) + one(string("request_percentage") + struct.pack(">d", 2.5))),
        (Quota({"user": None}, {"request_percentage": 2.5}),),
    ),
    "DescribeUserScramCredentials": (
        describe_scram_users,
        HEAD
        + b"\0"
        + compact(compact_string("a") + b"\0\0\0" + compact(b"\1" + struct.pack(">i", 4096) + b"\0") + b"\0")
        + b"\0",
        (User("a", {"SCRAM-SHA-256": 4096}),),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_whole_answer_is_read_and_no_beginning_of_it(name: str) -> None:
    """The last byte of a flexible answer ends its tagged fields, which no reader needs."""
    ask, body, expected = ANSWERS[name]
    assert asked(ask, body) == expected
    ends = body.removesuffix(b"\0") if name in {"Metadata", "DescribeUserScramCredentials"} else body
    for size in range(len(ends)):
        with pytest.raises(CorruptData, match="is malformed"):
            asked(ask, body[:size])


@pytest.mark.parametrize("name", ANSWERS)
def test_a_mutated_answer_is_read_or_is_corrupt_data(name: str) -> None:
    """No other error, and no hour of work: a list is never longer than the bytes that remain."""
    ask, body, _ = ANSWERS[name]
    chance = random.Random(name)
    for _ in range(examples(20_000, quick=1_000)):
        try:
            asked(ask, mutate_bytes(chance, body))
        except CorruptData as error:
            assert len(str(error)) < 1_000  # noqa: PT017  (most mutations are harmless)


@pytest.mark.parametrize("name", ["ListGroups", "DescribeAcls", "DescribeClientQuotas", "DescribeUserScramCredentials"])
def test_an_error_code_that_is_no_denial_is_named(name: str) -> None:
    """An error is never an empty answer: the snapshot would have lost what it means."""
    with pytest.raises(RequestFailed, match=f"{name} failed with error code 42"):
        asked(ANSWERS[name][0], FAILED + ANSWERS[name][1][len(FAILED) :])


def test_the_settings_of_a_topic_that_was_not_requested_are_rejected() -> None:
    """They would otherwise be those of a topic that the metadata lacks."""
    with pytest.raises(CorruptData, match="DescribeConfigs has 't', which was not requested"):
        asked(lambda connection: describe_configs(connection, ResourceType.TOPIC, ["u"]), ANSWERS["DescribeConfigs"][1])


def test_a_resource_without_an_answer_is_not_a_denied_or_deleted_one() -> None:
    """A snapshot without the topic would show that it was deleted."""
    for kind, names, body in (
        (ResourceType.TOPIC, ["t", "u"], ANSWERS["DescribeConfigs"][1]),
        (ResourceType.BROKER, [""], struct.pack(">ii", 0, 0)),
    ):
        connection = cast("BrokerConnection", Answering(body))
        with pytest.raises(CorruptData, match=f"DescribeConfigs lacks '{names[-1]}', which was requested"):
            describe_configs(connection, kind, names)


def test_an_error_of_one_partition_or_user_is_no_empty_answer() -> None:
    """A denied or deleted topic is left out; any other error fails the round, which is repeated."""

    def offsets(error: int, group_error: int = 0) -> bytes:
        number = struct.pack(">iqi", 3, 5, 7) + string("note") + struct.pack(">h", error)
        return struct.pack(">i", 0) + one(string("t") + one(number)) + struct.pack(">h", group_error)

    def fetched(body: bytes) -> Any:
        return asked(lambda connection: fetch_offsets(connection, "g"), body)

    assert (fetched(offsets(29)), fetched(offsets(3)), fetched(offsets(30, 30))) == ({}, {}, None)
    with pytest.raises(RequestFailed, match="OffsetFetch of group g, t-3, failed with error code 88"):
        fetched(offsets(88))
    user = HEAD + b"\0" + compact(compact_string("a") + struct.pack(">h", 91) + b"\0\1\0") + b"\0"
    with pytest.raises(RequestFailed, match="Credentials of user a failed with error code 91"):
        asked(describe_scram_users, user)


def test_tagged_fields_that_no_reader_uses_need_no_memory() -> None:
    """Two bytes of a response became 120 in memory: 64 MiB of a hostile broker would have ended the agent."""
    fields = unsigned_varint(20_000) + b"".join(unsigned_varint(tag) + b"\0" for tag in range(20_000))
    reader = Reader(fields, "the response")
    tracemalloc.start()
    try:
        found = reader.tagged_fields(7)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert peak < 100_000


def test_a_secret_that_the_broker_does_not_mark_is_left_out() -> None:
    """By its name: no snapshot has a secret, whatever the broker's plugins forget."""
    name = "listener.name.x.scram-sha-256.sasl.jaas.config"
    setting = string(name) + string('password="hush"') + b"\0\2\0" + struct.pack(">i", 0)
    body = struct.pack(">i", 0) + one(b"\0\0" + string(None) + b"\4" + string("1") + one(setting))
    found = asked(lambda connection: describe_configs(connection, ResourceType.BROKER, ["1"]), body)
    assert found == {"1": [Setting(name, None, ConfigSource.DYNAMIC_BROKER)]}
