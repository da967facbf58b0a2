"""The price file: every problem at once, with its place; the example has each of S3's classes."""

from pathlib import Path

import pytest

from ts_common.errors import ConfigurationError
from ts_common.store.lifecycle import ARCHIVE_CLASSES
from tsctl.cost.prices import read_prices

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
        ("name: made", "name: made\nname: again", "name is given twice"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """In a file that is right but for it."""
    file = tmp_path / "p.yaml"
    file.write_text(LEAST)
    assert read_prices(file).bytes_per_gb == 1 << 30
    file.write_text(LEAST.replace(old, new))
    with pytest.raises(ConfigurationError) as raised:
        read_prices(file)
    assert problem in str(raised.value)


def test_the_example_has_the_classes_of_s3() -> None:
    """Those that need a restore have its prices, and 40 KiB for each object."""
    found = read_prices(None).classes
    assert {name for name, each in found.items() if each.restores} == ARCHIVE_CLASSES
    assert {each.overhead_bytes + each.overhead_default_bytes for each in found.values()} == {0, 40 << 10}
    assert {name for name, each in found.items() if each.minimum_bytes} == {"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR"}


def test_the_tiers_of_a_class_apply_to_the_bytes_above_them() -> None:
    """50 TiB at 0.023, 450 TiB at 0.022, and the rest at 0.021."""
    assert read_prices(None).of("STANDARD").storage(512_100) == pytest.approx(
        51_200 * 0.023 + 460_800 * 0.022 + 100 * 0.021
    )
