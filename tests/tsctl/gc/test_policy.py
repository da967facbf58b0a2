"""The file of a policy: what it means, what it refuses, and what of it does not fit an archive."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from tests.docs.commands import CHECKOUT, blocks
from ts_common.archive.holds import Hold
from ts_common.errors import ConfigurationError
from tsctl.gc.due import Rule
from tsctl.gc.policy import (
    EndedTopics,
    Fuse,
    OwnObjects,
    Policy,
    ReadBy,
    SnapshotKeeping,
    TopicKeeping,
    TopicRule,
    parse_policy,
    read_policy,
    useless_rules,
)
from tsctl.gc.policy_source import check_policy, findings_of

EXAMPLE = CHECKOUT / "conf/retention.example.yaml"
PAGE = CHECKOUT / "docs/retention.md"
HOUR, DAY = 3_600_000, 86_400_000
WRONG = r"""
grace: 1m
fuse: {objects: 0, bites: 1TiB, share: 0%}
least_time: 7
rules:
  - {topics: orders, keep: true, max_age: 1d}
  - {topics: a, as_in_kafka: true, max_size: 1GiB}
  - {topics: b}
  - {topics: c, max_age: 84m, max_size: 5000}
  - {topics: d, max_age: 1d, until_read_by: [{table: t, group: g}, {}, {checkpoint: lake/cp}, {tabel: t}]}
  - {topics: [], max_age: 1d}
  - {topics: ['e('], max_age: 30m}
  - {topics: f, maxage: 1d, max_size: 1}
  - {topics: g, max_age: 1d, until_read_by: [{table: t}, {table: t}]}
  - {topics: h, max_age: 1d, until_read_by: [{table: t}], ignore_tables: [s, t]}
  - {topics: i, max_age: 1d, until_read_by: [{table: t}], ignore_tables: t_g2}
own: {reports: 1d, report: 7d}
deleted_topics: {}
old_places: {after: 23h}
rule: []
"""


def policy(text: str) -> Policy:
    """Return the policy of a text; it is for cluster `prod` unless the text names another."""
    content = YAML(typ="safe").load(text)
    return parse_policy({"cluster": "prod", **content} if isinstance(content, dict) else content, "retention.yaml")


def test_the_example_is_a_policy_with_every_key_of_the_top() -> None:
    """Also once its comments are removed; the numbers are bytes and milliseconds."""
    found = read_policy(EXAMPLE)
    assert (found.grace, found.least_time) == (20 * HOUR, 7 * DAY)
    assert (found.fuse.objects, found.fuse.bytes, found.fuse.share) == (100_000, 10 << 40, 0.5)
    payments, orders = found.rules
    assert (payments.keep, payments.resolve(None)) == (True, Rule(None, None, 7 * DAY))
    assert orders.resolve(None) == Rule(400 * DAY, 2 << 40, 7 * DAY)
    assert not orders.until_read_by  # an archive that lacks one of its readers would end each run
    assert (found.cluster, found.deleted_topics, found.old_places) == ("prod", None, None)
    text = re.sub(r"^( *)#(?! [A-Z])", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)  # comments begin with a capital
    assert {*YAML(typ="safe").load(text)} == {*Policy.model_fields}
    everything = policy(text)
    payments, orders, sessions, metrics = everything.rules
    assert metrics.needs_kafka
    assert sessions.resolve(None) == Rule(12 * HOUR, None, 7 * DAY, compacted=True)
    assert (orders.ignores("scratch.orders_g2"), orders.ignores("backup.orders")) == (True, False)
    assert [str(each) for each in orders.until_read_by] == [
        "table backup.orders",
        "checkpoint s3://lake/checkpoints/orders",
        "group billing",
    ]
    assert everything.deleted_topics == everything.old_places == EndedTopics.model_validate({"after": "30d"})


def test_every_mistake_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    """With its place, and what is accepted."""
    path = tmp_path / "retention.yaml"
    path.write_text(WRONG)
    with pytest.raises(ConfigurationError) as found:
        read_policy(path)
    for part in (
        "grace: 1h or more is expected",
        "fuse.objects: input should be greater than or equal to 1",
        "fuse.bites: this name is unknown; did you mean bytes?",
        "fuse.share: '0%' is no share",
        "least_time: 7 is no time",
        "rules.0: keep: true: max_age would have no effect",
        "rules.1: as_in_kafka: true: max_size would contradict it",
        "rules.2: max_age, max_size, as_in_kafka: true, or keep: true is needed",
        "rules.3: max_age is below 1d and max_size is below 1GiB: give more, or confirm_small: true if it is meant",
        "rules.4.until_read_by.0: one of table, checkpoint, group, kafka_group is expected",
        "rules.4.until_read_by.1: one of",
        "rules.4.until_read_by.2.checkpoint: 'lake/cp' is not a store URL",
        "rules.4.until_read_by.3.tabel: this name is unknown; did you mean table?",
        "rules.5.topics: it is empty; at least one entry is expected",
        "rules.6.topics.0: topic 'e(' is not a regular expression",
        "rules.6.max_age: 1h or more is expected",
        "rules.7.maxage: this name is unknown; did you mean max_age?",
        "rules.7.max_size: input should be greater than or equal to 1024",
        "rules.8: until_read_by: a reader is given twice",
        "rules.9: ignore_tables: until_read_by has t too; remove one of the two",
        "rules.10: ignore_tables: until_read_by has t_g2 too; remove one of the two",
        "own.reports: 7d or more is expected",
        "own.report: this name is unknown; did you mean reports?",
        "cluster: it is missing",
        "deleted_topics.after: it is missing",
        "old_places.after: 1d or more is expected",
        "rule: this name is unknown; did you mean rules?",
    ):
        assert part in str(found.value), str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cluster: c\nrules: [{topics: 'a(', max_age: 5d}]",
            "rules.0.topics.0: topic 'a(' is not a regular expression: missing ),",
        ),
        ("grace: 2h\nrules: []\ngrace: 3h", "it is no YAML: grace is given twice (lines 1 and 3)"),
        ("rules:\n- topics: a\n  keep: true\n- topics: b\n  topics: c", "topics is given twice (lines 4 and 5)"),
        ("fuse: &a [*a, {[1]: 2, a: 1, a: 2}]", "a is given twice (lines 1 and 1)"),
        ("{1: 2, 0x1: 3}", "a key is given twice, in line 1"),
        (
            "cluster: c\nrules: [{topics: a, as_in_kafka: maybe}]",
            "rules.0.as_in_kafka: 'maybe' is neither true nor false",
        ),
        ("cluster: c\nrules: [{topics: a, keep: [1]}]", "rules.0.keep: [1] is neither true nor false"),
    ],
)
def test_one_mistake_is_one_problem_with_its_value(tmp_path: Path, text: str, message: str) -> None:
    """Neither a consequence of it, nor an advice of a library, is printed with it."""
    path = tmp_path / "retention.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as found:
        read_policy(path)
    (problem,) = found.value.problems
    assert message in problem
    assert "suppress" not in problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules: [{topics: .*, keep: true}, {topics: a, max_age: 1d}]", r"rules\.1: a: rules\.0 matches first"),
        ("rules: [{topics: a.*, keep: true}, {topics: [b, a.*], max_age: 1d}]", r"rules\.1: a\.\*: rules\.0 matches"),
        ("{rules: [], grace: 8d, deleted_topics: {after: 7d}}", r"deleted_topics\.after: grace or more is expected"),
        ("{rules: [], grace: 8d, old_places: {after: 7d}}", r"old_places\.after: grace or more is expected"),
        ("rules: [{topics: a, keep: true, ignore_tables: t}]", r"keep: true: ignore_tables would have no effect"),
        ("grace: 1d", "rules: it is missing"),
        ("rules: [{topics: '', keep: true}]", "an empty text matches no topic"),
        ("", "the file: names with values are expected"),
    ],
)
def test_parts_that_contradict_one_another_are_refused(text: str, reason: str) -> None:
    """A general rule above a narrow one would delete what the narrow one keeps."""
    with pytest.raises(ConfigurationError, match=reason):
        policy(text)


def test_a_policy_is_cautious_by_default() -> None:
    """Half of the bytes in one run are the most, and nothing of a topic that no longer exists is due."""
    found = policy("rules: []")
    assert (found.fuse.objects, found.fuse.bytes, found.fuse.share) == (None, None, 0.5)
    assert (found.grace, found.least_time, found.deleted_topics) == (20 * HOUR, 7 * DAY, None)
    assert (found.old_places, found.own.model_dump()) == (
        None,
        {"reports": 400 * DAY, "repairs": 90 * DAY, "probes": 30 * DAY},
    )


def test_the_first_rule_that_matches_a_whole_name_applies() -> None:
    """A name is no regular expression, and a topic without a rule has none."""
    found = policy(r"rules: [{topics: a.b, keep: true}, {topics: [c, 'a\..*'], max_age: 1d}]")
    named, pattern = found.rules
    assert [found.rule_for(topic) for topic in ("a.b", "a.c", "axb", "c", "cc")] == [
        named,
        pattern,
        None,
        pattern,
        None,
    ]


def test_a_rule_has_the_least_time_of_the_policy_unless_it_has_its_own() -> None:
    """It is that of the store, whatever else is due."""
    found = policy("{least_time: 2d, rules: [{topics: a, max_age: 1d}, {topics: b, max_size: 1GiB, least_time: 0s}]}")
    assert [rule.resolve(None) for rule in found.rules] == [Rule(DAY, None, 2 * DAY), Rule(None, 1 << 30, 0)]


@pytest.mark.parametrize(
    ("limits", "small"),
    [
        ("max_age: 23h", "max_age is below 1d:"),
        ("max_size: 1023MiB", "max_size is below 1GiB:"),
        ("max_age: 1d, max_size: 1GiB", None),
        ("as_in_kafka: true", None),
    ],
)
def test_a_small_limit_has_to_be_confirmed(limits: str, small: str | None) -> None:
    """84m may mean months, and 5000 gibibytes."""
    if small is not None:
        with pytest.raises(ConfigurationError, match=small):
            policy(f"rules: [{{topics: a, {limits}}}]")
    assert policy(f"rules: [{{topics: a, {limits}, confirm_small: {small is not None}}}]").rules[0].topics == ("a",)


def test_the_fuse_also_holds_per_topic() -> None:
    """By the share alone; a topic where each partition loses one segment at most never blows it."""
    fuse = Fuse.model_validate({"objects": 5, "bytes": 100, "share": "50%"})
    assert fuse.blown(10, 900, 2000) == "due: 10 objects, and fuse.objects is 5"
    assert fuse.blown_of_topic(10, 900, 2000, 10) is None
    assert fuse.blown_of_topic(10, 900, 1000, 1) is None
    assert fuse.blown_of_topic(10, 900, 1000, 2) == "due: 10 objects with 90% of the bytes, and fuse.share is 50%"
    assert fuse.blown_of_topic(10, 900, None, 2) is None
    assert Fuse.model_validate({"share": "100%"}).blown_of_topic(10, 2000, 1000, 2) is None


@pytest.mark.parametrize(
    ("rules", "topics", "problems"),
    [
        (
            (".*", "pay.*"),
            ("pay.a", "pay.b", "x"),
            ["rules.1: pay.*: all of its topics (2) match rules.0 first; move the narrower rule up"],
        ),
        (
            (".*", "pay.*"),
            ("pay.a",),
            ["rules.1: pay.*: all of its topics (1) match rules.0 first; move the narrower rule up"],
        ),
        (
            ("a.*", "b.*", "[ab]x.*"),
            ("ax", "bx"),
            ["rules.2: [ab]x.*: all of its topics (2) match rules.0 and rules.1"],
        ),
        (("pay.*", "[o-p].*"), ("pay.a", "orders"), []),
        (("pay.a", "pay.*", ".*"), ("pay.a",), []),
        (("pay.a|orders", "pay.*"), ("pay.a",), []),
        ((".*", "pay.*"), ("x",), []),
    ],
)
def test_a_rule_below_a_wider_one_is_useless(rules: Sequence[str], topics: Sequence[str], problems: list[str]) -> None:
    """Only if no topic of the archive reaches it; narrow rules above wide ones are right, whatever the archive has."""
    found = parse_policy({"cluster": "prod", "rules": [{"topics": each, "keep": True} for each in rules]}, "policy")
    useless = useless_rules(found, topics)
    assert len(useless) == len(problems)
    assert all(each.startswith(problem) for each, problem in zip(useless, problems, strict=True))
    if problems:
        with pytest.raises(ConfigurationError, match="move the narrower rule up"):
            check_policy(found, "prod", topics)
    else:
        check_policy(found, "prod", topics)


def test_a_text_of_a_rule_is_useless_although_another_one_is_not() -> None:
    """A keep rule would else keep some of its topics only; a wide text of an earlier rule counts for its own topics."""
    found = policy("rules: [{topics: 'pay.*', max_age: 30d}, {topics: [orders, 'payments.*'], keep: true}]")
    (problem,) = useless_rules(found, ["orders", "payments.eu"])
    assert problem.startswith("rules.1: payments.*: all of its topics (1) match rules.0 first")
    found = policy("rules: [{topics: [pay.a, 'clicks.*'], max_age: 30d}, {topics: 'pay.*', keep: true}]")
    assert not useless_rules(found, ["pay.a", "clicks.x"])


def test_a_policy_of_another_cluster_is_refused() -> None:
    """With both names."""
    found = policy("{cluster: staging, rules: []}")
    with pytest.raises(ConfigurationError, match=r"for cluster staging, and the archive is of cluster prod"):
        check_policy(found, "prod", [])
    check_policy(found, "staging", [])


def test_rules_and_holds_that_match_no_topic_are_findings() -> None:
    """A name, a glob, and a hold that has not expired; another text of the same rule does not hide them."""
    found = policy("rules: [{topics: [payment, orders], keep: true}, {topics: ['pay*', 'o.*'], max_age: 1d}]")
    holds = [
        Hold(name="case-1", topics=("pay*",), reason="audit"),
        Hold(name="case-2", topics=("payments",), reason="audit"),
        Hold(name="case-3", topics=("payment",), reason="audit", until=1),
        Hold(name="case-4", prefix="payments", reason="audit"),
    ]
    name, pattern, hold = findings_of(found, {"payments", "orders"}, [*holds, holds[0]])
    assert name == "rules.0: payment: no topic of the archive has this name; did you mean payments?"
    assert pattern.startswith("rules.1: pay*: no topic of the archive matches this regular expression")
    assert hold.startswith("hold case-1: it matches no topic of the archive")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"}, Rule(5, None, 7 * DAY)),
        ({"cleanup.policy": "compact, delete", "retention.ms": "-1", "retention.bytes": "9"}, Rule(None, 9, 7 * DAY)),
        ({"cleanup.policy": "compact", "retention.ms": "5", "retention.bytes": "9"}, Rule(None, None, 7 * DAY)),
        ({"cleanup.policy": "", "retention.ms": "5"}, Rule(None, None, 7 * DAY)),
        (None, Rule(None, None, 7 * DAY)),
    ],
)
def test_as_in_kafka_is_what_the_cluster_keeps(settings: dict[str, str] | None, expected: Rule) -> None:
    """A topic that is only compacted has no retention, and one that the cluster lacks keeps everything."""
    compacts = settings is not None and "compact" in settings["cleanup.policy"]
    (rule,) = policy("rules: [{topics: a, as_in_kafka: true}]").rules
    kept = None if settings is None else TopicKeeping.of(settings)
    assert rule.resolve(kept) == expected
    assert (kept is not None and kept.compacts) is compacts
    assert policy("rules: [{topics: a, as_in_kafka: true}]").needs_kafka
    assert not policy("rules: [{topics: a, max_age: 1d}]").needs_kafka


def test_the_page_lists_every_key_with_its_description() -> None:
    """And no other; its file is a policy."""
    section = PAGE.read_text().partition("\n## The policy file")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    models: tuple[type[BaseModel], ...] = (Policy, TopicRule, ReadBy, Fuse, OwnObjects, EndedTopics, SnapshotKeeping)
    assert rows == [(name, field.description) for model in models for name, field in model.model_fields.items()]
    (file,) = blocks(PAGE, "The policy file", language="yaml")
    assert len(policy(file.text).rules) == 3
