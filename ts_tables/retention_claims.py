"""What a table still needs, written into the archive for retention: `ts_common.archive.table_claims`."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.table_claims import TableClaims, claims_key, read_claims
from ts_common.errors import CorruptData, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_tables.claims.state import TableState

_MILLISECONDS: Final = 1000

log = structlog.get_logger("ts_tables")


def claims_name(table: str, generation: int) -> str:
    """Return the name of what a generation of a table needs.

    It is the same before and after a switch, and when the file of tables has another generation as its definition.

    Args:
        table: its name in the file of tables.
        generation: its number, of its state.
    """
    return table if generation == 1 else f"{table}_g{generation}"


def publish(stores: Iterable[tuple[ObjectStore, ClusterKeys, TableState]], table: str, snapshot: str) -> None:
    """Write what a table still needs, where it differs from what is there.

    A failure is logged: the table is right without it, and retention keeps more. A later run repeats it.

    Args:
        stores: of the table's topics, with their keys and the claims of their topics.
        table: the name of what it needs.
        snapshot: names the version of the table.
    """
    for store, keys, state in stores:
        needed = needed_from(state)
        try:
            try:
                known = read_claims(store, keys, table)
            except CorruptData:  # not of a later release
                known = None
            if known is None or known.needed_from != needed:
                claims = TableClaims(table, snapshot, int(time.time() * _MILLISECONDS), needed)
                store.put(claims_key(keys, table), claims.encode())
        except TieredStorageError as error:
            log.warning("table_claims_not_written", table=table, location=store.location, error=str(error))


def withdraw(stores: Iterable[tuple[ObjectStore, ClusterKeys, TableState]], table: str) -> None:
    """Remove what a table still needs: it does not exist any more.

    Args:
        stores: as of `publish`.
        table: as of `publish`.

    Raises:
        AccessDenied, StoreUnavailable: from a store.
    """
    for store, keys, _ in stores:
        store.delete([claims_key(keys, table)])


def needed_from(state: TableState) -> Mapping[str, int]:
    """Return, by directory of a partition, the first offset that a table has not claimed.

    A passed hole that is not filled counts with what is withheld for it.
    """
    return {
        f"{incarnation.directory}-{number}": min([claims.end, *(hole.first for hole in claims.holes)])
        for incarnations in state.topics.values()
        for incarnation in incarnations
        for number, claims in incarnation.partitions.items()
    }
