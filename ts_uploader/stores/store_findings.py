"""Check more of a store than an agent does at its start, for `ts-uploader check`.

`ts_uploader.stores.store_check` precedes it, as at each start. This module then writes one more object and deletes it,
and checks: may this identity delete (the agent does so below `tail/` only), do the clocks agree, does the store contain
the cluster under another entropy width too, and does a lifecycle rule of the bucket remove objects of the archive. With
`object.lock.days` it checks whether the store retains the probe. With a live tail it also checks whether this identity
may delete packs, and whether the bucket keeps their bytes then.
"""

import time
from typing import Final

from ts_common.archive.directories import entropy_widths
from ts_common.archive.layout import read_layout
from ts_common.archive.lifecycle_harm import harmful, versions_of_packs_days
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied, OutcomeUnknown, StoreUnavailable
from ts_common.model import is_generated_cluster_id
from ts_common.store.clock import REPORTED_SKEW_SECONDS, skew_between
from ts_common.store.contract import ByteRange, ObjectStore
from ts_common.store.factory import Scheme
from ts_common.store.options import Endpoint, LockMode, option_key
from ts_common.store.retry import PROBE_ATTEMPTS, PROBE_POLICY
from ts_common.wording import counted
from ts_uploader.findings import Finding, error, hint, ok, warning
from ts_uploader.stores.layout_check import FRIENDLIER_ID
from ts_uploader.stores.store_check import PROBE

DELETED_PROBE_NAME = f"{PROBE_NAME}-deleted"  # no agent reads it, so a check does not affect an agent that starts
_MOST_VERSIONS_DAYS: Final = 7  # of deleted packs: some multiple of what the live tail keeps
_EXPERIMENTAL = (f"{Scheme.WEBHDFS}://", f"{Scheme.SWEBHDFS}://")


def deep_check(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint, *, has_tail: bool = False) -> list[Finding]:
    """Return the findings on a store without `problems_of`.

    Args:
        store: opened with the endpoint's options.
        has_tail: the live tail is switched on.

    Raises:
        StoreUnavailable: it does not respond at this moment.
        OperatorError: it rejects a get or a listing, which an agent requires.
    """
    findings = []
    found = store.get(PROBE_NAME, ByteRange(0, len(PROBE) + 1))[0]
    if found != PROBE:
        what = f"{PROBE_NAME} was written, but a read returned {counted(len(found), 'other byte')}"
        findings.append(error(endpoint.location, what, "report it to the store's operator, and ship nothing there"))
    next(store.list(PROBE_NAME), None)
    findings.append(ok(endpoint.location, "conditional put, get and list work"))
    if endpoint.location.startswith(_EXPERIMENTAL):
        what = "WebHDFS is experimental: without Kerberos, and with one NameNode; nothing is shipped while it is down"
        findings.append(hint(endpoint.location, what, "use S3, Google, Azure or a directory for production"))
    findings += _put_and_delete(store, endpoint)
    findings += _widths(store, keys, endpoint)
    findings += _name(store, keys, endpoint)
    if endpoint.options.storing.object_lock_days is not None:
        findings += _object_lock(store, endpoint)
    if has_tail:
        findings += _packs(store, keys, endpoint)
        findings += _kept_packs(store, keys, endpoint)
    findings += _lifecycle(store, keys, endpoint)
    return findings


def _put_and_delete(store: ObjectStore, endpoint: Endpoint) -> list[Finding]:
    """Check the store's clock and whether this identity may delete, with an object that no agent reads."""
    try:
        before, stored_at = PROBE_POLICY(lambda: (time.time(), store.put(DELETED_PROBE_NAME, PROBE).modified))
    except OutcomeUnknown as error:
        raise StoreUnavailable(
            f"{endpoint.location}/{DELETED_PROBE_NAME}: no response to a put, {PROBE_ATTEMPTS} times"
        ) from error
    findings = [_clock(before, stored_at, time.time(), endpoint)]
    try:
        store.delete([DELETED_PROBE_NAME])
    except AccessDenied:
        what = f"this identity may not delete segments, which no agent does; {DELETED_PROBE_NAME} stays in the store"
        return [*findings, ok(endpoint.location, what)]
    what = "this identity may delete segments, which no agent does"
    way = "use an identity without that permission: it cannot delete the archive"
    if endpoint.location.startswith(f"{Scheme.FILE}:"):
        what = "this user may delete, as each user that may write in a directory"
        way = "protect the archive by snapshots, or by a copy where this user may not write"
    return [*findings, hint(endpoint.location, what, way)]


def _object_lock(store: ObjectStore, endpoint: Endpoint) -> list[Finding]:
    """Check that the store retains archived objects, by the probe, which is stored like one, and nothing else."""
    findings = []
    if endpoint.options.storing.object_lock_mode is LockMode.COMPLIANCE:
        what = (
            f"{option_key('object_lock_mode')}=COMPLIANCE: no identity can delete a segment before its date, not even "
            "where a law orders it (GDPR, Article 17)"
        )
        findings.append(warning(endpoint.location, what, "use GOVERNANCE, unless another law demands COMPLIANCE"))
    try:
        found = store.protection()
        lock = store.locked_until(PROBE_NAME) if found.locks else None
    except AccessDenied as denied:
        what = f"this identity may not read whether the store retains archived objects: {denied}"
        return [*findings, hint(endpoint.location, what, "check it yourself, or allow this check to")]
    if lock is None or lock.until is None:
        what = f"the store accepts {option_key('object_lock_days')}, but shows no lock of {PROBE_NAME}"
        return [*findings, error(endpoint.location, what, "enable Object Lock on the bucket, or drop the option")]
    if found.default_retention is not None:
        what = f"the bucket itself retains every new object for {found.default_retention}, each former commit too"
        way = f"remove its default retention: {option_key('object_lock_days')} locks archived objects alone"
        findings.append(warning(endpoint.location, what, way))
    return [*findings, ok(endpoint.location, f"archived objects are locked; the probe is {lock.reason}")]


def _packs(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Check whether this identity may put and delete packs, by an object outside of all logs."""
    key = keys.tails + DELETED_PROBE_NAME
    way = f"allow it s3:PutObject and s3:DeleteObject below {keys.tails} (deploy/iam/uploader.json)"
    try:
        etag = PROBE_POLICY(lambda: store.put(key, PROBE).etag)
    except OutcomeUnknown as failure:
        raise StoreUnavailable(f"{endpoint.location}/{key}: no response to a put, {PROBE_ATTEMPTS} times") from failure
    except AccessDenied as denied:
        return [error(endpoint.location, f"this identity may not put packs of the live tail: {denied}", way)]
    for reason in store.delete_matching({key: etag}).failed.values():
        if not isinstance(reason, AccessDenied):
            raise reason
        what = f"this identity may not delete packs of the live tail, so all of them stay: {reason}"
        return [error(endpoint.location, what, way)]
    return [ok(endpoint.location, f"this identity may put and delete below {keys.tails}")]


def _kept_packs(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Report what keeps the bytes of deleted packs; merges put each record several times."""
    try:
        kept = store.protection()
        if kept.default_retention is not None:
            what = f"Object Lock retains each pack of the live tail for {kept.default_retention}, deleted ones too"
            way = (
                "ship to a bucket without a default retention, remove it and lock single objects (docs/retention.md, "
                "Object Lock), or exclude the topics of this bucket by ts.segment.uploader.tail.topics.exclude"
            )
            return [error(endpoint.location, what, way)]
        rules = store.lifecycle_rules() if kept.versioned else None
    except AccessDenied as denied:
        what = (
            "this identity may not read whether the bucket keeps versions, or locks, of deleted packs of the live tail"
        )
        return [hint(endpoint.location, what, f"check it yourself, or allow this check to: {denied}")]
    if not kept.versioned:
        return []
    days = versions_of_packs_days(rules or (), keys, frozenset(endpoint.options.storing.tags))
    if days is not None and days <= _MOST_VERSIONS_DAYS:
        return [ok(endpoint.location, f"versions of deleted packs are removed after {counted(days, 'day')}")]
    until = "for ever" if days is None else f"for {counted(days, 'day')}"
    way = (
        f"add a lifecycle rule that removes noncurrent versions after a day, for {keys.tails} below the base prefix "
        "(deploy/bucket/lifecycle.json)"
    )
    return [warning(endpoint.location, f"the bucket keeps versions of deleted packs of the live tail {until}", way)]


def _clock(before: float, stored_at: float, after: float, endpoint: Endpoint) -> Finding:
    """Compare this host's clock before and after a put with the store's, from the response's header Date."""
    skew = skew_between(before, stored_at, after)
    if abs(skew) < REPORTED_SKEW_SECONDS:
        return ok(endpoint.location, "its clock and this host's agree")
    side = "ahead of" if skew > 0 else "behind"
    what = f"this host's clock is {abs(skew):.0f} s {side} the store's"
    return warning(endpoint.location, what, "set this host's clock (NTP): S3 rejects requests from 15 minutes on")


def _widths(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Report other entropy widths that contain the cluster too; `problems_of` reports if only others do."""
    own = max(keys.entropy_bits, 0)
    others = sorted(entropy_widths(store, keys.cluster) - {own})
    if not others:
        return []
    found = ", ".join(str(width) for width in others)
    what = f"cluster {keys.cluster} is stored with {counted(own, 'entropy bit')} and also with {found}"
    way = "readers find only one of them: read the other with its own number of bits, or copy it under this one"
    return [warning(endpoint.location, what, way)]


def _name(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Offer a friendlier cluster id than the one that Kafka generated, before the first object."""
    if not is_generated_cluster_id(keys.cluster):
        return []
    if read_layout(store, keys) is not None or entropy_widths(store, keys.cluster):
        return []
    what = f"the cluster id {keys.cluster} was generated by Kafka"
    return [hint(endpoint.location, what, FRIENDLIER_ID)]


def _lifecycle(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Report rules of the bucket that would harm the cluster's objects."""
    try:
        rules = store.lifecycle_rules()
    except AccessDenied as denied:
        what = "this identity may not read the lifecycle rules, which may remove objects of the archive"
        return [hint(endpoint.location, what, f"check the rules yourself, or allow this check to: {denied}")]
    if rules is None:
        return []
    harms = harmful(rules, keys, frozenset(endpoint.options.storing.tags))
    findings = [(error if each.is_error else warning)(endpoint.location, each.found, each.remedy) for each in harms]
    return findings or [ok(endpoint.location, "no lifecycle rule harms objects of the cluster")]
