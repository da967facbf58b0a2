"""Bound the responses that the SDK's HTTP session reads, and read their heads whole, as in all drivers.

The SDK has no setting for that. It reads a whole response when it sends the request. The response to a failed get it
reads later, where it does not handle urllib3's errors. This session reads both when it sends the request.
"""

from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError
from urllib3 import exceptions as http

from ts_common.store.response_body import read_whole
from ts_common.store.s3.lean_connection import POOLS


def bound(client: Any) -> Any:
    """Bound the responses of a client of the SDK, and return it."""
    # No public attribute leads to the session. The event `before-send` can replace it, but not wrap it: proxies,
    # certificates and timeouts would be set up twice. `tests/common/store/test_hostile_answers.py` tests the bound.
    endpoint = client._endpoint
    endpoint.http_session._pool_classes_by_scheme.update(POOLS)  # its pools of connections share this
    endpoint.http_session = _BoundedSession(endpoint.http_session)
    return client


class _BoundedSession:
    """The SDK's session with bounded responses."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def send(self, request: Any) -> AWSResponse:
        """Send a request and read the body of the response, unless it is an object.

        Raises:
            HTTPClientError: no response, or one beyond the bounds of `read_whole`.
        """
        streams = request.stream_output
        request.stream_output = True  # then the SDK's session does not read the body
        try:
            response: AWSResponse = self._session.send(request)
        finally:
            request.stream_output = streams
        if streams and response.status_code < 300:
            return response
        body: Any = response.raw
        try:
            content = read_whole(body)
        except http.ReadTimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (http.ProtocolError, OSError) as error:
            raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from error
        except (http.HTTPError, ValueError) as error:
            raise HTTPClientError(error=error) from error
        finally:
            body.close()
            body.release_conn()
        response.raw = _Read(content)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _Read:
    """A body that was read, with the method that the SDK calls."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        """Yield the whole body."""
        yield self._content
