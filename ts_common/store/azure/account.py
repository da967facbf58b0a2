"""The storage account of Azure and its credentials, read from the environment like Azure's command line does.

    AZURE_STORAGE_CONNECTION_STRING      contains both; else
    AZURE_STORAGE_ACCOUNT                the account, and
    AZURE_STORAGE_KEY                    its key (Shared Key), or
    AZURE_STORAGE_SAS_TOKEN              a shared access signature, or neither:
                                         a token of Microsoft Entra, by azure-identity (the extra `azure`)
    AZURE_STORAGE_SERVICE_ENDPOINT       another host than <account>.blob.core.windows.net

azure-identity reads the sources of every tool of Azure: environment, workload identity, managed identity, `az login`.

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from urllib.parse import parse_qsl, urlsplit

from ts_common.errors import ConfigurationError
from ts_common.store.azure.tokens import entra_tokens, object_of
from ts_common.store.http.client import Request

API_VERSION = "2023-11-03"
SOURCE = "Azure Blob Storage"
_GIVE = (
    "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with, optionally, AZURE_STORAGE_KEY or "
    "AZURE_STORAGE_SAS_TOKEN"
)
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


@dataclass(frozen=True, slots=True)
class Account:
    """One account and its credentials.

    Attributes:
        endpoint: URL of its blob service, without a slash at its end.
        key: of the account; None with a SAS or a token.
        sas: a query without its question mark; empty without a SAS.
        token: returns a valid token; None with a key or a SAS.
    """

    name: str
    endpoint: str
    key: bytes | None = field(default=None, repr=False)
    sas: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)

    def source(self, url: str) -> str:
        """Return the URL of a blob of this account as the source of a copy: a SAS applies to the source too."""
        return f"{url}?{self.sas}" if self.key is None and self.sas else url

    def identity(self) -> str | None:
        """Return whose credentials these are, as `ObjectStore.identity`.

        A key is of all who have it. A SAS is of the user or the stored policy that it names, else it is named by a hash
        of its signature. A token is of the object that Microsoft Entra gave it to.

        Raises:
            AccessDenied, StoreUnavailable: as the source of tokens.
        """
        if self.key is not None:
            return f"{self.name}/key"
        if self.sas:
            fields = dict(parse_qsl(self.sas))
            digest = hashlib.sha256(fields.get("sig", "").encode()).hexdigest()[:16]
            named = (f"{field}:{fields[field]}" for field in ("skoid", "si") if fields.get(field))
            return f"{self.name}/{next(named, f'sig:{digest}')}".replace(" ", "+")
        return None if self.token is None else object_of(self.token())

    def authorize(self, request: Request) -> Request:
        """Return the request with credentials.

        Raises:
            AccessDenied: the token was denied.
            StoreUnavailable: the source of tokens is unavailable at this moment.
        """
        headers = {**request.headers, "x-ms-date": formatdate(usegmt=True)}
        if self.key is not None:
            signature = hmac.digest(self.key, _to_sign(self.name, request, headers).encode(), hashlib.sha256)
            headers["authorization"] = f"SharedKey {self.name}:{base64.b64encode(signature).decode()}"
        elif self.sas:
            joint = "&" if "?" in request.url else "?"
            return replace(request, headers=headers, url=f"{request.url}{joint}{self.sas}")
        elif self.token is not None:
            headers["authorization"] = f"Bearer {self.token()}"
        return replace(request, headers=headers)


def account_of(environment: Mapping[str, str]) -> Account:
    """Return the account that the environment names.

    Raises:
        ConfigurationError: no account is named, a setting is invalid, or azure-identity is not installed.
    """
    connection = environment.get("AZURE_STORAGE_CONNECTION_STRING", "")
    if connection:
        name, key, sas, endpoint = _parse_connection(connection)
    else:
        names = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")
        name, key, sas = (environment.get(each, "") for each in names)
        endpoint = environment.get("AZURE_STORAGE_SERVICE_ENDPOINT") or f"https://{name}.blob.core.windows.net"
    if not name:
        raise ConfigurationError(SOURCE, [f"the storage account is missing: {_GIVE}"])
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        raise ConfigurationError(SOURCE, [f"the blob endpoint is {endpoint!r}; expected http:// or https://"])
    found = Account(name, endpoint.rstrip("/"), sas=sas.lstrip("?"))
    if key:
        try:
            return replace(found, key=base64.b64decode(key, validate=True))
        except binascii.Error as error:
            raise ConfigurationError(SOURCE, [f"the key of account {name} is not base64: copy it again"]) from error
    return found if sas else replace(found, token=entra_tokens(name, _GIVE))


def _parse_connection(connection: str) -> tuple[str, str, str, str]:
    """Return name, key, SAS and blob endpoint of a connection string; each empty if it lacks them."""
    parts = {name: value for name, _, value in (part.partition("=") for part in connection.split(";")) if value}
    name, key, sas = (parts.get(each, "") for each in ("AccountName", "AccountKey", "SharedAccessSignature"))
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    protocol = parts.get("DefaultEndpointsProtocol", "https")
    endpoint = parts.get("BlobEndpoint") or (f"{protocol}://{name}.blob.{suffix}" if name else "")
    return name or (urlsplit(endpoint).hostname or "").partition(".")[0], key, sas, endpoint


def _to_sign(name: str, request: Request, headers: Mapping[str, str]) -> str:
    """Return the string to sign of Shared Key, for versions since 2015-02-21."""
    lengthless = {**headers, "content-length": headers.get("content-length", "").removeprefix("0")}
    plain = [lengthless.get(each, "") for each in _SIGNED]
    own = [f"{each}:{headers[each].strip()}" for each in sorted(headers) if each.startswith("x-ms-")]
    parts = urlsplit(request.url)
    query = sorted((each.lower(), value) for each, value in parse_qsl(parts.query, keep_blank_values=True))
    resource = [f"/{name}{parts.path}", *(f"{each}:{value}" for each, value in query)]
    return "\n".join([request.method, *plain, *own, *resource])
