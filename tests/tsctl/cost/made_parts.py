"""Parts and prices with round numbers, so that a bill can be worked out by hand."""

from ts_common.config.yaml_files import parse_yaml, validate
from tsctl.cost.object_counts import ObjectKind, Part
from tsctl.cost.prices import Prices

GB = 1_000_000_000
PRICES: Prices = validate(
    Prices,
    parse_yaml("""
    name: made
    currency: EUR
    bytes_per_gb: 1000000000
    default_class: HOT
    delete_per_1000: 0.001
    classes:
      HOT:
        storage_per_gb_month: 0.02
        tiers: [{above_gb: 100, storage_per_gb_month: 0.01}]
        write_per_1000: 0.005
        read_per_1000: 0.0004
      COOL:
        storage_per_gb_month: 0.004
        minimum_bytes: 131072
        minimum_days: 90
        write_per_1000: 0.02
        read_per_1000: 0.01
        transition_per_1000: 0.02
        retrieval_per_gb: 0.03
      FROZEN:
        storage_per_gb_month: 0.001
        minimum_days: 180
        overhead_bytes: 32768
        overhead_default_bytes: 8192
        write_per_1000: 0.05
        read_per_1000: 0.0004
        transition_per_1000: 0.05
        restores: {Standard: {per_gb: 0.02, per_1000: 0.1}, Bulk: {per_gb: 0.0025, per_1000: 0.025}}
      WATCHED:
        storage_per_gb_month: 0.02
        monitoring_per_1000: 0.0025
        monitoring_from_bytes: 131072
        write_per_1000: 0.005
        read_per_1000: 0.0004
    """),
    "made.yaml",
)


def part(
    topic: str,
    storage_class: str = "HOT",
    kind: ObjectKind = ObjectKind.LOG,
    *,
    days: float = 10,
    objects: float = 10,
    size: float = GB,
) -> Part:
    """Return objects of one age and one size."""
    edge = max(edge for edge in (0.0, 30.0, 60.0, 90.0, 180.0) if edge <= days)
    return Part(topic, storage_class, kind, edge, objects, size, size * days)
