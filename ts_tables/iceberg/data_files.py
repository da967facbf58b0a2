"""Data files as the task that wrote them describes them, and as a commit adds them.

A task reads statistics from its writer's own footer, without a second read. It sends them as JSON values, because the
answer of a Spark task is a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from ts_tables.files.layout import WrittenFile

_TIMES: Final = (DateType, TimestampType, TimestamptzType)
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_MAPS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


@dataclass(frozen=True)
class FileDescriber:
    """Describes written files of a table.

    Attributes:
        schema: of the table, with its own field ids: `create_table` renumbers those that it is given.
        spec_id: of its partition spec.
        sort_order_id: of its sort order.
        properties: of the table, for the metrics of columns.
    """

    schema: Schema
    spec_id: int
    sort_order_id: int
    properties: Mapping[str, str]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of its files: Arrow's types with offsets of 32 bits, and the field ids."""
        return pa.schema([_narrow(field) for field in schema_to_pyarrow(self.schema)])

    def describe(self, written: WrittenFile) -> dict[str, Any]:
        """Return JSON values for `data_file`."""
        assert written.footer is not None  # noqa: S101  (of Parquet)
        ids = parquet_path_to_id_mapping(self.schema)
        plan = compute_statistics_plan(self.schema, dict(self.properties))
        for number, collector in plan.items():
            if isinstance(collector.iceberg_type, _TIMES):  # Python has no time after the year 9999
                plan[number] = replace(collector, mode=MetricsMode(MetricModeTypes.COUNTS))
        found = data_file_statistics_from_parquet_metadata(
            parquet_metadata=written.footer, stats_columns=plan, parquet_column_mapping=ids
        ).to_serialized_dict()
        lower, upper = (found[name] for name in _BOUNDS)
        for path, number in ids.items():
            columns = _columns(written.footer, path)
            if any(each.statistics is None or _lacks_bounds(each) for each in columns):
                # A value of more than 4 KiB leaves its row group without bounds; those of the others do not bound it.
                lower.pop(number, None)
                upper.pop(number, None)
            elif (
                isinstance(kind := plan[number].iceberg_type, _TIMES) and (bounds := _time_bounds(columns)) is not None
            ):
                size = 4 if isinstance(kind, DateType) else 8
                lower[number], upper[number] = (bound.to_bytes(size, "little", signed=True) for bound in bounds)
        for name in _BOUNDS:
            found[name] = {field: bound.hex() for field, bound in found[name].items()}
        return {
            "path": written.path,
            "size": written.size,
            "key": list(written.key),
            "sorted": written.is_sorted,
            "statistics": found,
        }

    def data_file(self, described: Mapping[str, Any]) -> DataFile:
        """Return a data file for a commit.

        Args:
            described: as `describe` returns it, perhaps after JSON, where keys are texts.
        """
        found = dict(described["statistics"])
        for name in _MAPS:
            found[name] = {int(field): value for field, value in found[name].items()}
        for name in _BOUNDS:
            found[name] = {int(field): bytes.fromhex(bound) for field, bound in found[name].items()}
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=described["path"],
            file_format=FileFormat.PARQUET,
            partition=Record(*described["key"]),
            file_size_in_bytes=described["size"],
            sort_order_id=self.sort_order_id if described["sorted"] else None,
            spec_id=self.spec_id,
            equality_ids=None,
            key_metadata=None,
            **found,
        )


def _columns(metadata: pq.FileMetaData, path: str) -> list[pq.ColumnChunkMetaData]:
    """Return a column of each row group."""
    group = metadata.row_group(0)
    (at,) = [at for at in range(metadata.num_columns) if group.column(at).path_in_schema == path]
    return [metadata.row_group(number).column(at) for number in range(metadata.num_row_groups)]


def _lacks_bounds(column: pq.ColumnChunkMetaData) -> bool:
    """Return whether a row group has values of a column, and no bounds of them."""
    statistics = column.statistics
    return bool(statistics.num_values) and not statistics.has_min_max


def _narrow(field: pa.Field) -> pa.Field:
    """Return a field with the types that the decoder has, so that no column is copied."""
    kind = field.type
    if pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_list(kind):
        kind = pa.list_(_narrow(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_narrow(each) for each in kind])
    return field.with_type(kind)


def _time_bounds(columns: Sequence[Any]) -> tuple[int, int] | None:
    """Return the least and the greatest value of columns of times; None without a value."""
    times = [each.statistics for each in columns if each.statistics.has_min_max]
    return (min(each.min_raw for each in times), max(each.max_raw for each in times)) if times else None
