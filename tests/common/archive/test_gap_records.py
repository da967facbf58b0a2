import pytest

from ts_common.archive.gap_records import Gap, merged, parse_gap_name
from ts_common.errors import CorruptData, NewerFormat

GAP = Gap(100, 200, "the broker removed it", 1_700_000_000_000, 1)
TEXT = b'{"from":100,"to":200,"reason":"the broker removed it","time":1700000000000,"broker":1}\n'


def test_a_gap_record_has_the_documented_content() -> None:
    """The content is one line of JSON, and unknown fields are ignored."""
    assert GAP.encode() == TEXT
    assert Gap.decode(TEXT, "k") == GAP
    assert Gap.decode(TEXT.replace(b"{", b'{"later":1,', 1), "k") == GAP


@pytest.mark.parametrize(
    "data", [b"", b"[]", TEXT.replace(b"100", b'"100"'), TEXT.replace(b"200", b"-1"), TEXT.replace(b'"broker":1', b"")]
)
def test_a_damaged_gap_record_is_an_error_that_names_the_object(data: bytes) -> None:
    """A record with a wrong or missing field is damage."""
    with pytest.raises(CorruptData, match="the/key"):
        Gap.decode(data, "the/key")


def test_a_gap_record_of_a_later_release_is_rejected() -> None:
    """Its fields can have another meaning."""
    with pytest.raises(NewerFormat):
        Gap.decode(TEXT.replace(b"{", b'{"version":2,', 1), "k")


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
