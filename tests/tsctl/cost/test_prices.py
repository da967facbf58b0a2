"""The price file: every problem at once, with its place; the example has each of S3's classes."""

import pytest

from tests.tsctl.cost.made_usage import GB, PRICES
from ts_common.errors import ConfigurationError
from ts_common.store.lifecycle import ARCHIVE_CLASSES
from tsctl.cost.prices import prices_of, read_prices

LEAST = """
name: made
currency: EUR
default_class: HOT
classes:
  HOT: {storage_per_gb_month: 0.02, write_per_1000: 0, read_per_1000: 0}
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("name: made", "", "name: it is missing"),
        ("default_class: HOT", "default_class: COLD", "classes has no COLD"),
        ("write_per_1000: 0", "write_per_1000: -1", "classes.HOT.write_per_1000: "),
        ("write_per_1000: 0", "write_per_1000: .nan", "classes.HOT.write_per_1000: "),
        ("write_per_1000: 0", "write_per_1000: 1.0e+308", "classes.HOT.write_per_1000: "),
        ("name: made", "name: made\nbytes_per_gb: 1" + "0" * 400, "bytes_per_gb: "),
        ("write_per_1000: 0", "write_per_1000: '1'", "classes.HOT.write_per_1000: "),
        ("write_per_1000: 0", "write_per_100: 0", "classes.HOT.write_per_100: this name is unknown; did you mean"),
        ("write_per_1000: 0", "write_per_1000: 0, tiers: [{above_gb: 2, storage_per_gb_month: 1}, "
         "{above_gb: 2, storage_per_gb_month: 1}]", "above_gb must ascend"),
        ("name: made", "name: made\nname: again", "name is given twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(old: str, new: str, problem: str) -> None:
    """In a file that is right but for it."""
    assert prices_of(LEAST, "p.yaml").bytes_per_gb == 1 << 30
    with pytest.raises(ConfigurationError, match=r"p\.yaml: ") as raised:
        prices_of(LEAST.replace(old, new), "p.yaml")
    assert problem in str(raised.value)


def test_the_example_has_the_classes_of_s3() -> None:
    """Those that need a restore have its prices, and 40 KiB for each object."""
    found = read_prices(None).classes
    assert {name for name, each in found.items() if each.restores} == ARCHIVE_CLASSES
    assert {each.overhead_bytes + each.overhead_default_bytes for each in found.values()} == {0, 40 << 10}
    assert {name for name, each in found.items() if each.minimum_bytes} == {"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR"}


def test_a_restore_has_the_price_of_its_speed() -> None:
    """3 GB and 2,000 objects: the first speed of the file without a name; a class without restores by its GB."""
    assert PRICES.restore("FROZEN", 2000, 3 * GB) == pytest.approx(0.06 + 0.2)
    assert PRICES.restore("FROZEN", 2000, 3 * GB, "Bulk") == pytest.approx(0.0075 + 0.05)
    assert PRICES.restore("COOL", 2000, 3 * GB) == pytest.approx(0.09)
    with pytest.raises(ConfigurationError, match=r"FROZEN\.restores has no Bulky; did you mean Bulk\?"):
        PRICES.restore("FROZEN", 1, 1, "Bulky")
