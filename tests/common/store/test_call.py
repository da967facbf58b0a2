"""The errors of one request: those without a response, and those with an unusable one."""

import json

import pytest

from ts_common.errors import OutcomeUnknown, PreconditionFailed, StoreUnavailable, TieredStorageError
from ts_common.store.call import UNFORESEEN, Call, strong

READ = Call("GetObject", "s3://bucket/key")
WRITE = Call("PutObject", "s3://bucket/key", writes=True)
OF_BOTH = pytest.mark.parametrize(("call", "kind"), [(READ, StoreUnavailable), (WRITE, OutcomeUnknown)])


@OF_BOTH
def test_without_a_response_only_the_outcome_of_a_write_is_unknown(call: Call, kind: type[TieredStorageError]) -> None:
    """A read may be repeated, so its failure is that of the store."""
    assert call.no_answer is kind


def test_a_weak_etag_is_that_of_the_same_object() -> None:
    """A condition with the prefix would be rejected."""
    assert strong('W/"e"') == '"e"'
    assert strong('"W/e"') == '"W/e"'


@OF_BOTH
@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8", " TEXT/HTML "])
def test_a_web_page_is_no_response_of_the_store(call: Call, kind: type[TieredStorageError], content_type: str) -> None:
    """The message names the request, and where the page can be from."""
    with pytest.raises(kind, match=r"Object s3://bucket/key: .*web page .*check proxies and load balancers"):
        call.refuse_page(content_type)


@pytest.mark.parametrize("content_type", [None, "", "application/octet-stream", "text/plain", "application/xhtml+xml"])
def test_another_type_is_no_web_page(content_type: str | None) -> None:
    """An object may have any type, or none."""
    READ.refuse_page(content_type)


@OF_BOTH
@pytest.mark.parametrize("error", [*(each("odd") for each in UNFORESEEN), json.JSONDecodeError("odd", "", 0)], ids=repr)
def test_an_unexpected_response_is_no_response_of_the_store(
    call: Call, kind: type[TieredStorageError], error: Exception
) -> None:
    """Whatever the code that reads it raises; the cause is in the message."""
    with (
        pytest.raises(kind, match=r"Object s3://bucket/key: not a response of the store: .*odd") as raised,
        call.understood(),
    ):
        raise error
    assert raised.value.__cause__ is error


def test_a_long_response_is_cut_in_the_message() -> None:
    """It may be megabytes of a web page."""
    with pytest.raises(StoreUnavailable) as raised, READ.understood():
        raise ValueError("x" * 1_000_000)
    assert len(str(raised.value)) < 1_000


def test_other_errors_pass() -> None:
    """The project's own errors, and those of the disk or of the process, keep their meaning."""
    for error in (PreconditionFailed("412"), OSError(5, "disk"), MemoryError()):
        with pytest.raises(type(error)) as raised, READ.understood():
            raise error
        assert raised.value is error
