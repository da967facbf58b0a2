"""The price file: what a store charges for bytes, requests, moves and restores, by storage class.

docs/cost.md describes each key. `s3-us-east-1.yaml` in this directory is the example of `tsctl cost --example-prices`.
"""

from collections.abc import Mapping
from datetime import date
from math import inf
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ts_common.config.yaml_files import read_yaml, validate
from ts_common.errors import ConfigurationError
from ts_common.suggestions import nearest

EXAMPLE: Final = Path(__file__).with_name("s3-us-east-1.yaml")

# Bounds far above any price, so that no product is infinite, which JSON has no number for.
Price = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StorageTier(_Part):
    """Another price of the bytes above an amount."""

    above_gb: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
    storage_per_gb_month: Price


class Restore(_Part):
    """One speed of a restore from an archive class."""

    per_gb: Price
    per_1000: Price = 0.0


class StorageClass(_Part):
    """The prices of one storage class."""

    storage_per_gb_month: Price
    tiers: Annotated[tuple[StorageTier, ...], Field(strict=False)] = ()
    minimum_bytes: Bytes = 0
    minimum_days: Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)] = 0.0
    overhead_bytes: Bytes = 0
    overhead_default_bytes: Bytes = 0
    monitoring_per_1000: Price = 0.0
    monitoring_from_bytes: Bytes = 0
    write_per_1000: Price
    read_per_1000: Price
    transition_per_1000: Price = 0.0
    retrieval_per_gb: Price = 0.0
    restores: Mapping[str, Restore] = {}

    def storage(self, total_gb: float) -> float:
        """Return the price of `total_gb` in this class for a month, over all tiers."""
        tiers = [(0.0, self.storage_per_gb_month), *((tier.above_gb, tier.storage_per_gb_month) for tier in self.tiers)]
        ends = [*(above for above, _ in sorted(tiers)[1:]), inf]
        parts = zip(sorted(tiers), ends, strict=True)
        return sum(max(0.0, min(total_gb, end) - above) * price for (above, price), end in parts)


class Prices(_Part):
    """A price file."""

    name: str
    currency: str
    source: str = ""
    as_of: date | None = None
    bytes_per_gb: Annotated[int, Field(gt=0, le=1 << 50)] = 1 << 30
    default_class: str
    delete_per_1000: Price = 0.0
    classes: Annotated[Mapping[str, StorageClass], Field(min_length=1)]

    def of(self, storage_class: str) -> StorageClass:
        """Return the prices of a class.

        Raises:
            ConfigurationError: the file has no such class.
        """
        found = self.classes.get(storage_class)
        if found is None:
            hint = nearest(storage_class, self.classes)
            raise ConfigurationError(self.name, [f"classes has no {storage_class}{hint}; add its prices to the file"])
        return found


def read_prices(path: Path | None) -> Prices:
    """Return the prices of a file; of the example for None.

    Raises:
        ConfigurationError: the file is missing, is no YAML, or is wrong; with every problem.
    """
    file = EXAMPLE if path is None else path
    found = validate(Prices, read_yaml(file), str(file))
    found.of(found.default_class)
    return found
