"""One HTTP request to a server on loopback, without urllib, which would use a proxy of the environment."""

import http.client
from collections.abc import Mapping

from dev.local.ports import LOOPBACK

ERRORS = (OSError, http.client.HTTPException)


def request(
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Return the status and the body of a response.

    Args:
        port: of the server on loopback.
        path: with the query.
        seconds: timeout of the connection, and of each read.

    Raises:
        OSError, http.client.HTTPException: the server did not answer.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=seconds)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
