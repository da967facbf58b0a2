"""Unseals the offsets of a repair, so that readers list the objects that it puts (protocol rule 16)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from secrets import token_hex
from typing import Final

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.sealed_objects import SealJson
from ts_common.errors import CorruptData, ObjectFrozen, OutcomeUnknown, PreconditionFailed, TieredStorageError
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore

_ATTEMPTS: Final = 10  # agents write it at most once for a thousand segments


@contextmanager
def unsealed(store: ObjectStore, keys: PartitionKeys, token: str, start: int, end: int) -> Iterator[None]:
    """Keep offsets unsealed while objects are put that begin there, or replace others that do.

    If the store may complete a put later, the token stays.

    Args:
        token: identifies this process and its work; a repetition uses the same.
        start: first offset.
        end: the offset after the last.

    Raises:
        PreconditionFailed, OutcomeUnknown: other processes write `seal.json` again and again.
        NewerFormat: a later release wrote `seal.json`.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    change_tokens(store, keys, {token: (start, end)})
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception:
        with suppress(TieredStorageError):
            change_tokens(store, keys, {token: None})
        raise
    change_tokens(store, keys, {token: None})


def change_tokens(store: ObjectStore, keys: PartitionKeys, tokens: Mapping[str, tuple[int, int] | None]) -> None:
    """Enter tokens with their offsets `[from, to)`, and drop the ranges that have some of these; or remove tokens.

    Raises:
        PreconditionFailed, OutcomeUnknown, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `unsealed`.
    """
    for attempt in range(_ATTEMPTS):
        try:
            found = SealJson.read_with_etag(store, keys.seal_json)
        except (CorruptData, ObjectFrozen):  # no reader uses it
            found = SealJson("", None, (), {}), store.head(keys.seal_json).etag
        stored, etag = found or (SealJson("", None, (), {}), None)
        entered = {token: offsets for token, offsets in tokens.items() if offsets is not None}
        opened = {token: offsets for token, offsets in stored.open.items() if token not in tokens} | entered
        sealed = tuple(
            each
            for each in stored.sealed
            if not any(each.start < high and low < each.end for low, high in entered.values())
        )
        if (opened, sealed) == (dict(stored.open), stored.sealed):
            return
        written = replace(stored, nonce=token_hex(8), sealed=sealed, open=opened)
        try:
            store.put(keys.seal_json, written.encode(), condition=IfAbsent() if etag is None else IfMatch(etag))
        except (PreconditionFailed, OutcomeUnknown):
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
