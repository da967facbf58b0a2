"""Files of former snapshots that can have rows of erased records, until they expire.

::

    <table>/_ts/erased/<plan>.json    {"version":1,"before":{"orders-0":3},"paths":["s3://..."]}

A commit that deletes rows of erased records notes before it which files have such rows still: those that it replaces,
those of all snapshots before, and the manifests that have their statistics, where keys can be. `before` has the numbers
of the lists that all files obeyed until then. The note is removed once no snapshot needs any of them and they are
deleted; a file that an expiry left is deleted here. A note of a commit that did not land names files that the next such
commit replaces.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.json_objects import decoding, parse_fields, whole_number
from ts_tables.files.raw_columns import OFFSET, PARTITION
from ts_tables.hidden_rows import HiddenRows
from ts_tables.iceberg.head import PLAN
from ts_tables.iceberg.storage import TableFiles, files_of

_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """The columns whose bounds in statistics show which offsets a file has.

    Attributes:
        partition: the number of the column, and its type.
        offset: the same.
    """

    partition: tuple[int, Any]
    offset: tuple[int, Any]

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Return the columns of a table."""
        fields = [schema.find_field(name) for name in (PARTITION, OFFSET)]
        return cls(*((each.field_id, each.field_type) for each in fields))

    def meet(self, file: DataFile, partition: int, offsets: ErasedOffsets) -> bool:
        """Return whether a file can have rows of a partition at some offsets; also if it lacks bounds."""
        low, high = _bounds(file, *self.partition)
        first, last = _bounds(file, *self.offset)
        is_of = (low is None or low <= partition) and (high is None or partition <= high)
        return is_of and (first is None or last is None or offsets.meets(first, last + 1))


def _bounds(file: DataFile, number: int, kind: Any) -> tuple[int | None, int | None]:
    lower, upper = ((each or {}).get(number) for each in (file.lower_bounds, file.upper_bounds))
    return tuple(None if each is None else from_bytes(kind, each) for each in (lower, upper))  # type: ignore[return-value]


def note_erased(
    table: Table, plan: str, before: Mapping[str, int], hidden: Sequence[HiddenRows], replaced: Iterable[str]
) -> None:
    """Note which files can have rows of erased records after a commit; nothing if no file has such rows.

    Args:
        table: as the plan found it.
        before: the numbers of the lists that all files obeyed, by name.
        hidden: the rows that the commit deletes.
        replaced: paths of the files that it replaces.

    Raises:
        Exception: what pyiceberg and its file systems raise.
    """
    gone, bounds = {*replaced}, Bounds.of(table.schema())
    stays = {each.file_path for each in files_of(table)} - gone
    paths = set(gone)
    for manifest in _manifests(table):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            file = entry.data_file
            is_meant = any(bounds.meet(file, each.partition.partition, each.offsets) for each in hidden)
            if file.file_path in gone or (is_meant and file.file_path not in stays):
                paths |= {file.file_path, manifest.manifest_path}
    if paths:
        content = {"version": 1, "before": {**before}, "paths": sorted(paths)}
        TableFiles.of(table).note_erased(plan, json.dumps(content, separators=(",", ":")).encode())


def left_of_erased(table: Table) -> dict[str, Mapping[str, int]]:
    """Return `before` of each note about files that are left, by its plan; delete files that no snapshot needs.

    Args:
        table: as it is now.

    Raises:
        CorruptData: a note cannot be read.
        Exception: what pyiceberg and its file systems raise.
    """
    files, found = TableFiles.of(table), dict[str, Mapping[str, int]]()
    plans, needed = {plan_of(each) for each in table.metadata.snapshots}, frozenset[str]()
    for plan, path, data in list(files.erased(_MOST_BYTES)):
        fields = parse_fields(data, path, "a note about erased rows", _MOST_BYTES)
        with decoding(path, "a note about erased rows", data):
            paths = [str(each) for each in fields["paths"]]
            before = {str(name): whole_number(number) for name, number in fields["before"].items()}
        if plan not in plans:
            needed = needed or _needed(table)
        if plan in plans or not needed.isdisjoint(paths):
            found[plan] = before
            continue
        for each in (*paths, *(each for each in files.metadata_of(plan) if each not in needed)):
            files.remove(each)
        files.end_erased(plan)
    return found


def plan_of(snapshot: Snapshot) -> str | None:
    """Return the plan that committed a snapshot; None if another program did."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(PLAN)


def _manifests(table: Table) -> Iterator[ManifestFile]:
    """Yield the manifests of all snapshots, each once."""
    seen = set[str]()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest


def _needed(table: Table) -> frozenset[str]:
    """Return the paths that a snapshot refers to: manifests, and data files that it has."""
    found = {each.manifest_list for each in table.metadata.snapshots}
    for manifest in _manifests(table):
        found.add(manifest.manifest_path)
        found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return frozenset(found)
