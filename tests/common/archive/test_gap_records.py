import pytest

from ts_common.archive.gap_records import merged, parse_gap_name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("100-200.json", (100, 200)),
        ("0-9223372036854775807.json", (0, 9223372036854775807)),
        ("0-9223372036854775808.json", None),
        ("200-200.json", None),
        ("200-100.json", None),
        ("-1-100.json", None),
        ("100-200.json.bak", None),
        ("100.json", None),
    ],
)
def test_the_range_is_read_in_the_name(name: str, found: tuple[int, int] | None) -> None:
    """A name without a rising range of offsets is not a gap record's."""
    assert parse_gap_name(name) == found


def test_overlapping_and_adjoining_ranges_are_merged() -> None:
    """The result has the same offsets in ascending, disjoint ranges."""
    assert merged([(50, 60), (0, 10), (10, 20), (15, 18), (55, 70)]) == ((0, 20), (50, 70))
    assert merged([]) == ()
