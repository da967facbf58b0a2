"""Lifecycle rules of a bucket that would harm an archive, and what to do about each. Pure.

A bucket removes or moves objects by its own rules, without a trace in the archive: readers then meet a hole, or an
object that must be restored before it can be read. Retention is the collector's: it moves `log.start` first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import INDEX_BYTES
from ts_common.store.lifecycle import LifecycleRule
from ts_common.wording import counted

# Damage that a weekly check finds can be repaired from an earlier version within another week.
LEAST_VERSIONS_DAYS: Final = 14
# No other object of an archive is larger, so a rule for larger ones moves segments alone: a choice, and no harm.
_LARGEST_OTHER: Final = INDEX_BYTES
_FROZEN: Final = "readers cannot read segments there before an operator thaws them"


@dataclass(frozen=True, slots=True)
class Harm:
    """One effect of one rule.

    Attributes:
        found: what the rule does, with its id and prefix.
        is_error: whether data is lost or the archive stops, and not only reads or repairs are hindered.
    """

    rule: str
    found: str
    remedy: str
    is_error: bool


def harmful(
    rules: Iterable[LifecycleRule], keys: ClusterKeys, tags: frozenset[tuple[str, str]] = frozenset()
) -> tuple[Harm, ...]:
    """Return the harm that rules do to a cluster's objects, in the order of the rules."""
    return tuple(harm for rule in rules for harm in _harm_of(rule, keys, tags))


def versions_of_packs_days(
    rules: Iterable[LifecycleRule], keys: ClusterKeys, tags: frozenset[tuple[str, str]] = frozenset()
) -> int | None:
    """Return after how many days rules remove earlier versions of all packs of the live tail; None if none does."""
    days = (
        rule.versions_days
        for rule in rules
        if rule.tags <= tags and rule.above < 0 and (rule.base + keys.tails).startswith(rule.prefix)
    )
    return min((each for each in days if each is not None), default=None)


def _harm_of_tail(rule: LifecycleRule, named: str, tags: frozenset[tuple[str, str]]) -> Iterable[Harm]:
    """Return the harm of a rule for packs alone. Agents delete those that are not needed, so no version is."""
    if not rule.tags <= tags:
        return
    if rule.expires is not None:
        remedy = "remove the rule: after the loss of a whole cluster, packs are the only copy of records"
        yield Harm(rule.name, f"{named} removes packs of the live tail {rule.expires}", remedy, is_error=True)
    if rule.archives is not None:
        what = f"{named} moves packs of the live tail {rule.archives}"
        yield Harm(rule.name, what, "remove the transition: readers cannot read packs there", is_error=True)


def _harm_of(rule: LifecycleRule, keys: ClusterKeys, tags: frozenset[tuple[str, str]]) -> Iterable[Harm]:
    named = f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r})"
    if rule.prefix.startswith(rule.base + keys.tails):
        yield from _harm_of_tail(rule, named, tags)
        return
    topics = rule.applies_to(keys.cluster, keys.entropy_bits, tags)
    cluster = rule.applies_below(keys.cluster_prefix, tags)
    if not (topics or cluster):
        return
    objects = "objects of the cluster" if topics else f"objects below {keys.cluster_prefix}"
    if rule.expires is not None:
        holes = "it also removes offset.wm and segments between others, and tsctl gc applies retention"
        state = "it removes the layout, holds, and what tsctl gc wrote: copies of log.start, and reports"
        remedy = f"remove the rule or narrow its filter: {holes if topics else state}"
        yield Harm(rule.name, f"{named} removes {objects} {rule.expires}", remedy, is_error=True)
    if rule.archives is not None and rule.above < _LARGEST_OTHER:
        remedy = (
            f"{_FROZEN}; without a filter ObjectSizeGreaterThan of {_LARGEST_OTHER} the rule can also move offset.wm, "
            "log.start and gaps, and then neither readers nor the agent continue: docs/cold-storage.md"
        )
        yield Harm(rule.name, f"{named} moves {objects} {rule.archives}", remedy, is_error=False)
    if rule.versions_days is not None and rule.versions_days < LEAST_VERSIONS_DAYS:
        days = counted(rule.versions_days, "day")
        remedy = (
            f"keep them for at least {LEAST_VERSIONS_DAYS} days (30 in deploy/bucket/lifecycle.json): a damaged or "
            "deleted object is repaired from its earlier version"
        )
        yield Harm(rule.name, f"{named} removes earlier versions of {objects} after {days}", remedy, is_error=False)
