"""The difference between this host's clock and a store's."""

import pytest

from ts_common.store.clock import skew_between


@pytest.mark.parametrize(
    ("stored_at", "skew"),
    [(100.0, 0), (99.0, 0), (103.0, 0), (98.0, 1), (40.0, 59), (103.5, -0.5), (163.0, -60)],
)
def test_only_a_time_outside_of_the_put_shows_a_difference(stored_at: float, skew: float) -> None:
    """A put lasted from 100 to 103; the store's date has no fraction of a second."""
    assert skew_between(100, stored_at, 103) == skew
