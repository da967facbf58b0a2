"""The file of a policy: what it means, and what it refuses."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from tests.docs.commands import CHECKOUT, blocks
from ts_common.errors import ConfigurationError
from tsctl.gc.due import Rule
from tsctl.gc.policy import (
    DeletedTopics,
    Fuse,
    OwnObjects,
    Policy,
    ReadBy,
    TopicKeeping,
    TopicRule,
    parse_policy,
    read_policy,
)

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
  - {topics: c, max_age: 1d, longest_wait: 1d}
  - {topics: d, max_age: 1d, until_read_by: [{table: t, group: g}, {}, {checkpoint: lake/cp}, {tabel: t}]}
  - {topics: [], max_age: 1d}
  - {topics: ['e('], max_age: 30m}
  - {topics: f, maxage: 1d, max_size: 1}
  - {topics: g, max_age: 1d, until_read_by: [{table: t}, {table: t}]}
own: {plans: 1d, plan: 7d}
deleted_topics: {}
rule: []
"""


def policy(text: str) -> Policy:
    return parse_policy(YAML(typ="safe").load(text), "retention.yaml")


def test_the_example_is_a_policy_with_every_key_of_the_top() -> None:
    """Also once its comments are removed; the numbers are bytes and milliseconds."""
    found = read_policy(EXAMPLE)
    assert (found.grace, found.least_time) == (20 * HOUR, 7 * DAY)
    assert (found.fuse.objects, found.fuse.bytes, found.fuse.share) == (100_000, 10 << 40, 0.5)
    payments, orders = found.rules
    assert (payments.keep, payments.resolve(None)) == (True, Rule(None, None, 7 * DAY))
    assert orders.resolve(None) == Rule(400 * DAY, 2 << 40, 7 * DAY)
    assert not orders.until_read_by  # an archive that lacks one of its readers would end each run
    assert found.deleted_topics is None
    text = re.sub(r"^( *)#(?! [A-Z])", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)  # comments begin with a capital
    assert {*YAML(typ="safe").load(text)} == {*Policy.model_fields}
    everything = policy(text)
    assert everything.rules[2].needs_kafka
    assert [str(each) for each in everything.rules[1].until_read_by] == [
        "table backup.orders",
        "checkpoint s3://lake/checkpoints/orders",
        "group billing",
    ]
    assert everything.deleted_topics is not None
    assert everything.deleted_topics.after == 30 * DAY


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
        "rules.3: longest_wait: until_read_by is missing",
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
        "own.plans: 7d or more is expected",
        "own.plan: this name is unknown; did you mean plans?",
        "deleted_topics.after: it is missing",
        "rule: this name is unknown; did you mean rules?",
    ):
        assert part in str(found.value), str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rules: [{topics: 'a(', max_age: 5d}]",
            "rules.0.topics.0: topic 'a(' is not a regular expression: missing ),",
        ),
        ("grace: 2h\nrules: []\ngrace: 3h", "it is no YAML: grace is given twice (lines 1 and 3)"),
        ("rules:\n- topics: a\n  keep: true\n- topics: b\n  topics: c", "topics is given twice (lines 4 and 5)"),
        ("fuse: &a [*a, {[1]: 2, a: 1, a: 2}]", "a is given twice (lines 1 and 1)"),
        ("{1: 2, 0x1: 3}", "a key is given twice, in line 1"),
        ("rules: [{topics: a, as_in_kafka: maybe}]", "rules.0.as_in_kafka: 'maybe' is neither true nor false"),
        ("rules: [{topics: a, keep: [1]}]", "rules.0.keep: [1] is neither true nor false"),
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
        ("{rules: [], grace: 8d, own: {plans: 8d}}", r"own\.plans: more than grace is expected"),
        ("{rules: [], grace: 8d, deleted_topics: {after: 7d}}", r"deleted_topics\.after: grace or more is expected"),
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
    assert found.own.model_dump() == {
        "plans": 90 * DAY,
        "deletion_log": 400 * DAY,
        "repairs": 90 * DAY,
        "probes": 30 * DAY,
    }


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
    (rule,) = policy("rules: [{topics: a, as_in_kafka: true}]").rules
    assert rule.resolve(None if settings is None else TopicKeeping.of(settings)) == expected
    assert policy("rules: [{topics: a, as_in_kafka: true}]").needs_kafka
    assert not policy("rules: [{topics: a, max_age: 1d}]").needs_kafka


def test_the_digest_changes_with_any_value_and_not_with_the_spelling() -> None:
    """It is in the plan, with the values."""
    first, same = (
        policy("rules: [{topics: a, max_age: 1d}]"),
        policy("{grace: 1200m, rules: [{topics: [a], max_age: 24h}]}"),
    )
    assert first.digest() == same.digest()
    assert first.as_json() == same.as_json()
    assert first.digest() != policy("rules: [{topics: a, max_age: 25h}]").digest()
    assert first.as_json()["rules"][0]["max_age"] == DAY


def test_the_page_lists_every_key_with_its_description() -> None:
    """And no other; its file is a policy."""
    section = PAGE.read_text().partition("\n## The policy file")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    models: tuple[type[BaseModel], ...] = (Policy, TopicRule, ReadBy, Fuse, OwnObjects, DeletedTopics)
    assert rows == [(name, field.description) for model in models for name, field in model.model_fields.items()]
    (file,) = blocks(PAGE, "The policy file", language="yaml")
    assert len(policy(file.text).rules) == 3
