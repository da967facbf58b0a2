"""Requests to repair and their answers: what is read back, and what hostile bytes become."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.repair_requests import (
    Damage,
    Outcome,
    RepairAnswer,
    RepairRequest,
    answer_key,
    request_key,
    unanswered,
)
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

CLUSTER = ClusterKeys("prod", 5)
TP = TopicPartition("orders", 3)
KEYS = CLUSTER.partition(TP)
ID = "1700000000000-1a2b3c4d"
REQUEST = RepairRequest(
    ID, "orders", 3, "orders-3", Damage.DAMAGED, 100, 200, KEYS.segment(SegmentName(100)), '"e"', 7, 1, "operator@host"
)
ANSWER = RepairAnswer(Outcome.IN_PART, "why", ("a.log", "b.log"), 2, 5)


def test_a_request_and_an_answer_read_back() -> None:
    """All fields, also of a request without an object in a later incarnation."""
    other = replace(REQUEST, damage=Damage.MISSING, directory="orders~AbC-3", key=None, etag=None, size=None)
    for request in (REQUEST, other):
        assert RepairRequest.decode(request.encode(), "k", id=ID) == request
    assert RepairAnswer.decode(ANSWER.encode(), "k") == ANSWER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", "../x"),
        ("directory", "payments-3"),
        ("directory", "orders~a/b-3"),
        ("kind", "other"),
        ("from", 200),
    ],
)
def test_a_hostile_request_is_damage(field: str, value: Any) -> None:
    """Any identity that can write to the bucket can write a request."""
    fields = json.loads(REQUEST.encode()) | {field: value}
    with pytest.raises(CorruptData, match=r"^k: not a request to repair"):
        RepairRequest.decode(json.dumps(fields).encode(), "k", id=ID)


def test_a_request_selects_no_segment_of_another_partition() -> None:
    """A request can name any object: nothing outside the partition's directory is read for it."""
    assert REQUEST.segment_in(KEYS) == SegmentName(100)
    for key in (
        None,
        KEYS.commit,
        KEYS.segment(SegmentName(1), ".index"),
        "x" + KEYS.prefix,
        KEYS.prefix + "a/../1.log",
    ):
        assert replace(REQUEST, key=key).segment_in(KEYS) is None


def test_only_requests_without_an_answer_are_listed(tmp_path: Path) -> None:
    """In the order of their times; objects with other names are ignored."""
    later = "1700000000001-00000000"
    with open_store(tmp_path.as_uri()) as store:
        for key in (request_key(CLUSTER, later), request_key(CLUSTER, ID), CLUSTER.repairs + "x.json"):
            store.put(key, b"")
        assert [id_ for id_, _ in unanswered(store, CLUSTER)] == [ID, later]
        store.put(answer_key(CLUSTER, ID), b"")
        assert [id_ for id_, _ in unanswered(store, CLUSTER)] == [later]
