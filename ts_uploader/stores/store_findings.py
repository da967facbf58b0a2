"""What is worth knowing of a store beyond what an agent asks at its start: `ts-uploader check` asks for it.

`ts_uploader.stores.store_check` comes first, as at each start: the conditions, and every option of storing. Then, with
one more object that is deleted again: may this identity delete (it need not), does the clock agree, is the cluster
there under another entropy width too, and would a lifecycle rule of the bucket take what is archived.
"""

import time

from ts_common.archive.directories import entropy_widths
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied, OutcomeUnknown, StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectStore
from ts_common.store.options import Endpoint
from ts_uploader.findings import Finding, error, hint, ok, warning
from ts_uploader.stores.store_check import PROBE

DELETED_PROBE_NAME = f"{PROBE_NAME}-deleted"  # no agent reads it, so that a check disturbs none that starts
_ATTEMPTS = 5
_DATE_SECONDS = 1.0  # what the header's whole seconds may lack
_SKEW_WORTH_SAYING = 30.0


def deep_check(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """What else is worth knowing of a store that has no `problems_of`: asked by `ts-uploader check`, at no start.

    Args:
        store: opened with the endpoint's options.
        keys: of the cluster.
        endpoint: which.

    Raises:
        StoreUnavailable: it does not answer at this moment.
        OperatorError: it refuses what an agent needs: a get, a listing.
    """
    findings = []
    found = store.get(PROBE_NAME, ByteRange(0, len(PROBE) + 1))[0]
    if found != PROBE:
        what = f"{PROBE_NAME} was written, and {len(found)} other bytes are read there"
        findings.append(
            error(endpoint.location, what, "ask whoever runs the store: what is read is not what was written")
        )
    next(store.list(PROBE_NAME), None)
    findings.append(ok(endpoint.location, "conditional put, get and list do as they should"))
    findings += _put_and_delete(store, endpoint)
    findings += _widths(store, keys, endpoint)
    findings += _lifecycle(store, keys, endpoint)
    return findings


def _put_and_delete(store: ObjectStore, endpoint: Endpoint) -> list[Finding]:
    """Whether this identity may delete, and what the store's clock says: on an object that no agent looks at."""
    for _ in range(_ATTEMPTS):
        before = time.time()
        try:
            said = store.put(DELETED_PROBE_NAME, PROBE).modified
            break
        except OutcomeUnknown:
            continue
    else:
        raise StoreUnavailable(f"{endpoint.location}/{DELETED_PROBE_NAME}: no answer to a put, {_ATTEMPTS} times")
    findings = [_clock(before, said, time.time(), endpoint)]
    try:
        store.delete([DELETED_PROBE_NAME])
    except AccessDenied:
        what = f"this identity may not delete, and the agent needs no such right; {DELETED_PROBE_NAME} stays there"
        return [*findings, ok(endpoint.location, what)]
    what = "this identity may delete, which the agent never does"
    way = "an identity without that right cannot lose what is archived"
    return [*findings, hint(endpoint.location, what, way)]


def _clock(before: float, said: float, after: float, endpoint: Endpoint) -> Finding:
    """Hold this host's clock, before and after a put, against the store's, which the answer tells (HTTP's Date)."""
    skew = max(0.0, said - after, before - said - _DATE_SECONDS)
    if skew < _SKEW_WORTH_SAYING:
        return ok(endpoint.location, "its clock and this host's agree")
    side = "behind" if said > after else "ahead of"
    what = f"this host's clock is {skew:.0f} s {side} the store's"
    return warning(endpoint.location, what, "set this host's clock (NTP): S3 refuses requests from 15 minutes on")


def _widths(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Other entropy widths that hold the cluster too; that all do is among `problems_of`."""
    own = max(keys.entropy_bits, 0)
    others = sorted(entropy_widths(store, keys.cluster) - {own})
    if not others:
        return []
    held = ", ".join(str(width) for width in others)
    what = f"cluster {keys.cluster} lies there with {own} entropy bits and also with {held} (0: none)"
    way = "readers find one of them only: read the other with its own number of bits, or move it under this one"
    return [warning(endpoint.location, what, way)]


def _lifecycle(store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint) -> list[Finding]:
    """Rules of the bucket that would take objects of the cluster, or put them where they cannot be read at once."""
    try:
        rules = store.lifecycle_rules()
    except AccessDenied as refused:
        what = "its lifecycle rules cannot be seen, so they may remove what is archived"
        return [hint(endpoint.location, what, f"look yourself, or allow it for this check: {refused}")]
    if rules is None:
        return []
    tags = frozenset(endpoint.options.storing.tags)
    findings = []
    for rule in rules:
        if not rule.applies_to(keys.cluster, keys.entropy_bits, tags):
            continue
        if rule.expires is not None:
            what = (
                f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r}) removes objects of the cluster {rule.expires}"
            )
            way = "remove the rule or narrow its filter: it takes offset.wm and the middle of a history alike"
            findings.append(error(endpoint.location, what, way))
        if rule.archives is not None:
            what = f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r}) moves objects of the cluster {rule.archives}"
            way = (
                "there neither readers nor the agent can read them before they are restored; use STANDARD_IA, "
                "GLACIER_IR or INTELLIGENT_TIERING"
            )
            findings.append(warning(endpoint.location, what, way))
    return findings or [ok(endpoint.location, "no lifecycle rule takes objects of the cluster")]
