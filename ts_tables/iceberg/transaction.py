"""A change of an Iceberg table as updates and requirements, staged by pyiceberg and sent by `catalog.commit_table`.

The only module that uses private parts of pyiceberg: `Transaction._updates` and `Transaction._requirements`, pinned by
a test. `Transaction.commit_transaction` is never called: after an answer that was lost it can add the files twice, or
delete the manifests of a snapshot that landed.

Each change moves the tag `ts-head` to its snapshot, and requires that the tag is where the plan began. So two runs
cannot both land, and the tag keeps its snapshot, with the table's state, from expiry.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Final
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

HEAD: Final = "ts-head"


@dataclass(frozen=True, slots=True)
class Staged:
    """A change that `catalog.commit_table` can send.

    Attributes:
        snapshot_id: of its snapshot.
        updates: of the table.
        requirements: without which it is refused.
    """

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


def stage(
    table: Table,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    summary: Mapping[str, str],
    head: int | None,
    plan: str,
) -> Staged:
    """Return a change that adds and removes data files; with neither it is a snapshot of its summary.

    Manifests are written here; a change that does not land leaves them.

    Args:
        table: as it was loaded.
        added: files of its current schema and partition spec.
        removed: files of it, whose rows `added` has as far as they stay.
        summary: properties of the snapshot.
        head: the snapshot that the tag must have; None without a tag.
        plan: id of the plan, 16 hexadecimal digits: the names of manifests begin with it, so that they can be removed.

    Raises:
        Exception: what pyiceberg and its file systems raise.
    """
    metadata = table.metadata
    removed = tuple(removed)
    transaction = Transaction(table)
    update = transaction.update_snapshot(snapshot_properties=dict(summary))
    with update.overwrite() if removed else update.fast_append() as change:
        change.commit_uuid = UUID(hex=plan + token_hex(8))  # an earlier attempt can still land: no name is used twice
        for each in removed:
            change.delete_data_file(each)
        for each in added:
            change.append_data_file(each)
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
    moved = SetSnapshotRefUpdate.model_validate({"ref-name": HEAD, "type": "tag", "snapshot-id": change.snapshot_id})
    return Staged(change.snapshot_id, (*transaction._updates, moved), requirements)
