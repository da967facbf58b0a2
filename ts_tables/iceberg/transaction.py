"""A change of an Iceberg table as updates and requirements, staged by pyiceberg and sent by `catalog.commit_table`.

The only module that uses private parts of pyiceberg: `Transaction._updates`, `Transaction._requirements`, and what
counts the partitions of a snapshot's summary; a test pins them. `Transaction.commit_transaction` is never called: after
an answer that was lost it can add the files twice, or delete the manifests of a snapshot that landed.

Each change moves the tag `ts-head` to its snapshot, and requires that the tag is where the plan began. So two runs
cannot both land, and the tag keeps its snapshot, with the table's state, from expiry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import SnapshotSummaryCollector
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    snapshot,
)
from pyiceberg.types import NestedField, PrimitiveType

HEAD: Final = "ts-head"


@dataclass(frozen=True, slots=True)
class Staged:
    """A change that `catalog.commit_table` can send.

    Attributes:
        requirements: without which it is refused.
    """

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


class _Summary(SnapshotSummaryCollector):
    """Counts changed partitions. pyiceberg counts them by their paths, and has none beyond the years 1 to 9999."""

    def update_partition_metrics(self, partition_spec: Any, file: DataFile, is_add_file: bool, schema: Schema) -> None:
        try:
            super().update_partition_metrics(partition_spec, file, is_add_file, schema)
        except (OverflowError, ValueError):
            metrics = self.partition_metrics[str(file.partition)]
            (metrics.add_file if is_add_file else metrics.remove_file)(file)


snapshot.SnapshotSummaryCollector = _Summary  # type: ignore[attr-defined]


class OtherColumns(Exception):
    """New columns would get other ids than those in the files: others have added columns meanwhile."""


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """What a commit changes.

    Attributes:
        added: data files of the current schema, with the new columns, and of the current partition spec.
        removed: data files whose rows `added` has as far as they stay.
        summary: properties of the snapshot.
        plan: its id, 16 hexadecimal digits: the names of manifests begin with it, so that they can be removed.
        main: the snapshot of `main` when it was planned; it counts if files are removed.
        columns: new ones, with the ids that files have for them, and those whose type gets wider.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    summary: Mapping[str, str]
    plan: str
    main: int | None = None
    columns: Sequence[NestedField] = ()


def with_columns(table: Table, schema: Schema, fields: Sequence[NestedField]) -> Schema:
    """Return a schema with further columns, with the ids that a commit gives them; nothing is sent.

    Args:
        table: as it was loaded.
        schema: of the table, perhaps with such columns.
        fields: all columns; the ids of new ones do not matter. One whose type is wider widens that of the table.

    Raises:
        Exception: what pyiceberg raises.
    """
    before = changed_columns(table, schema.fields)
    given = {field.name: field for field in schema.fields}
    wanted = [field for field in fields if field.name not in given or _differs(given[field.name], field)]
    names = {field.name for field in wanted}
    new = [*(field for field in before if field.name not in names), *wanted]
    return _change_columns(Transaction(table), new) if new else schema


def changed_columns(table: Table, fields: Sequence[NestedField]) -> list[NestedField]:
    """Return the columns that a table lacks, and those that have another type there.

    Args:
        table: as it was loaded.
        fields: all columns.
    """
    known = {field.name: field for field in table.schema().fields}
    return [field for field in fields if field.name not in known or _differs(known[field.name], field)]


def _differs(before: NestedField, after: NestedField) -> bool:
    """Return whether a column gets another type; pyiceberg accepts wider ones only, and no nested one changes."""
    return before.field_type != after.field_type and before.field_type.is_primitive


def _change_columns(transaction: Transaction, columns: Sequence[NestedField]) -> Schema:
    """Add columns to the schema of a transaction, or widen their types, and return it."""
    known = {field.name for field in transaction.table_metadata.schema().fields}
    with transaction.update_schema() as update:
        for column in columns:
            if column.name not in known:
                update.add_column((column.name,), column.field_type)
            elif isinstance(column.field_type, PrimitiveType):
                update.update_column((column.name,), column.field_type)
    return transaction.table_metadata.schema()


def stage(table: Table, change: SnapshotChange, head: int | None) -> Staged:
    """Return a change that adds and removes data files; with neither it is a snapshot of its summary.

    Manifests are written here; a change that does not land leaves them.

    Args:
        table: as it was loaded.
        change: to stage.
        head: the snapshot that the tag must have; None without a tag.

    Raises:
        OtherColumns: the ids of new columns are used.
        Exception: what pyiceberg and its file systems raise.
    """
    metadata = table.metadata
    transaction = Transaction(table)
    if change.columns:
        found = _change_columns(transaction, change.columns)
        if any(found.find_field(column.name) != column for column in change.columns):
            raise OtherColumns
    update = transaction.update_snapshot(snapshot_properties=dict(change.summary))
    with update.overwrite() if change.removed else update.fast_append() as files:
        # An earlier attempt can still land: no name is used twice.
        files.commit_uuid = UUID(hex=change.plan + token_hex(8))
        for each in change.removed:
            files.delete_data_file(each)
        for each in change.added:
            files.append_data_file(each)
    main = metadata.refs.get(MAIN_BRANCH)
    # `_stage` keeps one requirement of each type.
    kept = tuple(each for each in transaction._requirements if not isinstance(each, AssertRefSnapshotId))
    asserted = {MAIN_BRANCH: None if main is None else main.snapshot_id}
    if metadata.snapshots:  # pyiceberg's catalogs refuse the assertion of a tag before the first snapshot
        asserted[HEAD] = head
    requirements: tuple[TableRequirement, ...] = (
        *(each for each in kept if not isinstance(each, AssertTableUUID | AssertCurrentSchemaId | AssertDefaultSpecId)),
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        *(AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": at}) for ref, at in asserted.items()),
    )
    moved = SetSnapshotRefUpdate.model_validate({"ref-name": HEAD, "type": "tag", "snapshot-id": files.snapshot_id})
    return Staged(files.snapshot_id, (*transaction._updates, moved), requirements)
