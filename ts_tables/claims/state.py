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

`obeyed` has the number of the list of erased offsets that all rows obey, by the name of each directory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Self

from ts_common.archive.commit import LINEAGE, MAX_ERASED
from ts_common.archive.epoch_history import EPOCHS
from ts_common.archive.read_log import ReadLog
from ts_common.archive.stored_object import (
    FieldKind,
    PartitionKey,
    Presence,
    StoredObject,
    TopicName,
    between,
    kind_of,
    limited,
)
from ts_common.json_objects import MAX_INT32, whole_number
from ts_common.model import TopicPartition
from ts_tables.parsers.inference import FoundColumn
from ts_tables.parsers.table_types import column_type

MOST_BYTES: Final = 64 << 20
_ISOLATIONS: Final = ("read_uncommitted", "read_committed")
_Long = Annotated[str, limited(1 << 20)]  # the name or the type of a column
_Digest = Annotated[str, limited(32, "[0-9a-f]{32}")]


_ISOLATION: Final = FieldKind(lambda value: _ISOLATIONS.index(value) > 0, _ISOLATIONS.__getitem__)


def _column(value: object) -> FoundColumn:
    found = FoundColumn(*_COLUMN.decode(value))
    column_type(found.kind)
    return found


_COLUMN: Final = kind_of(tuple[_Long, _Long, _Long])
_Column = Annotated[FoundColumn, FieldKind(_column, list)]

Lists = tuple[tuple[_Long, Annotated[int, between(1, MAX_ERASED)]], ...]  # numbers by name
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
    """Rows at offsets `[start, end)` of a log that an election replaced, in one block of `ts_reader.decode.digest`.

    Attributes:
        start: first offset.
        end: the offset after the last.
        digest: the sums of their digests, as `ts_reader.decode.digest` writes them.
    """

    start: int
    end: int
    rows: int
    digest: Annotated[str, limited(81, "[0-9a-f]{1,40}:[0-9a-f]{1,40}")]


@dataclass(frozen=True, slots=True)
class PartitionClaims(StoredObject):
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
        obeyed: the lists of erased offsets whose records it has no row of, as of `PartitionView.lists`.
    """

    start: Annotated[int, "from"]
    end: Annotated[int, "to"]
    log: Annotated[ReadLog | None, Presence.GIVEN] = None
    holes: Annotated[tuple[PassedHole, ...], Presence.IF_SET] = ()
    lost: Annotated[tuple[tuple[int, int], ...], Presence.IF_SET] = ()
    kept: Annotated[tuple[Kept, ...], Presence.IF_SET] = ()
    forgotten: Annotated[tuple[tuple[int, _Digest], ...], Presence.IF_SET] = ()
    passed: Annotated[int | None, Presence.IF_SET] = None
    obeyed: Annotated[Lists, Presence.IF_SET] = ()

    @classmethod
    def from_fields(cls, content: Mapping[str, Any], **given: object) -> Self:
        """Return a partition, with the log of two fields."""
        lineage = content.get("lineage")
        log = ReadLog(
            EPOCHS.decode(content["epochs"]), None if lineage is None else LINEAGE.decode(lineage), "lineage" in content
        )
        is_known = log.is_lineage_known or log.has_epoch_before(whole_number(content["to"]))
        return super(PartitionClaims, cls).from_fields(content, log=log if is_known else None, **given)

    def fields(self) -> dict[str, Any]:
        """Return JSON values."""
        log = self.log or ReadLog()
        found: dict[str, Any] = {"from": self.start, "to": self.end, "epochs": EPOCHS.encode(log.epochs)}
        if self.log and log.is_lineage_known:  # also if it is null: without the field it is unknown
            found["lineage"] = log.lineage and log.lineage.encode()
        return found | super(PartitionClaims, self).fields()

    def check(self) -> None:
        """Check that each range has its order and its place."""
        for hole in self.holes:
            whole_number(hole.end, whole_number(hole.start, self.start, self.end), self.end)
            for _, first in hole.withheld:
                whole_number(first, 0, hole.start)
        holes = ((hole.start, hole.end) for hole in self.holes if hole.start < hole.end)
        position = self.start
        for low, high in sorted([*holes, *self.lost]):
            position = whole_number(high, whole_number(low, position, self.end) + 1, self.end)
        for kept in self.kept:
            whole_number(kept.end, kept.start)
        for offset, _ in self.forgotten:
            whole_number(offset, self.start, self.end)
        whole_number(self.end, self.start)

    @property
    def claims(self) -> tuple[tuple[int, int], ...]:
        """The claimed ranges `[from, to)`, ascending and disjoint."""
        return without((self.start, self.end), ((hole.start, hole.end) for hole in self.holes), self.lost)

    def obeys(self, lists: Lists) -> bool:
        """Return whether no row is one that a list hides."""
        known = dict(self.obeyed)
        return all(known.get(name, 0) >= number for name, number in lists)

    def below(self, end: int) -> "PartitionClaims":
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
class IncarnationState(StoredObject):
    """The claims of one incarnation of a topic.

    Attributes:
        directory: of its objects in the archive, without a partition's number.
        topic_id: when the table first claimed of it; None if the cluster had no topic ids.
        partitions: by number.
    """

    directory: str
    topic_id: Annotated[str | None, "id"]
    partitions: Mapping[PartitionKey, PartitionClaims] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableState(StoredObject, expected="the state of a table", most=MOST_BYTES, end=""):
    """The claims of a table.

    Attributes:
        read_committed: the isolation level of all claims.
        topics: by name, the incarnations that were claimed, in their order.
        parser: identifies what made the rows of the records; None of a raw table.
        columns: that the parser found, of the table and, as a plan of it, of that of its refused records.
        schemas: names of the schemas that values are read with, as a parser has them.
        key_schema: name of the schema of keys; None if they have none.
        base: names and types of the parser's columns that are not in `columns`.
        generation: its number, as the file of tables has it.
        marks: `announced` and `marked`.
        initial_columns: how many of `columns` the table was created with.
        replays: how often refused records were parsed again; that of the table is ahead until they are removed from
            the other one.
    """

    cluster: str
    read_committed: Annotated[bool, "isolation", _ISOLATION]
    topics: Mapping[TopicName, tuple[IncarnationState, ...]] = field(default_factory=dict)
    parser: Annotated[str | None, Presence.IF_SET] = None
    columns: Annotated[tuple[_Column, ...], Presence.IF_SET] = ()
    initial_columns: Annotated[int, "initial_columns", Presence.IF_SET] = 0
    schemas: Annotated[tuple[str, ...], Presence.IF_SET] = ()
    key_schema: Annotated[str | None, "key_schema", Presence.IF_SET] = None
    base: Annotated[tuple[tuple[_Long, _Long], ...], Presence.IF_SET] = ()
    generation: Annotated[int, between(1, MAX_INT32), Presence.IF_SET] = 1
    marks: Annotated[tuple[int | None, int | None], "marked", Presence.IF_SET] = (None, None)
    replays: Annotated[int, Presence.IF_SET] = 0

    def check(self) -> None:
        """Check that it has each incarnation once, and as many columns as its table was created with."""
        for topic, incarnations in self.topics.items():
            if len({each.directory for each in incarnations}) < len(incarnations):
                raise ValueError(f"topic {topic} has an incarnation twice")
        whole_number(self.initial_columns, 0, len(self.columns))

    @property
    def announced(self) -> int | None:
        """The end of the hours or days that were announced; None without."""
        return self.marks[0]

    @property
    def marked(self) -> int | None:
        """The end of the hours or days that all partitions have passed; None without."""
        return self.marks[1]

    @property
    def claims(self) -> "TableState":
        """The state without what each table of a pair has of its own, as parser, columns, kept and forgotten rows."""
        topics = {
            name: tuple(
                replace(
                    each,
                    partitions={
                        n: replace(one, kept=(), forgotten=(), passed=None, obeyed=())
                        for n, one in each.partitions.items()
                    },
                )
                for each in incarnations
            )
            for name, incarnations in self.topics.items()
        }
        return replace(
            self,
            topics=topics,
            parser=None,
            columns=(),
            schemas=(),
            key_schema=None,
            replays=0,
            marks=(None, None),
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

    def with_partition(self, topic: str, directory: str, number: int, changed: PartitionClaims) -> "TableState":
        """Return the state with other claims of a partition of an incarnation that it has."""
        known = self.incarnation(topic, directory)
        if known is None:
            raise AssertionError(f"the table has no claims of {directory}")
        return self.with_incarnation(topic, replace(known, partitions={**known.partitions, number: changed}))

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


def _own(state: PartitionClaims, own: TableState, topic: str, directory: str, number: int) -> PartitionClaims:
    incarnation = own.incarnation(topic, directory)
    known = None if incarnation is None else incarnation.partitions.get(number)
    if known is None:
        return replace(state, kept=(), forgotten=(), passed=None)
    return replace(state, kept=known.kept, forgotten=known.forgotten, passed=known.passed, obeyed=known.obeyed)


def with_least_obeyed(state: TableState, other: TableState) -> TableState:
    """Return a state with the lists that both tables of a pair obey."""
    for topic, incarnations in state.topics.items():
        for each in incarnations:
            there = other.incarnation(topic, each.directory)
            for number, known in each.partitions.items():
                theirs = dict(
                    () if there is None or number not in there.partitions else there.partitions[number].obeyed
                )
                least = tuple((name, min(at, theirs[name])) for name, at in known.obeyed if name in theirs)
                if least != known.obeyed:
                    state = state.with_partition(topic, each.directory, number, replace(known, obeyed=least))
    return state


def with_kept(state: TableState, other: TableState | None) -> TableState:
    """Return a state that has the kept rows of the other table too: an election is the same for both.

    A plan of it fails where a plan of the other one must, and removes or counts again the rows of both.

    Args:
        other: of the other one of its pair; None of a raw table.
    """
    if other is None:
        return state
    for topic, incarnations in other.topics.items():
        for each in incarnations:
            known = state.incarnation(topic, each.directory)
            if known is None:
                continue
            partitions = {
                number: replace(one, kept=(*one.kept, *each.partitions[number].kept))
                if number in each.partitions
                else one
                for number, one in known.partitions.items()
            }
            state = state.with_incarnation(topic, replace(known, partitions=partitions))
    return state
