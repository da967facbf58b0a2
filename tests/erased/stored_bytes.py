"""A search over the raw bytes of a bucket: every object and every version, read by the SDK, and what they unpack to.

It looks for a text in the bytes as they are stored, in the records of each batch, in streams of gzip and of zlib, and
in each column of Parquet; for a key also for its hash in an index. A segment that cannot be decoded fails the search.

It is a search through the API of the store. What a server's own files keep of deleted objects until it compacts them
(SeaweedFS: `volume.vacuum`) is not in it.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ts_common.archive.tail_pack import HEAD_BYTES, decode_head
from ts_reader.decode.hashed_key import hashed
from ts_reader.decode.segment_decoder import SegmentDecoder

_GZIP, _ZLIB, _PARQUET, _PACK = b"\x1f\x8b", b"\x78", b"PAR1", b"TSPK"


class Stored(NamedTuple):
    """One version of an object.

    Attributes:
        is_current: whether a read without a version id returns it.
    """

    key: str
    version: str
    is_current: bool


def stored(client: Any, bucket: str) -> Iterator[Stored]:
    """Yield every version with bytes in a bucket."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in page.get("Versions", ()):
            yield Stored(each["Key"], each["VersionId"], each["IsLatest"])


def versions_with(client: Any, bucket: str, person: bytes, known: dict[tuple[str, str], bool]) -> list[Stored]:
    """Return the versions with a text, or with the hash of it as a key; those of one object are consecutive.

    Args:
        known: whether a version has it, by key and id, of earlier searches: no version changes. Others are added.
    """
    found = []
    for each in stored(client, bucket):
        if (each.key, each.version) not in known:
            answer = client.get_object(Bucket=bucket, Key=each.key, VersionId=each.version)
            of_key = person in each.key.encode() or person in repr(answer["Metadata"]).encode()
            known[each.key, each.version] = _has(each.key, answer["Body"].read(), person) or of_key
        if known[each.key, each.version]:
            found.append(each)
    return sorted(found)


def _has(key: str, data: bytes, person: bytes) -> bool:
    if person in data:
        return True
    if key.endswith(".log"):
        return person in _records(data)
    if data.startswith(_PARQUET):
        return _is_in_columns(data, person)
    if data.startswith(_GZIP):
        return person in gzip.decompress(data)
    if data.startswith(_PACK) and person in _records(data[decode_head(data[:HEAD_BYTES], key).data_start :]):
        return True
    return any(person in stream for stream in _zlib_streams(data))


def _zlib_streams(data: bytes) -> Iterator[bytes]:
    """Yield what each stream of zlib in some bytes unpacks to, as blocks of an index and sealed columns are."""
    at = -1
    while (at := data.find(_ZLIB, at + 1)) >= 0:
        with suppress(zlib.error):
            yield zlib.decompressobj().decompress(data[at:])


def _records(data: bytes) -> bytes:
    """Return keys, values and headers of all records of some batches, one after the other."""
    found = bytearray()
    for columns in SegmentDecoder().decode([data]):
        headers = columns.headers
        parts = [columns.keys, columns.values, *([] if headers is None else [headers.names, headers.values])]
        found += b"".join(part.data.tobytes() for part in parts if part is not None)
    return bytes(found)


def _is_in_columns(data: bytes, person: bytes) -> bool:
    table, place = pq.read_table(io.BytesIO(data)), hashed(person).place
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return place in columns.get("h", ()) or any(person in repr(values).encode() for values in columns.values())
