"""The prices of thaws of a price file, for `tsctl thaw`. Pure."""

from typing import Final

from ts_common.store.thaw_prices import LIST_PRICES, ThawPrice, ThawPrices
from ts_common.store.thaw_state import ThawTier
from tsctl.cost.prices import Prices

_GIB: Final = 1 << 30
_UNKNOWN_HOURS: Final = (0.0, 48.0)  # the longest of all services


def thaw_prices(prices: Prices) -> ThawPrices:
    """Return the prices of `restores` by class and tier, without speeds that no tier is named after.

    The time until objects can be read is that of the built-in list, as it is no price.
    """
    tiers = {tier.value: tier for tier in ThawTier}
    found = {}
    for storage_class, of_class in prices.classes.items():
        for speed, price in of_class.restores.items():
            if speed in tiers:
                key = (storage_class, tiers[speed])
                hours = LIST_PRICES[key].hours if key in LIST_PRICES else _UNKNOWN_HOURS
                found[key] = ThawPrice(price.per_gb * _GIB / prices.bytes_per_gb, price.per_1000, hours)
    return found
