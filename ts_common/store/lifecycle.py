"""Lifecycle rules: a store itself removes objects, or moves them to another storage class. Pure.

The form is that of S3's GetBucketLifecycleConfiguration:
https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html
A rule applies to an object if its whole filter matches: a prefix of the key, tags, bounds of the size. Rules that
remove delete markers or unfinished uploads affect no object and are ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ts_common.wording import counted

# Objects must be restored before they can be read. GLACIER_IR, the IA classes and INTELLIGENT_TIERING need no restore.
ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_EXPIRES = ("Days", "Date")


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """One enabled rule that removes or archives current objects, or removes earlier versions.

    Attributes:
        base: prefix of the store's keys in the bucket, empty or ending with `/`.
        prefix: of the keys in the bucket that the rule applies to.
        tags: an object must have all of them.
        expires: when the rule removes an object: "after 30 days", "on 2030-01-01"; None if it removes none.
        archives: when the rule moves an object to an archive class: "to GLACIER after 90 days"; None if it moves none.
        versions_days: days after which it removes every earlier version; None if it removes none, or keeps newer ones.
        above: the rule applies to objects of more than so many bytes; -1 for objects of any size.
    """

    name: str
    base: str
    prefix: str
    tags: frozenset[tuple[str, str]]
    expires: str | None
    archives: str | None
    versions_days: int | None = None
    above: int = -1

    def applies_below(self, prefix: str, tags: frozenset[tuple[str, str]]) -> bool:
        """Return whether the rule can apply to an object whose key begins with `prefix`, relative to the store."""
        whole = self.base + prefix
        return self.tags <= tags and (whole.startswith(self.prefix) or self.prefix.startswith(whole))

    def applies_to(self, cluster: str, bits: int, tags: frozenset[tuple[str, str]]) -> bool:
        """Return whether the rule can apply to an object of a cluster.

        Args:
            bits: number of entropy bits before it in the key; values below 1 mean no bits.
        """
        if not self.tags <= tags:
            return False
        if self.base.startswith(self.prefix):
            return True
        if not self.prefix.startswith(self.base):
            return False
        rest, entropy = self.prefix.removeprefix(self.base), max(bits, 0)
        if not re.fullmatch(r"[01]*", rest[:entropy]):
            return False
        after = rest[entropy:]
        head = f"/{cluster}/" if entropy else f"{cluster}/"
        return head.startswith(after) or after.startswith(head)


def parse_rules(answer: Mapping[str, Any], base: str) -> tuple[LifecycleRule, ...]:
    """Return the rules in a GetBucketLifecycleConfiguration response that affect objects or their versions."""
    found = []
    for number, rule in enumerate(answer.get("Rules", ()), start=1):
        if rule.get("Status") != "Enabled":
            continue
        expires = _expiration(rule.get("Expiration", {}))
        archives = _archiving(rule.get("Transitions", ()))
        versions = _versions_days(rule.get("NoncurrentVersionExpiration", {}))
        if expires is None and archives is None and versions is None:
            continue
        given = rule.get("Filter", {})
        given = {**given, **given.get("And", {})}
        tags = [*given.get("Tags", ()), *([given["Tag"]] if "Tag" in given else ())]
        prefix = given.get("Prefix") or rule.get("Prefix") or ""  # the second is the older form
        pairs = frozenset((tag["Key"], tag["Value"]) for tag in tags)
        above = given.get("ObjectSizeGreaterThan")
        name = rule.get("ID") or f"number {number}"
        found.append(
            LifecycleRule(name, base, prefix, pairs, expires, archives, versions, -1 if above is None else int(above))
        )
    return tuple(found)


def _expiration(given: Mapping[str, Any]) -> str | None:
    return _when(given) if any(given.get(key) for key in _EXPIRES) else None


def _versions_days(given: Mapping[str, Any]) -> int | None:
    if given.get("NoncurrentDays") is None or given.get("NewerNoncurrentVersions"):
        return None  # with the second, the rule keeps as many earlier versions for ever
    return int(given["NoncurrentDays"])


def _archiving(transitions: Any) -> str | None:
    ways = [
        f"to {given['StorageClass']} {_when(given)}"
        for given in transitions
        if given.get("StorageClass") in ARCHIVE_CLASSES
    ]
    return ", ".join(ways) or None


def _when(given: Mapping[str, Any]) -> str:
    if given.get("Date") is not None:
        date = given["Date"]
        return f"on {date.date().isoformat() if hasattr(date, 'date') else date}"
    days = given.get("Days", 0)
    return f"after {counted(days, 'day')}"
