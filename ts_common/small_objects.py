"""Reading an object that is small where it is what its name says: no more than its format allows is fetched."""

import json
from typing import Any

from ts_common.errors import CorruptData
from ts_common.format_version import check_version
from ts_common.store.contract import ByteRange, ObjectStore


def get_small(store: ObjectStore, key: str, largest: int) -> bytes:
    """The bytes of an object of at most `largest` bytes.

    Raises:
        ObjectNotFound: there is none.
        CorruptData: it is larger.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    data, info = store.get(key, ByteRange(0, largest))
    if info.size > largest:
        raise CorruptData(f"{key}: {info.size} bytes; at most {largest} are expected")
    return data


def parse_fields(data: bytes, key: str) -> dict[str, Any]:
    """The fields of a JSON object whose version is known.

    Raises:
        ValueError: it is no JSON object, or its version is none.
        NewerFormat: it is of a later version.
    """
    try:
        fields = json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
    if not isinstance(fields, dict):
        raise ValueError(f"a JSON object is expected, not {type(fields).__name__}")  # noqa: TRY004  (of the data)
    check_version(fields, key)
    return fields


def whole_number(value: object, least: int, most: int) -> int:
    """A number of a JSON object, as it stands there: no text, no fraction, no boolean.

    Raises:
        ValueError: it is none, or not from `least` to `most`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value
