"""Tokens of Microsoft Entra, by azure-identity (the extra `azure`).

It asks one credential after the other, and tells of the end of its chain as of a refusal, whatever it came of. So what
each credential says is remembered here: where one tried, an outage is told from a refusal; where none did, and the
environment or the machine says that one should, whatever gives it (a machine's metadata server) is away.
"""

import os
import threading
from collections.abc import Callable, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from ts_common.errors import AccessDenied, ConfigurationError, StoreUnavailable

_SCOPE = "https://storage.azure.com/.default"
# https://learn.microsoft.com/python/api/overview/azure/identity-readme#environment-variables and what hosts set
_CONFIGURES = (
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_TOKEN_CREDENTIALS",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)
# Of every virtual machine of Azure's, where each may have an identity without any setting:
# https://learn.microsoft.com/azure/virtual-machines/vm-unique-id
_ASSET_TAG = Path("/sys/class/dmi/id/chassis_asset_tag")
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_PASSING = {404, 408, 410, 429}  # 404 and 410: of a metadata server that is about to come up


def entra_tokens(name: str, give: str) -> Callable[[], str]:
    """What gives a token that is valid now.

    Args:
        name: of the account, for messages.
        give: what to set so that tokens are had, for messages.

    Raises:
        ConfigurationError: azure-identity is not installed, or the environment says something that it cannot use.
    """
    try:
        from azure.identity import CredentialUnavailableError, DefaultAzureCredential  # noqa: PLC0415 - an extra
    except ImportError as error:
        missing = (
            f"account {name} comes with neither key nor SAS, and azure-identity, which gets tokens, is not installed: "
            f"pip install 'ts-uploader[azure]', or {give}"
        )
        raise ConfigurationError("Azure Blob Storage", [missing]) from error
    try:
        chain = DefaultAzureCredential()
    except ValueError as error:
        raise ConfigurationError("Azure Blob Storage", [f"account {name}: {error}"]) from error
    told = threading.local()  # what each credential told this thread
    for each in chain.credentials:
        _remember(each, told)
    given = threading.Event()  # a token was given before

    def token() -> str:
        told.errors = []
        try:
            found = str(chain.get_token(_SCOPE).token)  # kept there until it is about to end
        except Exception as error:  # behind it are half a dozen libraries, each with errors of its own
            tried = [each for each in told.errors if not isinstance(each, CredentialUnavailableError)]
            expected = given.is_set() or _is_configured(os.environ)
            if any(map(_may_pass, tried)) or (not tried and expected):
                raise StoreUnavailable(f"no token for account {name} at this moment: {error}") from error
            raise AccessDenied(f"no token for account {name}: {error}; allow this identity, or {give}") from error
        if not (found.isascii() and found.isprintable()):
            raise StoreUnavailable(f"no token for account {name} at this moment: what was answered is none")
        given.set()
        return found

    return token


def _remember(credential: Any, told: threading.local) -> None:
    """Have a credential of the chain leave in `told` what it raises."""
    ask = credential.get_token

    def get_token(*scopes: str, **options: Any) -> Any:
        try:
            return ask(*scopes, **options)
        except Exception as error:
            told.errors.append(error)
            raise

    credential.get_token = get_token


def _may_pass(error: BaseException) -> bool:
    """Whether what a credential raised is of an outage, and not a refusal."""
    from azure.core.exceptions import (  # noqa: PLC0415 - an extra
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )
    from msal.exceptions import MsalServiceError  # noqa: PLC0415 - azure-identity's own

    told: BaseException | None = error
    while told is not None:
        # Of msal's: a status from 500 on. What is no JSON comes from a server that is no longer, or not yet, itself.
        if isinstance(told, ServiceRequestError | ServiceResponseError | OSError | MsalServiceError | JSONDecodeError):
            return True
        if isinstance(told, HttpResponseError) and told.status_code is not None:
            return told.status_code >= 500 or told.status_code in _PASSING
        told = told.__cause__ or told.__context__
    return False


def _is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the environment or the machine says that there is an identity."""
    try:
        tag = _ASSET_TAG.read_text().strip()
    except OSError:
        tag = ""
    return tag == _AZURE_TAG or any(environment.get(name) for name in _CONFIGURES)
