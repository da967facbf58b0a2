"""Commits of an Iceberg table that land once, whatever the catalog answers.

After any error the table is loaded and our snapshot looked for: an answer can be lost after the change landed, and a
proxy or an SDK that repeats the request turns that into a conflict. If the head is where the plan began, and only
`main` moved, as by a compaction, the same files are committed on the new `main`. If the head moved, another run has
committed: the plan is out of date, and its files are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from ts_common.errors import OutcomeUnknown
from ts_tables.iceberg.head import Check, check, read_head
from ts_tables.iceberg.transaction import OtherColumns, SnapshotChange, stage
from ts_tables.iceberg.translated_errors import calling
from ts_tables.targets import HeadMoved

_TRIES: Final = 5

log = structlog.get_logger("ts_tables")


@dataclass(frozen=True, slots=True)
class Committed:
    """A change that landed.

    Attributes:
        table: with the change; it can have later changes of others too.
        refused: attempts that the catalog refused because of others' commits.
    """

    table: Table
    snapshot_id: int
    refused: int


def commit(
    catalog: Catalog,
    name: tuple[str, ...],
    change: SnapshotChange,
    head: int | None,
    accept: Callable[[Check], None],
    *,
    keeps_main: bool = False,
) -> Committed:
    """Commit a change, and return the table with it.

    Args:
        change: to commit.
        head: the snapshot that the plan began from; None for a table without our commits.
        keeps_main: whether `main` must be as the change was planned, although no file is removed.
        accept: raises if what happened to the table since does not allow a commit.

    Raises:
        HeadMoved: another run has committed.
        OperatorError, CorruptData: the table does not allow a commit; nothing has landed.
        StoreUnavailable: the catalog or the store does not answer.
        OutcomeUnknown: no attempt has landed so far; one still can, before another run commits.
    """
    label = f"table {'.'.join(name)}"
    tried: set[int] = set()
    refused, was_refused = 0, False
    for _ in range(_TRIES):
        with calling(label):
            table = catalog.load_table(name)
            if (landed := _landed(table, tried)) is not None:
                return Committed(table, landed, refused)
            refused += was_refused
            found = read_head(table)
            if (None if found is None else found.snapshot_id) != head:
                raise HeadMoved(f"{label}: another run has committed since this one was planned; run it again")
            accept(check(table, found))
            main = table.metadata.current_snapshot_id
            if (change.removed or keeps_main) and main != change.main:
                raise HeadMoved(f"{label}: others have written it since this change was planned; run it again")
            try:
                staged = stage(table, change, head)
            except OtherColumns as error:
                raise HeadMoved(
                    f"{label}: others have added columns since this change was planned; run it again"
                ) from error
        tried.add(staged.snapshot_id)
        try:
            answer = catalog.commit_table(table, staged.requirements, staged.updates)
        except Exception as error:  # noqa: BLE001  (whatever it is: the table has the answer)
            log.info("table_commit_unanswered", table=label, error=f"{type(error).__name__}: {error}")
            was_refused = isinstance(error, CommitFailedException)
            continue
        after = Table(table.name(), answer.metadata, answer.metadata_location, table.io, catalog, table.config)
        return Committed(after, staged.snapshot_id, refused)
    if (landed := _landed(table := load(catalog, name), tried)) is not None:
        return Committed(table, landed, refused)
    raise OutcomeUnknown(f"{label}: {_TRIES} commits were refused or unanswered, and none has landed; run it again")


def load(catalog: Catalog, name: tuple[str, ...]) -> Table:
    """Return a table as it is now.

    Raises:
        OperatorError, StoreUnavailable: the catalog does not have it, or does not answer.
    """
    with calling(f"table {'.'.join(name)}"):
        return catalog.load_table(name)


def _landed(table: Table, tried: set[int]) -> int | None:
    """Return the snapshot of an attempt that landed, perhaps later than its error; None if no attempt did."""
    return next((each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id in tried), None)
