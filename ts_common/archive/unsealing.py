"""Unseals the offsets of a repair, so that readers list the objects that it puts (protocol rule 16).

A token's name begins with the time when its repair was requested or began, so that a token that a kill left shows its
age: `1732888800000-...`, in milliseconds since the epoch.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.sealed_objects import SEAL_JSON_BYTES, SealJson
from ts_common.archive.small_objects import get_small
from ts_common.errors import (
    CorruptData,
    ObjectFrozen,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    TieredStorageError,
)
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore

_ATTEMPTS: Final = 10  # agents write it at most once for some hundred segments
_BEGUN: Final = re.compile(r"([0-9]{13})-", re.ASCII)


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


@dataclass(frozen=True, slots=True)
class OpenToken:
    """A token of `seal.json`.

    Attributes:
        start: first offset that it keeps unsealed.
        end: the offset after the last.
        begun: when its repair was requested or began, seconds since the epoch. If its name does not show that, when
            `seal.json` was last written: it is not younger.
    """

    name: str
    start: int
    end: int
    begun: float


def open_tokens(store: ObjectStore, key: str) -> tuple[SealJson, list[OpenToken], str] | None:
    """Return a `seal.json`, its tokens and its ETag; None if it does not exist.

    Raises:
        CorruptData, NewerFormat: it is malformed, or a later release wrote it.
        ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    try:
        data, info = get_small(store, key, SEAL_JSON_BYTES)
    except ObjectNotFound:
        return None
    found = SealJson.decode(data, key)
    tokens = []
    for name, (start, end) in found.open.items():
        match = _BEGUN.match(name)
        tokens.append(OpenToken(name, start, end, info.modified if match is None else int(match[1]) / 1000))
    return found, tokens, info.etag


def remove_tokens(store: ObjectStore, key: str, before: float) -> list[OpenToken]:
    """Remove the tokens that are older than a time from a `seal.json`, and return them. No repair may be in progress.

    Args:
        before: seconds since the epoch.

    Raises:
        PreconditionFailed, OutcomeUnknown: another process wrote `seal.json` meanwhile.
        CorruptData, NewerFormat, ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: as `open_tokens`.
    """
    found = open_tokens(store, key)
    if found is None:
        return []
    stored, tokens, etag = found
    removed = [token for token in tokens if token.begun < before]
    if removed:
        names = {token.name for token in removed}
        kept = {name: offsets for name, offsets in stored.open.items() if name not in names}
        store.put(key, replace(stored, nonce=token_hex(8), open=kept).encode(), condition=IfMatch(etag))
    return removed
