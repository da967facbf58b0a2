"""Plans with pushed filters."""

from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    Filter,
)

from tests.spark.archives import Archive
from ts_reader.query.plan_query import QueryPlan

EPOCH = datetime.fromtimestamp(0, UTC)


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(milliseconds * 1000))


def planned(archive: Archive, *filters: Filter, **options: str) -> QueryPlan:
    return archive.plan(*filters, **{"subscribe": "t", **options})


def offsets(archive: Archive, *filters: Filter, **options: str) -> list[int]:
    return archive.offsets(*filters, **{"subscribe": "t", **options})
