"""The tables that still have rows of a list, by what each wrote into `claims/` (table rule 4)."""

from collections.abc import Iterator, Mapping
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.archive.table_claims import TableClaims, claims_key, read_claims, tables_with_claims
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from tsctl.erase.remains import Remains, Surface

_SHOWN: Final = 3  # directories of a reason


def remaining_in_tables(
    store: ObjectStore, cluster: ClusterKeys, wanted: Mapping[str, int], searched: int = 0
) -> Iterator[Remains]:
    """Yield each table that can still have records of some lists: in its rows, or in files of former snapshots.

    A table writes into the archive what it obeys, after its runs and after `tsctl tables forget --erased`. A table
    without claims of a partition has no rows of it.

    Args:
        wanted: by name of a place of the topic, the number of a list; 0 for none.
        searched: when the lists were put, milliseconds since the epoch by the store's clock.

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
            yield from _remaining(claims, wanted, searched)


def _remaining(claims: TableClaims, wanted: Mapping[str, int], searched: int) -> Iterator[Remains]:
    obeyed = {each.directory: each for each in claims.erased}
    in_rows, in_files = list[str](), list[str]()
    for directory, number in sorted(wanted.items()):
        there = obeyed.get(directory)
        if not number or (there is None and not _can_have(claims, directory, searched)):
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


def _can_have(claims: TableClaims, place: str, searched: int) -> bool:
    """Return whether a table that obeys no list of a place can have records of it.

    A former place is not among what a table needs. Its rows can be there by the partition that continues the place,
    until the table has compared them with all lists since then.
    """
    if place in claims.needed_from:
        return True
    partition = partition_of(place.rpartition("/")[2])
    return claims.compared <= searched and any(partition_of(each) == partition for each in claims.needed_from)
