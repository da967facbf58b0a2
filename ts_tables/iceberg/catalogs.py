"""Catalogs and new tables. A catalog has pyiceberg's own configuration: its type, URI, warehouse and credentials."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.pool import NullPool

from ts_common.errors import OperatorError
from ts_common.suggestions import nearest
from ts_tables.files.layout import WAYS_OUT, Layout, differing
from ts_tables.files.partitioning import Term, Transform
from ts_tables.iceberg.translated_errors import calling

_FIRST_PARTITION_FIELD: Final = 1000  # as in Iceberg's specification
_S3_SCHEMES: Final = {"s3", "s3a", "s3n", ""}  # the warehouse of a REST catalog can be a name
_PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Each commit writes the metadata whole; without this, all former versions stay.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_SIMPLE: Final[Mapping[pa.DataType, IcebergType]] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
    pa.time64("us"): TimeType(),
    pa.bool_(): BooleanType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
}


class _UnpooledCatalog(SqlCatalog):
    """An SQL catalog that closes each connection after its use; a pool would keep it until the process ends."""

    def _init_catalog(self) -> None:
        pooled = self.engine  # it has not connected yet
        self.engine = _engine(pooled.url, pooled.echo)
        super()._init_catalog()


@lru_cache(maxsize=16)
def _engine(url: URL, echo: Any) -> Engine:
    """Return the engine of a database: a run opens its catalog several times, and an engine compiles each statement."""
    return create_engine(url, echo=echo, poolclass=NullPool)


AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: _UnpooledCatalog(name, **properties)


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Return a catalog.

    Its S3 has the endpoint and the region of the AWS variables, unless its properties, pyiceberg's own file or its
    server give others.

    Args:
        name: of it; of an SQL catalog, part of each row.
        properties: as pyiceberg's configuration has them: `type`, `uri`, `warehouse` and so on.

    Raises:
        OperatorError: the properties are wrong, or a package is missing.
        AccessDenied, StoreUnavailable: from the catalog.
    """
    label, kinds = f"catalog {name}", [each.value for each in CatalogType]
    if (kind := properties.get("type", "").lower()) and kind not in kinds:
        raise OperatorError(f"{label}: type {kind} is unknown; accepted are {', '.join(kinds)}{nearest(kind, kinds)}")
    with calling(label):
        try:
            catalog = load_catalog(name, **properties)
        except ValueError as error:
            if "URI missing" not in str(error):
                raise
            raise OperatorError(f"{label}: `uri` is missing below `catalog`") from error
    _use_environment(catalog.properties)
    return catalog


def _use_environment(properties: dict[str, str]) -> None:
    """Add the endpoint and the region of S3 that the AWS variables name; properties that are given stay.

    pyarrow reads credentials of the environment, but no endpoint. Without a region, pyiceberg requests that of the
    bucket at AWS, also if the endpoint is elsewhere.
    """
    warehouse = properties.get("warehouse", "")
    if urlsplit(warehouse).scheme not in _S3_SCHEMES or warehouse.startswith("/"):
        return
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        properties.setdefault("s3.endpoint", endpoint)
    if properties.get("s3.endpoint") and not any(properties.get(each) for each in ("s3.region", "client.region")):
        properties["s3.region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def create_table(
    catalog: Catalog,
    name: tuple[str, ...],
    layout: Layout,
    required: Sequence[str],
    location: str | None = None,
) -> Table:
    """Create a table and its namespace, and return it; return a table that exists.

    Args:
        name: namespace and name.
        layout: columns, partition key and sort order.
        required: columns that are never NULL.
        location: of the table; None for the catalog's choice.

    Raises:
        AccessDenied, OperatorError, StoreUnavailable: from the catalog.
    """
    schema = iceberg_schema(layout.schema, required)
    ids = {field.name: field.field_id for field in schema.fields}
    spec = PartitionSpec(
        *(
            PartitionField(ids[term.column], _FIRST_PARTITION_FIELD + at, _transform(term), term.name)
            for at, term in enumerate(layout.terms)
        )
    )
    order = SortOrder(
        *(
            SortField(ids[column], IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST)
            for column in layout.sort
        )
    )
    properties = {**_PROPERTIES, "write.target-file-size-bytes": str(layout.target_bytes)}
    label = f"table {'.'.join(name)}"
    with calling(label):
        # An SQL catalog writes a file of metadata before it finds that the table exists.
        with suppress(NoSuchTableError, NoSuchNamespaceError):
            return catalog.load_table(name)
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(name[:-1])
        try:
            return catalog.create_table(
                name, schema, location, partition_spec=spec, sort_order=order, properties=properties
            )
        except TableAlreadyExistsError:
            return catalog.load_table(name)
        except ValueError as error:
            if "No default path" not in str(error):
                raise
            raise OperatorError(
                f"{label}: `warehouse` is missing below `catalog`; or set the table's `location`"
            ) from error


def check_layout(table: Table, layout: Layout) -> None:
    """Check that a table has the columns, the partition key and the sort order of a layout.

    Args:
        table: as it was loaded.
        layout: as the tables' file has it.

    Raises:
        OperatorError: it has others; the message names both.
    """
    name = ".".join(table.name())
    schema = table.schema()
    # By names and types: the order of columns is the reader's business, and a catalog gives ids of its own.
    expected = {field.name: schema_to_pyarrow(field.field_type) for field in iceberg_schema(layout.schema).fields}
    found = {field.name: schema_to_pyarrow(field.field_type) for field in schema.fields}
    if found != expected:
        wrong = sorted({column for column, _ in {*found.items()} ^ {*expected.items()}})
        wanted = {each.name: str(each.field_type) for each in iceberg_schema(layout.schema).fields}
        changed = differing({each.name: str(each.field_type) for each in schema.fields}, wanted)
        raise OperatorError(
            f"table {name}: its columns {', '.join(wrong[:10])} differ from those that the file of tables makes: "
            f"{changed}; {WAYS_OUT}"
        )
    columns = {field.field_id: field.name for field in schema.fields}
    terms = [str(_term(columns[each.source_id], each.transform)) for each in table.spec().fields]
    if terms != [str(term) for term in layout.terms]:
        raise OperatorError(
            f"table {name} is partitioned by {terms}, and partition_by is {[str(term) for term in layout.terms]}: "
            "change it back, or create another table"
        )
    order = [columns[each.source_id] for each in table.sort_order().fields]
    if order != [*layout.sort]:
        raise OperatorError(
            f"table {name} is sorted by {order}, and sort_by is {[*layout.sort]}: change it back, or create another "
            "table"
        )


def _term(column: str, transform: IcebergTransform[Any, Any]) -> Term | str:
    match transform:
        case IdentityTransform():
            return Term(Transform.IDENTITY, column)
        case DayTransform():
            return Term(Transform.DAY, column)
        case HourTransform():
            return Term(Transform.HOUR, column)
        case BucketTransform():
            return Term(Transform.BUCKET, column, transform.num_buckets)
        case _:
            return f"{transform}({column})"


def iceberg_schema(schema: pa.Schema, required: Sequence[str] = ()) -> Schema:
    """Return an Iceberg schema with ids in the order of the columns; a catalog may give others.

    Args:
        required: columns that are never NULL.

    Raises:
        OperatorError: Iceberg has no such type as a column.
    """
    numbers = iter(range(len(schema) + 1, 1 << 20))  # of nested fields

    def convert(kind: pa.DataType) -> IcebergType:
        if pa.types.is_list(kind):
            element = next(numbers)
            return ListType(element, convert(kind.value_type), element_required=False)
        if pa.types.is_map(kind):
            key, value = next(numbers), next(numbers)
            return MapType(key, convert(kind.key_type), value, convert(kind.item_type), value_required=False)
        if pa.types.is_decimal128(kind):
            return DecimalType(kind.precision, kind.scale)
        if pa.types.is_struct(kind):
            return StructType(
                *(NestedField(next(numbers), each.name, convert(each.type), required=False) for each in kind)
            )
        if kind not in _SIMPLE:
            raise OperatorError(f"a column has type {kind}, which Iceberg does not have")
        return _SIMPLE[kind]

    fields = [
        NestedField(at, field.name, convert(field.type), required=field.name in required)
        for at, field in enumerate(schema, 1)
    ]
    try:
        return Schema(*fields)
    except ValueError as error:  # a column `a.b`, and the member `b` of a struct `a`
        raise OperatorError(f"{error}: Iceberg names members with dots; plain files have no such limit") from error


def _transform(term: Term) -> IcebergTransform[Any, Any]:
    match term.transform:
        case Transform.IDENTITY:
            return IdentityTransform()
        case Transform.DAY:
            return DayTransform()
        case Transform.HOUR:
            return HourTransform()
        case Transform.BUCKET:
            return BucketTransform(term.buckets)
