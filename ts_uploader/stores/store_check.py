"""Check a store before the agent ships anything, so that the agent reports all problems at its start.

    HeadBucket
    read the cluster's layout; without one, find the entropy widths of the cluster's objects
    put the probe with all options: if absent (`If-None-Match: *`), or else over the existing one (`If-Match`)
    put the probe again if absent: the store must reject it, or two agents could overwrite each other's objects
    put the probe with an ETag that it does not have (`If-Match`): the store must reject that too

The probe is one object, `ts-uploader~probe`, next to the clusters' directories. Its content never changes. No listing
of clusters, topics or segments contains it, and any agent may write it at any time. It is never deleted, because an
agent may not delete. It is stored like a segment, storage class and object lock included.

If a store rejects the probe, the check tries groups of options, each together with those that the store accepted. It
reports all groups that the store still rejects. It cannot detect options that a store ignores, except encryption, which
S3 confirms in its response.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import (
    AccessDenied,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    StaleStateError,
    StoreUnavailable,
    TieredStorageError,
    TransientError,
)
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.store.options import Endpoint, StorageOptions, option_key
from ts_common.store.wrappers.unconditional import WHAT_IS_LOST
from ts_uploader.stores.layout_check import other_width

CONDITIONAL_KEY = "storage.service.conditional.writes"
PROBE = b"Written by each ts-uploader agent at its start, to see what this store refuses. No reader looks at it.\n"

# Fields of `Storing` that a store accepts or rejects together, and what may be missing if it rejects them.
_GROUPS = (
    (("server_side_encryption", "kms_key_id", "bucket_key_enabled"), "kms:GenerateDataKey on the key"),
    (("acl",), "s3:PutObjectAcl, and ACLs on the bucket (Object Ownership may switch them off)"),
    (("tags",), "s3:PutObjectTagging"),
    (("storage_class",), "a storage class that this store has"),
    (("checksum_algorithm",), "a checksum that this store supports"),
    (("object_lock_mode", "object_lock_days"), "Object Lock on the bucket, and s3:PutObjectRetention"),
)
_ATTEMPTS = 5  # other agents may start at the same time and write the probe too
_NO_ETAG = '"00000000000000000000000000000000"'

Open = Callable[[StorageOptions], ObjectStore]


def problems_of(
    store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint, open_with: Open, *, conditional: bool
) -> list[str]:
    """Return a sentence for each problem that prevents shipping to an endpoint.

    Args:
        store: opened with the endpoint's options.
        open_with: opens the endpoint's location with other options; closed here.
        conditional: whether the agent relies on conditional writes of the store.

    Raises:
        StoreUnavailable: the store does not respond at this moment.
        AccessDenied: the store denies access to this identity, with any options.
        OperatorError: the location is unusable.
    """
    store.check()
    if (other := other_width(store, keys)) is not None:
        return [other]
    refused = _refusal(store)
    if refused is not None:
        return _refused_options(refused, endpoint, open_with)
    return _ignored_conditions(store, endpoint) if conditional else []


def _write_probe(store: ObjectStore) -> None:
    """Write the probe, whether it exists or not.

    Raises:
        OutcomeUnknown, StoreUnavailable: no response to any attempt.
        TieredStorageError: the store rejects it.
    """
    last: StaleStateError | None = None
    for _ in range(_ATTEMPTS):
        try:
            store.put(PROBE_NAME, PROBE, condition=IfAbsent(), archived=True)
        except PreconditionFailed:
            pass  # it exists
        except OutcomeUnknown as error:
            last = error
            continue
        else:
            return
        try:
            store.put(PROBE_NAME, PROBE, condition=IfMatch(store.head(PROBE_NAME).etag), archived=True)
        except (PreconditionFailed, OutcomeUnknown, ObjectNotFound) as error:
            last = error
        else:
            return
    raise last or StoreUnavailable(f"{store.location}/{PROBE_NAME}: writing the probe failed {_ATTEMPTS} times")


def _refusal(store: ObjectStore) -> TieredStorageError | None:
    """Return the error of the store that rejects the probe; None if it accepts it.

    Raises:
        StoreUnavailable: it does not respond.
    """
    try:
        _write_probe(store)
    except TransientError:
        raise
    except TieredStorageError as error:
        return error
    return None


def _refused_options(whole: TieredStorageError, endpoint: Endpoint, open_with: Open) -> list[str]:
    """Return a sentence for each option that a store rejects, after it rejected all together with `whole`.

    Raises:
        StoreUnavailable: it rejects every object, for another reason than the identity.
        AccessDenied: it denies this identity every object.
    """
    storing = endpoint.options.storing

    def refused_with(names: tuple[str, ...]) -> TieredStorageError | None:
        options = replace(endpoint.options, storing=storing.only(names))
        with closing(open_with(options)) as store:
            return _refusal(store)

    accepted: tuple[str, ...] = ()
    errors: dict[tuple[str, ...], TieredStorageError] = {}
    waiting = [(names, missing) for names, missing in _GROUPS if storing.changed.intersection(names)]
    while waiting:
        # A bucket's policy may require an option, so the store may accept a rejected group together with another.
        errors = {names: error for names, _ in waiting if (error := refused_with((*accepted, *names))) is not None}
        if len(errors) == len(waiting):
            break
        accepted += tuple(name for names, _ in waiting if names not in errors for name in names)
        waiting = [(names, missing) for names, missing in waiting if names in errors]
    if not waiting or (not accepted and refused_with(()) is not None):
        return [_rejects_all(endpoint, whole)]
    return [_rejected(endpoint, names, errors[names], missing) for names, missing in waiting]


def _rejects_all(endpoint: Endpoint, whole: TieredStorageError) -> str:
    """Return a sentence about a store that rejects every object; raise as `_refused_options`."""
    if isinstance(whole, StaleStateError):
        raise StoreUnavailable(f"{endpoint.location} accepts no object at this moment: {whole}") from whole
    if isinstance(whole, AccessDenied):  # the caller retries it
        raise whole
    return f"{endpoint.location}: {whole}" if endpoint.location not in str(whole) else str(whole)


def _rejected(endpoint: Endpoint, names: tuple[str, ...], error: TieredStorageError, missing: str) -> str:
    storing = endpoint.options.storing
    given = ", ".join(
        f"{option_key(name)}={_text(getattr(storing, name))}" for name in names if name in storing.changed
    )
    return f"{given}: {endpoint.location} rejects it: {error}; it needs {missing}; or drop the option"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{name}={text}" for name, text in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_held(store: ObjectStore, condition: IfAbsent | IfMatch) -> bool:
    """Return whether the store rejects a put of the existing probe with a condition that does not hold.

    Raises:
        StoreUnavailable: no response to any attempt.
    """
    last: OutcomeUnknown | None = None
    for _ in range(_ATTEMPTS):
        try:
            store.put(PROBE_NAME, PROBE, condition=condition, archived=True)
        except PreconditionFailed:
            return True
        except OutcomeUnknown as error:  # such as S3's 409: another agent writes the probe
            last = error
        else:
            return False
    raise StoreUnavailable(f"{store.location}: no response to {_ATTEMPTS} conditional writes: {last}") from last


def _ignored_conditions(store: ObjectStore, endpoint: Endpoint) -> list[str]:
    """Return a sentence for each condition that the store ignores or does not support."""
    problems = []
    for condition, header in ((IfAbsent(), "If-None-Match: *"), (IfMatch(_NO_ETAG), "If-Match")):
        try:
            if _is_held(store, condition):
                continue
        except TransientError:
            raise
        except TieredStorageError as error:
            why = f"rejects it: {error}"
        else:
            why = "ignores it, and writes the object"
        problems.append(f"{CONDITIONAL_KEY}=true: {endpoint.location} receives {header}, but {why}")
    if problems:
        problems[-1] += f"; use another store, or set {CONDITIONAL_KEY}=false: then {WHAT_IS_LOST}"
    return problems
