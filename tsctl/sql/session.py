"""One DuckDB connection whose tables are the topics of an archive.

A topic becomes a table when DuckDB looks for one of its name. DuckDB passes
columns and filters to the scan's dataset, so a query reads what it needs. A statement cannot reach files, other
databases and extensions, unless the session allows it.

For a name with an ending such as `.csv`, DuckDB does not look for a table that it lacks: it opens a file. So a topic
with a dot in its name becomes a table before each statement that contains the name. DuckDB prefers a table to a file of
its name, also in `FROM 'orders.csv'`; `read_csv('orders.csv')` and `FROM './orders.csv'` name the file. Without
quotation marks, `FROM orders.csv` is a table of the schema `orders` or a file, so a statement with it is refused.

A topic can have the name of a view of DuckDB's, such as `pg_class`. It becomes a table before the statement too.
Qualified, as in `pg_catalog.pg_class`, the name is the view's.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from ts_common.errors import QueryError, TieredStorageError
from ts_common.printable import printable
from ts_common.suggestions import nearest
from ts_common.wording import some
from ts_reader import Archive, Estimate, Observer, Scan
from tsctl.sql.read_progress import ReadProgress

# DuckDB would draw a progress bar on standard output, among the rows.
SETTINGS: Final = ("TimeZone = 'UTC'", "python_enable_replacements = false", "enable_progress_bar = false")
# A directory for temporary files would be open to statements: DuckDB allows what it may write itself.
CONFINED: Final = ("temp_directory = ''", "enable_external_access = false", "lock_configuration = true")
_NO_TABLE: Final = re.compile(r"Table with name (.+?) does not exist")
_SYNTAX: Final = re.compile(r'syntax error at or near "(from|offset|-|,)"')
_SHOW_TABLES: Final = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_PART: Final = re.compile(r'"(?:[^"]|"")*"|\w+')
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*")
_LITERAL: Final = re.compile(r"'((?:[^']|'')*)'")
_KEPT: Final = re.compile(r"\b(view|macro|function|prepare)\b", re.IGNORECASE)  # DuckDB keeps what names tables
_PLACE: Final = re.compile(r"LINE (\d+):")
_BATCH_ROWS: Final = 32_768


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a topic that DuckDB made for a statement.

    Attributes:
        estimate: what it reads.
    """

    topic: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Attributes:
        has_result: whether it returns rows; a view, a table or a setting does not.
    """

    text: str
    has_result: bool


class Session:
    """Runs SQL statements over the topics of an archive; not thread-safe.

    Args:
        scan: returns the scan of a topic.
        files: whether statements may read and write files and load extensions.
        yields_rows: False to plan the reads of statements, and read no record.
    """

    def __init__(
        self,
        archive: Archive,
        scan: Callable[[str], Scan],
        *,
        files: bool = False,
        yields_rows: bool = True,
        progress: ReadProgress | None = None,
    ) -> None:
        self._progress = progress or ReadProgress(shown=False)
        self._archive = archive
        self._scan = scan
        self._yields_rows = yields_rows
        self._topics = archive.topics()
        self._registered: dict[str, str] = {}  # by the name that DuckDB compares
        self._kept: dict[str, str] = {}  # the same, of those that a view names
        by_name: dict[str, list[str]] = {}
        for topic in self._topics:
            by_name.setdefault(topic.lower(), []).append(topic)
        self._alike = {name: topics for name, topics in by_name.items() if len(topics) > 1}
        self._reads: list[Read] = []
        self._failures: list[TieredStorageError] = []
        self._connection = duckdb.connect()
        for setting in (*SETTINGS, *(() if files else CONFINED)):
            self._connection.execute(f"SET {setting}")
        views = self._connection.execute("SELECT view_name FROM duckdb_views() WHERE internal").fetchall()
        self._like_views = [by_name[name][0] for (name,) in views if name in by_name]

    @property
    def topics(self) -> list[str]:
        """The names of the topics, sorted."""
        return list(self._topics)

    def statements(self, text: str) -> list[Statement]:
        """Return the statements of a text.

        Raises:
            QueryError: the text is not SQL.
        """
        with self._translated():
            return [
                Statement(found.query, found.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT])
                for found in self._connection.extract_statements(text)
            ]

    def run(self, statement: Statement) -> tuple[pa.Schema, Generator[pa.RecordBatch, None, None]] | None:
        """Start a statement; return the schema and the batches of its result, None if it has none.

        Raises:
            QueryError: the statement is wrong, or names what the archive does not have.
            TieredStorageError: a topic cannot be read; also while the batches are read.
        """
        self._reads.clear()
        self._failures.clear()
        if _SHOW_TABLES.fullmatch(statement.text):  # DuckDB has those that it has looked for
            made = {name for (name,) in self._connection.execute("SHOW TABLES").fetchall()}
            rows = pa.record_batch([pa.array(sorted({*self._topics, *made}), pa.string())], names=["name"])
            return rows.schema, (each for each in (rows,))
        names = self._names(statement.text)
        self._check_quoted(names)
        self._before_files(statement.text)
        self._before_views(names)
        self._choose_capitals(statement.text, names)
        while True:
            try:
                with self._translated():
                    if not statement.has_result:
                        self._connection.execute(statement.text)
                        return None
                    reader = self._connection.sql(statement.text).to_arrow_reader(_BATCH_ROWS)
            except QueryError as error:
                topic = self._missing_table(error)
                if topic is None:
                    raise
                self._register(topic)
            else:
                return reader.schema, self._batches(reader)

    def named(self, text: str) -> list[str]:
        """Return the topics whose names are words of a text of SQL."""
        words = _words(text)
        return [topic for topic in self._topics if topic.lower() in words]

    def reads(self) -> list[Read]:
        """Return what the last statement has read of topics so far."""
        return list(self._reads)

    def _batches(self, reader: pa.RecordBatchReader) -> Generator[pa.RecordBatch, None, None]:
        with self._translated(), closing(reader):
            yield from reader

    def _missing_table(self, error: QueryError) -> str | None:
        """Return the topic that DuckDB lacks as a table; None if the error is another one."""
        match = _NO_TABLE.search(str(error.__cause__))
        if match is None or match[1].lower() in self._registered:
            return None
        if match[1] in self._topics:
            return match[1]
        return next((topic for topic in self._topics if topic.lower() == match[1].lower()), None)

    def _before_files(self, statement: str) -> None:
        """Make tables of the topics in a statement whose names DuckDB could read as names of files."""
        text = statement.lower()
        for topic in self._topics:
            if "." in topic and topic.lower() in text and topic.lower() not in self._registered:
                self._register(topic)

    def _names(self, statement: str) -> set[tuple[str, ...]]:
        """Return the names of a statement's tables, by their parts; all words of one that is no query."""
        with suppress(duckdb.Error, ValueError):
            ((parsed,),) = self._connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
            tree = json.loads(parsed)
            if not tree.get("error", True):
                return set(_tables(tree))
        found = {tuple(map(_unquoted, _PART.findall(name))) for name in _NAME.findall(_LITERAL.sub(" ", statement))}
        return found | {(text,) for text in _LITERAL.findall(statement)}

    def _check_quoted(self, names: set[tuple[str, ...]]) -> None:
        """Check that a name with dots is in quotation marks if it is a topic's.

        Raises:
            QueryError: DuckDB would look for a schema or a file.
        """
        written = {".".join(parts).lower(): parts for parts in names if len(parts) > 1}
        for topic in self._topics:
            if (parts := written.get(topic.lower())) is not None:
                name = ".".join(parts)
                raise QueryError(f'table {name}: write "{topic}" with its quotation marks to read the topic')

    def _before_views(self, names: set[tuple[str, ...]]) -> None:
        """Make tables of the topics in a statement whose names are those of DuckDB's views."""
        for topic in self._like_views:
            if any(parts == (parts[0],) and parts[0].lower() == topic.lower() for parts in names):
                self._choose(topic)

    def _choose_capitals(self, statement: str, names: set[tuple[str, ...]]) -> None:
        """Choose among topics that differ in capitals only: DuckDB does not distinguish them.

        Raises:
            QueryError: a statement, or a view and a statement, name several of them, or none exactly.
        """
        for name, topics in self._alike.items():
            used = {parts[-1] for parts in names if parts[-1].lower() == name}
            if not used:
                continue
            if name in self._kept:
                used.add(self._kept[name])
            if len(used) > 1 or not used <= {*topics}:
                raise QueryError(
                    f"table {', '.join(sorted(used))}: topics {', '.join(topics)} differ in capitals only, and SQL "
                    "does not distinguish them; name one of them, in its capitals, in a statement and its views"
                )
            self._choose(*used)
            if _KEPT.search(statement):
                self._kept[name] = self._registered[name]

    def _choose(self, topic: str) -> None:
        """Make a topic the table of its name."""
        if self._registered.get(topic.lower()) != topic:
            self._register(topic)

    def _register(self, topic: str) -> None:
        dataset = self._scan(topic).dataset(self._observer(topic), yields_rows=self._yields_rows)
        self._connection.register(topic, dataset)
        self._registered[topic.lower()] = topic

    def _observer(self, topic: str) -> Observer:
        reads, failures, progress = self._reads, self._failures, self._progress

        class Noting(Observer):
            def reads(self, estimate: Estimate) -> None:
                reads.append(Read(topic, estimate))
                self._estimate = estimate
                progress.reads(topic, estimate)

            def read(self, share: float) -> None:
                progress.read(topic, share, self._estimate)

            def failed(self, error: TieredStorageError) -> None:
                failures.append(error)

        return Noting()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of DuckDB as this project's, and the error of a topic's read instead of DuckDB's about it."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._failures:
                raise self._failures[0] from error
            if isinstance(error, duckdb.Error):
                raise QueryError(self._explained(error)) from error
            raise

    def _explained(self, error: duckdb.Error) -> str:
        """Return an error of DuckDB as one line."""
        text = str(error)
        if (match := _NO_TABLE.search(text)) is not None:
            name = match[1].strip('"')
            if name in self._topics:  # without quotation marks, what is before a dot is a schema
                return f'table {name}: write "{name}" with its quotation marks'
            hint = nearest(name, self._topics) or f"; it has {some(sorted(self._topics))}"
            quoted = "" if re.fullmatch(r"\w+", name) else f'; write "{name}" with its quotation marks'
            return f"table {name}: cluster {self._archive.cluster} has no such topic{hint}{quoted}"
        first, _, place = text.partition("\n\n")
        lines = [line.strip() for line in first.splitlines()]
        if (line := _PLACE.match(place)) is not None and line[1] != "1":
            lines.append(f"in line {line[1]}")
        if _SYNTAX.search(text) is not None:
            lines.append('write "offset", and names such as "my-topic", in quotation marks')
        if "disabled by configuration" in text or "disabled through configuration" in text:
            lines.append("--files allows it")
        return printable("; ".join(line for line in lines if line))


def _tables(tree: object) -> Iterator[tuple[str, ...]]:
    """Yield the names of the tables in DuckDB's tree of a query, by their parts."""
    if isinstance(tree, dict):
        if name := tree.get("table_name"):
            yield tuple(part for part in (tree.get("catalog_name"), tree.get("schema_name"), name) if part)
        for each in tree.values():
            yield from _tables(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _tables(each)


def _unquoted(part: str) -> str:
    """Return a part of a name without its quotation marks."""
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _words(text: str) -> set[str]:
    """Return the identifiers and keywords of a text of SQL in small letters, without their quotation marks."""
    tokens = duckdb.tokenize(text)
    ends = [start for start, _ in tokens[1:]] + [len(text.encode())]
    data = text.encode()  # places are those of bytes
    found = set()
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind in {duckdb.token_type.identifier, duckdb.token_type.keyword}:
            word = data[start:end].decode("utf-8", "replace").strip()
            found.add(word[1:].partition('"')[0].lower() if word.startswith('"') else word.lower())
    return found
