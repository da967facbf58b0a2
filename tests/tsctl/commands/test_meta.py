"""`tsctl meta` on snapshots of a directory."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.hostile_text import ESCAPES, raw_in
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from ts_common.archive.snapshots import (
    FIVE_MINUTES,
    HOUR,
    MINUTE,
    Acl,
    Broker,
    ClusterSnapshot,
    GroupOffset,
    GroupsSnapshot,
    Quota,
    Topic,
    User,
)
from ts_common.model import TopicPartition
from tsctl.snapshots import changes

AT = 1_795_964_400_000  # 2026-11-29T15:00:00Z
ACL = Acl("TOPIC", "ord", "PREFIXED", "User:etl", "*", "READ", "ALLOW")
FIRST = ClusterSnapshot(
    time=AT + 30_000,
    broker=1,
    kafka="4.1",
    topics={"orders": Topic("id-1", ((1, 2), (2, 1)), {"retention.ms": "-1"}), "clicks": Topic("id-2", ((1,),), None)},
    brokers={
        "1": Broker("b1", 9092, "a", {}),
        "10": Broker("b10", 9092, None, {}),
        "default": Broker(None, None, None, {"log.cleaner.threads": "2"}),
    },
    quotas=(Quota({"user": "etl", "client-id": None}, {"producer_byte_rate": 1048576.0}),),
    acls=(ACL,),
    users=(User("etl", {"SCRAM-SHA-256": 4096}),),
)
SECOND = replace(
    FIRST,
    time=AT + 7 * MINUTE,
    broker=10,
    topics={"orders": Topic("id-1", ((1, 2), (2, 3)), {}), "new": Topic("id-3", ((1,),), {})},
    acls=None,
    users=(),
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: (AT + HOUR) / 1000)


@pytest.fixture
def archive(hand_made: Archive) -> Archive:
    """Two snapshots of the cluster, and one of the groups."""
    hand_made.put_segment("orders", 0, batches((0, 5)))
    hand_made.commit("orders", 5)
    FIRST.put(hand_made.store, hand_made.keys, AT)
    SECOND.put(hand_made.store, hand_made.keys, AT + 7 * MINUTE)
    offsets = {
        TopicPartition("orders", 10): GroupOffset(7, 3, ""),
        TopicPartition("orders", 2): GroupOffset(5, -1, "x"),
    }
    GroupsSnapshot(AT + FIVE_MINUTES + 1, {"reports": offsets}).put(hand_made.store, hand_made.keys, AT + FIVE_MINUTES)
    return hand_made


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.usefixtures("archive")
def test_the_log_has_what_changed_with_each_snapshot(named: tuple[str, ...], run: Run) -> None:
    """A change has its minute; unknown ACLs and configurations are no change."""
    ended = run("meta", "log", *named)
    assert ended.code == 0
    found = lines(ended.out)[1:]
    assert found[0][:5] == ["2026-11-29T15:00:00.000Z", "1", "4.1", "2", "0"]
    assert found[1][:6] == ["2026-11-29T15:07:00.000Z", "(change)", "10", "4.1", "2", "7"]
    assert "topic clicks id, topic clicks replicas of partition 0, topic new id, and 4 more" in ended.out
    (entry,) = run("meta", "log", "--since", "2026-11-29T15:01Z", *named, "--json").document["snapshots"]
    assert (entry["snapshot"], len(entry["changes"])) == ("2026-11-29T15:07:00.000Z", 7)
    assert run("meta", "log", "--since", "2026-11-29T16:00Z", *named).out.startswith("no snapshots since")


@pytest.mark.usefixtures("archive")
def test_a_snapshot_is_shown_as_a_person_reads_it(named: tuple[str, ...], run: Run) -> None:
    """Without `--at` it is the newest; what the agent may not read is called unknown, and not empty."""
    shown = run("meta", "show", "--at", "2026-11-29T15:06Z", *named)
    assert shown.code == 0
    assert shown.out.startswith("cluster prod at 2026-11-29T15:00:30.000Z, written by broker 1's agent; Kafka 4.1\n")
    table = lines(shown.out)
    assert ["clicks", "id-2", "1", "1", "unknown"] in table
    assert ["orders", "id-1", "2", "2", "retention.ms=-1"] in table
    assert [row[0] for row in table if row and row[0] in {"1", "10", "default"}] == ["1", "10", "default"]
    assert ["client-id=<default>,", "user=etl", "producer_byte_rate=1048576"] in table
    assert ["TOPIC", "ord*", "(prefix)", "User:etl", "READ", "ALLOW"] in table
    assert ["etl", "SCRAM-SHA-256", "(4096", "iterations)"] in table
    assert [row[:3] for row in table if row[:1] == ["reports"]] == [
        ["reports", "orders-2", "5"],
        ["reports", "orders-10", "7"],
    ]
    newest = run("meta", "show", "acls", "users", *named).out
    assert "ACLs: unknown: the agent that wrote the snapshot may not read them" in newest
    assert "SCRAM users, without their secrets: 0" in newest
    assert "orders" not in newest


@pytest.mark.usefixtures("archive")
def test_json_has_the_fields_of_the_stored_object(named: tuple[str, ...], run: Run) -> None:
    """With the parts that were requested only."""
    found = run("meta", "show", "--at", "2026-11-29T15:06Z", *named, "--json").document
    stored: Mapping[str, Any] = json.loads(FIRST.encode())
    assert {key: found[key] for key in ("kafka", "topics", "brokers", "quotas", "acls", "users")} == {
        key: stored[key] for key in ("kafka", "topics", "brokers", "quotas", "acls", "users")
    }
    assert (found["cluster"], found["time"], found["broker"]) == ("prod", "2026-11-29T15:00:30.000Z", 1)
    assert found["groups"] == {"reports": {"orders-2": [5, -1, "x"], "orders-10": [7, 3, ""]}}
    assert "topics" not in run("meta", "show", "users", *named, "--json").document


@pytest.mark.usefixtures("archive")
def test_a_difference_names_what_was_and_what_is(named: tuple[str, ...], run: Run) -> None:
    """Exit code 1: something changed; a snapshot and itself do not differ."""
    ended = run("meta", "diff", "--at", "2026-11-29T15:00Z", *named, "--json")
    assert ended.code == 1
    found = {
        (each["kind"], each["name"], each["what"]): (each["before"], each["after"])
        for each in ended.document["changes"]
    }
    assert found == {
        ("topic", "clicks", "id"): ("id-2", None),
        ("topic", "clicks", "replicas of partition 0"): ("1", None),
        ("topic", "new", "id"): (None, "id-3"),
        ("topic", "new", "replicas of partition 0"): (None, "1"),
        ("topic", "orders", "replicas of partition 1"): ("2,1", "2,3"),
        ("topic config", "orders", "retention.ms"): ("-1", None),
        ("user", "etl", "SCRAM-SHA-256"): ("4096 iterations", None),
    }
    text = run("meta", "diff", "--at", "2026-11-29T15:00Z", *named)
    assert ["user", "etl", "SCRAM-SHA-256", "4096", "iterations", "-"] in lines(text.out)
    same = run("meta", "diff", "--at", "2026-11-29T15:00Z", "--to", "2026-11-29T15:06Z", *named)
    assert (same.code, "0 changes" in same.out) == (0, True)


@pytest.mark.parametrize("command", [("show",), ("diff",)])
def test_a_time_before_the_first_snapshot_is_an_error_with_a_way_out(
    archive: Archive, named: tuple[str, ...], run: Run, command: tuple[str, ...]
) -> None:
    """A text that is not a time, and a damaged snapshot are errors too."""
    ended = run("meta", *command, "--at", "2026-11-29T14:00Z", *named)
    assert ended.code == 2
    assert "no metadata snapshot at or before 2026-11-29T14:00:00.000Z; agents write them hourly" in ended.err
    assert "--at=soon: expected a time" in run("meta", *command, "--at", "soon", *named).err
    key = ClusterSnapshot.key(archive.keys, AT - HOUR)
    archive.store.put(key, b"damaged")
    ended = run("meta", *command, "--at", "2026-11-29T14:00Z", *named)
    assert (ended.code, f"{key}: not compressed by gzip" in ended.err) == (1, True)


def test_a_small_change_of_a_quota_and_a_second_permission_of_a_rule_are_differences() -> None:
    """A limit has all its digits; one rule can be allowed and denied."""
    (quota,) = FIRST.quotas or ()
    larger = replace(quota, limits={"producer_byte_rate": 1048577.0})
    after = replace(FIRST, quotas=(larger,), acls=(ACL, replace(ACL, permission="DENY")))
    assert [(each.kind, each.before, each.after) for each in changes(FIRST, after)] == [
        ("acl", "ALLOW", "ALLOW, DENY"),
        ("quota", "1048576", "1048577"),
    ]


def test_names_from_the_cluster_stay_in_their_line(archive: Archive, named: tuple[str, ...], run: Run) -> None:
    """A line feed in a text cannot make a line that looks like one of the command."""
    hostile = replace(FIRST, time=AT + 8 * MINUTE, kafka="4.1\nACLs: 0", users=(User(f"a\nb{ESCAPES}", {}),))
    hostile.put(archive.store, archive.keys, AT + 8 * MINUTE)
    shown = run("meta", "show", *named).out
    assert "Kafka 4.1\\nACLs: 0" in shown
    assert raw_in(shown) == []


def test_a_damaged_snapshot_does_not_hide_the_others_from_the_log(
    archive: Archive, named: tuple[str, ...], run: Run
) -> None:
    """An operator looks there for the newest one that can be read."""
    keys = [ClusterSnapshot.key(archive.keys, AT + minutes * MINUTE) for minutes in (-60, 8)]
    for key in keys:
        archive.store.put(key, b"damaged")
    ended = run("meta", "log", "--since", "2026-11-29T15:00Z", *named)
    assert (ended.code, len(lines(ended.out))) == (0, 3)
    assert all(f"{key}: not compressed by gzip" in ended.err for key in keys)
