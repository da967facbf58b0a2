"""What a thaw costs and how long it needs, by class and tier. Pure.

The built-in prices are list prices: of S3 in us-east-1, of Azure in East US with local redundancy. An operator with
others gives them to the commands in a file, which replaces entries of this table.

https://aws.amazon.com/s3/pricing/ (Requests & data retrievals)
https://docs.aws.amazon.com/AmazonS3/latest/userguide/restoring-objects-retrieval-options.html
https://azure.microsoft.com/pricing/details/storage/blobs/
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ts_common.store.thaw_state import ThawTier

_GIGABYTE: Final = 1 << 30  # both services mean GiB
_MINUTES_OF_HOUR: Final = 60
_CENT: Final = 0.01


@dataclass(frozen=True, slots=True)
class ThawPrice:
    """The price of a thaw in one class by one tier.

    Attributes:
        per_gigabyte: in the currency of the prices, for each GiB; US dollars in the built-in ones.
        per_thousand: the same for each thousand objects.
        hours: the least and the greatest time until the objects can be read, as the service states it.
    """

    per_gigabyte: float
    per_thousand: float
    hours: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ThawCost:
    """An estimate.

    Attributes:
        amount: without the readable copy's storage.
        hours: as of `ThawPrice`.
        currency: of the amount.
    """

    amount: float
    hours: tuple[float, float]
    currency: str = "USD"

    def __str__(self) -> str:
        sign = "$" if self.currency == "USD" else f"{self.currency} "
        amount = f"less than {sign}0.01" if 0 < self.amount < _CENT else f"about {sign}{self.amount:,.2f}"
        return f"{amount}, {duration(self.hours)}"


ThawPrices = Mapping[tuple[str, ThawTier], ThawPrice]

_BULK, _STANDARD, _EXPEDITED = ThawTier.BULK, ThawTier.STANDARD, ThawTier.EXPEDITED
_TIERING: Final = "INTELLIGENT_TIERING"
LIST_PRICES: Final[ThawPrices] = MappingProxyType(
    {
        ("GLACIER", _BULK): ThawPrice(0.0, 0.0, (5, 12)),
        ("GLACIER", _STANDARD): ThawPrice(0.01, 0.05, (3, 5)),
        ("GLACIER", _EXPEDITED): ThawPrice(0.03, 10.0, (1 / 60, 5 / 60)),
        ("DEEP_ARCHIVE", _BULK): ThawPrice(0.0025, 0.025, (0, 48)),
        ("DEEP_ARCHIVE", _STANDARD): ThawPrice(0.02, 0.1, (0, 12)),
        (f"{_TIERING}.ARCHIVE_ACCESS", _BULK): ThawPrice(0.0, 0.0, (5, 12)),
        (f"{_TIERING}.ARCHIVE_ACCESS", _STANDARD): ThawPrice(0.0, 0.0, (3, 5)),
        (f"{_TIERING}.ARCHIVE_ACCESS", _EXPEDITED): ThawPrice(0.03, 10.0, (1 / 60, 5 / 60)),
        (f"{_TIERING}.DEEP_ARCHIVE_ACCESS", _BULK): ThawPrice(0.0, 0.0, (0, 48)),
        (f"{_TIERING}.DEEP_ARCHIVE_ACCESS", _STANDARD): ThawPrice(0.0, 0.0, (0, 12)),
        # Azure has two priorities; `Bulk` is the lower one too.
        ("Archive", _BULK): ThawPrice(0.02, 0.5, (0, 15)),
        ("Archive", _STANDARD): ThawPrice(0.02, 0.5, (0, 15)),
        ("Archive", _EXPEDITED): ThawPrice(0.1, 5.0, (0, 1)),
    }
)


def thaw_cost(
    size: int, objects: int, storage_class: str | None, tier: ThawTier, prices: ThawPrices = LIST_PRICES
) -> ThawCost | None:
    """Return what it costs to thaw objects of one class; None if the class has no such tier, or no price is known.

    Args:
        size: bytes of the objects.
        objects: their number.
        storage_class: of all of them, as `ThawState.storage_class`.
        tier: how fast.
        prices: by class and tier.
    """
    price = prices.get((storage_class or "", tier))
    if price is None:
        return None
    amount = price.per_gigabyte * size / _GIGABYTE + price.per_thousand * objects / 1000
    return ThawCost(amount, price.hours)


def duration(hours: tuple[float, float]) -> str:
    """Return a time for people: `3 to 5 hours`, `up to 12 hours`, `1 to 5 minutes`."""
    least, most = hours
    unit, factor = ("minutes", _MINUTES_OF_HOUR) if most < 1 else ("hour" if most == 1 else "hours", 1)
    if least == 0:
        return f"up to {most * factor:.0f} {unit}"
    return f"{least * factor:.0f} to {most * factor:.0f} {unit}"
