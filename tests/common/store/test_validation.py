"""Checks of arguments: what every store can store, and the bytes of a body."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.errors import OperatorError, SegmentChanged, StoreUnavailable
from ts_common.store.validation import (
    METADATA_BYTES,
    KeyRefused,
    SizedBody,
    body_size,
    check_directory,
    check_key,
    check_metadata,
    check_prefix,
    in_small_pieces,
    is_key,
)


@given(st.text("a./", max_size=8))
def test_a_key_has_no_part_that_is_empty_or_leads_elsewhere(name: str) -> None:
    """`.` and `..` would lead to another directory, and an empty part is lost in a path."""
    expected = not {"", ".", ".."} & set(name.split("/"))
    assert is_key(name) is expected
    if expected:
        assert check_key(name) == name
    else:
        with pytest.raises(KeyRefused, match="not a key"):
            check_key(name)


def test_a_rejected_key_is_for_the_operator_and_an_invalid_value() -> None:
    """Callers that check their own arguments catch ValueError, and the agent stops only this object."""
    with pytest.raises(KeyRefused) as raised:
        check_key("a//b")
    assert isinstance(raised.value, OperatorError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "t-0/000", "a/.", ".", "..", "a/b/"])
def test_a_prefix_may_end_within_a_name(prefix: str) -> None:
    """Keys such as `a/..b` begin with `a/.`."""
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "/a", "a//", "../a", "a/./b"])
def test_a_prefix_that_no_key_has_is_rejected(prefix: str) -> None:
    """Its listing would be empty, or lead out of the store."""
    with pytest.raises(KeyRefused):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["", "a/", "a/b/"])
def test_a_directory_is_empty_or_ends_with_a_slash(prefix: str) -> None:
    """The empty one is the whole store."""
    assert check_directory(prefix) == prefix


@pytest.mark.parametrize("prefix", ["a", "a/b", "/", "a//", "../"])
def test_another_text_is_no_directory(prefix: str) -> None:
    """`a` would also list the directories of `ab/`."""
    with pytest.raises(ValueError, match=r"not a directory prefix|not a key"):
        check_directory(prefix)


def test_metadata_may_have_two_kilobytes() -> None:
    """Names and values together; S3 rejects one byte more."""
    largest = {"n": "x" * (METADATA_BYTES - 1)}
    assert check_metadata(largest) is largest
    with pytest.raises(ValueError, match=f"{METADATA_BYTES + 1} bytes of metadata; S3 stores at most {METADATA_BYTES}"):
        check_metadata({**largest, "m": ""})


@pytest.mark.parametrize(
    "metadata", [{"Upper": "x"}, {"": "x"}, {"\u00e9": "x"}, {"x": "\u00e9"}, {"x": "a\nb"}, {"x": " a"}, {"x": "a "}]
)
def test_metadata_that_s3_would_change_is_rejected(metadata: dict[str, str]) -> None:
    """Names become lower case there, outer blanks are lost, and headers are printable ASCII."""
    with pytest.raises(ValueError, match="not metadata"):
        check_metadata(metadata)


def test_a_body_of_a_size_is_that_part_of_its_reader() -> None:
    """It begins at the reader's start, wherever the reader is, and its end is that of the size."""
    reader = io.BytesIO(b"0123456789 and more")
    reader.seek(5)
    body = SizedBody(reader, 10, "key")
    assert (body.read(3), body.tell(), body.read(), body.read(1)) == (b"012", 3, b"3456789", b"")
    assert (body.seek(-2, 2), body.read(100)) == (8, b"89")
    assert (body.seek(1), body.seek(2, 1), body.read(2)) == (1, 3, b"34")
    assert body.failure is None


def test_a_reader_that_ends_early_has_changed() -> None:
    """The message has the place, and the body remembers the error."""
    body = SizedBody(io.BytesIO(b"0123"), 10, "s3://bucket/key")
    assert body.read(10) == b"0123"
    with pytest.raises(SegmentChanged, match="s3://bucket/key: the body ended at byte 4 of 10") as raised:
        body.read(10)
    assert body.failure is raised.value


class Broken(io.BytesIO):
    """A reader whose disk fails."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(5, "the disk is broken")


def test_the_error_of_a_reader_is_raised_in_place_of_later_ones() -> None:
    """The connection's error follows from the incomplete body."""
    body = SizedBody(Broken(b"x"), 1, "key")
    with pytest.raises(OSError, match="the disk is broken") as raised, body.raising_own_failure():
        try:
            body.read(1)
        except OSError as error:
            raise StoreUnavailable("the connection was closed") from error
    assert raised.value is body.failure


def test_without_an_error_of_the_reader_others_pass() -> None:
    """The store's own error is not replaced."""
    with pytest.raises(StoreUnavailable), SizedBody(io.BytesIO(b"x"), 1, "key").raising_own_failure():
        raise StoreUnavailable("503")


def test_small_reads_are_few_reads_of_the_body() -> None:
    """The SDK's signature reads 4 KiB at a time."""
    sizes = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(size)
            return super().read(size)

    content = bytes(range(256)) * (1 << 12)
    buffered = in_small_pieces(SizedBody(Counting(content + b"and more"), len(content), "key"))
    assert b"".join(iter(lambda: buffered.read(4096), b"")) == content
    assert buffered.seek(-2, 2) == len(content) - 2
    assert buffered.read() == content[-2:]
    assert len(sizes) < 10


def test_a_body_has_a_size() -> None:
    """Bytes have their own, and a reader needs one."""
    assert body_size(b"abc", None) == body_size(b"abc", 3) == body_size(io.BytesIO(b"abcd"), 3) == 3
    assert body_size(io.BytesIO(b""), 0) == 0


@pytest.mark.parametrize(("body", "size"), [(b"abc", 2), (io.BytesIO(b"abc"), None), (io.BytesIO(b"abc"), -1)])
def test_a_body_without_its_size_is_rejected(body: bytes | io.BytesIO, size: int | None) -> None:
    """A request needs the number of bytes before the first one."""
    with pytest.raises(ValueError, match=f"size={size}"):
        body_size(body, size)
