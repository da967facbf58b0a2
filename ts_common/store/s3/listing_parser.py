"""Answers to listings, read quickly.

The SDK reads an answer by its description of the service, field by field, and each date with a library that knows every
form of date there is: 70 microseconds for each object of a listing, so that most of the time of planning a query went
there. Here such an answer is read for what the driver takes from it, twenty times as fast; all others are read as ever,
but with one form of date.
"""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from botocore.handlers import _handle_200_error, decode_list_object_v2  # type: ignore[attr-defined]
from botocore.parsers import ResponseParser, ResponseParserError, ResponseParserFactory, RestXMLParser

from ts_common.store.answers import parse_xml, size_of
from ts_common.store.call import UNFORESEEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.hooks import BaseEventHooks
    from botocore.model import Shape

_LISTING = "ListObjectsV2Output"
_LISTING_ROOT = "ListBucketResult"
_DELETED = "DeleteObjectsOutput"
_DELETED_ROOT = "DeleteResult"
_LOOK = "before-parse.s3.*"
_BEGINS = b"<ListBucketResult"
_HEAD_BYTES = 200  # an XML declaration is shorter
_TEXTS = frozenset({"NextContinuationToken", "EncodingType"})
_KEY, _SIZE, _ETAG, _MODIFIED = (
    re.compile(f"<{name}>([^<]+)</{name}>").search for name in ("Key", "Size", "ETag", "LastModified")
)


class QuickParsers(ResponseParserFactory):
    """The session's component `response_parser_factory`."""

    def create_parser(self, protocol_name: str) -> ResponseParser:
        """The parser of a protocol; S3 speaks `rest-xml`."""
        if protocol_name == "rest-xml":
            return _QuickParser(timestamp_parser=timestamp_of)
        return super().create_parser(protocol_name)


class _Headers(dict[str, str]):
    """Headers by their names in any case, as the parser asks for them: some forty for each answer."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


class _QuickParser(RestXMLParser):
    def _parse_non_payload_attrs(
        self, response: "Mapping[str, Any]", shape: "Shape", member_shapes: Any, final_parsed: dict[str, Any]
    ) -> None:
        headers = _Headers((name.lower(), value) for name, value in response["headers"].items())
        try:
            super()._parse_non_payload_attrs(  # type: ignore[misc] # not in the stubs
                {**response, "headers": headers}, shape, member_shapes, final_parsed
            )
        except UNFORESEEN as error:  # the SDK lets them pass
            raise ResponseParserError(f"unable to parse the headers of an answer: {error!r}") from error

    def _do_error_parse(self, response: "Mapping[str, Any]", shape: "Shape | None") -> dict[str, Any]:
        try:
            parsed: dict[str, Any] = super()._do_error_parse(response, shape)  # type: ignore[misc] # not in the stubs
        except UNFORESEEN as error:
            raise ResponseParserError(f"unable to parse an error: {_shown(error)}") from error
        # Elements within are dicts, and empty ones are None; the SDK and we look for texts.
        found = parsed.get("Error")
        texts = found if isinstance(found, dict) else {}
        parsed["Error"] = {
            "Code": "",
            "Message": "",
            **{name: each for name, each in texts.items() if type(each) is str},
        }
        return parsed

    def _parse_payload(
        self, response: "Mapping[str, Any]", shape: "Shape", member_shapes: Any, final_parsed: dict[str, Any]
    ) -> None:
        if shape.name == _LISTING:
            final_parsed.update(parse_listing(response["body"]))
        else:
            if shape.name == _DELETED:
                check_deleted(response["body"])
            try:
                super()._parse_payload(  # type: ignore[misc] # not in the stubs
                    response, shape, member_shapes, final_parsed
                )
            except UNFORESEEN as error:
                raise ResponseParserError(f"unable to parse an answer: {error!r}") from error


def spare_listings(events: "BaseEventHooks") -> None:
    """Let a listing pass the SDK's look for errors in answers that say 200, which reads all of it once more.

    What does not begin as a listing is looked at as ever. The SDK's decoding of keys is left out too: it is done here,
    and it fails on an error that looks like a listing.
    """

    def look(operation_model: Any, response_dict: "Mapping[str, Any]", **rest: Any) -> None:
        if operation_model.name != "ListObjectsV2" or _BEGINS not in response_dict["body"][:_HEAD_BYTES]:
            _handle_200_error(operation_model, response_dict, **rest)

    events.unregister(_LOOK, _handle_200_error)
    events.register_first(_LOOK, look)
    events.unregister("after-call.s3.ListObjectsV2", decode_list_object_v2)


def parse_listing(body: bytes) -> dict[str, Any]:
    """The answer to ListObjectsV2, as the SDK gives it, without what the driver does not take from it.

    Raises:
        ResponseParserError: it is no listing; the SDK's own error for that.
    """
    try:
        text = body.decode("utf-8-sig")
        shell, contents = _split(text) or (text, None)
        root, space = _root(shell, _LISTING_ROOT)
        if contents is None:
            contents = [_entry(element, space) for element in root.iter(f"{space}Contents")]
    except UNFORESEEN as error:
        raise ResponseParserError(f"unable to parse a listing: {_shown(error)}, in {body[:200]!r}") from error
    parsed: dict[str, Any] = {}
    directories: list[dict[str, str]] = []
    for element in root:
        name = element.tag.removeprefix(space)
        if name == "CommonPrefixes":
            directories += [{"Prefix": prefix.text or ""} for prefix in element]
        elif name == "IsTruncated":
            parsed[name] = element.text == "true"
        elif name in _TEXTS:
            parsed[name] = element.text or ""
    if parsed.pop("EncodingType", None) == "url":  # read here, as the SDK would do it for each name
        for entry in contents:
            if "%" in entry["Key"] or "+" in entry["Key"]:
                entry["Key"] = unquote_plus(entry["Key"])
        directories = [{"Prefix": unquote_plus(entry["Prefix"])} for entry in directories]
    if contents:
        parsed["Contents"] = contents
    if directories:
        parsed["CommonPrefixes"] = directories
    return parsed


def check_deleted(body: bytes) -> None:
    """Refuse an answer to DeleteObjects that is none: what it does not name counts as deleted.

    Raises:
        ResponseParserError: it is another document.
    """
    try:
        _root(body.decode("utf-8-sig"), _DELETED_ROOT)
    except ValueError as error:
        raise ResponseParserError(f"unable to parse an answer: {_shown(error)}, in {body[:200]!r}") from error


def _shown(error: Exception) -> str:
    """An error; what it says of the answer may be long."""
    return repr(error)[:_HEAD_BYTES]


def _root(text: str, expected: str) -> tuple[ElementTree.Element, str]:
    """The root of a document and what stands before its elements' names: `{namespace}`, or nothing.

    Servers use several namespaces, or none. A well-formed web page is a document too, so the root's name counts.

    Raises:
        ValueError: it is no XML that a store writes, or the root has another name.
    """
    root = parse_xml(text)
    namespace, brace, name = root.tag.rpartition("}")
    if name != expected:
        raise ValueError(f"a document {name}; {expected} is expected")
    return root, namespace + brace


def _split(text: str) -> tuple[str, list[dict[str, Any]]] | None:
    """A listing without its objects, and these; None where a tree has to be made of it to be sure what it says.

    An object is the same few elements again and again, and finding four of them is five times as fast as a tree. Where
    anything stands there that could mean something else (a comment, CDATA, an entity in a key), this answers None.
    """
    shell, *parts = text.split("<Contents>")
    contents = []
    for part in parts:
        entry, end, after = part.partition("</Contents>")
        shell += after
        key, size, etag, modified = _KEY(entry), _SIZE(entry), _ETAG(entry), _MODIFIED(entry)
        if not (end and key and size and etag and modified) or "&" in key[1]:
            return None
        tag = etag[1].replace("&#34;", '"').replace("&quot;", '"')
        if "&" in tag:
            return None
        contents.append(
            {"Key": key[1], "Size": size_of(size[1]), "ETag": tag, "LastModified": timestamp_of(modified[1])}
        )
    return None if "<!" in text or "Contents" in shell else (shell, contents)


def _entry(element: ElementTree.Element, space: str) -> dict[str, Any]:
    """An object of a listing."""
    key, size, etag, modified = (element.findtext(space + name) for name in ("Key", "Size", "ETag", "LastModified"))
    if key is None or size is None or etag is None or modified is None:
        raise ValueError("an object without key, size, ETag or date")
    return {"Key": key, "Size": size_of(size), "ETag": etag, "LastModified": timestamp_of(modified)}


def timestamp_of(text: str) -> datetime:
    """A date of a listing (ISO 8601) or of a header (RFC 9110), of any form the SDK would take.

    Raises:
        OverflowError, ValueError: it is neither.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = parsedate_to_datetime(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
