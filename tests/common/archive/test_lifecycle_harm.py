"""Lifecycle rules that would harm an archive: which rule, which objects, and what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from ts_common.archive.lifecycle_harm import harmful, versions_of_packs_days
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import INDEX_BYTES
from ts_common.store.lifecycle import parse_rules

KEYS = ClusterKeys("prod", 3)
DEPLOY = Path(__file__).parents[3] / "deploy"
EXPIRES = {"Expiration": {"Days": 30}}
GLACIER = {"Transitions": [{"Days": 90, "StorageClass": "GLACIER"}]}
EARLY = {"NoncurrentVersionExpiration": {"NoncurrentDays": 3}}


def found(*rules: dict[str, Any], tags: frozenset[tuple[str, str]] = frozenset()) -> list[tuple[str, bool, str, str]]:
    """Return rule, severity, effect and remedy of each harm that rules in S3's form do."""
    given = [{"Status": "Enabled", "Filter": {"Prefix": "base/"}, **rule} for rule in rules]
    harms = harmful(parse_rules({"Rules": given}, "base/"), KEYS, tags)
    return [(each.rule, each.is_error, each.found, each.remedy) for each in harms]


@pytest.mark.parametrize(
    ("rule", "is_error", "effect", "remedy"),
    [
        (EXPIRES, True, "removes objects of the cluster after 30 days", "it also removes offset.wm"),
        (
            {**EXPIRES, "Filter": {"Prefix": "base/ts-uploader~cluster~prod/gc/"}},
            True,
            "removes objects below ts-uploader~cluster~prod/ after 30 days",
            "it removes the layout, holds, and what tsctl gc wrote",
        ),
        (GLACIER, False, "moves objects of the cluster to GLACIER after 90 days", "can also move offset.wm"),
        (EARLY, False, "removes earlier versions of objects of the cluster after 3 days", "keep them for at least 14"),
    ],
)
def test_a_harmful_rule_is_named_with_its_effect_and_remedy(
    rule: dict[str, Any], effect: str, remedy: str, *, is_error: bool
) -> None:
    """Holes without a trace, a lost copy, a commit in Glacier, no version left to repair from."""
    ((name, error, what, way),) = found({"ID": "the-rule", **rule})
    assert (name, error) == ("the-rule", is_error)
    assert "lifecycle rule 'the-rule' (prefix 'base/" in what
    assert effect in what
    assert remedy in way


def test_segments_alone_in_an_archive_class_are_a_choice() -> None:
    """No other object is as large as this bound, so the commit and log.start stay readable."""
    for bound, count in ((INDEX_BYTES, 0), (INDEX_BYTES - 1, 1)):
        prefixed = {"And": {"Prefix": "base/101/prod/t-0/", "ObjectSizeGreaterThan": bound}}
        assert len(found({**GLACIER, "Filter": prefixed})) == count


@pytest.mark.parametrize(
    "rule",
    [
        {**EXPIRES, "Status": "Disabled"},
        {**EXPIRES, "Filter": {"Prefix": "base/ts-uploader~probe"}},
        {**EXPIRES, "Filter": {"Prefix": "base/ts-uploader~cluster~production/"}},
        {**EXPIRES, "Filter": {"Prefix": "other/"}},
        {**EXPIRES, "Filter": {"Tag": {"Key": "keep", "Value": "no"}}},
        {"Transitions": [{"Days": 30, "StorageClass": "INTELLIGENT_TIERING"}]},
        {"NoncurrentVersionExpiration": {"NoncurrentDays": 14}},
        {"NoncurrentVersionExpiration": {"NoncurrentDays": 1, "NewerNoncurrentVersions": 1}},
        {
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            "Expiration": {"ExpiredObjectDeleteMarker": True},
        },
    ],
)
def test_a_rule_that_does_no_harm_is_not_named(rule: dict[str, Any]) -> None:
    """Other objects, classes that are read at once, versions that stay long enough, or whose newest one stays."""
    assert found(rule) == []


def test_tags_decide_whether_a_rule_applies() -> None:
    """The cluster's objects have the tags of its configuration."""
    rule = {**EXPIRES, "Filter": {"Tag": {"Key": "keep", "Value": "no"}}}
    assert len(found(rule, tags=frozenset({("keep", "no"), ("team", "data")}))) == 1


def test_the_rules_of_deploy_do_no_harm() -> None:
    """An operator who follows docs/deploy.md gets no warning."""
    rules = json.loads((DEPLOY / "bucket" / "lifecycle.json").read_text())
    assert harmful(parse_rules(rules, "base/prefix/"), ClusterKeys("prod", 5)) == ()
    assert versions_of_packs_days(parse_rules(rules, "base/prefix/"), ClusterKeys("prod", 5)) == 1


TAIL = {"Filter": {"Prefix": "base/ts-uploader~cluster~prod/tail/"}}


@pytest.mark.parametrize(
    ("rule", "effect", "remedy"),
    [
        (EXPIRES, "removes packs of the live tail after 30 days", "the only copy of records"),
        (GLACIER, "moves packs of the live tail to GLACIER after 90 days", "cannot read packs there"),
    ],
)
def test_a_rule_for_current_packs_is_an_error(rule: dict[str, Any], effect: str, remedy: str) -> None:
    """After the loss of a whole cluster no agent ships these records again."""
    ((_, is_error, what, way),) = found({"ID": "packs", **rule, **TAIL})
    assert is_error
    assert effect in what
    assert remedy in way


def test_versions_of_packs_can_be_short() -> None:
    """No repair uses them, and agents put and delete packs all the time."""
    assert found({"ID": "packs", "NoncurrentVersionExpiration": {"NoncurrentDays": 1}, **TAIL}) == []


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        ([], None),
        ([EARLY], 3),
        ([EARLY, {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}, **TAIL}], 1),
        ([{**EARLY, "Filter": {"Prefix": "base/ts-uploader~cluster~prod/tail/1/"}}], None),  # not of other logs
        ([{**EARLY, "Filter": {"Prefix": "base/101/prod/"}}], None),
        ([{**EARLY, "Filter": {"Tag": {"Key": "a", "Value": "b"}}}], None),
        ([{**EARLY, "Filter": {"And": {"Prefix": "base/", "ObjectSizeGreaterThan": 99}}}], None),
        ([{**EARLY, "Status": "Disabled"}], None),
        ([EXPIRES], None),
    ],
)
def test_the_days_of_versions_of_packs_are_those_of_the_rules_for_all_of_them(
    rules: list[dict[str, Any]], days: int | None
) -> None:
    """S3 applies the shortest."""
    given = [{"Status": "Enabled", "Filter": {"Prefix": "base/"}, **rule} for rule in rules]
    assert versions_of_packs_days(parse_rules({"Rules": given}, "base/"), KEYS) == days
