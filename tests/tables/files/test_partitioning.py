"""Partition keys of rows."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, StringType, TimestamptzType

from ts_tables.files.partitioning import Term, Transform, groups, parse_term
from ts_tables.files.raw_columns import RAW_SCHEMA

TIMES = [-1, 0, 3_599_999_999, 3_600_000_000, 86_399_999_999, 86_400_000_000, -86_400_000_001, None]


@pytest.mark.parametrize("text", ["day(timestamp)", "hour(timestamp)", "topic", "partition", "bucket(16, key)"])
def test_a_term_is_read_as_it_is_written(text: str) -> None:
    """The text of a term is the term."""
    assert str(parse_term(text, RAW_SCHEMA)) == text
    assert parse_term(text.replace(" ", "  "), RAW_SCHEMA) == parse_term(text, RAW_SCHEMA)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("week(timestamp)", "week is unknown"),
        ("day(nothing)", "no column nothing"),
        ("day(key)", "key is no time"),
        ("value", "bucket"),
        ("headers", "bucket"),
        ("bucket(key)", "number of buckets"),
        ("bucket(0, key)", "number of buckets"),
        ("bucket(16, headers)", "no buckets"),
        ("day(3, timestamp)", "no number of buckets"),
        ("day(timestamp", "no column"),
        ("", "no column"),
    ],
)
def test_a_wrong_term_is_refused(text: str, reason: str) -> None:
    """With what is accepted."""
    with pytest.raises(ValueError, match=reason):
        parse_term(text, RAW_SCHEMA)


def test_times_are_in_the_partitions_of_iceberg() -> None:
    """Days and hours since 1970, rounded down; no time has no partition value."""
    column = pa.array(TIMES, pa.timestamp("us", tz="UTC"))
    for term, transform in (
        (Term(Transform.DAY, "timestamp"), DayTransform()),
        (Term(Transform.HOUR, "timestamp"), HourTransform()),
    ):
        compute: Any = transform.transform(TimestamptzType())
        expected = [compute(time) for time in TIMES]
        assert term.values(column).to_pylist() == expected
    assert [Term(Transform.DAY, "timestamp").shown(day) for day in (-719_162, -429_461, 0, 2_932_897, 19_675_925)] == [
        *("0001-01-01", "0794-03-06", "1970-01-01"),
        *("10000-01-01", "55840-11-08"),
    ]
    shown = Term(Transform.HOUR, "timestamp").shown(-1)
    assert shown == datetime(1969, 12, 31, 23, tzinfo=UTC).strftime("%Y-%m-%d-%H")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", "", None, "ü" * 100]), StringType()),
        (pa.array([b"a", b"", None, b"\xff" * 100]), BinaryType()),
        (pa.array([1, -1, None, 1 << 30], pa.int32()), IntegerType()),
        (pa.array([1, -1, None, 1 << 60], pa.int64()), LongType()),
        (pa.array([1, -1, None, 1 << 50], pa.timestamp("us", tz="UTC")), TimestamptzType()),
    ],
    ids=["string", "binary", "int", "long", "time"],
)
def test_values_are_in_the_buckets_of_iceberg(column: pa.Array, kind: object) -> None:
    """By murmur3, as other engines compute them."""
    values = column.cast(pa.int64()).to_pylist() if isinstance(kind, TimestamptzType) else column.to_pylist()
    expected = [BucketTransform(16).transform(kind)(value) for value in values]  # type: ignore[arg-type]
    assert Term(Transform.BUCKET, "key", 16).values(column).to_pylist() == expected


def test_rows_are_grouped_by_their_key() -> None:
    """Each row is in one group, in its order; NULL is a key."""
    rows = pa.RecordBatch.from_pydict(
        {"topic": ["a", "b", "a", None, "b"], "timestamp": pa.array([0, 0, 90_000_000_000, 0, 0], pa.timestamp("us"))}
    )
    terms = [Term(Transform.IDENTITY, "topic"), Term(Transform.DAY, "timestamp")]
    found = {key: some["topic"].to_pylist() for key, some in groups(rows, terms)}
    assert found == {("a", 0): ["a"], ("b", 0): ["b", "b"], ("a", 1): ["a"], (None, 0): [None]}
    assert list(groups(rows.slice(0, 0), terms)) == []
    ((key, same),) = groups(rows.slice(0, 1), terms)
    assert (key, same.num_rows) == (("a", 0), 1)


def test_keys_of_many_columns_stay_apart() -> None:
    """Nine columns of 256 values each have more combinations than 64 bits."""
    names = "abcdefghi"
    values = {name: [*range(256), 0, 0] for name in names} | {"a": [*range(256), 5, 9]}
    rows = pa.RecordBatch.from_pydict(values)
    found = list(groups(rows, [Term(Transform.IDENTITY, name) for name in names]))
    assert len(found) == 258
    assert all(some.to_pylist() == [dict(zip(names, key, strict=True))] for key, some in found)
