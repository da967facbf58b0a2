"""Rules that the definition of a table keeps; the first broken one is reported."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ts_common.config.file_values import check_store
from ts_common.suggestions import nearest
from ts_tables.claims.advance import OnRecreated, OnTakenBack
from ts_tables.definition.parser_definition import has_schema
from ts_tables.definition.places import check_absolute
from ts_tables.definition.table_fields import TableFields
from ts_tables.definition.values import TableMode, check_table_name
from ts_tables.files.file_names import check_template
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import RECORD_FORMATS, FileFormat
from ts_tables.parsers.changes import KEY

_MARKED: Final = re.compile(r"\s*(hour|day)\s*\(")

Problems = Iterator[tuple[bool, str]]  # whether the definition is wrong, and how


def check_table(table: TableFields) -> None:
    """Check what the keys of a table mean together.

    Raises:
        ValueError: a rule of this module is broken.
    """
    for rules in _RULES:
        for is_wrong, problem in rules(table):
            if is_wrong:
                raise ValueError(problem)


def _topics(table: TableFields) -> Problems:
    yield bool(table.topics) == (table.pattern is not None), "topics or pattern is needed, and not both"
    yield len({*table.topics}) < len(table.topics), "topics: a name is given twice"
    other = next((name for name in table.start if not _has(table, name)), "")
    yield other != "", f"start: the table has no topic {other}{nearest(other, table.topics)}"


def _has(table: TableFields, topic: str) -> bool:
    return topic in table.topics if table.pattern is None else re.search(table.pattern, topic) is not None


def _format(table: TableFields) -> Problems:
    codecs = FORMATS[table.form].codecs
    is_wrong = table.compression not in {None, *codecs}
    yield is_wrong, f"compression: {table.format} has {', '.join(codecs)}, and not {table.compression}"
    yield table.delimiter != "\n" and table.format != "text", f"delimiter: {table.format} has none"


def _records(table: TableFields) -> Problems:
    if table.form not in RECORD_FORMATS:
        return
    yield (
        table.parser is not None,
        f"parser: files of {table.format} have the values as they are; parquet, json and orc have columns",
    )
    yield bool(table.sort_by), f"sort_by: records of {table.format} are in the order of their offsets"


def _file_names(table: TableFields) -> Problems:
    if table.file_names is None:
        return
    yield table.format == "iceberg", "file_names: an Iceberg table names its files itself"
    try:
        check_template(table.file_names, bool(table.partition_by))
    except ValueError as error:
        yield True, f"file_names: {error}"


def _places(table: TableFields) -> Problems:
    if table.format != "iceberg":
        yield table.location is None, "location: plain files need one, as in s3://lake/orders"
        check_store(table.location or "", label="location: ")
        if table.quarantine is not None:
            check_store(table.quarantine, label="quarantine: ")
        yield table.foreign != "fail", "foreign: plain files have no such option; verify names files of others"
        return
    if table.quarantine is not None:
        check_table_name(table.quarantine)
    if table.location is not None:
        check_absolute("location", table.location)
    yield bool(table.max_age), "max_age: an Iceberg table has none; compact merges its small files"
    yield (
        table.storage_options is not None,
        "storage_options: an Iceberg table has the catalog's options, such as s3.endpoint",
    )


def _parsing(table: TableFields) -> Problems:
    codecs = ["" if table.parser is None else table.parser.type, (table.key or "").partition(",")[0]]
    codec = next(filter(has_schema, codecs), None)
    yield codec is not None and len(table.topics) != 1, f"topics: the schema of {codec} is of one topic; name it"
    yield (
        table.mode is not TableMode.APPEND and table.parser is None,
        f"mode: {table.mode} needs a parser; a raw table has keys, and NULL for a tombstone",
    )
    yield (
        table.key is not None and KEY not in table.included,
        "key: it is for mode: changes or latest, or for include: key",
    )


def _included(table: TableFields) -> Problems:
    yield bool(table.include) and table.parser is None, "include: a raw table has the key and the headers"
    yield len({*table.include}) < len(table.include), "include: a name is given twice"
    yield (
        "key" in table.include and table.mode is not TableMode.APPEND,
        f"include: mode: {table.mode} has the key; drop it",
    )
    if table.timestamp_ms:
        yield (
            table.parser is not None,
            "timestamp_ms: a parsed table refuses records with times that its column does not hold",
        )
        is_exact = table.form is FileFormat.JSON_LINES
        yield is_exact, "timestamp_ms: the timestamp of JSON lines is as stored; drop it"
        yield table.form in RECORD_FORMATS, f"timestamp_ms: files of {table.format} have no timestamps"


def _latest(table: TableFields) -> Problems:
    if table.mode is not TableMode.LATEST:
        yield table.buckets is not None, "buckets: they are for mode: latest"
        return
    yield table.format != "iceberg", f"mode: latest needs an Iceberg table; format is {table.format}"
    yield bool(table.partition_by), "partition_by: a table of mode: latest is divided by `buckets` of its key"
    only = (("on_hole", "wait"), ("on_recreated", OnRecreated.FAIL), ("foreign", "fail"))
    for name, value in only:
        problem = f"{name}: mode: latest has only {value}: an older record must not follow a newer"
        yield getattr(table, name) != value, problem
    yield (
        table.on_taken_back is OnTakenBack.KEEP,
        "on_taken_back: mode: latest has fail and delete; keep would need two rows of a key",
    )


def _others(table: TableFields) -> Problems:
    is_marked = any(map(_MARKED.match, table.partition_by))
    yield table.marks is not None and not is_marked, "marks: partition_by needs an hour or a day, as hour(timestamp)"
    is_raw = table.parser is None
    yield is_raw and table.quarantine is not None, "quarantine: without a parser, no record is refused"
    number = table.generation
    yield number in table.generations, f"generations: {number} is the number of the definition itself"


_RULES: Final[Sequence[Callable[[TableFields], Problems]]] = (
    _topics,
    _format,
    _records,
    _file_names,
    _places,
    _parsing,
    _included,
    _latest,
    _others,
)
