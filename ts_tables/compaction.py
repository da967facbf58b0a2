"""A compaction of an Iceberg table: another program rewrites small files, and expires snapshots.

Rewritten files are in new snapshots after our last commit. If the snapshots between expired, `main` would no longer
descend from the commit that the tag `ts-head` marks. A later run could not distinguish that from a table that was built
again. So the tag moves first, to an empty commit with the same state. The check before it sees every snapshot since our
last commit.

Runs may commit at any time. A run that commits before the tag moves has moved the tag itself. A run that began
before that and commits later is refused, as the second one of two runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from time import time
from typing import Final, Protocol

from ts_common.errors import OperatorError
from ts_tables.iceberg.target import IcebergTarget
from ts_tables.iceberg.transaction import HEAD
from ts_tables.targets import HeadMoved

EXPIRE_AFTER: Final = 5 * 86_400  # seconds; Iceberg's own default
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was rewritten.

    Attributes:
        files: data files that were read.
        written: data files that replace them.
        bytes: of the files that were read.
        manifests: that were replaced.
    """

    files: int
    written: int
    bytes: int
    manifests: int


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry deleted."""

    data_files: int
    files: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did.

    Attributes:
        rewritten: small files and manifests.
        expired: what the expiry deleted.
        files: data files of the table now.
    """

    rewritten: Rewritten
    expired: Expired
    files: int
    bytes: int


def together(done: Sequence[Compaction]) -> Compaction:
    """Return what the compactions of a table and of that of its refused records did."""
    rewritten, expired = [each.rewritten for each in done], [each.expired for each in done]
    return Compaction(
        Rewritten(*(sum(getattr(each, field.name) for each in rewritten) for field in fields(Rewritten))),
        Expired(*(sum(getattr(each, field.name) for each in expired) for field in fields(Expired))),
        sum(each.files for each in done),
        sum(each.bytes for each in done),
    )


class Procedures(Protocol):
    """A program that maintains one table: `ts_tables.engines.spark.procedures` describes what each call raises."""

    def snapshot_of(self, ref: str) -> int | None:
        """Return the snapshot of a branch or a tag; None if it does not exist."""
        ...

    def rewrite(self, *, is_sorted: bool) -> Rewritten:
        """Rewrite small files, then manifests."""
        ...

    def expire(self, before: float, retain_last: int) -> Expired:
        """Expire snapshots before a Unix time, and delete files that no snapshot has."""
        ...


def compact(
    target: IcebergTarget, procedures: Procedures, expire_after: float = EXPIRE_AFTER, retain_last: int = 1
) -> Compaction:
    """Rewrite the small files of a table, move the tag, and expire snapshots; return what was done.

    Args:
        procedures: of the same table.
        expire_after: age in seconds of the snapshots that expire.
        retain_last: so many snapshots stay, however old they are.

    Raises:
        HeadMoved: others committed each time when the tag was to move; nothing has expired.
        OperatorError, CorruptData: runs of the table fail, or the other program has another table.
        AccessDenied, StoreUnavailable, OutcomeUnknown: from the catalog, the store or the other program.
    """
    seen = procedures.snapshot_of(HEAD)
    opened = target.open()
    if seen is None or opened.table.metadata.snapshot_by_id(seen) is None:
        raise OperatorError(
            f"table {'.'.join(opened.table.name())}: the catalog of Spark has another table of this name; compare the "
            "settings of the catalog with those below `spark`"
        )
    rewritten = procedures.rewrite(is_sorted=bool(opened.layout.sort))
    _move_tag(target)
    expired = procedures.expire(time() - expire_after, retain_last)
    target.clean()
    contents = target.contents()
    return Compaction(rewritten, expired, contents.files, contents.bytes)


def _move_tag(target: IcebergTarget) -> None:
    """Commit the state of the table on its `main`, after a check of what happened since our last commit."""
    for attempt in range(1, _TRIES + 1):
        opened = target.open()
        if opened.head == opened.table.metadata.current_snapshot_id:
            return
        try:
            target.adopt(opened)
        except HeadMoved:  # a run, or another program: what it did is checked next
            if attempt == _TRIES:
                raise
        else:
            return
