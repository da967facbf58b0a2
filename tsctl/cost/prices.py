"""The price file: what a store charges for bytes, requests, moves and restores, by storage class.

`s3-us-east-1.yaml` in this directory is an example with Amazon's list prices; `tsctl cost --example-prices` writes it.
Class names are those that the store returns, so Azure's `Cool` and Google's `NEARLINE` can be entered too.
"""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ts_common.config.yaml_files import parse_yaml, read_yaml, validate
from ts_common.errors import ConfigurationError
from ts_common.suggestions import nearest

EXAMPLE: Final = Path(__file__).with_name("s3-us-east-1.yaml")
DAYS: Final = 30  # of a month

# Bounds far above any price, so that no product is infinite, which JSON has no number for.
Price = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
Days = Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StorageTier(_Part):
    """A lower price of the bytes above an amount."""

    above_gb: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)] = Field(
        description="The price applies to bytes above this amount."
    )
    storage_per_gb_month: Price = Field(description="A GB stored for a month.")


class Restore(_Part):
    """One speed of a restore from an archive class."""

    per_gb: Price = Field(description="A GB restored.")
    per_1000: Price = Field(default=0.0, description="1,000 objects restored.")


class StorageClass(_Part):
    """The prices of one storage class."""

    storage_per_gb_month: Price = Field(description="A GB stored for a month.")
    tiers: Annotated[tuple[StorageTier, ...], Field(strict=False)] = Field(
        default=(),
        description="Other prices of the bytes above an amount, ascending: `above_gb`, `storage_per_gb_month`.",
    )
    minimum_bytes: Bytes = Field(default=0, description="A smaller object is billed with this size.")
    minimum_days: Days = Field(default=0.0, description="An object that is removed earlier is billed for this time.")
    overhead_bytes: Bytes = Field(default=0, description="Bytes for each object, billed in this class.")
    overhead_default_bytes: Bytes = Field(default=0, description="Bytes for each object, billed in `default_class`.")
    monitoring_per_1000: Price = Field(default=0.0, description="1,000 objects watched for a month.")
    monitoring_from_bytes: Bytes = Field(default=0, description="Smaller objects are not watched.")
    write_per_1000: Price = Field(description="1,000 PUT, COPY, POST or LIST requests.")
    read_per_1000: Price = Field(description="1,000 GET, HEAD or other requests.")
    transition_per_1000: Price = Field(default=0.0, description="1,000 objects that a lifecycle rule moves here.")
    retrieval_per_gb: Price = Field(default=0.0, description="A GB read; for classes that need no restore.")
    restores: Mapping[str, Restore] = Field(
        default={},
        description="By speed, for classes that need a restore: `per_gb`, `per_1000`. The first is the default.",
    )

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        bounds = [tier.above_gb for tier in self.tiers]
        if bounds != sorted(set(bounds)):
            raise ValueError("tiers: above_gb must ascend")
        return self

    def storage(self, total_gb: float) -> float:
        """Return the price of `total_gb` in this class for a month, over all tiers."""
        amount, price, begun = 0.0, self.storage_per_gb_month, 0.0
        for tier in self.tiers:
            if total_gb <= tier.above_gb:
                break
            amount += (tier.above_gb - begun) * price
            price, begun = tier.storage_per_gb_month, tier.above_gb
        return amount + (total_gb - begun) * price


class Prices(_Part):
    """A price file."""

    name: str = Field(description="The store, for the output.")
    currency: str = Field(description="For the output; the file has one currency.")
    source: str = Field(default="", description="Where the prices are published.")
    as_of: date | None = Field(default=None, description="Their date.")
    bytes_per_gb: Annotated[int, Field(gt=0, le=1 << 50)] = Field(
        default=1 << 30, description="2^30 on AWS, 10^9 elsewhere."
    )
    default_class: str = Field(description="Class of objects that the store lists without one, and of `offset.wm`.")
    delete_per_1000: Price = Field(default=0.0, description="1,000 DELETE requests; free on AWS.")
    classes: Annotated[Mapping[str, StorageClass], Field(min_length=1)] = Field(description="By name of the class.")

    @model_validator(mode="after")
    def _default_exists(self) -> Self:
        if self.default_class not in self.classes:
            raise ValueError(f"default_class: classes has no {self.default_class}")
        return self

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The sizes that smaller objects must be counted below, ascending."""
        found = {size for each in self.classes.values() for size in (each.minimum_bytes, each.monitoring_from_bytes)}
        return tuple(sorted(found - {0}))

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

    def restore(self, storage_class: str, objects: float, size: float, speed: str | None = None) -> float:
        """Return the price of reading objects of a class once, requests excluded.

        Args:
            storage_class: of the objects.
            objects: their number.
            size: bytes.
            speed: of the restore, as the file names it; None for the first one, or for a class without restores.

        Raises:
            ConfigurationError: the file has no such class or speed.
        """
        found, gb = self.of(storage_class), size / self.bytes_per_gb
        if not found.restores:
            return gb * found.retrieval_per_gb
        name = speed or next(iter(found.restores))
        if name not in found.restores:
            raise ConfigurationError(
                self.name, [f"classes.{storage_class}.restores has no {name}{nearest(name, found.restores)}"]
            )
        way = found.restores[name]
        return gb * way.per_gb + objects / 1000 * way.per_1000


def read_prices(path: Path | None) -> Prices:
    """Return the prices of a file; of the example for None.

    Raises:
        ConfigurationError: the file is missing, is no YAML, or is wrong; with every problem.
    """
    found = EXAMPLE if path is None else path
    return parse_prices(read_yaml(found), str(found))


def parse_prices(content: object, source: str) -> Prices:
    """Return prices by the values of a file.

    Args:
        content: of the file.
        source: its name for messages.

    Raises:
        ConfigurationError: with every problem.
    """
    return validate(Prices, content, source)


def prices_of(text: str, source: str) -> Prices:
    """Return prices by the text of a file.

    Raises:
        ConfigurationError: with every problem.
    """
    try:
        return parse_prices(parse_yaml(text), source)
    except ValueError as error:
        raise ConfigurationError(source, [f"it is no YAML: {error}"]) from error
