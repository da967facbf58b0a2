"""A verification of a table: sums of both sides, then the rows of blocks that differ."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ts_common.model import TopicPartition
from ts_reader.decode.digest import BLOCK_OFFSETS, DIGEST, DigestSum, parse_sums
from ts_tables.claims.state import Forgotten, Kept, TableState
from ts_tables.files.layout import Layout
from ts_tables.parse_tasks import Settled
from ts_tables.parsers.contract import Parser
from ts_tables.planning.claimed import Claimed
from ts_tables.planning.work import Work
from ts_tables.targets import OpenedTable
from ts_tables.tasks import Digests, Engine
from ts_tables.verify.compare import Difference, differences, different_blocks
from ts_tables.verify.newest import NewestRecords, NewestRows, NewestSums, by_partition
from ts_tables.verify.sums import (
    PARSED,
    ArchiveRows,
    ArchiveSums,
    Block,
    FileRows,
    FileSums,
    Skipped,
    Sums,
    added,
    raw_columns,
)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a comparison.

    Attributes:
        snapshot: of the table that was compared.
        sums: of its rows, by block of a million offsets.
        notes: sentences about claims that could not be compared.
    """

    snapshot: str
    state: TableState
    sums: Sums
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of the table's rows that were compared."""
        return sum(each.rows for each in self.sums.values())

    def document(self) -> dict[str, Any]:
        """Return JSON values: the snapshot, the claims, the sums by block and the differences."""
        return {
            "snapshot": self.snapshot,
            "state": self.state.fields(),
            "digest": DIGEST,
            "blocks": [
                {
                    "topic": block.topic,
                    "topic_id": block.topic_id,
                    "partition": block.partition,
                    "from": block.number * BLOCK_OFFSETS,
                    "to": (block.number + 1) * BLOCK_OFFSETS,
                    "rows": each.rows,
                    "sums": each.text,
                }
                for block, each in sorted(self.sums.items(), key=lambda one: one[0].order)
            ],
            "differences": [
                {
                    "kind": each.kind.value,
                    "topic": each.block.topic,
                    "topic_id": each.block.topic_id,
                    "partition": each.block.partition,
                    "from": each.start,
                    "to": each.end,
                }
                for each in self.differences
            ],
            "notes": list(self.notes),
        }


def verify(
    opened: OpenedTable,
    claimed: Claimed,
    run_tasks: Engine,
    refused: OpenedTable | None = None,
    newest: Parser | None = None,
) -> Verification:
    """Compare a table with the archive.

    Args:
        claimed: its claims, as the archive shows them.
        run_tasks: an engine: runs tasks, and returns their results in their order.
        refused: the table of records that the parser refused; None of a raw table. Each record is in one of both.
        newest: the parser of a table of newest records; None of others.

    Raises:
        CorruptData, BatchTooLarge, ObjectNotFound, StoreUnavailable, AccessDenied: from the archive or the table.
    """
    if newest is not None:
        claimed = whole(claimed, opened.state)
    columns = raw_columns(opened.layout) if refused is None else PARSED
    parts = [(file, claimed.skipped, columns) for file in opened.all_files()]
    layout = opened.layout
    if refused is not None:
        layout = refused.layout  # a parsed row has the digest of its record, which needs no column of the table
        ahead = _with_ahead(claimed.skipped, opened.state, refused.state)
        parts += [(file, ahead, raw_columns(layout)) for file in refused.all_files()]
    forgotten = opened.state.forgotten_with(None if refused is None else refused.state)

    theirs: _Newest | _All
    if newest is not None and refused is not None:
        settled = Settled(tuple(refused.all_files()), refused.layout)
        theirs = _Newest.of(claimed, newest, forgotten, settled)
    else:
        theirs = _All(claimed.work, forgotten, layout)
    archive = added(run_tasks(theirs.sums()))
    table = added(run_tasks([FileSums(*part) for part in parts]))
    kept = _all_kept(opened, refused, claimed)
    kept_sums = {
        block: sum((parse_sums(each.rows, each.digest) for each in some), DigestSum()) for block, some in kept.items()
    }
    found: list[Difference] = []
    for block in different_blocks(table, archive, kept_sums):
        expected = run_tasks(theirs.rows(block))
        ours = run_tasks([FileRows(file, block, skipped, columns) for file, skipped, columns in parts])
        found += differences(
            block, together(ours), together(expected), [(each.start, each.end) for each in kept.get(block, ())]
        )
    return Verification(opened.snapshot, opened.state, table, tuple(found), claimed.notes)


@dataclass(frozen=True, slots=True)
class _All:
    """The records that a table claims, for the comparison."""

    work: Sequence[Work]
    forgotten: Forgotten
    layout: Layout

    def sums(self) -> Sequence[Callable[[], Any]]:
        """Return tasks that sum the records."""
        return [ArchiveSums(work, _of(self.forgotten, work), self.layout) for work in self.work]

    def rows(self, block: Block) -> Sequence[Callable[[], Any]]:
        """Return tasks that read the records of a block."""
        return [
            ArchiveRows(work, _of(self.forgotten, work), block, self.layout)
            for work in self.work
            if can_have(work, block)
        ]


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest records of the keys that a table claims, for the comparison."""

    records: Sequence[NewestRecords]

    @classmethod
    def of(cls, claimed: Claimed, parser: Parser, forgotten: Forgotten, settled: Settled) -> "_Newest":
        parts = by_partition(claimed.work)
        return cls([NewestRecords(work, parser, _of(forgotten, work[0]), settled) for work in parts])

    def sums(self) -> Sequence[Callable[[], Any]]:
        """Return tasks that sum the records."""
        return [NewestSums(each) for each in self.records]

    def rows(self, block: Block) -> Sequence[Callable[[], Any]]:
        """Return tasks that read the records of a block."""
        return [NewestRows(each, block) for each in self.records if any(can_have(work, block) for work in each.work)]


def _of(forgotten: Forgotten, work: Work) -> Digests:
    return forgotten.get((work.partition, work.topic_id), {})


def _all_kept(opened: OpenedTable, refused: OpenedTable | None, claimed: Claimed) -> dict[Block, list[Kept]]:
    """Return the rows that an election removed and that stay, of both tables, by block."""
    kept = _kept(opened.state, claimed.skipped)
    if refused is not None:
        for block, some in _kept(refused.state, claimed.skipped).items():
            kept.setdefault(block, []).extend(some)
    return kept


def whole(claimed: Claimed, state: TableState) -> Claimed:
    """Return claims without partitions whose newest records are not all in the archive.

    What is below the start of the log is older than all that is compared.
    """
    skipped = dict(claimed.skipped)
    notes = [*claimed.notes]
    for topic, incarnations in state.topics.items():
        for each in incarnations:
            for number, known in each.partitions.items():
                key = (TopicPartition(topic, number), each.topic_id)
                if any(start != known.start for start, _ in skipped.get(key, ())):
                    skipped[key] = ((known.start, known.end),)
                    notes.append(
                        f"{topic}-{number}: no row was compared, as the newest records of keys need the whole log"
                    )
    left = [one for one in claimed.work if not _is_skipped(one, skipped)]
    return Claimed(tuple(left), skipped, tuple(notes))


def _is_skipped(work: Work, skipped: Skipped) -> bool:
    covered = work.covered
    return any(
        start <= covered.start and covered.end <= end for start, end in skipped.get((work.partition, work.topic_id), ())
    )


def _with_ahead(skipped: Skipped, state: TableState, refused: TableState) -> Skipped:
    """Return ranges that are not compared, with those that only the table of refused records has claimed."""
    found = dict(skipped)
    for topic, incarnations in refused.topics.items():
        for each in incarnations:
            known = state.incarnation(topic, each.directory)
            for number, claims in each.partitions.items():
                behind = None if known is None else known.partitions.get(number)
                key = (TopicPartition(topic, number), each.topic_id)
                begin = claims.start if behind is None else behind.end
                if begin < claims.end:
                    found[key] = (*found.get(key, ()), (begin, claims.end))
    return found


def together(counted: Iterable[Counter[Any]]) -> Counter[Any]:
    """Return rows together."""
    total: Counter[Any] = Counter()
    for each in counted:
        total.update(each)
    return total


def can_have(work: Work, block: Block) -> bool:
    """Return whether what is read can have rows of a block."""
    start, end = block.number * BLOCK_OFFSETS, (block.number + 1) * BLOCK_OFFSETS
    ranges = work.split.ranges
    is_of = (work.partition, work.topic_id) == (TopicPartition(block.topic, block.partition), block.topic_id)
    return is_of and ranges[0].start < end and ranges[-1].end > start


def _kept(state: TableState, skipped: Skipped) -> dict[Block, list[Kept]]:
    """Return the rows that an election removed, and that the table keeps, by block, as far as they are compared."""
    found: dict[Block, list[Kept]] = {}
    for topic, incarnations in state.topics.items():
        for incarnation in incarnations:
            for number, claims in incarnation.partitions.items():
                left_out = skipped.get((TopicPartition(topic, number), incarnation.topic_id), ())
                for each in claims.kept:
                    if not any(start < each.end and end > each.start for start, end in left_out):
                        block = Block(topic, incarnation.topic_id, number, each.start // BLOCK_OFFSETS)
                        found.setdefault(block, []).append(each)
    return found
