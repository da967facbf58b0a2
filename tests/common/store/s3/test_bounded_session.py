"""Responses that the SDK reads: bounded, and with an error that its callers handle."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError, ReadTimeoutError

from tests.common.store.s3.calls import ok
from tests.common.store.servers import FakeServer, answer, error
from ts_common.store.response_body import MOST_BYTES
from ts_common.store.s3.bounded_session import bound


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Any]:
    """Open a client of the SDK without retries, and bound its responses."""
    del fake
    config = Config(retries={"total_max_attempts": 1}, read_timeout=0.4)
    with closing(bound(botocore.session.Session().create_client("s3", config=config))) as opened:
        yield opened


def test_an_object_is_left_to_its_reader(client: Any, fake: FakeServer) -> None:
    """It may be larger than any bound, and is read piece by piece."""
    fake.answers = [ok(bytes(MOST_BYTES + 1))]
    body = client.get_object(Bucket="b", Key="k")["Body"]
    assert len(body.read(10)) == 10
    assert len(body.read()) == MOST_BYTES - 9


def test_other_responses_are_read_whole(client: Any, fake: FakeServer) -> None:
    """A listing, and the reason why a get was denied."""
    fake.answers = [answer("200 OK", b"<ListBucketResult><KeyCount>7</KeyCount></ListBucketResult>")]
    assert client.list_objects_v2(Bucket="b")["KeyCount"] == 7
    fake.answers = [error("404 Not Found", "NoSuchKey")]
    with pytest.raises(ClientError) as raised:
        client.get_object(Bucket="b", Key="k")
    assert raised.value.response["Error"]["Code"] == "NoSuchKey"


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
def test_a_response_beyond_the_bounds_is_an_error_of_the_connection(client: Any, fake: FakeServer, status: str) -> None:
    """The SDK itself would hold it in memory."""
    fake.answers = [answer(status, bytes(MOST_BYTES + 1))]
    with pytest.raises(HTTPClientError, match=f"more than {MOST_BYTES} bytes"):
        client.list_objects_v2(Bucket="b")
    if status != "200 OK":
        with pytest.raises(HTTPClientError, match=f"more than {MOST_BYTES} bytes"):
            client.get_object(Bucket="b", Key="k")


@pytest.mark.parametrize(
    "ask",
    [lambda client: client.get_object(Bucket="b", Key="k"), lambda client: client.list_objects_v2(Bucket="b")],
    ids=["get", "list"],
)
def test_a_response_that_is_cut_or_silent_is_an_error_that_the_sdk_handles(
    client: Any, fake: FakeServer, ask: Callable[[Any], object]
) -> None:
    """The SDK reads the response to a failed get where it handles no error of urllib3."""
    fake.answers = [b"HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n64\r\n<Error>"]
    with pytest.raises(ConnectionClosedError):
        ask(client)
    fake.stalls = True
    with pytest.raises(ReadTimeoutError):
        ask(client)
