"""A scan as a `pyarrow.dataset.Dataset`: columns and filters of DuckDB and polars are applied here.

Both engines trust an Arrow dataset with a filter and do not apply it again, so it is applied exactly, by Arrow's
own scanner. Arrow also decides which parts of the plan are read (`ts_reader.pruning`).

Arrow's own functions do not call the methods of a subclass in Python: they read its C++ dataset. That one has a single
file, whose name has the way out, and that is not there. Without it they read memory that is not there, and end the
process. Methods that would read it are overridden.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from ts_common.errors import TieredStorageError
from ts_reader.planned_query import Estimate, PlannedQuery
from ts_reader.pruning import binds, matching_splits
from ts_reader.query.splits import Split

Columns = Sequence[str] | Mapping[str, pc.Expression] | None


class Observer:
    """Receives what an engine does with a dataset; this one does nothing."""

    def reads(self, estimate: Estimate) -> None:
        """Note what the engine is about to read."""

    def read(self, share: float) -> None:
        """Note that this share of a read was read since the last call; called on the engine's thread."""

    def failed(self, error: TieredStorageError) -> None:
        """Note the error that ended a read: an engine shows only its text, in a message of its own."""


# Not in Python: a thread of Arrow may drop the error, and one of Python's needs an interpreter that has not ended.
_NOWHERE: Final = pyarrow.fs.LocalFileSystem()
_NO_FILE: Final = (
    "a scan: its dataset is not supported by Arrow's own functions; use dataset.to_table(), or pass the dataset "
    "to DuckDB or polars"
)


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A scan that accepts columns and filters; `Scan.dataset` returns it.

    Args:
        planned: the scan's query; it is planned when the dataset is first read.
        observer: as of `Scan.dataset`.
        yields_rows: as of `Scan.dataset`.
    """

    def __init__(self, planned: PlannedQuery, observer: Observer | None = None, *, yields_rows: bool = True) -> None:
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(_NO_FILE, _NOWHERE)], planned.schema, form, _NOWHERE)
        self._planned = planned
        self._observer = observer or Observer()
        self._yields_rows = yields_rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the scan."""
        return self._planned.schema

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        **_: Any,
    ) -> "ScanScanner":
        """Return a scanner of some columns, and of the rows that match a filter.

        Args:
            columns: names, or names and expressions; None for all.
            filter: an expression; None for all rows.

        Raises:
            as `Scan.plan`; pyarrow.ArrowInvalid: columns or filter name a column that the scan does not have.
        """
        return ScanScanner(self, columns, filter)

    def batches_for(self, columns: Columns, filter: pc.Expression | None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the columns that columns and filter use, of the parts of the plan that may have matching rows."""
        read = self._columns_needed(columns, filter)
        try:
            splits = self.splits_for(filter)
            self._observer.reads(self._planned.estimate(splits))
            yield from self._planned.run(
                splits if self._yields_rows else (), read, lambda done: self._observer.read(done / len(splits))
            )
        except TieredStorageError as error:
            self._observer.failed(error)
            raise

    def count_all(self) -> int:
        """Return the number of rows of the plan, without reading them."""
        try:
            self._observer.reads(self._planned.estimate())
            return self._planned.count_rows() if self._yields_rows else 0
        except TieredStorageError as error:
            self._observer.failed(error)
            raise

    def schema_for(self, columns: Columns, filter: pc.Expression | None) -> pa.Schema:
        """Return the schema of the batches of `batches_for`."""
        return pa.schema([self.schema.field(name) for name in self._columns_needed(columns, filter)])

    def splits_for(self, filter: pc.Expression | None) -> tuple[Split, ...]:
        """Return the parts of the plan that may have rows which match a filter."""
        splits = self._planned.plan.splits
        return splits if filter is None else matching_splits(splits, filter, self.schema)

    def _columns_needed(self, columns: Columns, filter: pc.Expression | None) -> list[str]:
        """Return the columns that columns and filter use, in the order of the scan.

        Arrow does not name the fields of an expression, so each one is left out in turn: if the expression can then not
        be bound, it uses the field.
        """
        expressions = [
            *(columns.values() if isinstance(columns, Mapping) else ()),
            *([filter] if filter is not None else []),
        ]
        # A place of a field, as in pc.field(3), is another field's if columns are left out.
        if columns is None or any("FieldPath(" in str(expression) for expression in expressions):
            return list(self.schema.names)
        used: set[Any] = set() if isinstance(columns, Mapping) else set(columns)
        used |= {self._planned.query.tolerance.column} & {*self.schema.names}  # without it corrupt places have no rows
        for name in self.schema.names:
            rest = self.schema.remove(self.schema.get_field_index(name))
            if name not in used and not all(binds(expression, rest) for expression in expressions):
                used.add(name)
        if unknown := used - set(self.schema.names):
            raise pa.ArrowInvalid(f"no columns {sorted(unknown)}; the scan has {', '.join(self.schema.names)}")
        return [name for name in self.schema.names if name in used]

    def to_batches(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows as record batches."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """Return the matching rows in memory."""
        return self.scanner(columns, filter, **options).to_table()

    def head(
        self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """Return the first matching rows."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Return the number of matching rows; without a filter, as `Scan.count_rows` does."""
        return int(self.scanner([], filter, **options).count_rows())

    def take(
        self, indices: Any, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """Return rows by their place in the result."""
        return self.scanner(columns, filter, **options).take(indices)

    @property
    def partition_expression(self) -> pc.Expression:
        """An expression that is true of every row."""
        return pc.scalar(True)

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """Reject the call: a scan has no files that Arrow could read."""
        self._reject("get_fragments", "scanner(columns=..., filter=...)")

    def filter(self, expression: pc.Expression) -> NoReturn:
        """Reject the call."""
        self._reject("filter", "scanner(filter=...)")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Reject the call."""
        self._reject("replace_schema", "Archive.scan(columns=...)")

    def sort_by(self, sorting: object, **_: Any) -> NoReturn:
        """Reject the call."""
        self._reject("sort_by", "to_table().sort_by(...)")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Reject the call."""
        self._reject("join", "to_table().join(...)")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Reject the call."""
        self._reject("join_asof", "to_table().join_asof(...)")

    def __reduce__(self) -> tuple[Any, ...]:
        return _dataset, (self._planned, self._observer, self._yields_rows)

    def _reject(self, method: str, instead: str) -> NoReturn:
        raise NotImplementedError(f"{method} is not supported by the dataset of a scan; use {instead}")


def _dataset(planned: PlannedQuery, observer: Observer, yields_rows: bool) -> ScanDataset:
    return ScanDataset(planned, observer, yields_rows=yields_rows)


class ScanScanner:
    """One query of a scan's dataset, with the methods of `pyarrow.dataset.Scanner`; each of them runs it again.

    Arrow's own scanner reads a stream ahead on a thread of its own, also when its consumer has ended, and then ends the
    interpreter with a crash. This one reads a batch when it is requested, and has Arrow filter it.
    """

    def __init__(self, dataset: ScanDataset, columns: Columns, filter: pc.Expression | None) -> None:
        self._dataset = dataset
        self._columns = columns
        self._filter = filter
        self._read_schema = dataset.schema_for(columns, filter)
        self.projected_schema: pa.Schema = self._applied(pa.RecordBatch.from_pylist([], self._read_schema)).schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._dataset.schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the matching rows as record batches; raise as `Scan.to_batches`."""
        with closing(self._dataset.batches_for(self._columns, self._filter)) as batches:
            for batch in batches:
                yield from self._applied(batch).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the matching rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return the matching rows in memory."""
        with closing(self.to_batches()) as batches:
            return pa.Table.from_batches(batches, self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first matching rows."""
        found: list[pa.RecordBatch] = []
        with closing(self.to_batches()) as batches:
            while num_rows > 0 and (batch := next(batches, None)) is not None:
                found.append(batch.slice(0, num_rows))
                num_rows -= found[-1].num_rows
        return pa.Table.from_batches(found, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of matching rows; without a filter, as `Scan.count_rows` does."""
        if self._filter is None:
            return self._dataset.count_all()
        with closing(self.to_batches()) as batches:
            return sum(batch.num_rows for batch in batches)

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their place in the result."""
        return self.to_table().take(indices)

    def _applied(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the matching rows of a batch with the columns of the query, by Arrow's scanner."""
        if self._filter is None and not isinstance(self._columns, Mapping):
            columns = self._read_schema.names if self._columns is None else list(self._columns)
            return pa.Table.from_batches([batch]).select(columns)
        columns = self._columns if isinstance(self._columns, Mapping) or self._columns is None else list(self._columns)
        return ds.Scanner.from_batches([batch], schema=batch.schema, columns=columns, filter=self._filter).to_table()
