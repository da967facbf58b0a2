"""The SDK's HTTP session, which reads an answer as long as the server likes, with the bound that all drivers have.

The SDK offers no place for a bound: it reads a whole answer where it sends the request, and that of a refused get
later, where urllib3's errors pass its own handling. Here both are read at once.
"""

from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError
from urllib3 import exceptions as http

from ts_common.store.http.bodies import read_whole


def bound(client: Any) -> Any:
    """A client of the SDK's, bounded from now on."""
    endpoint = client._endpoint  # there is no other way to its session
    endpoint.http_session = _BoundedSession(endpoint.http_session)
    return client


class _BoundedSession:
    """A session that answers as the SDK's own, or not at all.

    Args:
        session: the SDK's.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def send(self, request: Any) -> AWSResponse:
        """Send a request; the answer's body is read, unless it is an object's.

        Raises:
            HTTPClientError: no answer, or one without an end.
        """
        streams = request.stream_output
        request.stream_output = True  # the session reads nothing then
        try:
            answer: AWSResponse = self._session.send(request)
        finally:
            request.stream_output = streams
        if streams and answer.status_code < 300:
            return answer
        body: Any = answer.raw
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
        raw: Any = _Read(content)
        headers: Any = answer.headers
        return AWSResponse(answer.url, answer.status_code, headers, raw)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _Read:
    """A body that was read, as the SDK takes it from a response."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        """All of it."""
        yield self._content
