"""The cost and the time of a thaw."""

import re

import pytest

from tests.docs.commands import CHECKOUT
from ts_common.store.thaw_prices import LIST_PRICES, ThawPrice, duration, thaw_cost
from ts_common.store.thaw_state import ThawTier

GIB = 1 << 30
PAGE = CHECKOUT / "docs/cold-storage.md"


def test_the_cost_is_of_bytes_and_of_objects() -> None:
    """A terabyte in 1,000 objects by S3's price, and by a price of the operator's own."""
    cost = thaw_cost(1024 * GIB, 1000, "GLACIER", ThawTier.STANDARD)
    assert cost is not None
    assert (round(cost.amount, 2), str(cost)) == (10.29, "about $10.29, 3 to 5 hours")
    own = {("COLD", ThawTier.BULK): ThawPrice(0.5, 100.0, (0, 1))}
    assert str(thaw_cost(2 * GIB, 10, "COLD", ThawTier.BULK, own)) == "about $2.00, up to 1 hour"


@pytest.mark.parametrize("storage_class", [None, "STANDARD_IA", "COLD"])
def test_a_class_without_a_price_has_no_cost(storage_class: str | None) -> None:
    """Nothing is invented for it."""
    assert thaw_cost(GIB, 1, storage_class, ThawTier.STANDARD) is None


def test_a_tier_that_a_class_lacks_has_no_price() -> None:
    """S3 has no expedited thaw of DEEP_ARCHIVE."""
    assert thaw_cost(GIB, 1, "DEEP_ARCHIVE", ThawTier.EXPEDITED) is None
    assert ("DEEP_ARCHIVE", ThawTier.BULK) in LIST_PRICES


@pytest.mark.parametrize(
    ("hours", "text"),
    [((3, 5), "3 to 5 hours"), ((0, 48), "up to 48 hours"), ((1 / 60, 5 / 60), "1 to 5 minutes")],
)
def test_a_duration_is_in_the_unit_that_people_use(hours: tuple[float, float], text: str) -> None:
    """Minutes below an hour."""
    assert duration(hours) == text


def test_the_page_has_the_prices() -> None:
    """Of the classes with one row for each tier, or for two of Azure's."""
    rows = re.findall(
        r"^\|([A-Za-z_ ]*) \| ([A-Za-z, ]+) \| ([0-9.]+) \| ([0-9.]+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE
    )
    shown, storage_class = {}, ""
    for name, tiers, per_gigabyte, per_thousand, hours in rows:
        storage_class = name.strip().removeprefix("Azure ") or storage_class
        for tier in tiers.split(", "):
            shown[storage_class, ThawTier(tier)] = (float(per_gigabyte), float(per_thousand), hours)
    known = {
        key: (price.per_gigabyte, price.per_thousand, duration(price.hours))
        for key, price in LIST_PRICES.items()
        if not key[0].startswith("INTELLIGENT_TIERING")
    }
    assert shown == known


def test_a_cost_below_a_cent_is_not_shown_as_free() -> None:
    """One small object."""
    assert str(thaw_cost(1, 1, "GLACIER", ThawTier.STANDARD)) == "less than $0.01, 3 to 5 hours"
    assert str(thaw_cost(1, 1, "GLACIER", ThawTier.BULK)) == "about $0.00, 5 to 12 hours"
