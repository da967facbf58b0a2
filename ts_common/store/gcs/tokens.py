"""Tokens of Google, by Application Default Credentials (google-auth, the extra `gcs`).

google-auth raises `RefreshError` both if a source of tokens is unavailable and if it denies a token. The source is
unavailable if the cause is an error of transport, or if the error is marked as retryable.
"""

import threading
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


class Tokens:
    """Returns a valid token at each call, on any thread."""

    def __init__(self, credentials: Any, transport: Any) -> None:
        self._credentials = credentials
        self._transport = transport
        self._lock = threading.Lock()  # guards the credentials, which any thread may renew

    def __call__(self) -> str:
        """Return a valid token.

        Raises:
            AccessDenied: it was denied.
            StoreUnavailable: the source of tokens does not respond at this moment.
        """
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - an extra

        with self._lock:
            if not self._credentials.valid:
                try:
                    self._credentials.refresh(self._transport)
                except GoogleAuthError as error:
                    if _may_pass(error):
                        raise _unavailable(error) from error
                    raise AccessDenied(f"no token for {SOURCE}: {error}; allow this identity, or {GIVE}") from error
                except UNFORESEEN as error:  # google-auth does not check responses
                    raise StoreUnavailable(f"no token for {SOURCE}: the response contains none: {error!r}") from error
            found = str(self._credentials.token)
            if not (found.isascii() and found.isprintable()):
                self._credentials.token = None  # otherwise it would be valid for an hour
                raise StoreUnavailable(f"no token for {SOURCE}: the response contains an invalid one")
            return found

    def account(self) -> str | None:
        """Return the e-mail of the account; None if the credentials have none. It raises as a call."""
        self()  # the account of a machine has its e-mail after the first token
        names = (getattr(self._credentials, name, None) for name in ("service_account_email", "account"))
        email = next((name for name in names if isinstance(name, str) and "@" in name), None)
        return None if email is None or not email.isprintable() or " " in email else email


def default_tokens(bucket: str) -> Tokens:
    """Return the source of tokens.

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
    return Tokens(credentials, transport)


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
