"""What a commit of a table of newest records adds: the buckets that new rows or an election touch, written again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ts_common.errors import DataLoss
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Layout
from ts_tables.hidden_rows import HiddenRows
from ts_tables.latest.tasks import NewestTask, by_key
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Work
from ts_tables.targets import OpenedBuckets, TableChange
from ts_tables.tasks import Task, TaskResult


@dataclass(frozen=True, slots=True)
class Merged:
    """Buckets that were written again.

    Attributes:
        files: new ones, as they are described.
        replaced: paths of the former ones.
        bytes: of the former files.
    """

    files: Sequence[Mapping[str, Any]]
    replaced: Sequence[str]
    bytes: int


def merge(
    change: TableChange,
    staged: Sequence[Mapping[str, Any]],
    removed: Sequence[TakenBack],
    stage: Layout,
    run_tasks: Callable[[Sequence[Task]], Sequence[TaskResult]],
    hidden: Sequence[HiddenRows] = (),
) -> Merged:
    """Write the touched buckets again.

    Args:
        staged: new rows, as `ts_tables.latest.tasks.Staging.describe` returns them.
        removed: rows that an election removed from the log.
        stage: the layout of staged files.
        hidden: rows that lists of erased offsets hide; any bucket can have some.
    """
    opened = cast("OpenedBuckets", change.opened)
    existing, new = opened.buckets(), by_key(staged)
    touched = {*new, *existing} if hidden else {*new}
    for each in removed:
        paths = {file.path for file in opened.files_with(each)}
        touched |= {key for key, files in existing.items() if any(file.path in paths for file in files)}
    before = [tuple(existing.get(key, ())) for key in sorted(touched)]
    tasks = [
        NewestTask(
            files,
            tuple(opened.staged(path) for path in new.get(key, ())),
            tuple(removed),
            opened.layout,
            stage,
            change.files(()),
            tuple(hidden),
        )
        for key, files in zip(sorted(touched), before, strict=True)
    ]
    written = [file for result in run_tasks(tasks) for file in result.files]
    replaced = [file for files in before for file in files]
    return Merged(written, [file.path for file in replaced], sum(opened.size_of(file) for file in replaced))


def read_again(
    state: TableState, removed: Sequence[TakenBack], claimed_of: Callable[[TableState], Claimed]
) -> tuple[Work, ...]:
    """Return what is read again after an election: what the table claims below the records that it removed.

    A record that is not in the log any more may have replaced an older one of its key, or deleted the key.

    Args:
        state: of the table, before.
        removed: records that an election removed from the log.
        claimed_of: returns what a state claims, as the archive shows it.

    Raises:
        DataLoss: the archive lacks some of it.
    """
    starts: dict[tuple[TopicPartition, str | None], int] = {}
    below = replace(state, topics={})
    for each in removed:
        topic, number = each.partition.topic, each.partition.partition
        known = state.incarnation(topic, each.directory)
        if known is None:
            continue
        partition = known.partitions[number].below(each.start)
        starts[each.partition, known.topic_id] = partition.start
        other = below.incarnation(topic, each.directory) or replace(known, partitions={})
        below = below.with_incarnation(topic, replace(other, partitions={**other.partitions, number: partition}))
    if not starts:
        return ()
    claimed = claimed_of(below)
    for one, ranges in claimed.skipped.items():
        if lacking := next((each for each in ranges if each[0] != starts[one]), None):  # else below the log's start
            raise DataLoss(
                f"{one[0]}: an election removed newest records of keys, and the former ones at offsets {lacking[0]} "
                f"to {lacking[1] - 1} are missing in the archive; create the table again"
            )
    return claimed.work
