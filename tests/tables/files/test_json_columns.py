"""JSON lines of parsed tables: what is written is read back, whatever the types are."""

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from ts_tables.files.json_columns import column_of, json_values

MOMENT = pa.timestamp("us", tz="UTC")
NOON = datetime(2026, 11, 25, 12, 0, 0, 1, tzinfo=UTC)
FAR_DAY = pa.scalar(3_000_000, pa.int32()).cast(pa.date32())
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    (pa.float64(), [0.1, -0.0, math.inf, -math.inf]),
    (pa.float32(), [0.5]),
    (pa.string(), ["", "é", "null"]),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789")]),
    (pa.binary(), [b"", b"\xff", b"text"]),
    (pa.date32(), [date(1, 1, 1), date(2026, 11, 25)]),
    (pa.time64("us"), [time(12, 0, 0, 1)]),
    (MOMENT, [NOON, datetime(1, 1, 1, tzinfo=UTC), -(1 << 62), 1 << 62]),
    (pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
    (pa.list_(pa.field("element", MOMENT)), [[NOON, None], []]),
    (pa.map_(pa.string(), pa.binary()), [[("a", b"\xff"), ("b", None)]]),
    (pa.map_(pa.int32(), pa.string()), [[(-7, "a"), (0, None)], []]),
    (pa.map_(pa.bool_(), pa.int64()), [[(True, 1), (False, 2)]]),
    (pa.map_(pa.float64(), pa.int64()), [[(0.5, 1), (math.inf, 2)]]),
    (pa.map_(pa.date32(), pa.int64()), [[(date(2026, 11, 25), 1)]]),
    (pa.map_(FAR_DAY.type, pa.int64()), [[(FAR_DAY, 1), (date(2026, 11, 25), 2)]]),
    (pa.map_(MOMENT, pa.int64()), [[(NOON, 1), (-(1 << 62), 2)]]),
    (pa.map_(pa.binary(), pa.int64()), [[(b"\xff", 1)]]),
    (pa.struct([("a", pa.list_(pa.float64())), ("b", pa.decimal128(3, 1))]), [{"a": [1.5], "b": None}]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_what_is_written_is_read_back(kind: pa.DataType, values: list[Any]) -> None:
    """Through the bytes of a line; NULL too."""
    column = pa.array([*values, None], kind)
    found = column_of(orjson.loads(orjson.dumps(json_values(column))), kind)
    assert found.equals(column)


def test_nan_is_written_as_text() -> None:
    """JSON has no NaN."""
    column = pa.array([math.nan], pa.float64())
    assert json_values(column) == ["nan"]
    assert math.isnan(column_of(["nan"], pa.float64())[0].as_py())
