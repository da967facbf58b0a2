"""Tokens of Microsoft Entra, by azure-identity (the extra `azure`).

azure-identity tries one credential after the other. If all fail it raises the same error, whatever the reasons. So this
module records the error of each credential. If a credential requested a token, its error shows whether the source is
unavailable or denied it. If no credential did, but the environment or the host is configured for one, its source (the
host's metadata server) is unavailable.
"""

import base64
import os
import threading
from collections.abc import Callable, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from ts_common.errors import AccessDenied, ConfigurationError, CorruptData, NewerFormat, StoreUnavailable
from ts_common.json_objects import parse_fields, text

_SCOPE = "https://storage.azure.com/.default"
# https://learn.microsoft.com/python/api/overview/azure/identity-readme#environment-variables and those that hosts set
_CONFIGURES = (
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_TOKEN_CREDENTIALS",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)
# The tag of every virtual machine of Azure; each can have an identity without any setting:
# https://learn.microsoft.com/azure/virtual-machines/vm-unique-id
_ASSET_TAG = Path("/sys/class/dmi/id/chassis_asset_tag")
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_PASSING = {404, 408, 410, 429}  # 404 and 410: of a metadata server that is starting


def entra_tokens(name: str, give: str) -> Callable[[], str]:
    """Return a function that returns a valid token.

    Args:
        name: of the account, for messages.
        give: how to configure credentials, for messages.

    Raises:
        ConfigurationError: azure-identity is not installed, or rejects a setting of the environment.
    """
    try:
        from azure.identity import CredentialUnavailableError, DefaultAzureCredential  # noqa: PLC0415 - an extra
    except ImportError as error:
        missing = (
            f"account {name} has neither key nor SAS, and azure-identity, which reads tokens, is not installed: "
            f"pip install 'ts-uploader[azure]', or {give}"
        )
        raise ConfigurationError("Azure Blob Storage", [missing]) from error
    try:
        chain = DefaultAzureCredential()
    except ValueError as error:
        raise ConfigurationError("Azure Blob Storage", [f"account {name}: {error}"]) from error
    raised = threading.local()  # the errors of the credentials in this thread
    for each in chain.credentials:
        _record_errors(each, raised)
    received = threading.Event()  # a token was returned before

    def token() -> str:
        raised.errors = []
        try:
            found = str(chain.get_token(_SCOPE).token)  # the chain caches it until shortly before its end
        except Exception as error:  # half a dozen libraries below have their own errors
            tried = [each for each in raised.errors if not isinstance(each, CredentialUnavailableError)]
            expected = received.is_set() or _is_configured(os.environ)
            if any(map(_may_pass, tried)) or (not tried and expected):
                raise StoreUnavailable(f"no token for account {name} at this moment: {error}") from error
            raise AccessDenied(f"no token for account {name}: {error}; allow this identity, or {give}") from error
        if not (found.isascii() and found.isprintable()):
            raise StoreUnavailable(f"no token for account {name} at this moment: the response contains an invalid one")
        received.set()
        return found

    return token


def object_of(token: str) -> str | None:
    """Return `entra:` and the id of the object (user, service principal) that a token was given to; None without one.

    The service checks the signature of the token; here it is only read.

    https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parse_fields(base64.urlsafe_b64decode(parts[1] + "=="), "a token", "the claims of a token", 1 << 20)
        found = text(claims["oid"])
    except (CorruptData, NewerFormat, LookupError, ValueError):
        return None
    return f"entra:{found}" if found.isprintable() and " " not in found else None


def _record_errors(credential: Any, raised: threading.local) -> None:
    """Make a credential of the chain append its exceptions to `raised.errors`."""
    original = credential.get_token

    def get_token(*scopes: str, **options: Any) -> Any:
        try:
            return original(*scopes, **options)
        except Exception as error:
            raised.errors.append(error)
            raise

    credential.get_token = get_token


def _may_pass(error: BaseException) -> bool:
    """Return whether a credential's error means that its source is unavailable, and not that it denied a token."""
    from azure.core.exceptions import (  # noqa: PLC0415 - an extra
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from msal.exceptions import MsalServiceError  # noqa: PLC0415 - azure-identity's own

    cause: BaseException | None = error
    while cause is not None:
        # msal raises its error for a status from 500 on. A starting or stopping server may send other text than JSON.
        if isinstance(cause, ServiceRequestError | ServiceResponseError | OSError | MsalServiceError | JSONDecodeError):
            return True
        if isinstance(cause, HttpResponseError) and cause.status_code is not None:
            return cause.status_code >= 500 or cause.status_code in _PASSING
        cause = cause.__cause__ or cause.__context__
    return False


def _is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment or the host is configured for an identity."""
    try:
        tag = _ASSET_TAG.read_text().strip()
    except OSError:
        tag = ""
    return tag == _AZURE_TAG or any(environment.get(name) for name in _CONFIGURES)
