"""What a table needs and what it obeys, written into the archive: `ts_common.archive.table_claims`."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.table_claims import ObeyedList, TableClaims, claims_key, read_claims
from ts_common.errors import CorruptData, TieredStorageError
from ts_common.store.contract import ObjectStore
from ts_tables.claims.state import TableState

_MILLISECONDS: Final = 1000
_NOTHING: Final[Mapping[str, int]] = {}

log = structlog.get_logger("ts_tables")


def claims_name(table: str, generation: int) -> str:
    """Return the name of what a generation of a table needs.

    It is the same before and after a switch, and when the file of tables has another generation as its definition.

    Args:
        table: its name in the file of tables.
        generation: its number, of its state.
    """
    return table if generation == 1 else f"{table}_g{generation}"


Located = tuple[ObjectStore, ClusterKeys, TableState]  # of topics, with the claims of these
ByFiles = Callable[[Mapping[str, int]], Mapping[str, int]]  # as of `Target.obeyed_by_files`


def publish(
    stores: Iterable[Located],
    table: str,
    snapshot: str,
    by_files: ByFiles = dict,
    compared: Mapping[str, int] = _NOTHING,
) -> None:
    """Write what a table still needs, and the lists of erased offsets that it obeys, where that differs.

    A failure is logged: the table is right without it, retention keeps more, and requests to erase stay open. A later
    run repeats it.

    Args:
        stores: of the table's topics, with their keys and the claims of their topics; of a table with refused records
            `obeyed` is that of both.
        table: the name of what it needs.
        snapshot: names the version of the table.
        by_files: returns the numbers of lists that all of its files obey, for those that its rows do.
        compared: by location, when rows were compared with all lists, as of `TableClaims`; others stay as they are.
    """
    for store, keys, state in stores:
        needed, rows = needed_from(state), obeyed(state)
        try:
            known = _known(store, keys, table)
            there = () if known is None else known.erased
            if {each.directory: each.rows for each in there if each.files >= each.rows} != rows:
                files = by_files(rows)
                there = tuple(ObeyedList(name, number, files.get(name, 0)) for name, number in sorted(rows.items()))
            when = compared.get(store.location, 0 if known is None else known.compared)
            claims = TableClaims(table, snapshot, int(time.time() * _MILLISECONDS), needed, there, when)
            if known is None or replace(claims, snapshot=known.snapshot, time=known.time) != known:
                store.put(claims_key(keys, table), claims.encode())
        except TieredStorageError as error:
            log.warning("table_claims_not_written", table=table, location=store.location, error=str(error))


def _known(store: ObjectStore, keys: ClusterKeys, table: str) -> TableClaims | None:
    """Return what a table wrote last; None also if that is damaged, and not of a later release."""
    try:
        return read_claims(store, keys, table)
    except CorruptData:
        return None


def requested(stores: Iterable[Located], table: str) -> dict[str, int]:
    """Return the locations with a request to erase since the rows of a table were compared with all lists.

    A request is put after its lists, so a list that is put later belongs to a later request.

    Args:
        stores: of the table's topics.
        table: as of `publish`.

    Returns:
        Each with the time of this look, as of `TableClaims.compared`.

    Raises:
        NewerFormat: a later release wrote what the table obeys.
        StoreUnavailable, AccessDenied, BucketMissing: from a store.
    """
    found = dict[str, int]()
    for store, keys, _ in stores:
        newest = max((int(info.modified) for info in store.list(keys.erasures)), default=None)
        if newest is None:
            continue
        now = int(store.current_time())  # of the listing's response; a request of this second counts again
        known = _known(store, keys, table)
        if known is None or known.compared <= newest * _MILLISECONDS:
            found[store.location] = now * _MILLISECONDS
    return found


def left_in_files(store: ObjectStore, keys: ClusterKeys, table: str) -> bool:
    """Return whether files of a table's former snapshots can have erased records that its rows lack; as `requested`."""
    known = _known(store, keys, table)
    return known is not None and any(each.files < each.rows for each in known.erased)


def obeyed(state: TableState) -> dict[str, int]:
    """Return, by name of a list's directory, the number of the list that all rows obey."""
    found = dict[str, int]()
    for incarnations in state.topics.values():
        for incarnation in incarnations:
            for partition, claims in incarnation.partitions.items():
                numbers = dict(claims.obeyed)
                for name in {f"{incarnation.directory}-{partition}", *numbers}:
                    number = numbers.get(name, 0)
                    found[name] = min(number, found.get(name, number))
    return {name: number for name, number in found.items() if number}


def withdraw(stores: Iterable[Located], table: str) -> None:
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
