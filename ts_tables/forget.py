"""Deletes the rows of given keys or offsets from a table, and from that of its refused records, and notes them.

The commit that deletes rows has their offsets and digests in its state, so that `verify` subtracts them, and a record
that is read again after an election stays deleted. The archive still has the records, and so have older snapshots.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from secrets import token_hex
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import OperatorError
from ts_common.model import TopicPartition, is_topic_name
from ts_common.schemas.contract import Codec
from ts_tables.changes import Parsing, Plans, arranged, results_of
from ts_tables.claims.state import Forgotten, TableState
from ts_tables.files.digest import RAW_DIGEST, raw_digests
from ts_tables.files.layout import KEYLESS_FORMATS, FileFormat, Layout
from ts_tables.files.parsed_columns import parsed_rows, topic_column
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parsers.changes import KEY, ChangesParser
from ts_tables.parsers.table_types import fitted, table_type
from ts_tables.planning.plan import TakenBack, left_of
from ts_tables.planning.work import Work
from ts_tables.targets import OpenedTable, Target
from ts_tables.tasks import Engine, TakenBackTask, TaskResult, is_of, raw_records

_OFFSETS: Final = re.compile(
    r"(?P<topic>.+)-(?P<partition>[0-9]{1,10}):(?P<start>[0-9]{1,18})(?:-(?P<end>[0-9]{1,18}))?"
)
MOST_RECORDS: Final = 100_000  # that a table's state notes


Offsets = tuple[str, int, int, int]  # topic, partition, first offset, and the offset after the last


@dataclass(frozen=True, slots=True)
class ForgetSummary:
    """What was deleted.

    Attributes:
        records: whose rows were deleted.
        notes: sentences about keys and offsets that no record has.
    """

    records: int
    notes: tuple[str, ...] = ()


class Record(NamedTuple):
    """A record whose rows are deleted."""

    topic: str
    topic_id: str | None
    partition: int
    offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is deleted: records with these keys, and records at these offsets. It can be pickled.

    Attributes:
        texts: keys as text: values of a column of keys.
        raw: keys as bytes.
        ranges: offsets of partitions; their topic ids do not matter.
    """

    texts: frozenset[str] = frozenset()
    raw: frozenset[bytes] = frozenset()
    ranges: tuple[TakenBack, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Whether keys are named."""
        return bool(self.texts or self.raw)

    def values(self, kind: pa.DataType, codec: Codec | None) -> pa.Array:
        """Return the keys as values of a column.

        Args:
            kind: of the column.
            codec: decodes keys to its type; None for a column of bytes.

        Raises:
            OperatorError: a key is no such value.
        """
        if codec is None:
            return pa.array(sorted({*self.raw, *(each.encode() for each in self.texts)}), pa.binary())
        try:
            texts = pa.array(sorted(self.texts), pa.string())
            values = texts.cast(kind) if len(texts) else pa.array([], kind)
        except pa.ArrowException as error:
            raise OperatorError(f"--key: a key of this table is of type {kind}, or base64:...: {error}") from error
        decoded = codec.decode(pa.array(sorted(self.raw), pa.binary()))
        known = decoded.column.filter(pc.and_(decoded.refused.is_null(), decoded.column.is_valid()))
        return pa.concat_arrays([values, fitted(known, kind).array])

    def of(self, rows: pa.RecordBatch, keys: pa.Array | None, wanted: pa.Array) -> pa.Array:
        """Return which rows are deleted.

        Args:
            rows: with the position of each.
            keys: of the rows; None if they have none.
            wanted: the keys that are deleted, of the same type.
        """
        found = (
            pc.is_in(keys, wanted) if keys is not None and len(wanted) else pa.repeat(pa.scalar(False), rows.num_rows)
        )
        for each in self.ranges:
            ids = pc.unique(rows[TOPIC_ID])
            for topic_id in ids.to_pylist():
                found = pc.or_(found, is_of(rows, replace(each, topic_id=topic_id)))
        return found


@dataclass(frozen=True, slots=True)
class InFile:
    """Returns the records of a file that are deleted. It can be pickled.

    Attributes:
        file: of the table.
        layout: of the file.
        wanted: what is deleted.
        column: of the keys; None if the table has none.
        keys: those of `wanted`, as values of that column.
        codec: decodes the keys of refused records; None if they are compared as bytes.
        decoded: the keys of `wanted` as it decodes them.
    """

    file: TableFile
    layout: Layout
    wanted: Wanted
    column: str | None
    keys: pa.Array
    codec: Codec | None = None
    decoded: pa.Array | None = None

    def __call__(self) -> list[Record]:
        """Read the file; raise as `TableFile.rows`."""
        found: list[Record] = []
        for rows in self.file.rows(self.layout.schema, optional=self.layout.optional):
            keys = None if self.column is None else rows[self.column]
            is_wanted = self.wanted.of(rows, keys, self.keys)
            if self.codec is not None and self.decoded is not None and keys is not None:
                headers = rows["headers"] if self.codec.uses_headers else None
                values = fitted(self.codec.decode(keys, headers).column, self.decoded.type).array
                is_wanted = pc.or_(is_wanted, self.wanted.of(rows, values, self.decoded))
            some = rows.filter(is_wanted)
            firsts = some.filter(pc.equal(some[ORDINAL], 0))
            found += _records(firsts, firsts[RAW_DIGEST] if RAW_DIGEST in firsts.schema.names else raw_digests(firsts))
        return found


@dataclass(frozen=True, slots=True)
class InArchive:
    """Returns the records of a part of the archive whose keys are deleted. It can be pickled.

    Attributes:
        work: what to read.
        wanted: what is deleted.
        parser: decodes the keys, of a table of newest records; None to compare bytes.
        form: of the table's files: digests are of what they have of a record.
    """

    work: Work
    wanted: Wanted
    parser: ChangesParser | None
    form: FileFormat

    def __call__(self) -> list[Record]:
        """Read the records; raise as `ts_tables.planning.work.Work.rows`, and the parser."""
        found: list[Record] = []
        raw = self.wanted.values(pa.binary(), None)
        for records in raw_records(self.work):
            if self.parser is None:
                some = records.filter(self.wanted.of(records, records["key"], raw))
                found += _records(some, raw_digests(reduced(some, self.form)))
                continue
            parsed = self.parser.parse(records)
            rows = parsed_rows(records, parsed)
            rows = rows.filter(pc.equal(rows[ORDINAL], 0))
            keys = self.wanted.values(rows.schema.field(KEY).type, self.parser.key_codec)
            some = rows.filter(self.wanted.of(rows, rows[KEY], keys))
            found += _records(some, some[RAW_DIGEST])
        return found


def forget(target: Target, plans: Plans, engine: Engine, wanted: Wanted, parsing: Parsing | None) -> ForgetSummary:
    """Delete rows, and return the number of records that they are of.

    Args:
        target: the table.
        plans: returns what it claims.
        engine: runs tasks.
        wanted: what is deleted.
        parsing: of the records; None of a raw table.

    Raises:
        OperatorError: the records are too many, or at offsets of two leaders, or a run of the table did not end; or the
            table has no record of a topic or a partition.
        HeadMoved and others: as `ts_tables.run.run_once`.
    """
    opened: OpenedTable = target.open()
    outside = _outside(opened.state, wanted.ranges)
    if parsing is None:
        has_keys = opened.layout.format not in KEYLESS_FORMATS
        records = _in_files(opened, "key" if has_keys else None, wanted, engine, None)
        if wanted.has_keys and not has_keys:
            records += _in_archive(opened, plans, wanted, None, engine)
        return ForgetSummary(_forget(target, opened, records, engine), (*outside, *_unknown(wanted, records)))
    refused: OpenedTable = parsing.refused.open()
    if refused.state.claims != opened.state.claims or refused.state.replays != opened.state.replays:
        raise OperatorError("the last run of the table did not end: run it, and repeat the command")
    if parsing.newest_only and wanted.ranges:
        raise OperatorError(
            "a table of mode: latest has the newest record of each key; without it, a former one would be the newest: "
            "delete the key by --key"
        )
    parser = parsing.at(opened.state).parser
    codec = parser.key_codec if isinstance(parser, ChangesParser) else None
    if isinstance(parser, ChangesParser):
        found = _in_files(opened, KEY, wanted, engine, codec)
        if parsing.newest_only and wanted.has_keys:  # former records of a key must not be read again after an election
            found += _in_archive(opened, plans, wanted, parser, engine)
    else:
        found = _in_files(opened, None, wanted, engine, None)
        if wanted.has_keys:
            found += _in_archive(opened, plans, wanted, None, engine)
    in_refused = _in_files(refused, "key", wanted, engine, codec)
    noted = refused.state.forgotten_with(None)
    others = {*in_refused}
    done = _forget(target, opened, [each for each in found if each not in others and not _is_in(each, noted)], engine)
    done += _forget(parsing.refused, refused, in_refused, engine)
    return ForgetSummary(done, (*outside, *_unknown(wanted, [*found, *in_refused])))


def _outside(state: TableState, ranges: Sequence[TakenBack]) -> list[str]:
    """Return a sentence for each range of offsets that a table has not claimed.

    Raises:
        OperatorError: it has no record of the topic or the partition.
    """
    found = []
    for each in ranges:
        topic, number = each.partition.topic, each.partition.partition
        known = [incarnation.partitions for incarnation in state.topics.get(topic, ())]
        if not known:
            topics = f"it has those of {', '.join(sorted(state.topics))}" if state.topics else "it has no record yet"
            raise OperatorError(f"the table has no record of topic {topic}; {topics}")
        numbers = sorted({partition for partitions in known for partition in partitions})
        if number not in numbers:
            raise OperatorError(
                f"the table has no record of partition {number} of topic {topic}; it has those of "
                f"{', '.join(map(str, numbers))}"
            )
        claimed = [
            span
            for partitions in known
            if number in partitions
            for span in (*partitions[number].claims, *((one.start, one.end) for one in partitions[number].kept))
        ]
        if not any(start < each.end and each.start < end for start, end in claimed):
            claims = ", ".join(f"{start} to {end - 1}" for start, end in sorted(claimed)) or "no offset"
            found.append(
                f"{topic}-{number}: offsets {each.start} to {each.end - 1} are outside of the claims of the table, "
                f"which has {claims}"
            )
    return found


def _unknown(wanted: Wanted, records: Sequence[Record]) -> list[str]:
    """Return a sentence if no record has one of the keys."""
    if records or not wanted.has_keys:
        return []
    keys = [*sorted(wanted.texts), *(f"base64:{base64.b64encode(each).decode()}" for each in sorted(wanted.raw))]
    if len(keys) == 1:
        return [f"no record has the key {keys[0]}"]
    return [f"no record has one of the {len(keys)} keys"]


def key_of(text: str) -> str | bytes:
    """Return a key as text; as bytes, if it is Base64 after `base64:`.

    Args:
        text: of the command line.

    Raises:
        ValueError: it is no Base64.
    """
    prefix = "base64:"
    return base64.b64decode(text.removeprefix(prefix), validate=True) if text.startswith(prefix) else text


def offsets_of(text: str) -> Offsets:
    """Return the offsets of a text such as `orders-0:100-199`.

    Args:
        text: of the command line: topic, partition, and the first and the last offset, or one offset.

    Raises:
        ValueError: it has another form.
    """
    match = _OFFSETS.fullmatch(text)
    if match is None or not is_topic_name(match["topic"]):
        raise ValueError(f"{text!r}: topic, partition and offsets are expected, as in orders-0:100-199")
    start = int(match["start"])
    end = int(match["end"] or start) + 1
    if end <= start:
        raise ValueError(f"{text!r}: the last offset is below the first")
    return match["topic"], int(match["partition"]), start, end


def _in_files(
    opened: OpenedTable, column: str | None, wanted: Wanted, engine: Engine, codec: Codec | None
) -> list[Record]:
    """Return the records of a table's files that are deleted.

    Args:
        opened: the table.
        column: of the keys; None if the table has none. `key` has bytes, and `_key` what the codec decodes.
        wanted: what is deleted.
        engine: runs tasks.
        codec: of the keys; None for bytes.
    """
    files = {each.path: each for each in opened.all_files()} if column is not None and wanted.has_keys else {}
    for each in wanted.ranges:
        for incarnation in opened.state.topics.get(each.partition.topic, ()):
            entry = replace(each, topic_id=incarnation.topic_id)
            files |= {file.path: file for file in opened.files_with(entry)}
    keys, decoded, other = pa.array([], pa.binary()), None, None
    if column is not None and wanted.has_keys:
        kind = opened.layout.schema.field(column).type
        if column != KEY and codec is not None:
            other, decoded = codec, wanted.values(table_type(codec.arrow_type), codec)
            keys = replace(wanted, texts=frozenset()).values(kind, None)
        else:
            keys = wanted.values(kind, codec)
    tasks = [InFile(each, opened.layout, wanted, column, keys, other, decoded) for each in files.values()]
    found = results_of(engine, tasks)
    return [record for some in found for record in some]


def _in_archive(
    opened: OpenedTable, plans: Plans, wanted: Wanted, parser: ChangesParser | None, engine: Engine
) -> list[Record]:
    """Return the records of the archive whose keys are deleted.

    Args:
        opened: the table.
        plans: returns what it claims.
        wanted: what is deleted.
        parser: of a table of newest records; None of a table without a column of keys.
        engine: runs tasks.

    Raises:
        OperatorError: the table has no column of keys, and the archive lacks records.
    """
    claimed = plans.claimed(opened.state)
    if parser is None and claimed.notes:
        raise OperatorError(
            f"the table has no column of keys, and the archive lacks records: {'; '.join(claimed.notes)}; find the "
            "offsets of the rows, and delete those by --offsets"
        )
    only_keys, form = replace(wanted, ranges=()), opened.layout.format
    tasks = [InArchive(each, only_keys, parser, form) for each in claimed.work]
    return [record for some in results_of(engine, tasks) for record in some]


def _forget(target: Target, opened: OpenedTable, records: Iterable[Record], engine: Engine) -> int:
    """Delete the rows of records from one table, and note the records; return their number."""
    state, new = _noted(opened.state, sorted({*records}, key=_order))
    if not new:
        return 0
    entries = list(_entries(new))
    identity = token_hex(8)
    opened.begin(identity)
    try:
        affected: dict[str, tuple[TableFile, list[TakenBack]]] = {}
        for entry in entries:
            for file in opened.files_with(entry):
                affected.setdefault(file.path, (file, []))[1].append(entry)
        numbers = count()
        tasks = [
            TakenBackTask(
                file,
                tuple(some),
                False,
                opened.layout,
                opened.files(identity, next(numbers), left_of(opened.covered(file), some)),
            )
            for file, some in affected.values()
        ]
        results: Sequence[TaskResult] = results_of(engine, tasks)
        files = [each for result in results for each in result.files]
        added = arranged(opened, files, [*affected], identity, numbers, engine)
    except BaseException:
        target.clean(unsent=identity)
        raise
    target.commit(opened, identity, state, added)
    target.clean()
    return len(new)


def _noted(state: TableState, records: Sequence[Record]) -> tuple[TableState, list[Record]]:
    """Return a state that notes records, and those that it did not note before.

    Raises:
        OperatorError: as `forget`.
    """
    new: list[Record] = []
    for (topic, topic_id, number), some in groupby(records, lambda each: (each.topic, each.topic_id, each.partition)):
        incarnations = (one for one in state.topics.get(topic, ()) if one.topic_id == topic_id)
        incarnation = next((one for one in incarnations if number in one.partitions), None)
        if incarnation is None:
            continue
        known = incarnation.partitions[number]
        before = {*known.forgotten}
        left = [each for each in some if (each.offset, each.digest) not in before]
        for each in left:
            if any(kept.start <= each.offset < kept.end for kept in known.kept):
                raise OperatorError(
                    f"{topic}-{number}: the table has records of two leaders at offset {each.offset}; they cannot be "
                    "deleted one by one"
                )
        new += left
        changed = replace(known, forgotten=tuple(sorted({*before, *((each.offset, each.digest) for each in left)})))
        partitions = {**incarnation.partitions, number: changed}
        state = state.with_incarnation(topic, replace(incarnation, partitions=partitions))
    total = sum(
        len(one.forgotten) for each in state.topics.values() for inner in each for one in inner.partitions.values()
    )
    if total > MOST_RECORDS:
        raise OperatorError(f"{total:,} records would be noted in the table, at most {MOST_RECORDS:,} can be")
    return state, new


def _is_in(record: Record, noted: Forgotten) -> bool:
    """Return whether a state notes a record."""
    partition = TopicPartition(record.topic, record.partition)
    by_offset = noted.get((partition, record.topic_id), {})
    return bytes.fromhex(record.digest) in by_offset.get(record.offset, ())


def _order(record: Record) -> tuple[str, str, int, int, str]:
    return record.topic, record.topic_id or "", record.partition, record.offset, record.digest


def _entries(records: Sequence[Record]) -> Iterator[TakenBack]:
    """Yield the offsets of records, consecutive ones together."""
    last: TakenBack | None = None
    for each in records:
        partition = TopicPartition(each.topic, each.partition)
        if last and (last.partition, last.topic_id, last.end) == (partition, each.topic_id, each.offset):
            last = replace(last, end=each.offset + 1)
            continue
        if last:
            yield last
        last = TakenBack(partition, "", each.topic_id, each.offset, each.offset + 1)
    if last:
        yield last


def _records(rows: pa.RecordBatch, digests: pa.Array) -> list[Record]:
    names = (topic_column(rows.schema), TOPIC_ID, PARTITION, OFFSET)
    topics, ids, partitions, offsets = (rows[name].to_pylist() for name in names)
    texts = [digest.hex() for digest in digests.to_pylist()]
    return [Record(*each) for each in zip(topics, ids, partitions, offsets, texts, strict=True)]
