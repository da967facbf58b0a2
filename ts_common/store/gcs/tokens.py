"""Tokens of Google, by Application Default Credentials (google-auth, the extra `gcs`).

google-auth tells an outage of what gives tokens as it tells a refusal: `RefreshError`. It is an outage where its cause
is one of transport, or where it says that it may be tried again.
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
    "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or give the machine a service "
    "account"
)
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_SECONDS = 120.0  # what google-auth's own transports wait for an answer


def default_tokens(bucket: str) -> Callable[[], str]:
    """What gives a token that is valid now.

    Args:
        bucket: for messages.

    Raises:
        ConfigurationError: there are no credentials, or google-auth is not installed.
        StoreUnavailable: what gives them does not answer at this moment.
    """
    try:
        import google.auth  # noqa: PLC0415 - an extra
        import google.auth.transport.requests  # noqa: PLC0415 - without it no machine's service account is found
        from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415 - an extra
    except ImportError as error:
        missing = (
            f"gs://{bucket}: google-auth, which finds the credentials, is not installed: pip install 'ts-uploader[gcs]'"
        )
        raise ConfigurationError(SOURCE, [missing]) from error
    pools = Pools()

    def ask(
        url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = _SECONDS, **more: Any
    ) -> Any:
        """What google-auth calls a transport."""
        try:
            return pools.request(method, url, body=body, headers=headers, timeout=timeout, **more)
        except HTTPError as error:
            raise TransportError(error) from error  # type: ignore[no-untyped-call]

    transport: Any = ask
    try:
        credentials, _project = google.auth.default(scopes=[_SCOPE], request=transport)
    except GoogleAuthError as error:
        if _may_pass(error):
            raise _unavailable(error) from error
        raise ConfigurationError(SOURCE, [f"gs://{bucket}: no credentials: {error}; {GIVE}"]) from error
    lock = threading.Lock()  # guards the credentials, which are renewed by whoever finds them old

    def token() -> str:

        with lock:
            if not credentials.valid:
                try:
                    credentials.refresh(transport)  # type: ignore[no-untyped-call]
                except GoogleAuthError as error:
                    if _may_pass(error):
                        raise _unavailable(error) from error
                    raise AccessDenied(f"no token for {SOURCE}: {error}; allow this identity, or {GIVE}") from error
                except UNFORESEEN as error:  # google-auth takes what it is answered for granted
                    raise StoreUnavailable(f"no token for {SOURCE}: no answer that has one: {error!r}") from error
            found = str(credentials.token)
            if not (found.isascii() and found.isprintable()):
                credentials.token = None  # else it is valid for an hour
                raise StoreUnavailable(f"no token for {SOURCE}: what was answered is none")
            return found

    return token


def _unavailable(error: Exception) -> TieredStorageError:
    return StoreUnavailable(f"no token for {SOURCE} at this moment: {error}")


def _may_pass(error: BaseException) -> bool:
    """Whether google-auth's error is of an outage, and not a refusal."""
    from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415 - an extra

    told: BaseException | None = error
    while told is not None:
        if isinstance(told, TransportError):
            return not _refused(told)
        if isinstance(told, GoogleAuthError) and told.retryable:
            return True
        told = told.__cause__
    return False


def _refused(error: BaseException) -> bool:
    """Whether the metadata server answered that it has no such account, which the library tells as one of transport."""
    answer: Any = error.args[1] if len(error.args) > 1 else None
    status = getattr(answer, "status", 0)
    return bool(400 <= status < 500 and status not in {408, 429})
