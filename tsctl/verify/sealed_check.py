"""Compares the sealed ranges of a partition with its listing: readers do not list them (reading rule 10)."""

from collections.abc import Iterator

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.sealed_objects import SEALED_BYTES, SealedObject, SealedRange, decode_sealed
from ts_common.archive.small_objects import get_small
from ts_common.archive.unsealing import open_tokens
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from tsctl.verify.finding_kinds import CACHE_OBJECT_WRONG, NEWER_FORMAT, TOKEN_LEFT
from tsctl.verify.findings import Finding


def check_sealed_ranges(
    store: ObjectStore, catalog: PartitionCatalog, where: str, now: float, old: float
) -> Iterator[Finding]:
    """Yield a finding for each sealed range that counts and differs from a listing, and for each old token.

    Segments that end at or below `log.start` may be missing.

    Args:
        catalog: of a whole listing.
        where: the partition's name in findings.
        now: seconds since the epoch, by the store's clock.
        old: the same; a token that is older is of no repair in progress.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    keys = catalog.keys
    key = keys.seal_json
    try:
        found = open_tokens(store, key)
        for token in () if found is None else found[1]:
            if token.begun < old:
                age = counted(int((now - token.begun) / 3600), "hour")
                yield Finding(TOKEN_LEFT, where, f"token {token.name} of {age} ago", key, token.start, token.end)
        for each in () if found is None else found[0].sealed:
            key = keys.cache_objects + each.name
            try:
                sealed = decode_sealed(get_small(store, key, SEALED_BYTES)[0], keys, each.name)
            except ObjectNotFound:
                continue  # readers list its range
            if (detail := _difference(sealed, catalog, each)) is not None:
                yield Finding(CACHE_OBJECT_WRONG, where, detail, key, each.start, each.end)
    except ObjectFrozen:
        return
    except (CorruptData, NewerFormat) as error:
        kind = NEWER_FORMAT if isinstance(error, NewerFormat) else CACHE_OBJECT_WRONG
        yield Finding(kind, where, str(error), key)


def _difference(sealed: SealedObject, catalog: PartitionCatalog, counted_range: SealedRange) -> str | None:
    rows = (sealed.row(number) for number in range(len(sealed)))
    start = catalog.log_start or 0
    expected = {(row.base, row.size): row.metadata.end for row in rows}
    listed = [each for each in catalog.segments if counted_range.start <= each.name.base < counted_range.end]
    stored = {(each.name.base, each.size) for each in listed if each.name.epoch is None}
    lacking = len(listed) - len(stored & expected.keys())
    gone = sum(end > start for each, end in expected.items() if each not in stored)
    if not lacking and not gone:
        return None
    return f"the store has {counted(lacking, 'segment')} that it lacks, and lacks {gone:,} that it has"
