"""Seals ranges of a partition, so that readers list only the rest (protocol rule 16).

Like cache objects in JSON, not a part of shipping: an attempt that fails costs readers time, and the next one replaces
it. Sealing uses what a reader sees. If a reader lists all, because a late segment begins below a sealed end, the ranges
are sealed again without it.

A run that continues a sealed object grows it: an object with the rows of both replaces it in `seal.json`. So a reader
lists some hundred segments behind it at most, and reads an object for each 4,096.
"""

from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Final

from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, replaced_by
from ts_common.archive.sealed_objects import (
    SealedRange,
    SealedRow,
    SealJson,
    encode_sealed,
    is_regular,
)
from ts_common.archive.sealed_ranges import listed_of
from ts_common.archive.view import open_view
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore

ENOUGH: Final = 256  # new rows, as many as a cache object in JSON has
LEAST: Final = 256  # of a new object: one object more is a request more for each reader
_MOST: Final = 4096  # of one object


def seal(store: ObjectStore, keys: PartitionKeys, enough: int = ENOUGH, least: int = LEAST) -> int:
    """Seal what is regular of a partition; return the number of segments that were sealed.

    Args:
        enough: fewer segments are not sealed at once.
        least: rows of an object.

    Raises:
        PreconditionFailed, OutcomeUnknown: another process wrote `seal.json`; the next attempt reads it.
        CorruptData, NewerFormat: `seal.json`, the commit or `log.start` is damaged, or of a later release; it is kept.
        LineageUnsettled, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    # Without conditional writes, an agent could write over a token. Such a store enforces no delete either.
    if store.enforces_deletes() is False:
        return 0
    found = SealJson.read_with_etag(store, keys.seal_json)  # before the listing: a repair after it is noticed
    stored, etag = found or (SealJson("", None, (), {}), None)
    catalog = read_catalog(store, keys, seals=True)
    commit = catalog.commit
    if not isinstance(commit, Commit) or commit.java is not None or catalog.log_start is None:
        return 0
    view = open_view(store, catalog, shows_records=False)
    copies = sorted((*listed_of(view.copies), *listed_of(view.retired)), key=lambda copy: copy.base)
    if _is_in_doubt(view, copies):
        return 0
    # Below the commit's first pair only the object itself has the epochs.
    known = commit.epochs.pairs[0][1] if commit.epochs.pairs else commit.next_offset
    growing = {each.end: each for each in view.sealed if len(each) < _MOST and known <= each.start}
    # A late segment that begins below a sealed end can have records that a compacted copy above it lacks.
    sparse_end = view.sparse_end
    runs = [
        run
        for run in _runs(copies, commit, stored)
        if (len(run) >= least or run[0].base in growing) and run[-1].metadata.end >= sparse_end
    ]
    if sum(map(len, runs)) < enough:
        return 0
    names = {(each.start, each.end): each.name for each in stored.sealed}
    replaced = {run[0].base for run in runs}.intersection(growing)
    kept = [each for each in view.sealed if each.end not in replaced]
    sealed = [SealedRange(each.start, each.end, names[each.start, each.end]) for each in kept]
    for run in runs:
        before = growing.get(run[0].base)
        grown = [*([] if before is None else map(before.row, range(len(before)))), *run]
        for rows in (grown[first : first + _MOST] for first in range(0, len(grown), _MOST)):
            name, data = encode_sealed(keys, commit.lineage, commit.epochs, rows)
            store.put(keys.cache_objects + name, data)
            sealed.append(SealedRange(rows[0].base, rows[-1].metadata.end, name))
    written = SealJson(token_hex(8), commit.lineage, tuple(sorted(sealed, key=lambda each: each.start)), stored.open)
    store.put(keys.seal_json, written.encode(), condition=IfAbsent() if etag is None else IfMatch(etag))
    return sum(map(len, runs))


def _is_in_doubt(view: PartitionView, copies: Sequence[SegmentCopy]) -> bool:
    """Return whether readers would list all, whatever is sealed."""
    has_hole = any(isinstance(step, Hole) for step in view.runs(view.start, view.end))
    return has_hole or any(copy.may_overrun for copy in copies)


def _runs(copies: Sequence[SegmentCopy], commit: Commit, stored: SealJson) -> Iterator[list[SealedRow]]:
    """Yield contiguous runs of the segments that can be sealed."""
    replaced = replaced_by(copies)
    rows: list[SealedRow | None] = []
    following = (*(copy.base for copy in copies[1:]), commit.next_offset)
    reached = 0  # by the copies before
    for copy, behind in zip(copies, following, strict=False):
        segment = copy.segment
        row = SealedRow(copy.base, segment.size, segment.etag or "", segment.suffixes, copy.metadata)
        is_alone = reached <= copy.base and copy.end <= behind
        is_alone &= segment.name.epoch is None and segment.name.stem not in replaced
        reached = max(reached, copy.end)
        is_open = any(copy.base < high and low < copy.end for low, high in stored.open.values())
        rows.append(row if is_alone and not is_open and row.etag and is_regular(row, commit.epochs) else None)
    run: list[SealedRow] = []
    for each in [*rows, None]:
        if run and (each is None or run[-1].metadata.end != each.base):
            yield run
            run = []
        run += [] if each is None else [each]
