"""The columns of a parsed table: the position and the digest of each row's record, then those of the parser."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from ts_reader.decode.digest import RAW_DIGEST, raw_digests
from ts_tables.files.raw_columns import OFFSET, ORDINAL, PARSER, PARTITION, POSITION_TYPES, REASON, TOPIC_ID
from ts_tables.parsers.contract import Parsed, ordinals_of
from ts_tables.parsers.inference import FoundColumn
from ts_tables.parsers.table_types import WITHOUT_CASE, column_type, one_name

TOPIC: Final = "_topic"
TIMESTAMP: Final = "_timestamp"
OWN_TYPES: Final = {
    TOPIC: pa.string(),
    **POSITION_TYPES,
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    RAW_DIGEST: pa.binary(),
}
OWN_NAMES: Final = tuple(OWN_TYPES)
PARSED_REQUIRED: Final = (TOPIC, PARTITION, OFFSET, ORDINAL, RAW_DIGEST)  # never NULL
_SOURCES: Final = {TOPIC: "topic", TIMESTAMP: "timestamp"}  # other names are those of a raw table


def parsed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a table.

    Raises:
        ValueError: a column has the name of another one, without regard to case, as engines of SQL compare names; or
            a member of a struct has.
    """
    names = [name.lower() for name in (*OWN_NAMES, *columns.names)]
    if twice := next((name for name in columns.names if names.count(name.lower()) > 1), None):
        raise ValueError(f"column {twice}: the table has another one of this name")
    for field in columns:
        if members := one_name(field.type):
            raise ValueError(
                f"column {field.name}: its members {members[0]} and {members[1]} have one name, {WITHOUT_CASE}; rename "
                "one, name a version of the schema without it, or parse with a class of yours"
            )
    return pa.schema([*OWN_TYPES.items(), *columns])


def with_found(schema: pa.Schema, found: Sequence[FoundColumn]) -> pa.Schema:
    """Return the columns of a table with those that a parser found; a table of refused records has none of them.

    A column that a changed parser declares, and that the former one found, is there once.

    Args:
        schema: without them.
        found: by the parser.
    """
    if RAW_DIGEST not in schema.names:
        return schema
    return pa.schema(
        [*schema, *((each.name, column_type(each.kind)) for each in found if each.name not in schema.names)]
    )


def topic_column(schema: pa.Schema) -> str:
    """Return the name of the column of the topic, of a raw or a parsed table."""
    return TOPIC if TOPIC in schema.names else "topic"


def parsed_rows(records: pa.RecordBatch, parsed: Parsed) -> pa.RecordBatch:
    """Return the rows of a parsed table.

    Args:
        records: with the columns of a raw table.
        parsed: what the parser made of them.
    """
    of_rows = records.select([_SOURCES.get(name, name) for name in (TOPIC, TOPIC_ID, PARTITION, OFFSET, TIMESTAMP)])
    found = dict(
        zip((TOPIC, TOPIC_ID, PARTITION, OFFSET, TIMESTAMP), of_rows.take(parsed.records).columns, strict=True)
    )
    found[ORDINAL] = ordinals_of(parsed.records)
    found[RAW_DIGEST] = raw_digests(records).take(parsed.records)
    columns = [*(found[name] for name in OWN_NAMES), *parsed.rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*OWN_TYPES.items(), *parsed.rows.schema]))


def refused_rows(records: pa.RecordBatch, parsed: Parsed, parser: str) -> pa.RecordBatch:
    """Return the rows of a table of refused records.

    Args:
        records: with the columns of a raw table.
        parsed: what the parser made of them.
    """
    rows = records.take(parsed.refused)
    parsers = pa.repeat(pa.scalar(parser, pa.string()), rows.num_rows)
    return rows.append_column(REASON, parsed.reasons).append_column(PARSER, parsers)
