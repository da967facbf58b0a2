"""What a policy, a running cluster, holds and readers mean for a topic during a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import CLUSTER, MadeArchive
from ts_common.archive.holds import Hold
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.errors import ConfigurationError
from tsctl.gc.due import Rule
from tsctl.gc.policy import parse_policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.retention import LeftOut, NeededFrom, TopicIncarnation, Why

DAY = 86_400_000
NOW = 20_000 * DAY
OURS, THEIRS = "A" * 21 + "Q", "Z" * 21 + "Q"


@dataclass
class RunningCluster:
    """A cluster with one topic `t` of a partition."""

    topic_id: str | None = OURS
    settings_of_t: Mapping[str, str] = field(default_factory=dict)

    def topics(self) -> dict[str, Any]:
        return {"t": self}

    def settings(self, topics: list[str]) -> dict[str, Mapping[str, str]]:
        return {name: {"cleanup.policy": "delete", "retention.ms": "5", **self.settings_of_t} for name in topics}


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def retention(
    archive: MadeArchive, rule: Mapping[str, Any], kafka: RunningCluster | None = None, **more: Any
) -> PolicyRetention:
    """Return the retention of a rule for topic `t`; `more` are keys of the policy, or `clock`."""
    arguments = {"clock": more.pop("clock")} if "clock" in more else {}
    chosen = parse_policy(
        {"cluster": CLUSTER, "least_time": "0s", "rules": [{"topics": "t", **rule}], **more}, "policy"
    )
    return PolicyRetention(chosen, [archive.store], archive.keys, NOW, kafka, **arguments)  # type: ignore[arg-type]


def put_incarnations(archive: MadeArchive, *topic_ids: str) -> None:
    lives = Incarnations("t")
    for topic_id in topic_ids:
        lives = lives.opened(topic_id, NOW, archive.keys)
    archive.store.put(archive.keys.incarnations("t"), lives.encode())


def test_settings_of_another_clusters_topic_do_not_count(archive: MadeArchive) -> None:
    """Its id has to be one of the newest incarnation; both are named. Without an id or a list nothing is compared."""
    rule, expected = {"as_in_kafka": True}, Rule(5, None, 0)
    assert retention(archive, rule, RunningCluster(THEIRS)).rule("t") == expected
    put_incarnations(archive, THEIRS, OURS)
    assert retention(archive, rule, RunningCluster(OURS)).rule("t") == expected
    assert retention(archive, rule, RunningCluster(None)).rule("t") == expected
    found = retention(archive, rule, RunningCluster(THEIRS))
    for _ in range(2):
        with pytest.raises(LeftOut, match=f"topic id {THEIRS}, and the archive {OURS}: it is another cluster") as left:
            found.rule("t")
        assert left.value.why is Why.DOUBT
    archive.store.put(archive.keys.incarnations("t"), b"{")
    with pytest.raises(LeftOut, match=r"incarnations\.json"):
        retention(archive, rule, RunningCluster(OURS)).rule("t")
    assert retention(archive, {"max_age": "5d"}, RunningCluster(THEIRS)).rule("t") == Rule(5 * DAY, None, 0)


def test_malformed_settings_leave_each_partition_of_the_topic_out(archive: MadeArchive) -> None:
    """A second look is no other answer."""
    found = retention(archive, {"as_in_kafka": True}, RunningCluster(settings_of_t={"retention.ms": "soon"}))
    for _ in range(2):
        with pytest.raises(LeftOut, match="the cluster's settings of the topic"):
            found.rule("t")
    with pytest.raises(ConfigurationError, match="as_in_kafka needs --bootstrap-server"):
        retention(archive, {"as_in_kafka": True}).rule("t")


@pytest.mark.parametrize(
    ("rule", "policy", "expected"),
    [
        ({"max_age": "5d"}, "compact", None),
        ({"max_size": "1GiB"}, "compact,delete", None),
        ({"as_in_kafka": True}, "compact,delete", None),
        ({"as_in_kafka": True}, "compact", Rule(None, None, 0)),
        ({"max_age": "5d"}, "delete", Rule(5 * DAY, None, 0)),
        ({"max_age": "5d", "compacted": True}, "compact", Rule(5 * DAY, None, 0, compacted=True)),
        ({"as_in_kafka": True, "compacted": True}, "compact,delete", Rule(5, None, 0, compacted=True)),
    ],
)
def test_a_topic_that_the_cluster_compacts_has_no_limit_unless_the_rule_is_for_one(
    archive: MadeArchive, rule: Mapping[str, Any], policy: str, expected: Rule | None
) -> None:
    """An old record can be the only one of its key."""
    found = retention(archive, rule, RunningCluster(settings_of_t={"cleanup.policy": policy}))
    if expected is not None:
        assert found.rule("t") == expected
        return
    with pytest.raises(LeftOut, match=r"compacts the topic.* compacted: true") as left:
        found.rule("t")
    assert left.value.why is Why.DOUBT


def test_holds_and_claims_that_change_during_a_run_count_for_later_partitions(archive: MadeArchive) -> None:
    """They are read again after some seconds; a rebuild of a table begins with claims of a new generation."""
    seconds = [0.0]

    def claim(table: str, offset: int) -> None:
        claims = TableClaims(table, "1", NOW, {"t-0": offset})
        archive.store.put(claims_key(archive.keys, table), claims.encode())

    claim("db.t", 400)
    rule = {"max_age": "5d", "until_read_by": [{"table": "db.t"}]}
    found, keys = retention(archive, rule, clock=lambda: seconds[0]), archive.partition("t")
    found.check_holds("t")
    assert found.needed(keys) == NeededFrom(400, "table db.t", overdue=False)
    claim("db.t_g2", 0)
    hold = Hold(name="case-17", topics=("t",), reason="audit")
    archive.store.put(archive.keys.hold("case-17"), hold.encode())
    assert found.needed(keys) == NeededFrom(400, "table db.t", overdue=False)
    found.check_holds("t")
    seconds[0] += 11
    assert found.needed(keys) == NeededFrom(0, "table db.t_g2", overdue=False)
    with pytest.raises(LeftOut, match="hold case-17: audit"):
        found.check_holds("t")


def test_every_rule_that_deletes_counts_tables(archive: MadeArchive) -> None:
    """Also one without until_read_by, with its longest wait; claims that are unreadable leave a partition out."""
    claims = TableClaims("db.t", "1", NOW - 3 * DAY, {"t-0": 7})
    archive.store.put(claims_key(archive.keys, "db.t"), claims.encode())
    keys = archive.partition("t")
    for wait, overdue in (("2d", True), ("4d", False)):
        found = retention(archive, {"max_age": "5d", "longest_wait": wait})
        assert found.needed(keys) == NeededFrom(7, "table db.t", overdue)
    archive.store.put(claims_key(archive.keys, "db.t"), b"{")
    with pytest.raises(LeftOut, match=r"claims/db\.t\.json.*ignore_tables: \[db\.t\]"):
        retention(archive, {"max_age": "5d"}).needed(keys)
    assert retention(archive, {"keep": True}).needed(keys) is None
    assert retention(archive, {"max_age": "5d", "ignore_tables": "db.t"}).needed(keys) is None


@pytest.mark.parametrize("is_old_place", [False, True])
def test_what_is_over_has_a_key_of_its_own(archive: MadeArchive, is_old_place: bool) -> None:
    """A former incarnation, and what a topic left at its old place; without the key, or with a keep rule, all stays."""
    key, other = ("old_places", "deleted_topics") if is_old_place else ("deleted_topics", "old_places")
    ages = {days: TopicIncarnation("t", "t", frozenset(), NOW - days * DAY, (), is_old_place) for days in (29, 30)}

    def over(rule: Mapping[str, Any], **more: Any) -> list[int]:
        found = retention(archive, rule, **more)
        return [days for days, incarnation in ages.items() if found.is_over(incarnation)]

    assert over({"max_age": "5d"}, **{key: {"after": "30d"}}) == [30]
    assert over({"max_age": "5d"}, **{other: {"after": "1d"}}) == []
    assert over({"keep": True}, **{key: {"after": "30d"}}) == []
