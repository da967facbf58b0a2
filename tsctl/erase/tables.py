"""The tables that still have rows of a list, by what each wrote into `claims/` (table rule 4)."""

from collections.abc import Iterator, Mapping
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.table_claims import TableClaims, claims_key, read_claims, tables_with_claims
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from tsctl.erase.remains import Remains, Surface

_SHOWN: Final = 3  # directories of a reason


def remaining_in_tables(store: ObjectStore, cluster: ClusterKeys, wanted: Mapping[str, int]) -> Iterator[Remains]:
    """Yield each table that can still have records of some lists: in its rows, or in files of former snapshots.

    A table writes into the archive what it obeys, after its runs and after `tsctl tables forget --erased`. A table
    without claims of a partition has no rows of it.

    Args:
        wanted: by directory of a partition, the number of a list; 0 for none.

    Raises:
        NewerFormat: a later release wrote the claims of a table.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for table in tables_with_claims(store, cluster):
        try:
            claims = read_claims(store, cluster, table)
        except CorruptData as error:
            reason = f"{claims_key(cluster, table)} cannot be read, so what it has is unknown; a run writes it: {error}"
            yield Remains(Surface.TABLE, table, reason)
            continue
        if claims is not None:
            yield from _remaining(claims, wanted)


def _remaining(claims: TableClaims, wanted: Mapping[str, int]) -> Iterator[Remains]:
    obeyed = {each.directory: each for each in claims.erased}
    in_rows, in_files = list[str](), list[str]()
    for directory, number in sorted(wanted.items()):
        there = obeyed.get(directory)
        if not number or (there is None and directory not in claims.needed_from):
            continue
        if there is None or there.rows < number:
            in_rows.append(f"{directory} (list {number})")
        elif there.files < number:
            in_files.append(f"{directory} (list {number})")
    if in_rows:
        reason = f"its rows can have records of {some(in_rows, _SHOWN)}; its next run deletes them"
        yield Remains(Surface.TABLE, claims.table, f"{reason}, or tsctl tables forget NAME --erased")
    if in_files:
        reason = f"its rows lack the records of {some(in_files, _SHOWN)}, and files of former snapshots can have them"
        yield Remains(Surface.TABLE, claims.table, f"{reason}: tsctl tables compact expires these")
