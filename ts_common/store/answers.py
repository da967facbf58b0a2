"""What drivers take from a server's answer. A server may answer anything: how much of it is read, `http_body` says.

Depth, numbers and texts are checked here. Whatever is not what a store answers is a `ValueError`, of which
`Call.understood` makes the error that the caller expects.
"""

import json
import math
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from ts_common import json_objects
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectInfo

_HALVES = (b"\\ud", b"\\uD")  # how one of JSON's escapes for half of a surrogate pair begins


def parse_json(body: bytes) -> Any:
    """What an answer's JSON says.

    Raises:
        ValueError: it is no JSON, is nested too deep, has a number that is none or a text that no UTF-8 can hold.
    """
    try:
        said = json_objects.parse_json(body, "the answer", len(body))
    except CorruptData as error:
        raise ValueError(str(error)) from error
    if any(half in body for half in _HALVES):
        json.dumps(said, ensure_ascii=False).encode()
    return said


def parse_xml(text: str) -> ElementTree.Element:
    """The root of an answer's XML.

    No store declares a document type. Entities are declared there, and a few lines of them can stand for gigabytes.

    Raises:
        ValueError: it is no XML, or declares a document type.
    """
    if "<!DOCTYPE" in text:
        raise ValueError("XML with a document type")
    try:
        return ElementTree.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def size_of(said: str) -> int:
    """A number of bytes, in digits.

    Raises:
        ValueError: it is none.
    """
    if not (said.isascii() and said.isdigit() and len(said) < 20 and int(said) <= json_objects.MAX_INT64):
        raise ValueError(f"{said[:40]!r} is no number of bytes")
    return int(said)


def text_of(said: object) -> str:
    """A text of an answer.

    Raises:
        ValueError: it is none, or no UTF-8 can hold it.
    """
    if type(said) is not str:
        raise ValueError(f"{json_objects.shown(said)} is no text")
    said.encode()
    return said


def checked(info: ObjectInfo) -> ObjectInfo:
    """The same, if it is what the contract says: an ETag goes into a header of the next request.

    Raises:
        ValueError: it is not.
    """
    text_of(info.key)
    text_of(info.etag)
    if not (info.etag and info.etag.isascii() and info.etag.isprintable()):
        raise ValueError(f"{info.etag[:80]!r} is no ETag")
    if not 0 <= info.size <= json_objects.MAX_INT64:
        raise ValueError(f"an object of {info.size} bytes")
    if not math.isfinite(info.modified):
        raise ValueError(f"an object of the time {info.modified}")
    return info


def text_by_name(said: object) -> Mapping[str, str]:
    """A JSON object whose values are texts.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(said, dict):
        raise ValueError(f"{json_objects.shown(said)} is no JSON object")  # noqa: TRY004 - of the data
    return {text_of(name): text_of(value) for name, value in said.items()}
