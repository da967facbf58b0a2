"""What a parser returns is checked: a record that is neither a row nor refused would be lost."""

import pyarrow as pa
import pytest

from ts_common.errors import CorruptData
from ts_tables.parsers.contract import Parsed, Parser, check, ordinals_of

COLUMNS = pa.schema([("a", pa.int64())])


class Made(Parser):
    """Has columns."""

    @property
    def columns(self) -> pa.Schema:
        """Of its rows."""
        return COLUMNS

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return nothing."""
        raise NotImplementedError


def made(records: list[int | None], refused: list[int], reasons: list[str | None] | None = None) -> Parsed:
    """Return what a parser made of a batch."""
    rows = pa.RecordBatch.from_pydict({"a": pa.array([0] * len(records), pa.int64())}, schema=COLUMNS)
    texts = ["no"] * len(refused) if reasons is None else reasons
    return Parsed(rows, pa.array(records, pa.int32()), pa.array(refused, pa.int32()), pa.array(texts, pa.string()))


def test_rows_and_refused_records_together_are_the_batch() -> None:
    """A record may have several rows."""
    check(Made(), made([0, 0, 2], [1, 3]), 4)
    assert ordinals_of(pa.array([0, 0, 2, 5, 5, 5], pa.int32())).to_pylist() == [0, 1, 0, 0, 1, 2]
    assert ordinals_of(pa.array([], pa.int32())).to_pylist() == []


@pytest.mark.parametrize(
    "parsed",
    [
        made([0, 1], []),
        made([0, 1, 2], [2]),
        made([0, 1, 3], []),
        made([1, 0, 2], []),
        made([0, None, 2], [1]),
        made([0, 1], [2, 2]),
        made([0, 1], [2], [None]),
        made([0, 1], [2], ["a", "b"]),
        Parsed(
            pa.RecordBatch.from_pydict({"b": [1, 2, 3]}), pa.array([0, 1, 2]), pa.array([], pa.int32()), pa.array([])
        ),
    ],
)
def test_a_record_that_is_neither_or_both_is_an_error(parsed: Parsed) -> None:
    """It ends the run; nothing is committed."""
    with pytest.raises(CorruptData, match="parser Made: "):
        check(Made(), parsed, 3)
