"""The head of a table: our last snapshot, by the tag `ts-head`, and the state that its summary has.

`check` compares the head with the table's `main`: whether something else wrote the table since, and what.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import zstandard
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from ts_common.errors import CorruptData
from ts_tables.claims.state import MOST_BYTES, TableState
from ts_tables.iceberg.transaction import HEAD

STATE: Final = "ts.state"
STATE_OBJECT: Final = "ts.state-object"
STATE_DIGEST: Final = "ts.state-sha256"
PLAN: Final = "ts.plan"
_INLINE_BYTES: Final = 16 << 10  # metadata.json repeats every summary at every commit


@dataclass(frozen=True, slots=True)
class Head:
    """Our last snapshot of a table."""

    snapshot_id: int
    sequence_number: int
    state: TableState


class HeadFinding(Enum):
    """What `check` can find."""

    SAME = "same"
    MAINTAINED = "maintained"
    FOREIGN = "foreign"
    ROLLED_BACK = "rolled back"
    MOVED = "moved"
    UNKNOWN = "unknown"
    NO_HEAD = "no head"


@dataclass(frozen=True, slots=True)
class Check:
    """What happened to a table since our last snapshot.

    Attributes:
        finding: the worst of it.
        snapshots: of others since; the ids of those that change rows.
        detail: one sentence for the user.
    """

    finding: HeadFinding
    snapshots: tuple[int, ...] = ()
    detail: str = ""


def read_head(table: Table) -> Head | None:
    """Return the head of a table; None if it has none.

    Raises:
        CorruptData: the tag's snapshot has no state, or a wrong one.
        NewerFormat: a later release wrote it.
        Exception: what pyiceberg's file systems raise.
    """
    ref = table.metadata.refs.get(HEAD)
    if ref is None:
        return None
    snapshot = table.metadata.snapshot_by_id(ref.snapshot_id)
    if snapshot is None or not _is_ours(snapshot):
        name = ".".join(table.name())
        raise CorruptData(f"table {name}: snapshot {ref.snapshot_id} of tag {HEAD} is no commit of this program")
    return _head(table, snapshot)


def last_known(table: Table) -> Head | None:
    """Return our last commit that `main` descends from, else the head; None without both. Raise as `read_head`.

    Args:
        table: as it was loaded; its tag may be missing or moved.
    """
    metadata = table.metadata
    main = metadata.refs.get(MAIN_BRANCH)
    current = None if main is None else metadata.snapshot_by_id(main.snapshot_id)
    while current is not None:
        if _is_ours(current):
            return _head(table, current)
        parent = current.parent_snapshot_id
        current = None if parent is None else metadata.snapshot_by_id(parent)
    return read_head(table)


def _head(table: Table, snapshot: Snapshot) -> Head:
    name = ".".join(table.name())
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    data = summary[STATE].encode() if STATE in summary else _read_state_object(table.io, summary, name)
    state = TableState.decode(data, f"table {name}: state of snapshot {snapshot.snapshot_id}")
    return Head(snapshot.snapshot_id, snapshot.sequence_number or 0, state)


def summary_of(state: TableState, io: FileIO, location: str, plan: str) -> dict[str, str]:
    """Return the properties of a snapshot with a state; a large state is written as an object.

    Args:
        state: of the table after the commit.
        plan: id of the plan that is committed.

    Raises:
        Exception: what pyiceberg's file systems raise.
    """
    data = state.encode()
    if len(data) <= _INLINE_BYTES:
        return {STATE: data.decode(), PLAN: plan}
    path = f"{location}/_ts/state-{plan}.json.zstd"  # pyarrow would compress what it writes to a name in .zst
    packed = zstandard.compress(data)
    with io.new_output(path).create(overwrite=True) as stream:
        stream.write(packed)
    return {STATE_OBJECT: path, STATE_DIGEST: hashlib.sha256(packed).hexdigest(), PLAN: plan}


def _read_state_object(io: FileIO, summary: Mapping[str, str], name: str) -> bytes:
    path = summary[STATE_OBJECT]
    with io.new_input(path).open() as stream:
        packed = stream.read()
    if hashlib.sha256(packed).hexdigest() != summary.get(STATE_DIGEST):
        raise CorruptData(f"table {name}: {path} is not the state that the snapshot's summary names")
    try:
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=MOST_BYTES)
    except zstandard.ZstdError as error:
        raise CorruptData(f"table {name}: {path}: {error}") from error


def check(table: Table, head: Head | None) -> Check:
    """Return what happened to a table since our last snapshot, from `main` back to the head.

    Args:
        table: as it was loaded.
    """
    metadata = table.metadata
    main = metadata.refs.get(MAIN_BRANCH)
    if head is None:
        return _without_head(table)
    current = None if main is None else metadata.snapshot_by_id(main.snapshot_id)
    foreign: list[Snapshot] = []
    maintained = False
    while current is not None and current.snapshot_id != head.snapshot_id:
        if current.sequence_number is not None and current.sequence_number <= head.sequence_number:
            return Check(
                HeadFinding.ROLLED_BACK,
                detail=f"main was rolled back: it descends from snapshot {current.snapshot_id}, before our commit "
                f"{head.snapshot_id}; it does not have the rows of later commits",
            )
        if _is_ours(current):
            return Check(
                HeadFinding.MOVED,
                detail=f"tag {HEAD} was moved back to snapshot {head.snapshot_id}: snapshot {current.snapshot_id} is a "
                "later commit of this program",
            )
        if _operation(current) is Operation.REPLACE:
            maintained = True
        else:
            foreign.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else metadata.snapshot_by_id(parent)
    if current is None or current.snapshot_id != head.snapshot_id:
        return _across_expiry(table, head, foreign)
    if foreign:
        return Check(HeadFinding.FOREIGN, tuple(each.snapshot_id for each in foreign), _named(foreign))
    return Check(HeadFinding.MAINTAINED if maintained else HeadFinding.SAME)


def _without_head(table: Table) -> Check:
    """Decide without our tag."""
    metadata = table.metadata
    if any(map(_is_ours, metadata.snapshots)):
        return Check(HeadFinding.NO_HEAD, detail=f"tag {HEAD} was removed; `tsctl tables adopt` begins from its rows")
    if MAIN_BRANCH not in metadata.refs:
        return Check(HeadFinding.NO_HEAD, detail="the table has no commit of this program yet")
    return Check(HeadFinding.NO_HEAD, detail="no run of this program made it; create a table of another name")


def _across_expiry(table: Table, head: Head, foreign: list[Snapshot]) -> Check:
    """Decide without the snapshots between: they expired."""
    metadata = table.metadata
    ours, main = metadata.snapshot_by_id(head.snapshot_id), metadata.current_snapshot()
    if foreign:
        detail = f"{_named(foreign)}, and the snapshots before them expired"
        return Check(HeadFinding.UNKNOWN, tuple(each.snapshot_id for each in foreign), detail)
    if ours is None or main is None:
        return Check(HeadFinding.UNKNOWN, detail="main has no snapshot")
    before, now = _totals(ours), _totals(main)
    is_later = main.sequence_number is not None and main.sequence_number > head.sequence_number
    if is_later and before is not None and before == now:
        return Check(HeadFinding.MAINTAINED)
    return Check(
        HeadFinding.UNKNOWN,
        detail="the snapshots between our commit and main expired, and the numbers of rows and deletes differ "
        f"({before}, now {now})",
    )


def _totals(snapshot: Snapshot) -> tuple[str, str] | None:
    """Return the numbers of rows and of delete files of a snapshot; None if its summary lacks them."""
    if snapshot.summary is None:
        return None
    found = snapshot.summary.additional_properties
    rows = found.get("total-records")
    return None if rows is None else (rows, found.get("total-delete-files", "0"))


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def _is_ours(snapshot: Snapshot) -> bool:
    found = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return STATE in found or STATE_OBJECT in found


def _named(foreign: list[Snapshot]) -> str:
    shown = ", ".join(
        f"{each.snapshot_id} ({'unknown' if (found := _operation(each)) is None else found.value})"
        for each in foreign[:10]
    )
    return f"others wrote rows since our last commit: snapshots {shown}"
