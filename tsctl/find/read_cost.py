"""What a look-up reads and costs, by its plan: rows for people, and fields of a JSON document. Pure."""

from typing import TYPE_CHECKING, Any, Final

from tsctl.cost.prices import Prices
from tsctl.output import Cell

if TYPE_CHECKING:
    from ts_reader import Estimate
    from ts_reader.find.rules import Found

COLUMNS: Final = ("", "SEGMENTS", "OFFSETS", "REQUESTS", "BYTES")


def amount_of(estimate: "Estimate", prices: Prices) -> float:
    """Return what the GETs of a read cost, with the retrieval of their classes; without egress.

    Raises:
        ConfigurationError: the price file lacks a storage class.
    """
    total = 0.0
    for name, (requests, size) in estimate.gets.items():
        priced = prices.of(name or prices.default_class)
        total += requests / 1000 * priced.read_per_1000 + size / prices.bytes_per_gb * priced.retrieval_per_gb
    return total


def rows(estimate: "Estimate", found: "Found | None") -> list[list[Cell]]:
    """Return the rows of `COLUMNS`."""
    requests, size = _sums(estimate)
    read: list[Cell] = ["is read", estimate.segments, estimate.offsets, requests, size]
    every: list[Cell] = ["all of the topic", estimate.all_segments, None, None, estimate.all_bytes]
    if found is None:
        return [read, every]
    indexed: list[list[Cell]] = [
        ["no index has", found.unindexed, None, None, found.unindexed_bytes],
        ["an index has", found.indexed, None, None, None],
        ["certificates leave out", found.excluded, None, None, None],
    ]
    return [read, *indexed, every]


def fields(estimate: "Estimate", found: "Found | None", prices: Prices | None) -> dict[str, Any]:
    """Return the same as fields of a JSON document."""
    requests, size = _sums(estimate)
    return {
        "reads": {
            "segments": estimate.segments,
            "offsets": estimate.offsets,
            "requests": requests,
            "bytes": size,
        },
        "topic": {"segments": estimate.all_segments, "bytes": estimate.all_bytes},
        "index": found
        and {
            "segments": found.indexed,
            "left_out_by_certificates": found.excluded,
            "segments_without": found.unindexed,
            "bytes_without": found.unindexed_bytes,
            "runs": found.runs,
        },
        "cost": prices and {"prices": prices.name, "currency": prices.currency, "amount": amount_of(estimate, prices)},
    }


def _sums(estimate: "Estimate") -> tuple[int, int]:
    return sum(requests for requests, _ in estimate.gets.values()), sum(size for _, size in estimate.gets.values())
