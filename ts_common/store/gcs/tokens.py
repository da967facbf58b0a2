"""Tokens of Google, by Application Default Credentials (google-auth, the extra `gcs`).

google-auth raises `RefreshError` both if a source of tokens is unavailable and if it denies a token. The source is
unavailable if the cause is an error of transport, or if the error is marked as retryable.
"""

import threading
from collections.abc import Callable
from typing import Any

from urllib3.exceptions import HTTPError

from ts_common.errors import AccessDenied, ConfigurationError, StoreUnavailable, TieredStorageError
from ts_common.store.call import UNFORESEEN
from ts_common.store.http.proxies import Pools

SOURCE = "Google Cloud Storage"
GIVE = (
    "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or attach a service account to "
    "this host"
)
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_SECONDS = 120.0  # the timeout of google-auth's own transports


def default_tokens(bucket: str) -> Callable[[], str]:
    """Return a function that returns a valid token.

    Args:
        bucket: for messages.

    Raises:
        ConfigurationError: there are no credentials, or google-auth is not installed.
        StoreUnavailable: the source of credentials does not respond at this moment.
    """
    try:
        import google.auth  # noqa: PLC0415 - an extra
        import google.auth.transport.requests  # noqa: PLC0415 - required to find a host's service account
        from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415 - an extra
    except ImportError as error:
        missing = (
            f"gs://{bucket}: google-auth, which reads credentials, is not installed: pip install 'ts-uploader[gcs]'"
        )
        raise ConfigurationError(SOURCE, [missing]) from error
    pools = Pools()

    def send(
        url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = _SECONDS, **more: Any
    ) -> Any:
        """Send a request; google-auth calls such a function a transport."""
        try:
            return pools.request(method, url, body=body, headers=headers, timeout=timeout, **more)
        except HTTPError as error:
            raise TransportError(error) from error  # type: ignore[no-untyped-call]

    transport: Any = send
    try:
        credentials, _project = google.auth.default(scopes=[_SCOPE], request=transport)
    except GoogleAuthError as error:
        if _may_pass(error):
            raise _unavailable(error) from error
        raise ConfigurationError(SOURCE, [f"gs://{bucket}: no credentials: {error}; {GIVE}"]) from error
    lock = threading.Lock()  # guards the credentials, which any thread may renew

    def token() -> str:
        with lock:
            if not credentials.valid:
                try:
                    credentials.refresh(transport)  # type: ignore[no-untyped-call]
                except GoogleAuthError as error:
                    if _may_pass(error):
                        raise _unavailable(error) from error
                    raise AccessDenied(f"no token for {SOURCE}: {error}; allow this identity, or {GIVE}") from error
                except UNFORESEEN as error:  # google-auth does not check responses
                    raise StoreUnavailable(f"no token for {SOURCE}: the response contains none: {error!r}") from error
            found = str(credentials.token)
            if not (found.isascii() and found.isprintable()):
                credentials.token = None  # otherwise it would be valid for an hour
                raise StoreUnavailable(f"no token for {SOURCE}: the response contains an invalid one")
            return found

    return token


def _unavailable(error: Exception) -> TieredStorageError:
    return StoreUnavailable(f"no token for {SOURCE} at this moment: {error}")


def _may_pass(error: BaseException) -> bool:
    """Return whether google-auth's error means that the source is unavailable, and not that it denied a token."""
    from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415 - an extra

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransportError):
            return not _denied(cause)
        if isinstance(cause, GoogleAuthError) and cause.retryable:
            return True
        cause = cause.__cause__
    return False


def _denied(error: BaseException) -> bool:
    """Return whether the metadata server has no such account, which google-auth reports as an error of transport."""
    answer: Any = error.args[1] if len(error.args) > 1 else None
    status = getattr(answer, "status", 0)
    return bool(400 <= status < 500 and status not in {408, 429})
