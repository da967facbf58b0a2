"""`Registry`: a schema registry over HTTP, by the API that Confluent's registry, Karapace and Apicurio have.

Requests (docs.confluent.io, "Schema Registry API Reference"):

==============================================  ===============================================
`GET /schemas/ids/{id}`                         a schema by its id
`GET /schemas/guids/{guid}`                     a schema by its GUID; of registries that have them
`GET /subjects/{subject}/versions/{version}`    a version of a subject; `latest` for the newest
`GET /subjects`                                 the subjects
==============================================  ===============================================

With Apicurio, the URL ends in `/apis/ccompat/v7`. A response has at most 16 MiB and is read for at most two minutes.
Requests are retried as `ts_common.store.retry` does. Proxies are those of the environment.
"""

import base64
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import UUID

from ts_common.errors import AccessDenied, ConfigurationError, CorruptData, ObjectNotFound, StoreUnavailable
from ts_common.json_objects import decoding, parse_json, rows, text
from ts_common.printable import printable
from ts_common.redaction import redacted
from ts_common.store.call import Call
from ts_common.store.http.client import HttpClient, Request, Response
from ts_common.store.response_body import MOST_BYTES
from ts_common.store.retry import request_policy
from ts_reader.schemas.schema_source import RegisteredSchema, SchemaSource, schema_of

_TIMEOUT_SECONDS: Final = 20.0
_CONNECTIONS: Final = 4
_BUSY: Final = frozenset({429, 503})
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_SHOWN: Final = 200
_MAX_KEPT: Final = 10_000  # schemas


class Registry(SchemaSource):
    """A schema registry by its URL. Schemas never change, so each is fetched once.

    Args:
        url: of the API, `http://` or `https://`.
        user: for basic authentication; for Confluent Cloud, the API key.
        token: for bearer authentication, instead of user and password.
        ca_file: authorities that sign the registry's certificate, in PEM; None for those of the system.
        timeout_seconds: for each connect, send and receive.

    Raises:
        ConfigurationError: with all problems of the arguments.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        problems = _problems(url, user, password, token, ca_file)
        if problems:
            raise ConfigurationError("arguments of Registry", problems)
        self.url = url.rstrip("/")
        self._headers = _headers(user, password, token)
        self._ca_file = None if ca_file is None else str(ca_file)
        self._timeout = timeout_seconds
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        self._client = HttpClient(self.url, lambda request: request, self._timeout, _CONNECTIONS, ca_file=self._ca_file)
        self._policy = request_policy(threading.Event(), lambda _: False, lambda answer: answer.status in _BUSY)
        self._found: dict[str, RegisteredSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("url", "_headers", "_ca_file", "_timeout")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"Registry({redacted(self.url)!r})"

    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Send `GET /schemas/ids/{id}`, with the subject if it is in a context."""
        context = f"?subject={quote(subject, safe='')}" if subject is not None and subject.startswith(":.") else ""
        return self._schema(f"/schemas/ids/{schema_id}{context}", f"schema id {schema_id}", schema_id)

    def by_guid(self, guid: UUID) -> RegisteredSchema:
        """Send `GET /schemas/guids/{guid}`."""
        return self._schema(f"/schemas/guids/{guid}", f"schema GUID {guid}")

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Send `GET /subjects/{subject}/versions/{version}`, deleted versions included."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        return self._schema(path, f"subject {subject!r} version {version}")

    def latest(self, subject: str) -> RegisteredSchema:
        """Send `GET /subjects/{subject}/versions/latest`; this is not kept."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return self._parsed(path, self._get(path, f"subject {subject!r}"), None)

    def subjects(self) -> list[str]:
        """Send `GET /subjects`."""
        body = self._get("/subjects", "its subjects")
        with decoding(f"GET {self.url}/subjects", "a list of subjects", body):
            return sorted(text(each) for each in rows(parse_json(body, "subjects", MOST_BYTES)))

    def _schema(self, path: str, what: str, schema_id: int | None = None) -> RegisteredSchema:
        found = self._found.get(path)
        if found is None:
            if len(self._found) >= _MAX_KEPT:
                self._found.clear()
            found = self._found[path] = self._parsed(path, self._get(path, what), schema_id)
        return found

    def _parsed(self, path: str, body: bytes, schema_id: int | None) -> RegisteredSchema:
        what = f"GET {self.url}{path}"
        with decoding(what, "a schema of a registry", body, "; check the URL of the registry"):
            fields = parse_json(body, what, MOST_BYTES)
            if not isinstance(fields, dict):
                raise ValueError("not an object")  # noqa: TRY004  (the data is wrong)
            return schema_of(fields, self.url, schema_id)

    def _get(self, path: str, what: str) -> bytes:
        call = Call("GET", f"{self.url}{path}")
        request = Request("GET", call.target, {"accept": _ACCEPT, **self._headers})
        if self._process != os.getpid():  # connections belong to the process that forked this one
            self._open()
        answer: Response = self._policy(self._client.send, call, request)
        if answer.status == 200:
            call.refuse_page(answer.headers.get("content-type"))
            return answer.body
        said = printable(self._without_secrets(answer.body.decode("utf-8", "replace"))[:_SHOWN])
        failed = f"GET {call.target}: HTTP {answer.status}: {said}"
        match answer.status:
            case 401 | 403:
                raise AccessDenied(f"{failed}; check user and password, or the token, of the registry")
            case 404 if _is_of_a_registry(answer):
                raise ObjectNotFound(f"the registry {self.url} does not have {what}")
            case status if status in _BUSY or status >= 500:
                raise StoreUnavailable(f"{failed}; try again later")
            case _:
                raise CorruptData(f"{failed}; check that this is the URL of a registry's API")

    def _without_secrets(self, text: str) -> str:
        """Return a response without the credentials of the request: some servers return its headers."""
        for value in self._headers.values():
            kind, _, secret = value.partition(" ")
            secrets = [value, secret]
            if kind == "Basic":
                login = base64.b64decode(secret).decode()
                secrets += [login, login.partition(":")[2]]
            for each in filter(None, secrets):
                text = text.replace(each, "***")
        return text


def _is_of_a_registry(answer: Response) -> bool:
    """Return whether a 404 is a registry's own: its body has an error code, unlike that of a wrong URL."""
    return b'"error_code"' in answer.body


def _problems(
    url: str, user: str | None, password: str | None, token: str | None, ca_file: str | Path | None
) -> list[str]:
    problems = []
    if not _is_url(url):
        problems.append(f"url={url!r}: a URL as in https://registry.example.com:8081 is expected")
    elif "@" in urlsplit(url).netloc:
        problems.append("url: it has a user; give user and password on their own")
    if token is not None and user is not None:
        problems.append("token and user: give one of the two")
    if (user is None) != (password is None):
        problems.append("user and password are needed together")
    if any(value is not None and (not value.isprintable() or not value) for value in (user, password, token)):
        problems.append("user, password or token: an empty or unprintable text")
    if ca_file is not None and not Path(ca_file).is_file():
        problems.append(f"ca_file={str(ca_file)!r}: there is no such file")
    return problems


def _is_url(text: str) -> bool:
    """Return whether a text is a URL of HTTP with a host, and without a query or a fragment."""
    try:
        parts = urlsplit(text)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return fine and not any(sign in text for sign in "?#") and text.isprintable()


def _headers(user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    if token is not None:
        return {"authorization": f"Bearer {token}"}
    if user is None:
        return {}
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {encoded}"}
