"""Queries of an archive by the options of `kafka_segments`, without Spark around them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import Filter

from dev.local.oracle import OracleRecord
from tests.made_archive import CLUSTER, MadeArchive
from ts_reader.query.plan_query import QueryPlan, plan_query
from ts_reader.query.read_split import read_split
from ts_spark.options.filters import query_filters
from ts_spark.options.parse import parse_options
from ts_spark.options.schema import full_schema

_EPOCH = datetime.fromtimestamp(0, UTC)


class Archive(MadeArchive):
    """An archive with queries by Spark's options."""

    def options(self, **options: str) -> dict[str, str]:
        """A query's options, as a user would write them."""
        bits = {"prefixEntropyBits": str(self.keys.entropy_bits)} if self.keys.entropy_bits else {}
        return {"path": self.location, "cluster": CLUSTER, **bits, **options}

    def plan(self, *filters: Filter, **options: str) -> QueryPlan:
        """A query's plan, made in this process."""
        return plan_query(self.store, parse_options(self.options(**options)).query, query_filters(filters))

    def rows(self, *filters: Filter, **options: str) -> list[dict[str, Any]]:
        """A query's rows, without Spark around it: what filters leave in is what Spark applies them to."""
        query = parse_options(self.options(**options))
        schema = full_schema(include_headers=query.include_headers, corrupt_column=query.query.tolerance.column)
        names = schema.fieldNames()
        splits = self.plan(*filters, **options).splits
        return [row for split in splits for b in read_split(self.store, split, names) for row in b.to_pylist()]

    def offsets(self, *filters: Filter, **options: str) -> list[int]:
        """The offsets of a query's rows."""
        return [row["offset"] for row in self.rows(*filters, **options)]


def oracle_records(rows: Iterable[dict[str, Any]]) -> list[OracleRecord]:
    """Rows in the words of the oracle."""
    return [
        OracleRecord(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            timestamp=round((row["timestamp"] - _EPOCH).total_seconds() * 1000),
            timestamp_type=row["timestampType"],
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    ]
