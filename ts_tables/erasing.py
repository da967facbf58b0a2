"""Makes a table obey lists of erased offsets: rows that they hide are deleted, and the state has the lists' numbers.

The list is the authority, as for each reader of the archive: no record is noted one by one, and one that is read again
after an election stays hidden. Former snapshots of an Iceberg table have the rows until they expire; the table keeps a
note about their files (`ts_tables.iceberg.erased_files`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_tables.changes import arranged, newest_without, results_of
from ts_tables.claims.state import PartitionClaims, TableState, without
from ts_tables.files.reading import TableFile
from ts_tables.hidden_rows import HiddenRows, HidingTask, Left, ShownTask
from ts_tables.parsing import Parsing, Plans, with_columns
from ts_tables.planning.erased import ErasedClaims
from ts_tables.targets import Added, OpenedTable, TableChange, Target
from ts_tables.tasks import Engine


@dataclass(frozen=True, slots=True)
class Obeyed:
    """What was done.

    Attributes:
        partitions: the number of those that obey greater lists since, in the table.
        records: whose rows were deleted; those of a table of newest records are not counted.
        notes: sentences about partitions that do not obey their lists yet.
    """

    partitions: int = 0
    records: int = 0
    notes: tuple[str, ...] = ()


def obey(target: Target, plans: Plans, engine: Engine, parsing: Parsing | None) -> Obeyed:
    """Delete the rows that lists hide from a table, and from that of its refused records; return what was done.

    Args:
        plans: returns what lists hide.
        parsing: of the records; None of a raw table.

    Raises:
        HeadMoved: a run of the table has committed meanwhile; repeat it.
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, OutcomeUnknown: as the tasks, the parser and the
            target raise them.
    """
    done = Obeyed()
    if parsing is not None:
        done = _obey(parsing.refused, plans, engine, None)
    other = _obey(target, plans, engine, parsing if parsing is not None and parsing.newest_only else None)
    return Obeyed(other.partitions, done.records + other.records, tuple(dict.fromkeys((*done.notes, *other.notes))))


def _obey(target: Target, plans: Plans, engine: Engine, newest: Parsing | None) -> Obeyed:
    """Make one table obey; `newest` is the parsing of a table of newest records."""
    opened: OpenedTable = target.open()
    found = plans.erased(opened.state)
    state, notes, staying = opened.state, [*found.notes], list[str]()
    hidden, before = list[HiddenRows](), dict[str, int]()
    for each in found.claims:
        known = _claims_of(state, each)
        offsets = _without_shown(each, engine)
        kept = [one for one in known.kept if each.offsets.meets(one.start, one.end)]
        if kept:
            offsets = _outside(offsets, [(one.start, one.end) for one in kept])
            staying.append(
                f"{each.partition}: the table has records of two leaders at offsets {kept[0].start} to "
                f"{kept[0].end - 1}, and one of them can be erased: create the table again"
            )
        else:
            changed = replace(known, obeyed=_after(known, each))
            state = state.with_partition(each.partition.topic, each.directory, each.partition.partition, changed)
        before |= {name: dict(known.obeyed).get(name, 0) for name, _ in each.lists}
        if offsets:
            hidden.append(HiddenRows(each.partition, each.topic_id, offsets))
    notes += staying
    if not hidden and state == opened.state:
        return Obeyed(notes=tuple(notes))
    with target.change(opened) as change:
        added, after, records = _deleted(change, state, hidden, plans, engine, newest)
        if added.replaced or state != opened.state:
            change.note_erased(before, hidden, added)
            change.commit(after, added)
    return Obeyed(len(found.claims) - len(staying), records, tuple(notes))


def _deleted(
    change: TableChange,
    state: TableState,
    hidden: Sequence[HiddenRows],
    plans: Plans,
    engine: Engine,
    newest: Parsing | None,
) -> tuple[Added, TableState, int]:
    """Write what stays of the files with hidden rows; return what a commit adds, its state, and the records."""
    opened = change.opened
    if newest is not None and hidden:
        refused: OpenedTable = newest.refused.open()
        parsing = replace(newest.at(opened.state), settled=refused)
        work = plans.claimed(_only(opened.state, hidden)).work
        added, parser = newest_without(change, work, hidden, engine, parsing)
        return added, with_columns(state, parser), 0
    affected: dict[str, tuple[TableFile, list[HiddenRows]]] = {}
    for each in hidden:
        for file in opened.files_meeting(each.partition, each.topic_id, each.offsets):
            affected.setdefault(file.path, (file, []))[1].append(each)
    tasks = [
        HidingTask(file, opened.layout, tuple(some), change.files(opened.covered(file)))
        for file, some in affected.values()
    ]
    results: Sequence[Left] = results_of(engine, tasks)
    changed = [(task, left) for task, left in zip(tasks, results, strict=True) if left.records]
    files = [each for _, left in changed for each in left.files]
    added = arranged(change, files, [task.file.path for task, _ in changed], engine)
    return added, state, sum(left.records for _, left in changed)


def _claims_of(state: TableState, each: ErasedClaims) -> PartitionClaims:
    incarnation = state.incarnation(each.partition.topic, each.directory)
    if incarnation is None:
        raise AssertionError(f"the table has no claims of {each.directory}")
    return incarnation.partitions[each.partition.partition]


def _after(known: PartitionClaims, each: ErasedClaims) -> tuple[tuple[str, int], ...]:
    """Return the lists that a partition obeys after it; a list that others lost keeps its number."""
    numbers = dict(known.obeyed)
    for name, number in each.lists:
        numbers[name] = max(number, numbers.get(name, 0))
    return tuple(sorted(numbers.items()))


def _without_shown(each: ErasedClaims, engine: Engine) -> ErasedOffsets:
    """Return the offsets of lists without those where the archive shows a record, of a later leader."""
    shown = [offset for some in results_of(engine, [ShownTask(work) for work in each.doubtful]) for offset in some]
    return _outside(each.offsets, [(offset, offset + 1) for offset in shown])


def _outside(offsets: ErasedOffsets, ranges: Sequence[tuple[int, int]]) -> ErasedOffsets:
    """Return offsets that are in none of some ranges."""
    if not ranges:
        return offsets
    ranges = sorted(ranges)
    left = []
    for start, end, epoch in offsets:
        near = [each for each in ranges if each[0] < end and each[1] > start]
        left += [(low, high, epoch) for low, high in without((start, end), near)]
    return ErasedOffsets.ascending(left)


def _only(state: TableState, hidden: Sequence[HiddenRows]) -> TableState:
    """Return the claims of some partitions alone."""
    wanted = {(each.partition.topic, each.topic_id, each.partition.partition) for each in hidden}
    topics = {
        name: tuple(
            replace(
                each, partitions={n: one for n, one in each.partitions.items() if (name, each.topic_id, n) in wanted}
            )
            for each in incarnations
        )
        for name, incarnations in state.topics.items()
    }
    return replace(state, topics=topics)
