"""Answers to the raw requests of a restore: whole ones, each beginning of one, mutated ones, and errors."""

import random
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.fuzz.mutate import mutate_bytes
from tests.matrix import examples
from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, compact_string, string
from ts_common.broker_connection.list_offsets import LATEST
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from tsctl.restore.raw_requests import (
    RequestDelayed,
    RequestRefused,
    list_transactions,
    offsets_of,
    reassign,
)
from tsctl.restore.transactions import Coordinated

T3 = TopicPartition("t", 3)


class Answering:
    """A connection that has one answer to each kind of request."""

    name = "broker"

    def __init__(self, *bodies: tuple[Api, bytes]) -> None:
        self._bodies = dict(bodies)

    def request(self, api: Api, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        del version, body, flexible
        return Reader(self._bodies[api], f"the response to {api.name}")


def asked(ask: Callable[[BrokerConnection], Any], *bodies: tuple[Api, bytes]) -> Any:
    return ask(cast("BrokerConnection", Answering(*bodies)))


def compact(value: bytes) -> bytes:
    """A COMPACT_ARRAY of one."""
    return b"\2" + value


def listed(code: int = 0) -> tuple[Api, bytes]:
    one = compact_string("app") + struct.pack(">q", 7) + compact_string("Ongoing") + b"\0"
    return Api.LIST_TRANSACTIONS, struct.pack(">ih", 0, code) + b"\1" + compact(one) + b"\0"


def described(code: int = 0) -> tuple[Api, bytes]:
    topic = compact_string("t") + compact(struct.pack(">i", 3)) + b"\0"
    state = struct.pack(">h", code) + compact_string("app") + compact_string("Ongoing")
    state += struct.pack(">iqqh", 60_000, 5, 7, 2) + compact(topic) + b"\0"
    return Api.DESCRIBE_TRANSACTIONS, struct.pack(">i", 0) + compact(state) + b"\0"


def offsets(code: int = 0) -> tuple[Api, bytes]:
    one = struct.pack(">i", 1)
    return Api.LIST_OFFSETS, bytes(4) + one + string("t") + one + struct.pack(">ihqqi", 3, code, -1, 40, 7)


def reassigned(code: int = 0, partition: int = 0) -> tuple[Api, bytes]:
    part = struct.pack(">ih", 3, partition) + compact_string("why") + b"\0"
    topic = compact_string("t") + compact(part) + b"\0"
    return Api.ALTER_PARTITION_REASSIGNMENTS, struct.pack(">ih", 0, code) + b"\0" + compact(topic) + b"\0"


ANSWERS: dict[str, tuple[Callable[[BrokerConnection], Any], list[tuple[Api, bytes]], Any]] = {
    "ListTransactions": (list_transactions, [listed(), described()], None),
    "DescribeTransactions": (
        list_transactions,
        [described(), listed()],
        (Coordinated("app", 7, 2, "Ongoing", 5, frozenset({"t"})),),
    ),
    "ListOffsets": (lambda connection: offsets_of(connection, [T3], LATEST), [offsets()], {T3: 40}),
    "AlterPartitionReassignments": (lambda connection: reassign(connection, {T3: [1, 2]}), [reassigned()], None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_whole_answer_is_read_and_no_beginning_of_it(name: str) -> None:
    """The last byte of a flexible answer ends its tagged fields, which no reader needs."""
    ask, ((api, body), *others), expected = ANSWERS[name]
    if expected is not None:
        assert asked(ask, (api, body), *others) == expected
    for size in range(len(body.removesuffix(b"\0"))):
        with pytest.raises(CorruptData, match="is malformed"):
            asked(ask, (api, body[:size]), *others)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_mutated_answer_is_read_or_is_an_error_of_the_project(name: str) -> None:
    """No other error, and no hour of work: a list is never longer than the bytes that remain."""
    ask, ((api, body), *others), _ = ANSWERS[name]
    chance = random.Random(name)
    for _ in range(examples(20_000, quick=1_000)):
        try:
            asked(ask, (api, mutate_bytes(chance, body)), *others)
        except (CorruptData, RequestDelayed, RequestRefused) as error:
            assert len(str(error)) < 1_000  # noqa: PT017  (most mutations are harmless)


@pytest.mark.parametrize(
    ("name", "bodies", "code"),
    [
        ("ListTransactions", [listed(14)], 14),
        ("DescribeTransactions", [listed(), described(53)], 53),
        ("ListOffsets", [offsets(6)], 6),
        ("AlterPartitionReassignments", [reassigned(41)], 41),
        ("AlterPartitionReassignments", [reassigned(0, 39)], 39),
    ],
)
def test_an_error_is_named_and_is_no_empty_answer(name: str, bodies: list[tuple[Api, bytes]], code: int) -> None:
    """A coordinator that loads has transactions that it does not list; an error of one partition counts too."""
    kind = RequestRefused if code in {39, 53} else RequestDelayed
    with pytest.raises(kind, match=f"{name}.*error code {code}"):
        asked(ANSWERS[name][0], *bodies)


def test_a_transactional_id_that_expired_meanwhile_is_left_out() -> None:
    """Between the two requests."""
    assert asked(list_transactions, listed(), described(105)) == ()


@pytest.mark.parametrize(
    ("name", "bodies"),
    [
        ("ListOffsets", [(Api.LIST_OFFSETS, bytes(4) + struct.pack(">i", -1))]),
        ("DescribeTransactions", [listed(), (Api.DESCRIBE_TRANSACTIONS, struct.pack(">i", 0) + b"\1\0")]),
    ],
)
def test_an_answer_that_lacks_a_part_is_no_empty_answer(name: str, bodies: list[tuple[Api, bytes]]) -> None:
    """A transaction that is left out could be one that names the topic."""
    with pytest.raises(CorruptData, match=f"{name}: the answer (lacks 1|has 0 of 1 partitions)"):
        asked(ANSWERS[name][0], *bodies)
