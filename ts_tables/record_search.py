"""Finds the records of given keys or offsets: in the files of a table, or in the archive."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ts_common.errors import OperatorError
from ts_reader.decode.digest import RAW_DIGEST, raw_digests
from ts_reader.schemas.contract import Codec
from ts_tables.changes import results_of
from ts_tables.files.layout import Layout
from ts_tables.files.parsed_columns import parsed_rows, topic_column
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARTITION, TOPIC_ID
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import reduced
from ts_tables.parsers.changes import KEY
from ts_tables.parsers.contract import Parser
from ts_tables.parsers.table_types import fitted, table_type
from ts_tables.parsing import Plans
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Work
from ts_tables.targets import OpenedTable
from ts_tables.tasks import Engine, is_of, raw_records


class Record(NamedTuple):
    """A record whose rows are deleted."""

    topic: str
    topic_id: str | None
    partition: int
    offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class RecordSearch:
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
            codec: decodes keys to its type; None for a column of bytes.

        Raises:
            OperatorError: a key is no such value.
        """
        if pa.types.is_nested(kind):
            raise OperatorError(
                f"--key: the keys of this table are of type {kind}, and cannot be named; find the offsets of their "
                "records, and delete those by --offsets"
            )
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
        column: of the keys; None if the table has none.
        keys: those of `wanted`, as values of that column.
        codec: decodes the keys of refused records; None if they are compared as bytes.
        decoded: the keys of `wanted` as it decodes them.
    """

    file: TableFile
    layout: Layout
    wanted: RecordSearch
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
        parser: decodes the keys, of a table of newest records; None to compare bytes.
        layout: of the table's files: digests are of what they have of a record.
    """

    work: Work
    wanted: RecordSearch
    parser: Parser | None
    layout: Layout

    def __call__(self) -> list[Record]:
        """Read the records; raise as `ts_tables.planning.work.Work.rows`, and the parser."""
        found: list[Record] = []
        raw = self.wanted.values(pa.binary(), None)
        for records in raw_records(self.work):
            if self.parser is None:
                some = records.filter(self.wanted.of(records, records["key"], raw))
                found += _records(some, raw_digests(reduced(some, self.layout)))
                continue
            parsed = self.parser.parse(records)
            rows = parsed_rows(records, parsed)
            rows = rows.filter(pc.equal(rows[ORDINAL], 0))
            keys = self.wanted.values(rows.schema.field(KEY).type, self.parser.key_codec)
            some = rows.filter(self.wanted.of(rows, rows[KEY], keys))
            found += _records(some, some[RAW_DIGEST])
        return found


def in_files(
    opened: OpenedTable, column: str | None, wanted: RecordSearch, engine: Engine, codec: Codec | None
) -> list[Record]:
    """Return the records of a table's files that are deleted.

    Args:
        column: of the keys; None if the table has none. `key` has bytes, and `_key` what the codec decodes.
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


def in_archive(
    opened: OpenedTable, plans: Plans, wanted: RecordSearch, parser: Parser | None, engine: Engine
) -> list[Record]:
    """Return the records of the archive whose keys are deleted.

    Args:
        plans: returns what it claims.
        parser: of a table of newest records; None of a table without a column of keys.

    Raises:
        OperatorError: the table has no column of keys, and the archive lacks records.
    """
    claimed = plans.claimed(opened.state)
    if parser is None and claimed.notes:
        raise OperatorError(
            f"the table has no column of keys, and the archive lacks records: {'; '.join(claimed.notes)}; find the "
            "offsets of the rows, and delete those by --offsets"
        )
    only_keys = replace(wanted, ranges=())
    tasks = [InArchive(each, only_keys, parser, opened.layout) for each in claimed.work]
    return [record for some in results_of(engine, tasks) for record in some]


def _records(rows: pa.RecordBatch, digests: pa.Array) -> list[Record]:
    names = (topic_column(rows.schema), TOPIC_ID, PARTITION, OFFSET)
    topics, ids, partitions, offsets = (rows[name].to_pylist() for name in names)
    texts = [digest.hex() for digest in digests.to_pylist()]
    return [Record(*each) for each in zip(topics, ids, partitions, offsets, texts, strict=True)]
