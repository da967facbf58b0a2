"""The state of a table: which offsets it has claimed. It is stored in the table, in the commit of its data.

::

    {"version":1,"cluster":"prod","isolation":"read_committed",
     "topics":{"orders":[{"directory":"orders","id":"pQ1r...","partitions":{"0":{
       "from":0,"to":250,"epochs":[[0,0],[3,120]],"lineage":[3,120,140],
       "holes":[[100,120,[[7,90]]]],"lost":[[20,30]],"kept":[[200,210,9,"88...:1f..."]]}}}]}}

A topic has an entry for each incarnation, in their order. `directory` identifies it, as in the archive. `id` is the
topic id when the table first claimed of it, and the `_topic_id` of its rows. `from` and `to` bound the claims of a
partition. `epochs` are those of the archive's commit below `to`, and `lineage` is the commit's. By both the table finds
what an election removed from the log (`ts_common.archive.read_log`). Null is no lineage; without the field, which
earlier releases did not write, the lineage is unknown. The claims leave out:

- `holes`: offsets that the archive lacked. For each, the producers whose transactions were open at it, with their
  first offsets: `read_committed` withheld their records below the hole. A late claim adds both.
- `lost`: offsets below the start of the log when the table reached them.

A parsed table, and the table of its refused records, have `parser`: the identity of what made their rows. `columns`
are those that the parser found in values or in schemas: name, member and kind. `initial_columns` is the number of
those that the table was created with: rows that are older than a later one have NULL there. `schemas` names those that
values are read with, the newest first, and `key_schema` that of the keys: a run that continues another one opens the
same. `base` has names and types of a parser's other columns. `generation` is its number; without it, it is 1.
`replays` counts the replays of refused records.

`kept` has offsets whose records an election removed from the log, and the table did not: the number of rows, and the
sum of their digests. The claims contain these offsets again, with the records of the later leader.

`passed` is the latest hour or day of a partition's rows. `marked` has the ends of what is announced and marked, as
`ts_tables.marks` describes.

`forgotten` has claimed records whose rows were deleted on purpose: offset and digest of each.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.archive.read_log import ReadLog
from ts_common.json_objects import (
    MAX_INT32,
    decoding,
    epoch_pair,
    optional_number,
    pair,
    parse_fields,
    rows,
    text,
    whole_number,
)
from ts_common.model import TopicPartition, is_topic_name
from ts_tables.parsers.inference import FoundColumn
from ts_tables.parsers.table_types import column_type

VERSION: Final = 1
MOST_BYTES: Final = 64 << 20
_LONGEST: Final = 1 << 20  # of the name or the type of a column
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_SUMS: Final = re.compile(r"[0-9a-f]{1,40}:[0-9a-f]{1,40}")


Forgotten = dict[tuple[TopicPartition, str | None], dict[int, set[bytes]]]  # digests by topic id and offset


@dataclass(frozen=True, slots=True)
class PassedHole:
    """Offsets `[start, end)` that the archive lacked when the table passed them.

    Attributes:
        start: first offset.
        end: the offset after the last; equal to `start` if an election removed the hole from the log.
        withheld: (producer id, first offset) of each transaction that was open at `start`, ascending.
    """

    start: int
    end: int
    withheld: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> int:
        """The first offset that a late claim of it can add."""
        return min([self.start, *(first for _, first in self.withheld)])

    def below(self, end: int) -> "PassedHole":
        """Return what is left of it below an offset: perhaps no offset, but what is withheld."""
        if end >= self.end:
            return self
        withheld = tuple((producer, first) for producer, first in self.withheld if first < end)
        return PassedHole(min(self.start, end), end, withheld)


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows at offsets `[start, end)` of a log that an election replaced, in one block of `ts_tables.files.digest`.

    Attributes:
        start: first offset.
        end: the offset after the last.
        rows: their number.
        digest: the sums of their digests, as `ts_tables.files.digest` writes them.
    """

    start: int
    end: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The claims of one partition of an incarnation.

    Attributes:
        start: first offset.
        end: the offset after the last; the next claim begins here.
        log: the log below `end`, when it was claimed; None if unknown.
        holes: inside, ascending and disjoint; not claimed.
        lost: inside, ascending and disjoint; not claimed.
        kept: rows of earlier logs.
        forgotten: claimed records whose rows were deleted on purpose: offset, and digest in hexadecimal digits.
        passed: the latest hour or day of a row, as its number since 1970, of a table with marks.
    """

    start: int
    end: int
    log: ReadLog | None = None
    holes: tuple[PassedHole, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    kept: tuple[Kept, ...] = ()
    forgotten: tuple[tuple[int, str], ...] = ()
    passed: int | None = None

    @property
    def claims(self) -> tuple[tuple[int, int], ...]:
        """The claimed ranges `[from, to)`, ascending and disjoint."""
        return without((self.start, self.end), ((hole.start, hole.end) for hole in self.holes), self.lost)

    def below(self, end: int) -> "PartitionState":
        """Return the claims below an offset."""
        if end >= self.end:
            return self
        end = max(end, self.start)
        return replace(
            self,
            end=end,
            log=None if self.log is None else self.log.below(end),
            holes=tuple(hole.below(end) for hole in self.holes if hole.first < end),
            kept=tuple(kept for kept in self.kept if kept.start < end),
            forgotten=tuple(each for each in self.forgotten if each[0] < end),
            lost=tuple((low, min(high, end)) for low, high in self.lost if low < end),
        )


@dataclass(frozen=True, slots=True)
class IncarnationState:
    """The claims of one incarnation of a topic.

    Attributes:
        directory: of its objects in the archive, without a partition's number.
        topic_id: when the table first claimed of it; None if the cluster had no topic ids.
        partitions: by number.
    """

    directory: str
    topic_id: str | None
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableState:
    """The claims of a table.

    Attributes:
        cluster: of the archive.
        read_committed: the isolation level of all claims.
        topics: by name, the incarnations that were claimed, in their order.
        parser: identifies what made the rows of the records; None of a raw table.
        columns: that the parser found, of the table and, as a plan of it, of that of its refused records.
        schemas: names of the schemas that values are read with, as a parser has them.
        key_schema: name of the schema of keys; None if they have none.
        base: names and types of the parser's columns that are not in `columns`.
        generation: its number, as the file of tables has it.
        marked: the end of the hours or days that all partitions have passed; None without.
        announced: the end of those that were announced.
        initial_columns: how many of `columns` the table was created with.
        replays: how often refused records were parsed again; that of the table is ahead until they are removed from
            the other one.
    """

    cluster: str
    read_committed: bool
    topics: Mapping[str, tuple[IncarnationState, ...]] = field(default_factory=dict)
    parser: str | None = None
    columns: tuple[FoundColumn, ...] = ()
    schemas: tuple[str, ...] = ()
    key_schema: str | None = None
    base: tuple[tuple[str, str], ...] = ()
    generation: int = 1
    marked: int | None = None
    announced: int | None = None
    replays: int = 0
    initial_columns: int = 0

    @property
    def claims(self) -> "TableState":
        """The state without what each table of a pair has of its own: columns, schemas, kept and forgotten rows."""
        topics = {
            name: tuple(
                replace(
                    each,
                    partitions={
                        n: replace(one, kept=(), forgotten=(), passed=None) for n, one in each.partitions.items()
                    },
                )
                for each in incarnations
            )
            for name, incarnations in self.topics.items()
        }
        return replace(
            self,
            topics=topics,
            columns=(),
            schemas=(),
            key_schema=None,
            replays=0,
            marked=None,
            announced=None,
            initial_columns=0,
        )

    def forgotten_with(self, other: "TableState | None") -> Forgotten:
        """Return the digests of forgotten records by partition and topic id, then by offset.

        Args:
            other: a state whose records are there too; None for this one alone.
        """
        found: Forgotten = {}
        for state in (self, *([] if other is None else [other])):
            for topic, incarnations in state.topics.items():
                for each in incarnations:
                    for number, partition in each.partitions.items():
                        by_offset = found.setdefault((TopicPartition(topic, number), each.topic_id), {})
                        for offset, digest in partition.forgotten:
                            by_offset.setdefault(offset, set()).add(bytes.fromhex(digest))
        return found

    def incarnation(self, topic: str, directory: str) -> IncarnationState | None:
        """Return the claims of an incarnation; None without any."""
        return next((each for each in self.topics.get(topic, ()) if each.directory == directory), None)

    def with_incarnation(self, topic: str, changed: IncarnationState) -> "TableState":
        """Return the state with other claims of an incarnation; a new one is the last of its topic."""
        known = self.topics.get(topic, ())
        others = tuple(changed if each.directory == changed.directory else each for each in known)
        return replace(self, topics={**self.topics, topic: others if changed in others else (*known, changed)})

    def with_own(self, own: "TableState") -> "TableState":
        """Return the state with the kept and the forgotten rows of another one, in the partitions that both have."""
        topics = {}
        for name, incarnations in self.topics.items():
            topics[name] = tuple(
                replace(
                    each, partitions={n: _own(one, own, name, each.directory, n) for n, one in each.partitions.items()}
                )
                for each in incarnations
            )
        return replace(self, topics=topics)

    def keeping(self, topic: str, directory: str, partition: int, kept: Kept) -> "TableState":
        """Return the state with rows of a partition that an election removed from its log, and that stay."""
        incarnation = self.incarnation(topic, directory)
        if incarnation is None or not kept.rows:
            return self
        known = incarnation.partitions[partition]
        partitions = {**incarnation.partitions, partition: replace(known, kept=(*known.kept, kept))}
        return self.with_incarnation(topic, replace(incarnation, partitions=partitions))

    def encode(self) -> bytes:
        """Return the JSON text; equal states have equal text."""
        return json.dumps(self.fields(), separators=(",", ":")).encode()

    def fields(self) -> dict[str, Any]:
        """Return JSON values."""
        topics = {
            name: [
                {
                    "directory": each.directory,
                    "id": each.topic_id,
                    "partitions": {str(n): _fields(s) for n, s in sorted(each.partitions.items())},
                }
                for each in incarnations
            ]
            for name, incarnations in sorted(self.topics.items())
        }
        isolation = "read_committed" if self.read_committed else "read_uncommitted"
        found: dict[str, Any] = {"version": VERSION, "cluster": self.cluster, "isolation": isolation, "topics": topics}
        if self.parser is not None:
            found["parser"] = self.parser
        if self.columns:
            found["columns"] = [list(column) for column in self.columns]
        if self.initial_columns:
            found["initial_columns"] = self.initial_columns
        if self.schemas:
            found["schemas"] = [*self.schemas]
        if self.key_schema is not None:
            found["key_schema"] = self.key_schema
        if self.base:
            found["base"] = [list(column) for column in self.base]
        if self.generation != 1:
            found["generation"] = self.generation
        if self.marked is not None:
            found["marked"] = [self.announced, self.marked]
        if self.replays:
            found["replays"] = self.replays
        return found


def decode_state(data: bytes, what: str) -> TableState:
    """Return a state.

    Args:
        data: as `TableState.encode` returns it.
        what: names its place, for errors.

    Raises:
        NewerFormat: a later release wrote it.
        CorruptData: it is no state.
    """
    expected = "the state of a table"
    fields = parse_fields(data, what, expected, MOST_BYTES, known=VERSION)
    with decoding(what, expected, data):
        isolation = fields["isolation"]
        if isolation not in {"read_committed", "read_uncommitted"}:
            raise ValueError(f"isolation {isolation!r}")
        topics: dict[str, tuple[IncarnationState, ...]] = {}
        for name, incarnations in fields["topics"].items():
            if not is_topic_name(name):
                raise ValueError(f"{name!r} is no legal name of a topic")
            topics[name] = tuple(_incarnation(each) for each in rows(incarnations))
            directories = [each.directory for each in topics[name]]
            if len({*directories}) < len(directories):
                raise ValueError(f"topic {name} has an incarnation twice")
        parser = None if fields.get("parser") is None else text(fields["parser"])
        columns = tuple(_column(each) for each in rows(fields.get("columns", [])))
        schemas = tuple(text(each) for each in rows(fields.get("schemas", [])))
        key_schema = None if fields.get("key_schema") is None else text(fields["key_schema"])
        replays = whole_number(fields.get("replays", 0))
        initial_columns = whole_number(fields.get("initial_columns", 0), 0, len(columns))
        base = tuple(_pair(each) for each in rows(fields.get("base", [])))
        generation = whole_number(fields.get("generation", 1), 1, MAX_INT32)
        announced, marked = (optional_number(each) for each in rows(fields.get("marked", [None, None])))
        return TableState(
            cluster=text(fields["cluster"]),
            read_committed=isolation == "read_committed",
            topics=topics,
            parser=parser,
            columns=columns,
            schemas=schemas,
            key_schema=key_schema,
            base=base,
            generation=generation,
            marked=marked,
            announced=announced,
            replays=replays,
            initial_columns=initial_columns,
        )


def without(span: tuple[int, int], *left_out: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a span that are in none of the others, ascending."""
    position, end = span
    found = []
    for low, high in sorted(each for some in left_out for each in some):
        if low > position:
            found.append((position, min(low, end)))
        position = max(position, high)
    if position < end:
        found.append((position, end))
    return tuple((low, high) for low, high in found if low < high)


def _own(state: PartitionState, own: TableState, topic: str, directory: str, number: int) -> PartitionState:
    incarnation = own.incarnation(topic, directory)
    known = None if incarnation is None else incarnation.partitions.get(number)
    if known is None:
        return replace(state, kept=(), forgotten=(), passed=None)
    return replace(state, kept=known.kept, forgotten=known.forgotten, passed=known.passed)


def _fields(state: PartitionState) -> dict[str, Any]:
    log = state.log or ReadLog()
    fields: dict[str, Any] = {"from": state.start, "to": state.end, "epochs": [list(each) for each in log.epochs]}
    if state.log and log.is_lineage_known:  # also if it is null: without the field it is unknown
        fields["lineage"] = log.lineage and log.lineage.encode()
    if state.holes:
        fields["holes"] = [[hole.start, hole.end, [list(each) for each in hole.withheld]] for hole in state.holes]
    if state.lost:
        fields["lost"] = [list(each) for each in state.lost]
    if state.kept:
        fields["kept"] = [[each.start, each.end, each.rows, each.digest] for each in state.kept]
    if state.forgotten:
        fields["forgotten"] = [list(each) for each in state.forgotten]
    if state.passed is not None:
        fields["passed"] = state.passed
    return fields


def _incarnation(fields: Any) -> IncarnationState:
    directory, topic_id = text(fields["directory"]), None if fields["id"] is None else text(fields["id"])
    found = {}
    for number, partition in fields["partitions"].items():
        if not number.isascii() or not number.isdigit() or str(int(number[:11])) != number:
            raise ValueError(f"{number!r} is not the number of a partition")
        found[whole_number(int(number), 0, MAX_INT32)] = _partition(partition)
    return IncarnationState(directory, topic_id, found)


def _column(fields: Any) -> FoundColumn:
    name, member, kind = (text(each, _LONGEST) for each in rows(fields))
    column_type(kind)
    return FoundColumn(name, member, kind)


def _pair(fields: Any) -> tuple[str, str]:
    name, kind = (text(each, _LONGEST) for each in rows(fields))
    return name, kind


def _partition(fields: Any) -> PartitionState:
    start = whole_number(fields["from"])
    end = whole_number(fields["to"], start)
    epochs = EpochHistory(tuple(epoch_pair(each) for each in rows(fields["epochs"])))
    lineage = fields.get("lineage")
    log = ReadLog(epochs, None if lineage is None else Lineage.decode(lineage), "lineage" in fields)
    is_known = log.is_lineage_known or log.has_epoch_before(end)
    holes = []
    for low, high, withheld in (rows(each) for each in rows(fields.get("holes", []))):
        producers = [pair(each) for each in rows(withheld)]
        holes.append(PassedHole(low, high, tuple((whole_number(a), whole_number(b, 0, low)) for a, b in producers)))
    lost = tuple(pair(each) for each in rows(fields.get("lost", [])))
    for low, high in ((hole.start, hole.end) for hole in holes):
        whole_number(high, whole_number(low, start, end), end)
    _check_apart(sorted([*((hole.start, hole.end) for hole in holes if hole.start < hole.end), *lost]), start, end)
    kept = []
    for low, high, count, digest in (rows(each) for each in rows(fields.get("kept", []))):
        if not _SUMS.fullmatch(text(digest)):
            raise ValueError(f"{digest!r} is no sum of digests")
        kept.append(Kept(whole_number(low), whole_number(high, low), whole_number(count), digest))
    forgotten = []
    for offset, digest in (rows(each) for each in rows(fields.get("forgotten", []))):
        if not _DIGEST.fullmatch(text(digest)):
            raise ValueError(f"{digest!r} is no digest")
        forgotten.append((whole_number(offset, start, end), digest))
    return PartitionState(
        start,
        end,
        log if is_known else None,
        tuple(holes),
        lost,
        tuple(kept),
        tuple(forgotten),
        optional_number(fields.get("passed")),
    )


def _check_apart(ranges: Iterable[tuple[Any, Any]], start: int, end: int) -> None:
    """Check that ranges are not empty, inside, and disjoint.

    Raises:
        ValueError: they are not.
    """
    position = start
    for low, high in ranges:
        whole_number(low, position, end)
        position = whole_number(high, low + 1, end)
