"""What a table still needs of a cluster's topics, in `claims/<table>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/claims/backup.orders.json
    {"version":1,"table":"backup.orders","snapshot":"17","time":1700000000000,
     "partitions":{"orders-0":4711}}

For each directory of a partition the object has the first offset that the table has not claimed: it still needs the
segments with offsets from there on. A run of the table overwrites the object after its commit, and so does a run that
finds nothing new but another object. A late write of an earlier run has lower offsets, which keeps more.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.archive.small_objects import get_small
from ts_common.errors import ObjectNotFound
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, text, whole_number
from ts_common.store.contract import ObjectStore

_DIRECTORY: Final = "claims/"
_SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,300}")
_LARGEST: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class TableClaims:
    """What a table still needs.

    Attributes:
        table: its name.
        snapshot: names the version of the table.
        time: milliseconds since the epoch, the clock of the run.
        needed_from: by directory of a partition, the first offset that the table has not claimed.
    """

    table: str
    snapshot: str
    time: int
    needed_from: Mapping[str, int]

    def encode(self) -> bytes:
        """Return the content of the object: one line."""
        fields = {
            "version": VERSION,
            "table": self.table,
            "snapshot": self.snapshot,
            "time": self.time,
            "partitions": dict(sorted(self.needed_from.items())),
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


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
    key = claims_key(keys, table)
    try:
        data, _ = get_small(store, key, _LARGEST)
    except ObjectNotFound:
        return None
    expected = "the claims of a table"
    fields = parse_fields(data, key, expected, _LARGEST)
    with decoding(key, expected, data):
        found = TableClaims(
            text(fields["table"]),
            text(fields["snapshot"]),
            whole_number(fields["time"]),
            {_directory(name): whole_number(offset) for name, offset in fields["partitions"].items()},
        )
        if found.table != table:
            raise ValueError(f"table {found.table!r}")
    return found


def tables_with_claims(store: ObjectStore, keys: ClusterKeys) -> list[str]:
    """Return the names of the tables with such an object, sorted; other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    prefix = keys.cluster_prefix + _DIRECTORY
    names = (info.key.removeprefix(prefix) for info in store.list(prefix))
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(name for name in found if _NAME.fullmatch(name))


def _directory(name: str) -> str:
    """Return the directory of a partition, of any incarnation."""
    if partition_of(name) is None:
        raise ValueError(f"{name!r} is no directory of a partition")
    return name
