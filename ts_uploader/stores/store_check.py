"""What the agent asks of a store before it ships anything, so that what the store refuses is told at the start.

    HeadBucket
    the cluster's layout; where there is none: under which entropy widths does it hold this cluster?
    the probe, with all options: where there is none (`If-None-Match: *`), or else over the one that stands (`If-Match`)
    the probe again, where there is none: must be refused, or two agents could overwrite each other's objects
    the probe over something else (`If-Match` with an ETag that is not its own): must be refused, likewise

The probe is one object, `ts-uploader~probe`, always with the same content, beside the clusters' directories: no listing
of clusters, topics or segments meets it, and any agent may write it at any time. It stays, since an agent may not
delete. It is stored as a segment is, storage class included.

Where a store refuses the probe, groups of options are tried one after the other, each beside those that it took: what
is still refused then is named, all of it at once. Options that a store takes and ignores cannot be seen; encryption is
the exception, which S3 confirms in its answer.
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
from ts_common.store.option_table import NAME_OF
from ts_common.store.options import PREFIX, Endpoint, StorageOptions
from ts_common.store.wrappers.unconditional import WHAT_IS_LOST
from ts_uploader.stores.layout_check import other_width

CONDITIONAL_KEY = "storage.service.conditional.writes"
PROBE = b"Written by each ts-uploader agent at its start, to see what this store refuses. No reader looks at it.\n"

# Fields of `Storing` that a store takes or refuses together, and what may be missing where it does not take them.
_GROUPS = (
    (("server_side_encryption", "kms_key_id", "bucket_key_enabled"), "kms:GenerateDataKey on the key"),
    (("acl",), "s3:PutObjectAcl, and ACLs on the bucket (Object Ownership may switch them off)"),
    (("tags",), "s3:PutObjectTagging"),
    (("storage_class",), "a storage class that this store has"),
    (("checksum_algorithm",), "a checksum that this store understands"),
)
_ATTEMPTS = 5  # other agents may start at the same time and write it too
_NO_ETAG = '"00000000000000000000000000000000"'

Open = Callable[[StorageOptions], ObjectStore]


def problems_of(
    store: ObjectStore, keys: ClusterKeys, endpoint: Endpoint, open_with: Open, *, conditional: bool
) -> list[str]:
    """What has to be mended before anything can be shipped to an endpoint; a sentence for each.

    Args:
        store: opened with the endpoint's options.
        keys: of the cluster.
        endpoint: which.
        open_with: opens the endpoint's location with other options; closed here.
        conditional: whether the store is relied on to hold conditions.

    Raises:
        StoreUnavailable: the store does not answer at this moment.
        AccessDenied: the store refuses this identity, whatever the options.
        OperatorError: the location cannot be used at all.
    """
    store.check()
    if (other := other_width(store, keys)) is not None:
        return [other]
    refused = _refusal(store)
    if refused is not None:
        return _refused_options(refused, endpoint, open_with)
    return _ignored_conditions(store, endpoint) if conditional else []


def _write_probe(store: ObjectStore) -> None:
    """Write the probe, whether it stands already or not.

    Raises:
        OutcomeUnknown, StoreUnavailable: no answer, several times.
        TieredStorageError: what the store refuses.
    """
    last: StaleStateError | None = None
    for _ in range(_ATTEMPTS):
        try:
            store.put(PROBE_NAME, PROBE, condition=IfAbsent(), archived=True)
        except PreconditionFailed:
            pass  # it stands already
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
    raise last or StoreUnavailable(f"{store.location}/{PROBE_NAME} cannot be written")


def _refusal(store: ObjectStore) -> TieredStorageError | None:
    """Why the store does not take the probe; None where it does.

    Raises:
        StoreUnavailable: it does not answer.
    """
    try:
        _write_probe(store)
    except TransientError:
        raise
    except TieredStorageError as error:
        return error
    return None


def _refused_options(whole: TieredStorageError, endpoint: Endpoint, open_with: Open) -> list[str]:
    """Which options a store refuses that refused all of them together with `whole`.

    Raises:
        StoreUnavailable: it refuses every object, and that is no refusal of this identity.
        AccessDenied: it refuses this identity every object.
    """
    storing = endpoint.options.storing

    def refused_with(names: tuple[str, ...]) -> TieredStorageError | None:
        options = replace(endpoint.options, storing=storing.only(names))
        with closing(open_with(options)) as store:
            return _refusal(store)

    groups = [(names, missing) for names, missing in _GROUPS if storing.said.intersection(names)]
    taken: tuple[str, ...] = ()
    errors: dict[tuple[str, ...], TieredStorageError] = {}
    waiting = groups
    while waiting:
        # A bucket's policy may ask for one of them, so what is refused now may be taken beside another.
        errors = {names: error for names, _ in waiting if (error := refused_with((*taken, *names))) is not None}
        if len(errors) == len(waiting):
            break
        taken += tuple(name for names, _ in waiting if names not in errors for name in names)
        waiting = [(names, missing) for names, missing in waiting if names in errors]
    if not waiting or (not taken and refused_with(()) is not None):
        if isinstance(whole, StaleStateError):
            raise StoreUnavailable(f"{endpoint.location} takes no object at this moment: {whole}") from whole
        if isinstance(whole, AccessDenied):  # which may pass
            raise whole
        return [f"{endpoint.location}: {whole}" if endpoint.location not in str(whole) else str(whole)]
    return [_told(endpoint, names, errors[names], missing) for names, missing in waiting]


def _told(endpoint: Endpoint, names: tuple[str, ...], error: TieredStorageError, missing: str) -> str:
    storing = endpoint.options.storing
    given = ", ".join(
        f"{PREFIX}{NAME_OF[name]}={_text(getattr(storing, name))}" for name in names if name in storing.said
    )
    return f"{given}: {endpoint.location} refuses it: {error}; it needs {missing}; or drop the option"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{name}={text}" for name, text in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_held(store: ObjectStore, condition: IfAbsent | IfMatch) -> bool:
    """Whether the probe, which stands, is not written on a condition that does not hold.

    Raises:
        StoreUnavailable: no answer, several times.
    """
    last: OutcomeUnknown | None = None
    for _ in range(_ATTEMPTS):
        try:
            store.put(PROBE_NAME, PROBE, condition=condition, archived=True)
        except PreconditionFailed:
            return True
        except OutcomeUnknown as error:  # S3's 409, for one: somebody else wrote just now
            last = error
        else:
            return False
    raise StoreUnavailable(f"{store.location} does not say whether it holds conditions: {last}") from last


def _ignored_conditions(store: ObjectStore, endpoint: Endpoint) -> list[str]:
    """Conditions that the store takes and does not hold, or does not know."""
    problems = []
    for condition, said in ((IfAbsent(), "If-None-Match: *"), (IfMatch(_NO_ETAG), "If-Match")):
        try:
            if _is_held(store, condition):
                continue
        except TransientError:
            raise
        except TieredStorageError as error:
            why = f"refuses it: {error}"
        else:
            why = "writes all the same"
        problems.append(f"{CONDITIONAL_KEY}=true: {endpoint.location} is asked for {said}, and {why}")
    if problems:
        problems[-1] += f"; {CONDITIONAL_KEY}=false goes on without: then {WHAT_IS_LOST}"
    return problems
