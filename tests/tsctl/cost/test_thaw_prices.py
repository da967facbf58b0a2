"""The prices of thaws of a price file: the example has those that are built in."""

import pytest

from tests.tsctl.cost.made_usage import PRICES
from ts_common.store.lifecycle import ARCHIVE_CLASSES
from ts_common.store.thaw_prices import LIST_PRICES
from ts_common.store.thaw_state import ThawTier
from tsctl.cost.prices import read_prices
from tsctl.cost.thaw_prices import thaw_prices


def test_the_example_has_the_built_in_prices() -> None:
    """Of all classes of S3 that need a restore."""
    built_in = {key: price for key, price in LIST_PRICES.items() if key[0] in ARCHIVE_CLASSES}
    assert thaw_prices(read_prices(None)) == built_in


def test_a_gb_of_the_file_becomes_a_gib() -> None:
    """0.02 for 10^9 bytes; the class has no known time."""
    found = thaw_prices(PRICES)
    assert found.keys() == {("FROZEN", ThawTier.STANDARD), ("FROZEN", ThawTier.BULK)}
    price = found["FROZEN", ThawTier.STANDARD]
    assert price.per_gigabyte == pytest.approx(0.02 * 1.073741824)
    assert (price.per_thousand, price.hours) == (0.1, (0.0, 48.0))
