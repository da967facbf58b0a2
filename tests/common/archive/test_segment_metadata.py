import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata, known_crc32c
from ts_common.errors import CorruptData

OFFSETS = st.integers(0, 2**63 - 1)
FIELDS = {"ts-end": "10", "ts-crc32c": "0000abcd"}


@given(
    st.builds(
        SegmentMetadata,
        end=OFFSETS,
        epochs=st.lists(st.tuples(st.integers(-1, 9), OFFSETS), min_size=1, max_size=16).map(tuple),
        records=st.none() | OFFSETS,
        time_max=st.none() | OFFSETS,
        time_min=st.none() | st.integers(-1, 2**40),
        crc32c=st.integers(0, 2**32 - 1),
        txnindex=st.none() | st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(TxnIndexState)),
        corruptions=st.integers(0, 99),
        timeindex=st.none() | st.integers(0, 2**32 - 1),
        shipped=st.none() | st.integers(0, 2**43),
        replaces=st.none() | st.just("00000000000000000007.e3.000000ab.r2"),
        control=st.none() | OFFSETS,
    )
)
def test_metadata_reads_back_and_fits_s3(metadata: SegmentMetadata) -> None:
    """Decoding returns what was encoded, and the fields fit into S3's 2 KB."""
    fields = metadata.encode()
    assert decode_metadata(fields, "k") == metadata
    assert sum(len(name) + len(value) for name, value in fields.items()) < 2048


def test_more_than_sixteen_epochs_are_left_out() -> None:
    """A list of epochs that S3's limit does not fit is absent, and readers read the headers."""
    metadata = SegmentMetadata(99, tuple((n, n) for n in range(17)), 1, 1, 1, 0)
    decoded = decode_metadata(metadata.encode(), "k")
    assert decoded is not None
    assert decoded.epochs is None


def test_an_object_without_our_fields_has_no_metadata() -> None:
    """A Java uploader writes none, and a copy of a bucket can lose them."""
    assert decode_metadata({"other": "1"}, "k") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ts-end", "-1"),
        ("ts-end", "1e3"),
        ("ts-end", str(2**63)),
        ("ts-crc32c", "ABCD"),
        ("ts-epochs", "1:2:3"),
        ("ts-epochs", "-2:0"),
        ("ts-last-epoch", "1"),
        ("ts-last-epoch", "1:2,3:4"),
        ("ts-txnindex", "0000abcd:perhaps"),
        ("ts-timeindex", "0000abc"),
        ("ts-version", "0"),
    ],
)
def test_a_damaged_field_is_an_error_that_names_the_object(name: str, value: str) -> None:
    """A reader never guesses a field that another program changed."""
    with pytest.raises(CorruptData, match="the/key"):
        decode_metadata({**FIELDS, name: value}, "the/key")


def test_a_crc_of_zero_without_a_record_count_is_unknown() -> None:
    """The reader read both ends of the segment only; a real CRC-32C can be zero too."""
    assert known_crc32c(SegmentMetadata(10, ((0, 0),), None, None, None, 0)) is None
    assert known_crc32c(SegmentMetadata(10, ((0, 0),), 10, None, None, 0)) == 0
    assert known_crc32c(SegmentMetadata(10, ((0, 0),), None, None, None, 7)) == 7
