"""Send the four frequent requests of S3 with the SDK's signer, HTTP session, retries and errors, without its events.

The SDK needs a millisecond of processor time for a small request. It spends half of that on what does not differ
between requests: it resolves the endpoint by rules, builds and parses by its description of the service, and emits
twenty events. Here the SDK resolves the endpoint of a bucket once, in a rehearsal that sends nothing. Each request is
the rehearsed one with other arguments.

The SDK still does what decides: credentials and their renewal, signatures, proxies, TLS, timeouts, whether and when a
failed request is repeated, and the errors. If the bucket is in another region, or the signature is not of version 4,
the SDK sends the request itself.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-auth-using-authorization-header.html
"""

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.exceptions import ClientError
from botocore.hooks import first_non_none_response
from botocore.model import OperationModel
from botocore.parsers import ResponseParserError, create_parser
from botocore.response import StreamingBody
from botocore.utils import percent_encode, percent_encode_sequence

from ts_common.store.s3.listing_parser import is_error, parse_listing, timestamp_of

_SIGNATURE: Final = "s3v4"
_METHODS: Final = {"GetObject": "GET", "HeadObject": "HEAD", "ListObjectsV2": "GET", "PutObject": "PUT"}
_KEY: Final = "rehearsal"
_METADATA: Final = "x-amz-meta-"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"  # of a header, in UTC and without a fraction
_LARGEST: Final = 16 << 20  # bytes of a body that is sent without waiting for the server's consent: a pack has fewer
_IN_PATH: Final = "/~"  # characters of a key that the SDK does not escape
_LISTING: Final = b"<ListBucketResult></ListBucketResult>"
# The bucket is in another region, or the endpoint sends requests elsewhere: the SDK then follows.
_REDIRECTIONS: Final = {301, 302, 307, 308}
_ELSEWHERE: Final = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}


@dataclass(frozen=True, slots=True)
class _Rehearsed:
    """What all requests of one operation to one bucket share.

    Attributes:
        url: without the key and the query.
        headers: those of each request.
        context: of the SDK, for the signature.
        signer: of the SDK; it has the credentials.
        scope: signing name, region and version of the signature.
    """

    url: str
    headers: Mapping[str, str]
    context: Mapping[str, Any]
    signer: Any
    scope: Mapping[str, str]

    def signed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> AWSPreparedRequest:
        """Return a request with a signature of this moment."""
        request = _Unsigned(method, url, {**self.headers, **headers}, body)
        request.context = {**self.context}
        self.signer.get_auth_instance(**self.scope).add_auth(request)
        signed: Any = dict(request.headers.items())  # the SDK's headers cost more than the signature
        if method == "PUT":
            signed["Content-Length"] = str(len(body or b""))
        return AWSPreparedRequest(method, url, signed, body or None, False)


class _Unsigned(AWSRequest):
    """A request whose body is sent as it is; the SDK's prepares itself whenever its body is read."""

    @property
    def body(self) -> bytes | None:  # type: ignore[override]
        """The bytes to send; None without any."""
        return self.data or None


class _Operation:
    """One operation, by the SDK's description: where its arguments and the fields of its response belong."""

    def __init__(self, model: OperationModel) -> None:
        self.model = model
        _, _, self._query = model.http["requestUri"].partition("?")  # `list-type=2`
        members = model.input_shape.members if model.input_shape is not None else {}
        self._places = {
            name: (shape.serialization.get("location", ""), shape.serialization.get("name", name))
            for name, shape in members.items()
        }
        answered = model.output_shape.members if model.output_shape is not None else {}
        self._fields = {
            shape.serialization["name"].lower(): (name, shape.type_name)
            for name, shape in answered.items()
            if shape.serialization.get("location") == "header"
        }

    def split(self, arguments: Mapping[str, Any]) -> tuple[dict[str, str], str]:
        """Return the headers and the query of a request."""
        headers: dict[str, str] = {}
        query: dict[str, str] = {}
        for argument, value in arguments.items():
            place, name = self._places[argument]
            if place == "headers":
                headers |= {name + key: text for key, text in value.items()}
            elif place == "header":
                headers[name] = _text(value)
            elif place == "querystring":
                query[name] = _text(value)
        parts = (self._query, percent_encode_sequence(query))
        return headers, "&".join(part for part in parts if part)

    def answer(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields that headers have, and the metadata; names are in lower case."""
        found: dict[str, Any] = {}
        metadata = found["Metadata"] = {}
        for name, value in headers.items():
            if name.startswith(_METADATA):
                metadata[name[len(_METADATA) :]] = value
            elif (field := self._fields.get(name)) is not None:
                found[field[0]] = _parsed(value, field[1])
        return found


class DirectCalls:
    """A client of the SDK whose frequent calls need half of the processor time.

    Args:
        client: of the SDK; all other calls are its own.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        _hash_quickly(client._request_signer)
        self._session = client._endpoint.http_session  # as in `bounded_session`
        self._operations = {name: _Operation(client.meta.service_model.operation_model(name)) for name in _METHODS}
        self._rehearsed: dict[tuple[str, str], _Rehearsed | None] = {}  # by operation and bucket
        self._rehearsal = threading.local()
        client.meta.events.register_last("before-sign.s3", self._note)
        client.meta.events.register_first("before-send.s3", self._answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_object(self, **arguments: Any) -> Mapping[str, Any]:
        """Send GetObject, as the SDK's client."""
        return self._call("GetObject", "get_object", arguments)

    def head_object(self, **arguments: Any) -> Mapping[str, Any]:
        """Send HeadObject, as the SDK's client."""
        return self._call("HeadObject", "head_object", arguments)

    def list_objects_v2(self, **arguments: Any) -> Mapping[str, Any]:
        """Send ListObjectsV2, as the SDK's client with `read_quickly`."""
        return self._call("ListObjectsV2", "list_objects_v2", {**arguments, "EncodingType": "url"})

    def put_object(self, **arguments: Any) -> Mapping[str, Any]:
        """Send PutObject, as the SDK's client, but without `Expect: 100-continue`, which costs a round trip.

        The SDK sends large bodies, and files.
        """
        if not isinstance(body := arguments["Body"], bytes) or len(body) > _LARGEST:
            return self._client.put_object(**arguments)  # type: ignore[no-any-return]
        return self._call("PutObject", "put_object", arguments)

    def _call(self, name: str, method: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        """Return the response to one call.

        Raises:
            ClientError, BotoCoreError: as the SDK.
            ResponseParserError: another server sent the response.
        """
        place = name, arguments["Bucket"]
        if place not in self._rehearsed:
            self._rehearsed[place] = self._rehearse(method, arguments["Bucket"])
        rehearsed = self._rehearsed[place]
        answer = None if rehearsed is None else self._send(rehearsed, self._operations[name], arguments)
        if answer is None:
            self._rehearsed.pop(place, None)  # the SDK finds the region of the bucket, and keeps it
            answer = getattr(self._client, method)(**arguments)
        return answer

    def _send(
        self, rehearsed: _Rehearsed, operation: _Operation, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Return the response to a request, which is repeated as the SDK repeats it; None if the SDK has to send it."""
        model, events = operation.model, self._client.meta.events
        headers, query = operation.split(arguments)
        url = rehearsed.url
        if "Key" in arguments:
            url += percent_encode(arguments["Key"], safe=_IN_PATH)
        if query:
            url += f"?{query}"
        context: dict[str, Any] = {}
        attempts = 0
        while True:
            attempts += 1
            request = rehearsed.signed(_METHODS[model.name], url, headers, arguments.get("Body"))
            request.stream_output = model.has_streaming_output
            response, answer, failure = None, None, None
            try:
                if model.has_streaming_input:
                    events.emit(f"before-send.s3.{model.name}", request=request)
                response = self._session.send(request)
                answer = self._understood(operation, response)
            except ResponseParserError:
                raise
            except Exception as error:  # noqa: BLE001 - as the SDK, whose conditions decide what is repeated
                failure = error
            if response is not None and answer is not None and "Error" not in answer:
                break
            if answer is not None and _is_elsewhere(model.name, answer):
                return None
            outcome = None if response is None or answer is None else (response, answer)
            pause = first_non_none_response(
                events.emit(
                    f"needs-retry.s3.{model.name}",
                    response=outcome,
                    endpoint=None,
                    operation=model,
                    attempts=attempts,
                    caught_exception=failure,
                    request_dict={"context": context},
                )
            )
            if pause is None or pause is False:
                break
            time.sleep(pause)
        if failure is not None:
            raise failure
        events.emit(f"after-call.s3.{model.name}", http_response=response, parsed=answer, model=model, context=context)
        if answer is not None and "Error" in answer:
            raise ClientError(answer, model.name)  # type: ignore[arg-type]
        return answer

    def _understood(self, operation: _Operation, response: AWSResponse) -> dict[str, Any]:
        """Return a response in the SDK's form; with `Error` if it is one.

        Raises:
            ResponseParserError: the body is not S3's.
            ValueError: a header is not S3's.
        """
        model, status = operation.model, response.status_code
        lists = model.name == "ListObjectsV2"
        streams = model.has_streaming_output and status < HTTPStatus.MULTIPLE_CHOICES
        body = b"" if streams else response.content
        given = {"status_code": status, "headers": response.headers, "body": body, "context": {}}
        if status == HTTPStatus.OK and body and (not lists or is_error(body)):
            # The SDK counts an error in a response 200 as a failure of the server, and repeats the request.
            self._client.meta.events.emit(
                f"before-parse.s3.{model.name}",
                operation_model=model,
                response_dict=given,
                customized_response_dict={},
            )
        if given["status_code"] >= HTTPStatus.MULTIPLE_CHOICES:  # type: ignore[operator]
            parsed: dict[str, Any] = create_parser("rest-xml").parse(given, model.output_shape)  # type: ignore[arg-type]
            parsed.setdefault("Error", {})
            return parsed
        named = {name.lower(): value for name, value in response.headers.items()}
        answer = parse_listing(body) if lists else operation.answer(named)
        if streams:
            answer["Body"] = StreamingBody(response.raw, named.get("content-length"))  # type: ignore[arg-type]
        answer["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": named}
        return answer

    def _rehearse(self, method: str, bucket: str) -> _Rehearsed | None:
        """Return what the SDK would send, without sending it; None if only the SDK can sign it."""
        arguments = {} if method == "list_objects_v2" else {"Key": _KEY}
        if method == "put_object":
            arguments["Body"] = b""  # type: ignore[assignment]
        self._rehearsal.found, self._rehearsal.runs = None, True
        try:
            getattr(self._client, method)(Bucket=bucket, **arguments)
        finally:
            self._rehearsal.runs = False
        found: _Rehearsed | None = self._rehearsal.found
        return found

    def _note(self, request: AWSRequest, **named: Any) -> None:
        """Keep what the SDK is about to sign, in a rehearsal."""
        if not getattr(self._rehearsal, "runs", False) or named["signature_version"] != _SIGNATURE:
            return
        signing = request.context.get("signing", {})
        scope = {
            "signing_name": signing.get("signing_name", named["signing_name"]),
            "region_name": signing.get("region", named["region_name"]),
            "signature_version": _SIGNATURE,
        }
        kept = {name: value for name, value in request.context.items() if name not in {"retries", "s3_redirect"}}
        agent = request.headers.get("User-Agent")
        url = str(request.url).partition("?")[0]
        self._rehearsal.found = _Rehearsed(
            url if named["operation_name"] == "ListObjectsV2" else url.removesuffix(_KEY),  # a bucket can end so too
            {} if agent is None else {"User-Agent": agent},
            kept,
            named["request_signer"],
            scope,
        )

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        """Answer the request of a rehearsal, so that the SDK does not send it."""
        if not getattr(self._rehearsal, "runs", False):
            return None
        raw: Any = _Nothing()
        return AWSResponse(request.url, HTTPStatus.OK, {}, raw)  # type: ignore[arg-type]


class _Nothing:
    """The body of the response to a rehearsal."""

    def stream(self) -> Iterator[bytes]:
        """Yield the whole body."""
        yield _LISTING


def _hash_quickly(signer: Any) -> None:
    """Compute the digests of bodies that are sent without TLS: the SDK reads 4 KiB at a time, for thrice the time."""
    inner = signer.get_auth_instance

    def get_auth_instance(*arguments: Any, **named: Any) -> Any:
        signature = inner(*arguments, **named)
        signature._get_existing_sha256 = _digest
        return signature

    signer.get_auth_instance = get_auth_instance


def _digest(request: AWSRequest) -> str | None:
    """Return the SHA-256 of a body; None if the signature does not have it."""
    body: Any = request.body
    options = getattr(request.context.get("client_config"), "s3", None) or {}
    if not body or not str(request.url).startswith("http:") or options.get("payload_signing_enabled") is False:
        return None
    if isinstance(body, bytes | bytearray):
        return hashlib.sha256(body).hexdigest()
    begin = body.tell()
    digest = hashlib.file_digest(body, "sha256").hexdigest()
    body.seek(begin)
    return digest


def _is_elsewhere(operation: str, answer: Mapping[str, Any]) -> bool:
    """Return whether an error means that another endpoint or region has the bucket."""
    status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"].get("Code")
    if status in _REDIRECTIONS or code in _ELSEWHERE:
        return True
    return operation == "HeadObject" and status == HTTPStatus.BAD_REQUEST  # without a body, and so without a code


def _text(value: object) -> str:
    """Return an argument as the SDK sends it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime(_TIME)
    return ",".join(value) if isinstance(value, list) else str(value)


def _parsed(value: str, kind: str) -> object:
    """Return the field of a header."""
    if kind in {"integer", "long"}:
        return int(value)
    if kind == "boolean":
        return value == "true"
    return timestamp_of(value) if kind == "timestamp" else value
