"""The checks before a run of `tsctl gc`: rights, conditional deletes, protection, lifecycle rules, clocks.

    list, and get the layout
    put a probe twice; delete it on the first ETag: the store must keep it
    delete it on the second ETag: the store must remove it
    delete and put objects that do not exist, on an ETag, under the names that a run uses: the store rejects the
    condition if the identity has the right, and denies access if not; nothing is written
    the same under names that a run never uses: commits, and segments for puts
    in a store without policies, as a directory: put a probe below gc/ and delete it
    read versions, object lock and lifecycle rules of the bucket

The probe is an object of its own for each check, next to the agents' probe: no reader reads it, and the lifecycle rule
`probes` of deploy/bucket removes one that is left behind. The objects that do not exist are those of a partition that
no topic can have. A rejected condition proves the right, because a store checks rights first.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from ts_common.archive.layout import read_layout
from ts_common.archive.lifecycle_harm import harmful
from ts_common.archive.object_keys import (
    FORMER_CACHE_DIRECTORY,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    PROBE_NAME,
    ClusterKeys,
    PartitionKeys,
    SegmentName,
)
from ts_common.errors import (
    AccessDenied,
    CorruptData,
    NewerFormat,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    StoreUnavailable,
)
from ts_common.model import TopicPartition
from ts_common.store.clock import REPORTED_SKEW_SECONDS, skew_between
from ts_common.store.contract import Condition, DeleteOutcome, IfMatch, ObjectInfo, ObjectStore
from ts_common.store.factory import Scheme
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.retry import PROBE_ATTEMPTS, PROBE_POLICY
from ts_common.wording import counted

PROBE_PREFIX: Final = f"{PROBE_NAME}-gc-"
_PROBE: Final = b"Written by tsctl gc check, to see what this store does. No reader looks at it.\n"
_OF_NO_OBJECT: Final = '"00000000000000000000000000000000"'
# Stores that decide by a policy who may do what, and answer a condition of a missing object without a write.
_WITH_POLICIES: Final = tuple(f"{scheme}://" for scheme in (Scheme.S3, Scheme.GCS, Scheme.AZURE))
# No topic has such a name: the first is like a later incarnation's directory, the second like a first one's.
_LATER, _FIRST = "ts-uploader~probe", "ts-uploader!probe"
_OWN_IDENTITY: Final = "give tsctl gc an identity of its own (deploy/iam/collector.json)"

_Rules = tuple[LifecycleRule, ...] | AccessDenied | None  # denied, or not supported by the store


class Verdict(StrEnum):
    """The result of a check: whether a run may begin."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        verdict: a run must not begin after an error.
        name: of the check; several results can have one name.
        text: what was found and, unless it is fine, what to do.
    """

    verdict: Verdict
    name: str
    text: str


_ok, _warning, _error = (partial(Check, verdict) for verdict in Verdict)


def run_checks(store: ObjectStore, keys: ClusterKeys, tags: frozenset[tuple[str, str]] = frozenset()) -> list[Check]:
    """Return the results of all checks.

    Args:
        tags: of the cluster's objects, for the filters of lifecycle rules.

    Raises:
        StoreUnavailable: the store does not respond at this moment.
        BucketMissing: the bucket or directory does not exist.
    """
    found = list(_reads(store, keys))
    if all(each.verdict is Verdict.OK for each in found):
        found += _writes(store, keys)
    rules: _Rules
    try:
        rules = store.lifecycle_rules()
    except AccessDenied as denied:
        rules = denied
    return [*found, *_protection(store, rules, keys, tags), *_lifecycle(rules, keys, tags)]


def _reads(store: ObjectStore, keys: ClusterKeys) -> Iterator[Check]:
    try:
        store.check()
        next(store.list(keys.cluster_prefix), None)
        with suppress(CorruptData, NewerFormat):
            read_layout(store, keys)
    except AccessDenied as denied:
        yield _error("rights", f"this identity may not read the archive: {denied}")
        return
    yield _ok("rights", "this identity may list and read")


def _writes(store: ObjectStore, keys: ClusterKeys) -> Iterator[Check]:
    """Check the clock, conditional deletes, and the rights to delete and to put."""
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    before = time.time()
    try:
        first = _put(store, key, b"1")
        after = time.time()
        second = _put(store, key, b"2")
    except AccessDenied as denied:
        yield _warning("clock", "not compared: the probe was not written")
        yield _warning("conditional delete", f"not tried: this identity may not put {PROBE_PREFIX}...")
        yield _error("rights", f"this identity may not write; a run puts log.start, its copy and a report: {denied}")
        return
    yield _clock(skew_between(before, first.modified, after))
    outcome = store.delete_matching({key: first.etag})
    _denied(outcome)
    if outcome.removed:
        yield _error(
            "conditional delete",
            f"{store.location} removed an object that has another ETag than the delete named: a run would delete "
            "objects that were written since its listing; delete nothing there",
        )
    if (error := _denied(store.delete_matching({key: second.etag}))) is not None:
        yield _warning("conditional delete", f"not tried: this identity may not delete {key}, which stays: {error}")
    elif outcome.kept:
        yield _condition(store)
        yield from _rights(store, keys)


def _put(store: ObjectStore, key: str, content: bytes, condition: Condition = None) -> ObjectInfo:
    try:
        return PROBE_POLICY(lambda: store.put(key, content + _PROBE, condition=condition))
    except OutcomeUnknown as error:
        raise StoreUnavailable(f"{store.location}/{key}: no response to a put, {PROBE_ATTEMPTS} times") from error


def _denied(outcome: DeleteOutcome) -> AccessDenied | None:
    """Return why this identity may not delete a key.

    Raises:
        StoreUnavailable: another failure.
    """
    for error in outcome.failed.values():
        if not isinstance(error, AccessDenied):
            raise error
        return error
    return None


def _clock(skew: float) -> Check:
    if abs(skew) < REPORTED_SKEW_SECONDS:
        return _ok("clock", "the store's clock and this host's agree")
    side = "ahead of" if skew > 0 else "behind"
    text = f"this host's clock is {abs(skew):.0f} s {side} the store's, whose time decides what is due"
    return _warning("clock", f"{text}: set the clock (NTP)")


def _condition(store: ObjectStore) -> Check:
    if store.enforces_deletes():
        return _ok("conditional delete", "the store keeps an object that has another ETag than the delete named")
    text = (
        f"{store.location} does not compare ETags itself: a HEAD precedes each delete. An object that is overwritten "
        "between the two requests is lost; agents overwrite no segment, but use a store that compares if you can"
    )
    return _warning("conditional delete", text)


def _rights(store: ObjectStore, keys: ClusterKeys) -> Iterator[Check]:
    """Check the rights to delete and to put by objects that do not exist; in a store without policies by a probe."""
    if not store.location.startswith(_WITH_POLICIES):
        if any(True for _ in store.list(keys.cluster_prefix)):  # the probe makes directories
            yield _own_objects(store, keys)
        return
    if not store.enforces_deletes():
        yield _warning("rights", "to delete and to put were not tried: without conditions the requests would write")
        return
    later, first = (keys.partition(TopicPartition(name, 0)) for name in (_LATER, _FIRST))
    own = [keys.log_start_copy(later), f"{keys.gc}{_LATER}"]
    deletes = [*_removed_by_runs(later), *own, f"{keys.repairs}{_LATER}", f"{keys.meta}{_LATER}", _LATER]
    puts = [later.log_start, *own]
    denied = [f"delete {key}: {error}" for key in deletes if (error := _denied_delete(store, key))]
    denied += [f"put {key}: {error}" for key in puts if (error := _denied_put(store, key))]
    yield from (_error("rights", f"this identity may not {each}") for each in denied)
    if not denied:
        yield _ok("rights", "this identity may delete what retention removes, and put log.start, its copy and reports")
    if more := [*_needless(store, later, first)]:
        text = f"this identity may also {', '.join(more)}; a run for retention needs none of that: {_OWN_IDENTITY}"
        yield _warning("rights", text)


def _needless(store: ObjectStore, later: PartitionKeys, first: PartitionKeys) -> Iterator[str]:
    """Yield what this identity may do, and retention does not."""
    marks = [
        ("offset.wm of first incarnations", first.commit),
        ("offset.wm of later incarnations", later.commit),
    ]
    for name, key in (*marks, ("log.start", first.log_start)):
        if not _denied_delete(store, key):
            yield f"delete {name}"
    for name, key in (*marks, ("segments", later.segment(SegmentName(0)))):
        if not _denied_put(store, key):
            yield f"put {name}"


def _own_objects(store: ObjectStore, keys: ClusterKeys) -> Check:
    key = f"{keys.gc}{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        error = _denied(store.delete_matching({key: _put(store, key, b"").etag}))
    except AccessDenied as denied:
        error = denied
    if error is not None:
        text = f"this identity may not put and delete below {keys.gc}, where runs write copies and reports: {error}"
        return _error("rights", text)
    text = f"this identity may put and delete below {keys.gc}; below the directories of partitions that was not tried"
    return _ok("rights", text)


def _removed_by_runs(keys: PartitionKeys) -> Iterator[str]:
    """Yield a key of each kind that retention removes."""
    yield from (keys.segment(SegmentName(0), suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES))
    yield keys.gap(0, 1)
    yield keys.cache_object(0)
    yield f"{keys.prefix}{FORMER_CACHE_DIRECTORY}{0:020d}.json"


def _denied_delete(store: ObjectStore, key: str) -> AccessDenied | None:
    """Return why this identity may not delete a key without an object."""
    return _denied(store.delete_matching({key: _OF_NO_OBJECT}))


def _denied_put(store: ObjectStore, key: str) -> AccessDenied | None:
    """Return why this identity may not put a key without an object; the condition does not hold."""
    try:
        _put(store, key, b"", IfMatch(_OF_NO_OBJECT))
    except AccessDenied as denied:
        return denied
    except (PreconditionFailed, ObjectNotFound):
        return None
    raise StoreUnavailable(
        f"{store.location}/{key}: the store accepted a put whose condition does not hold; remove the object"
    )


def _protection(
    store: ObjectStore, rules: _Rules, keys: ClusterKeys, tags: frozenset[tuple[str, str]]
) -> Iterator[Check]:
    try:
        found = store.protection()
    except AccessDenied as denied:
        text = "versions and object lock are unknown; a delete would hide a locked object as if it removed it"
        yield _error("protection", f"{text}: {denied}")
        return
    if found.locks:
        default = f"; new objects are retained for {found.default_retention}" if found.default_retention else ""
        text = f"the bucket has object lock{default}: a run reads the lock of each object, and keeps locked ones"
        yield _ok("protection", text)
    if found.versioned:
        is_ours = partial(LifecycleRule.applies_to, cluster=keys.cluster, bits=keys.entropy_bits, tags=tags)
        yield _versions([each for each in rules if is_ours(each)] if isinstance(rules, tuple) else None)
    if not (found.locks or found.versioned):
        yield _ok("protection", "the store reports neither versions nor object lock: a delete removes the bytes")


def _versions(rules: Sequence[LifecycleRule] | None) -> Check:
    kept = "the bucket keeps versions: the bytes of a deleted object stay"
    if rules is None:
        return _warning("protection", f"{kept} until the lifecycle rules expire them, which could not be read")
    days = [rule.versions_days for rule in rules if rule.versions_days is not None]
    if not days:
        return _warning("protection", f"{kept} for ever: add a lifecycle rule (deploy/bucket/lifecycle.json)")
    return _ok("protection", f"{kept} for {counted(min(days), 'day')}, by a lifecycle rule")


def _lifecycle(rules: _Rules, keys: ClusterKeys, tags: frozenset[tuple[str, str]]) -> Iterator[Check]:
    if isinstance(rules, AccessDenied):
        yield _warning("lifecycle", f"the rules were not read, and can remove objects of the archive: {rules}")
        return
    harms = harmful(rules or (), keys, tags)
    for each in harms:
        yield (_error if each.is_error else _warning)("lifecycle", f"{each.found}; {each.remedy}")
    if not harms:
        yield _ok("lifecycle", "no lifecycle rule harms objects of the cluster")
