"""Lifecycle rules: those that remove or archive objects, and the clusters that they apply to."""

from collections.abc import Set
from datetime import UTC, datetime
from typing import Any

import pytest

from ts_common.store.lifecycle import LifecycleRule, parse_rules


@pytest.mark.parametrize(
    ("prefix", "bits", "applies"),
    [
        ("", 3, True),
        ("ba", 3, True),
        ("base/", 3, True),
        ("base/1", 3, True),
        ("base/10", 3, True),
        ("base/101/pro", 3, True),
        ("base/101/prod/t-0/", 3, True),
        ("base/102/prod/", 3, False),
        ("base/1010/", 3, False),
        ("base/prod/", 3, False),
        ("base/prod/", -1, True),
        ("base/production/", -1, False),
        ("base/101/prod/", -1, False),
        ("other/", 3, False),
    ],
)
def test_a_rules_prefix_meets_our_keys_or_not(prefix: str, bits: int, *, applies: bool) -> None:
    """A rule applies if its prefix begins a key, or a key's directory begins it, with entropy bits or without."""
    known = LifecycleRule("r", "base/", prefix, frozenset(), "after 1 day", None)
    assert known.applies_to("prod", bits, frozenset()) is applies


def test_the_older_form_of_a_rule_and_a_date_are_understood() -> None:
    """The prefix may be outside of the filter, where S3 had it before filters."""
    answer = {"Rules": [{"Status": "Enabled", "Prefix": "x/", "Expiration": {"Date": "2030-01-01"}}]}
    (known,) = parse_rules(answer, "")
    assert (known.prefix, known.expires, known.name) == ("x/", "on 2030-01-01", "number 1")


def rules_of(*rules: dict[str, Any]) -> list[LifecycleRule]:
    """Return what is read of a response with enabled rules."""
    return list(parse_rules({"Rules": [{"ID": "r", "Status": "Enabled", **each} for each in rules]}, "base/"))


def test_the_least_size_of_a_rule_is_read_in_both_forms() -> None:
    """By size a rule can leave out all but segments; names have the segments' suffixes at their ends."""
    glacier = {"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}
    known = rules_of(
        {**glacier, "Filter": {"ObjectSizeGreaterThan": 7}},
        {**glacier, "Filter": {"And": {"Prefix": "x/", "ObjectSizeGreaterThan": 9}}},
        glacier,
    )
    assert [rule.above for rule in known] == [7, 9, -1]


@pytest.mark.parametrize(
    ("rule", "expires", "archives"),
    [
        ({"Expiration": {"Days": 30}}, "after 30 days", None),
        ({"Expiration": {"Days": 1}}, "after 1 day", None),
        ({"Expiration": {"Date": datetime(2030, 1, 1, tzinfo=UTC)}}, "on 2030-01-01", None),
        ({"Transitions": [{"Days": 90, "StorageClass": "GLACIER"}]}, None, "to GLACIER after 90 days"),
        ({"Transitions": [{"Days": 0, "StorageClass": "DEEP_ARCHIVE"}]}, None, "to DEEP_ARCHIVE after 0 days"),
        (
            {
                "Expiration": {"Days": 400},
                "Transitions": [
                    {"Days": 9, "StorageClass": "STANDARD_IA"},
                    {"Days": 90, "StorageClass": "GLACIER"},
                    {"Days": 180, "StorageClass": "DEEP_ARCHIVE"},
                ],
            },
            "after 400 days",
            "to GLACIER after 90 days, to DEEP_ARCHIVE after 180 days",
        ),
    ],
)
def test_a_rule_names_when_it_removes_and_archives(
    rule: dict[str, Any], expires: str | None, archives: str | None
) -> None:
    """By days or by date; of several moves, those to classes that need a restore."""
    (known,) = rules_of(rule)
    assert (known.expires, known.archives, known.base) == (expires, archives, "base/")


@pytest.mark.parametrize(
    "rule",
    [
        {"Expiration": {"Days": 1}, "Status": "Disabled"},
        {"Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"NoncurrentVersionExpiration": {"NoncurrentDays": 1, "NewerNoncurrentVersions": 2}},
        {"NoncurrentVersionTransitions": [{"NoncurrentDays": 1, "StorageClass": "GLACIER"}]},
        {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}},
        {"Transitions": [{"Days": 9, "StorageClass": each} for each in ("GLACIER_IR", "INTELLIGENT_TIERING")]},
    ],
)
def test_rules_that_readers_do_not_notice_are_left_out(rule: dict[str, Any]) -> None:
    """They are disabled, concern no current object, or leave it readable."""
    assert rules_of(rule) == []


def test_a_response_without_rules_has_none() -> None:
    """Some servers send an empty configuration."""
    assert parse_rules({}, "") == ()


@pytest.mark.parametrize(
    ("given", "prefix", "tags"),
    [
        ({}, "", set()),
        ({"Prefix": "base/"}, "base/", set()),
        ({"Tag": {"Key": "a", "Value": "1"}}, "", {("a", "1")}),
        (
            {"And": {"Prefix": "base/", "Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]}},
            "base/",
            {("a", "1"), ("b", "")},
        ),
    ],
)
def test_a_filter_is_a_prefix_and_tags(given: dict[str, Any], prefix: str, tags: Set[tuple[str, str]]) -> None:
    """In each of the forms of S3."""
    (known,) = rules_of({"Expiration": {"Days": 1}, "Filter": given})
    assert known.prefix == prefix
    assert known.tags == tags


def test_a_rule_applies_only_to_objects_with_all_its_tags() -> None:
    """More tags of the objects do not matter."""
    known = LifecycleRule("r", "", "", frozenset({("team", "data"), ("keep", "no")}), "after 1 day", None)
    assert known.applies_to("prod", 0, frozenset({("team", "data"), ("keep", "no"), ("more", "x")}))
    assert not known.applies_to("prod", 0, frozenset({("team", "data")}))
    assert not known.applies_to("prod", 0, frozenset({("team", "data"), ("keep", "yes")}))


def test_what_a_rule_does_to_versions_and_to_small_objects_is_read() -> None:
    """Days after which earlier versions end, and the least size of objects that the rule applies to."""
    filtered = {"And": {"Prefix": "base/", "ObjectSizeGreaterThan": 131072}}
    (rule,) = rules_of({"Filter": filtered, "NoncurrentVersionExpiration": {"NoncurrentDays": 30}})
    assert (rule.versions_days, rule.above, rule.expires, rule.archives) == (30, 131072, None, None)
    (rule,) = rules_of({"Expiration": {"Days": 30}})
    assert (rule.versions_days, rule.above) == (None, -1)
    below = [rule.applies_below(prefix, frozenset()) for prefix in ("", "a/")]
    assert below == [True, True]
    (rule,) = rules_of({"Expiration": {"Days": 30}, "Filter": {"Prefix": "base/a/b"}})
    assert [rule.applies_below(prefix, frozenset()) for prefix in ("", "a/", "a/b/c", "b/")] == [
        True,
        True,
        True,
        False,
    ]
