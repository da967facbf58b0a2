"""Names in a directory that are outside of ranges of keys."""

from hypothesis import example, given
from hypothesis import strategies as st

from ts_common.store.directory.listing import parts_outside

DIGITS = st.integers(0, 30_000).map(lambda number: f"{number:06d}")
NAMES = st.lists(
    st.one_of(
        st.builds(str.__add__, DIGITS, st.sampled_from(["", ".log", "-x", "0"])),
        st.sampled_from(["0", "00", "gaps", "log.start", "~", ".ts", "..x", "0001", "000100", "-000100"]),
    ),
    unique=True,
)
BOUNDS = st.lists(st.integers(0, 30_000), max_size=9, unique=True)


@example(["00020x", "00300x"], [1, 10_000], "d")
@example(["100", "4", "1000"], [10, 20_000], "d")
@given(NAMES, BOUNDS, st.sampled_from(["06d", "d"]))
def test_names_in_ranges_are_left_out_and_no_others(names: list[str], numbers: list[int], width: str) -> None:
    """This holds for names of all lengths, and for ranges of all sizes; bounds can have different lengths."""
    bounds = sorted(format(number, width) for number in numbers)
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    expected = [
        name.removeprefix(".")
        for name in names
        if name != ".ts" and not any(first <= name < last for first, last in ranges)
    ]
    assert parts_outside(names, ranges) == expected
