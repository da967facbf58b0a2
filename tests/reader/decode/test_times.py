"""Times of records that a column of microseconds does not hold."""

import numpy as np
import pyarrow as pa
import pytest

from ts_reader.decode.arrow_schema import TYPES
from ts_reader.decode.times import LATEST_MILLISECONDS, count_far, far_warning, microseconds_of

FAR = ((1 << 63) - 1, 1_700_000_000_000_000_000, LATEST_MILLISECONDS, -LATEST_MILLISECONDS, -(1 << 63))
NEAR = (LATEST_MILLISECONDS - 1, 1 - LATEST_MILLISECONDS, -1, 0, 1_700_000_000_000)


@pytest.mark.parametrize("milliseconds", [*FAR, *NEAR])
def test_the_nearest_time_that_fits_is_shown_and_counted(milliseconds: int) -> None:
    """A time within the limits is exact and not counted; one beyond them is the limit, and counted."""
    found = pa.array(microseconds_of(np.array([milliseconds, 5], np.int64)), TYPES["timestamp"])
    nearest = max(-LATEST_MILLISECONDS, min(milliseconds, LATEST_MILLISECONDS))
    assert found.cast(pa.int64()).to_pylist() == [nearest * 1000, 5000]
    assert count_far(found) == (milliseconds in FAR)


def test_a_column_without_times_has_no_far_one() -> None:
    """Rows of corrupt places have no time."""
    assert count_far(pa.nulls(3, TYPES["timestamp"])) == 0
    assert "1,234 rows" in far_warning(1234, "read timestampMs")
