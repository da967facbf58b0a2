"""What a table still needs of a cluster's topics, in `claims/<table>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/claims/backup.orders.json
    {"version":1,"table":"backup.orders","snapshot":"17","time":1700000000000,
     "partitions":{"orders-0":4711},"erased":[["orders-0",4,3]]}

`erased` has, for a directory with a list of erased offsets, the number of the list that the table's rows obey, and of
the one that all of its stored files obey: former snapshots of a table have rows that it deleted. Earlier releases do
not write it.

For each directory of a partition the object has the first offset that the table has not claimed: it still needs the
segments with offsets from there on. A run of the table overwrites the object after its commit, and so does a run that
finds nothing new but another object. A late write of an earlier run has lower offsets, which keeps more. After an
election that withdrew offsets they can be higher; the next run of the table then writes the right ones.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from ts_common.archive.commit import MAX_ERASED
from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.archive.stored_object import FieldKind, Presence, StoredObject, between, limited
from ts_common.store.contract import ObjectStore

_DIRECTORY: Final = "claims/"
_SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,300}")


def _directory(name: str) -> str:
    """Return the directory of a partition, of any incarnation."""
    if partition_of(name) is None:
        raise ValueError(f"{name!r} is no directory of a partition")
    return name


@dataclass(frozen=True, slots=True)
class ObeyedList:
    """Which lists of erased offsets of a partition's directory a table obeys.

    Attributes:
        directory: its path, if it is of another cluster: a former place.
        rows: the greatest list whose records no row of the table has; 0 for none.
        files: the greatest list whose records no stored file has, of a former snapshot neither; 0 for none.
    """

    directory: Annotated[str, limited(1000)]
    rows: Annotated[int, between(0, MAX_ERASED)]
    files: Annotated[int, between(0, MAX_ERASED)]


@dataclass(frozen=True, slots=True)
class TableClaims(StoredObject, expected="the claims of a table", most=16 << 20):
    """What a table still needs.

    Attributes:
        snapshot: names the version of the table.
        time: milliseconds since the epoch, the clock of the run.
        needed_from: by directory of a partition, the first offset that the table has not claimed.
        erased: the lists of erased offsets that it obeys, sorted by directory.
        compared: when its rows were last compared with all lists, milliseconds since the epoch by the store's clock, in
            whole seconds; 0 for never.
    """

    table: str
    snapshot: str
    time: int
    needed_from: Annotated[Mapping[Annotated[str, FieldKind(_directory)], int], "partitions"]
    erased: Annotated[tuple[ObeyedList, ...], Presence.IF_SET] = ()
    compared: Annotated[int, Presence.IF_SET] = 0


def claims_key(keys: ClusterKeys, table: str) -> str:
    """Return the key of a table's object.

    Raises:
        ValueError: it is no name of a table.
    """
    if not _NAME.fullmatch(table):
        raise ValueError(f"{table!r} is no name of a table")
    return f"{keys.cluster_prefix}{_DIRECTORY}{table}{_SUFFIX}"


def read_claims(store: ObjectStore, keys: ClusterKeys, table: str) -> TableClaims | None:
    """Return what a table wrote last; None if there is no such object.

    Raises:
        CorruptData, NewerFormat: the object is damaged, of another table, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return TableClaims.read(store, claims_key(keys, table), table=table)


def tables_with_claims(store: ObjectStore, keys: ClusterKeys) -> list[str]:
    """Return the names of the tables with such an object, sorted; other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    prefix = keys.cluster_prefix + _DIRECTORY
    names = (info.key.removeprefix(prefix) for info in store.list(prefix))
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(name for name in found if _NAME.fullmatch(name))
