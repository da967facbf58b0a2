"""What `create` refuses while a cluster serves: each of it would lose records, or restore wrong ones."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tsctl.restore.test_loss import part
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from tsctl.restore.documents import Created, GroupsPlan, RestorePlan, Seed, TopicPlan
from tsctl.restore.new_cluster import NewCluster
from tsctl.restore.serving_cluster import (
    FENCED,
    Serving,
    check_in_sync,
    check_serving,
    move_home,
    read_coordinated,
    restart_notes,
)
from tsctl.restore.transactions import Coordinated
from tsctl.verify.kafka_cluster import KafkaTopic

SEED = Seed(9, "seed:9092")
T0 = TopicPartition("t", 0)
PART = replace(part(0, 10), replicas=(9,), homes=(1, 2))
PLAN = RestorePlan(
    "p",
    1,
    "prod",
    (),
    None,
    {"t": TopicPlan("t", {0: PART}, {})},
    GroupsPlan("none", None, {"g": {T0: 3}}),
    (),
    seed=SEED,
)
GOOD = Serving(
    {1: "a:1", 2: "b:1", 9: "c:1"},
    {TopicPartition("other", 0): [1, 2]},
    [],
    [Coordinated("app", 7, 0, "Ongoing", 1, frozenset({"other"}))],
    {"g": []},
    is_fenced=True,
)
RESTARTS = replace(PLAN, seed=None, topics={"t": TopicPlan("t", {0: replace(PART, replicas=(1,))}, {})})


def test_a_serving_cluster_with_an_empty_seed_is_accepted() -> None:
    """Also if a killed `create` has made the topic there, and if a transaction that named it has ended."""
    check_serving(PLAN, GOOD)
    check_serving(PLAN, replace(GOOD, replicas={T0: [9]}))
    for state in ("CompleteCommit", "CompleteAbort", "Empty"):
        check_serving(PLAN, replace(GOOD, coordinated=[Coordinated("a", 7, 0, state, 1, frozenset({"t"}))]))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"brokers": {1: "a:1", 2: "b:1"}}, "broker 9 is not registered"),
        ({"brokers": {1: "a:1", 9: "c:1"}}, "broker 2 is not registered"),
        ({"replicas": {TopicPartition("other", 1): [2, 9]}}, "broker 9 has replicas of other-1"),
        ({"replicas": {T0: [1, 2]}}, r"t-0 exists on brokers \[1, 2\]"),
        ({"replicas": {T0: [9, 1]}}, r"t-0 exists on brokers \[9, 1\]"),
        ({"is_fenced": False}, "broker 9 accepts clients at c:1"),
        ({"members": {"g": ["reports-1"]}}, r"group g has members \(reports-1\)"),
        (
            {"coordinated": [Coordinated("app", 7, 0, "Ongoing", 1, frozenset({"t", "other"}))]},
            "the transaction of app is Ongoing and names t",
        ),
        (
            {"coordinated": [Coordinated("app", 7, 0, "PrepareAbort", 1, frozenset({"t"}))]},
            "the transaction of app is PrepareAbort and names t",
        ),
    ],
)
def test_what_would_lose_records_is_refused(changed: dict[str, Any], text: str) -> None:
    """One sentence names the thing and the way out; nothing is created."""
    with pytest.raises(QueryError, match=f"{text}.*Nothing was created"):
        check_serving(PLAN, replace(GOOD, **changed))


def test_all_reasons_are_in_one_message() -> None:
    """An operator at night repeats the command once."""
    with pytest.raises(QueryError, match=r"other-0.*accepts clients.*group g"):
        check_serving(
            PLAN,
            replace(GOOD, replicas={TopicPartition("other", 0): [9]}, is_fenced=False, members={"g": ["reports-1"]}),
        )


def test_the_partitions_of_another_topic_are_not_moved() -> None:
    """A client created it after the restored one was deleted; nothing else is called, and no group gets an offset."""
    topics = {"t": KafkaTopic("B" * 22, (0,))}
    cluster = cast("NewCluster", SimpleNamespace(reading=SimpleNamespace(topics=lambda: topics)))
    with pytest.raises(QueryError, match="topic t: another id"):
        move_home(
            cluster, RESTARTS, Created("p", "kafka", {"t": "A" * 22}), 1, pytest.fail, lambda: pytest.fail("groups set")
        )


def test_a_topic_that_is_deleted_while_it_moves_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions never reach their homes."""
    monkeypatch.setattr("tsctl.restore.serving_cluster._POLL_SECONDS", 0)
    monkeypatch.setattr("tsctl.restore.serving_cluster.reassign", lambda *_: None)
    answers = iter([{"t": KafkaTopic("A" * 22, (0,))}] * 3)
    cluster = SimpleNamespace(
        reading=SimpleNamespace(topics=lambda: next(answers, {})),
        replicas=lambda: {T0: ([9, 1], [9], 9)},
        setting_of_broker=lambda *_: "",
        brokers=lambda: {1: "a:1"},
        connect=lambda _: nullcontext(),
    )
    with pytest.raises(QueryError, match="topic t: another id, or it is deleted"):
        move_home(cast("NewCluster", cluster), PLAN, Created("p", "kafka", {"t": "A" * 22}), None, lambda _: None)


def test_the_throttle_of_another_reassignment_stays() -> None:
    """It was set while the partitions moved; ours is removed."""
    rates = {1: "", 2: ""}

    def set_rate(broker: int, _: str, value: str | None) -> None:
        rates[broker] = "777" if broker == 2 and value else value or ""

    reading = SimpleNamespace(topics=lambda: {"t": KafkaTopic(None, (0,))}, bounds=lambda _: {T0: (0, 10)})
    cluster = SimpleNamespace(
        reading=reading,
        replicas=lambda: {T0: ([1, 2], [1, 2], 1)},
        setting_of_broker=lambda broker, _: rates[broker],
        configure_broker=set_rate,
        configure=lambda *_: None,
    )
    assert move_home(cast("NewCluster", cluster), PLAN, Created("p", "kafka", {"t": None}), 5, lambda _: None) == []
    assert rates == {1: "", 2: "777"}


def test_transactions_of_a_missing_coordinator_are_not_none() -> None:
    """One of them can name the topic; no running broker lists it."""
    replicas = {TopicPartition("__transaction_state", 3): ([4], [4], -1)}
    cluster = SimpleNamespace(replicas=lambda: replicas, brokers=dict)
    with pytest.raises(QueryError, match="__transaction_state-3: no leader"):
        read_coordinated(cast("NewCluster", cluster), SEED)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"behind": [TopicPartition("other", 0)]}, "other-0: a replica is out of sync, or there is no leader"),
        ({"members": {"g": ["reports-1"]}}, r"group g has members .*until `tsctl restore move` has ended"),
        ({"replicas": {T0: [2]}}, r"t-0 exists on brokers \[2\]"),
        ({"brokers": {1: "a:1"}}, "broker 2 is not registered"),
    ],
)
def test_brokers_are_not_restarted_where_that_stops_others(changed: dict[str, Any], text: str) -> None:
    """Without a seed a broker is stopped: every replica must be in sync before the topic exists."""
    check_serving(RESTARTS, replace(GOOD, brokers={1: "a:1", 2: "b:1"}))
    with pytest.raises(QueryError, match=f"{text}.*Nothing was created"):
        check_serving(RESTARTS, replace(GOOD, **changed))


def of_replicas(found: dict[TopicPartition, tuple[list[int], list[int], int]], **reading: object) -> NewCluster:
    return cast("NewCluster", SimpleNamespace(replicas=lambda: found, reading=SimpleNamespace(**reading)))


def test_the_next_broker_is_not_stopped_before_the_last_one_is_back() -> None:
    """Its partitions have no leader until then, and those of others lack a replica."""
    other = TopicPartition("other", 0)
    found = {T0: ([1], [1], -1), other: ([1, 2], [2], 2)}
    check_in_sync(of_replicas(found), 1)  # the broker that is stopped for its files
    for stopped in (None, 2):
        with pytest.raises(QueryError, match=r"other-0, t-0: a replica is out of sync"):
            check_in_sync(of_replicas(found), stopped)
    check_in_sync(of_replicas({T0: ([1], [1], 1), other: ([1, 2], [2, 1], 2)}), None)


def test_a_plan_with_restarts_names_the_topics_that_notice_them() -> None:
    """One replica has no leader meanwhile; as many as `min.insync.replicas` refuse producers."""
    found = {
        TopicPartition("alone", 0): ([1], [1], 1),
        TopicPartition("strict", 0): ([1, 2], [1, 2], 1),
        TopicPartition("fine", 0): ([1, 2, 3], [1, 2, 3], 1),
        TopicPartition("elsewhere", 0): ([3], [3], 3),
    }
    cluster = of_replicas(found, settings=lambda names: {name: {"min.insync.replicas": "2"} for name in names})
    alone, needed = restart_notes(cluster, (1,))
    assert alone.endswith("have one replica: alone")
    assert needed.endswith("is the replication factor: strict")


def test_the_fence_falls_once_all_partitions_are_home() -> None:
    """The topic's own limit is set then, and the groups' consumers find the records."""
    calls: list[tuple[str, object, object]] = []
    reading = SimpleNamespace(topics=lambda: {"t": KafkaTopic(None, (0,))}, bounds=lambda _: {T0: (0, 10)})
    cluster = SimpleNamespace(
        reading=reading,
        replicas=lambda: {T0: ([1, 2], [1, 2], 1)},
        setting_of_broker=lambda *_: "",
        configure_broker=lambda *_: None,
        configure=lambda topic, given, removed: calls.append((topic, dict(given), list(removed))),
    )
    plan = replace(RESTARTS, topics={"t": replace(RESTARTS.topics["t"], configurations={"max.message.bytes": "7"})})
    for each, last in ((RESTARTS, ("t", {}, ["max.message.bytes"])), (plan, ("t", {"max.message.bytes": "7"}, []))):
        created = Created("p", "kafka", {"t": None})
        move_home(cast("NewCluster", cluster), each, created, None, lambda _: None, lambda: calls.append(("g", {}, [])))
        assert (calls.pop(), calls.pop(0)) == (last, ("g", {}, []))
        calls.clear()
    assert FENCED["max.message.bytes"] == "78"
