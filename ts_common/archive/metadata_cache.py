r"""Cache objects: the metadata of many consecutive segments in one object, to save readers a request for each.

::

    segment-metadata/<first base, 20 digits>.json
        3f9a0b1c                                          CRC-32C of the rest, 8 hex digits
        {"of":"t-0","segments":[["00000000000000000000",151,"\"f99d...\"",10,[[0,0]],10,1009,1000,123,null,0,null],...]}

An entry has the listed properties of a `.log` object (stem, size, ETag) and its metadata (end, epochs, records,
greatest and least timestamp, CRC-32C, `.txnindex`, corrupt places, `.timeindex`, time of shipping, control records,
name of the damaged object that it replaces; the last three only if there are any). A cache object is no list of what
exists: the listing is the catalog.

A `.log` never changes, so an entry never becomes stale. A repair adds the objects that it put
(`ts_common.archive.cache_rewriting`). Readers ignore an entry whose stem, size or ETag differs from
the listed object's. They also ignore a cache object that is damaged or belongs to another partition. They then read the
metadata of the `.log` objects, which needs more time and gives the same rows.

A cache object has at most `CACHE_OBJECT_SEGMENTS` entries, and only the newest grows. An entry belongs to the cache
object with the highest first base at or below its own. Each cache object can be rebuilt from the `.log` objects.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from awscrt.checksums import crc32c

from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys, SegmentName
from ts_common.archive.segment_metadata import MAX_EPOCHS, SegmentMetadata, TxnIndexState, segment_stem
from ts_common.errors import CorruptData
from ts_common.json_objects import (
    MAX_INT64,
    MAX_UINT32,
    MIN_INT64,
    decoding,
    epoch_pair,
    optional_number,
    parse_fields,
    parse_json,
    rows,
    text,
    whole_number,
)

# At 100 bytes each, a rewrite of the newest cache object is below 32 KB.
CACHE_OBJECT_SEGMENTS = 256
# With sixteen epochs in each entry it is 150 KB. Agents write no larger object, and readers ignore one.
CACHE_OBJECT_BYTES = 1 << 20

_NAME = re.compile(r"([0-9]{20})\.json")
_CHECKSUM_DIGITS = 8
_WAY_OUT = "; remove it: agents write it again"
_END = b"]]}"
_STATES = {state.value: state for state in TxnIndexState}


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The entry of one `.log` object.

    Attributes:
        size: bytes.
        etag: ETag in the listing.
        metadata: its metadata; None if that lacks fields (a Java uploader wrote the object, or it has too many epochs),
            so that readers inspect the segment.
    """

    name: SegmentName
    size: int
    etag: str
    metadata: SegmentMetadata | None


def parse_cache_object_name(name: str) -> int | None:
    """Return the first base in the name of a cache object under `segment-metadata/`; None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None or int(match[1]) > MAX_INT64 else int(match[1])


def encode_cache_object(keys: PartitionKeys, entries: Iterable[CacheEntry]) -> bytes:
    """Return the content of a cache object."""
    rows = [(entry.name.stem, entry.size, entry.etag, *_fields(entry.metadata)) for entry in entries]
    text = json.dumps({"of": keys.directory, "segments": rows}, separators=(",", ":")).encode()
    return b"%08x\n%b\n" % (crc32c(text), text)


class CacheObject:
    """The entries of a cache object by stem; each is parsed on demand.

    Args:
        key: key of the object, for messages.
        few: whether `find` is called for a few entries, and nothing else. Their entries are then searched for in the
            text, which costs a tenth of parsing it; one that is damaged is not found.

    Raises:
        CorruptData: the object is damaged, belongs to another partition, or is not a cache object.
        NewerFormat: a later release wrote it.
    """

    def __init__(self, data: bytes, keys: PartitionKeys, key: str, *, few: bool = False) -> None:
        checksum, _, body = data.partition(b"\n")
        body = body.removesuffix(b"\n")
        with decoding(key, "a cache object", way_out=_WAY_OUT):
            if len(checksum) != _CHECKSUM_DIGITS or int(checksum, 16) != crc32c(body):
                raise ValueError("its CRC-32C does not match")
        self._rows: Mapping[str, list[Any]] | _RowsInText
        if few and body.startswith(_head(keys)) and body.endswith(_END):
            self._rows = _RowsInText(body)
            return
        fields = parse_fields(body, key, "a cache object", CACHE_OBJECT_BYTES, way_out=_WAY_OUT)
        with decoding(key, "a cache object", way_out=_WAY_OUT):
            if fields["of"] != keys.directory:
                raise ValueError(f"it belongs to {text(fields['of'])}")
            self._rows = {_stem(row): row for row in rows(fields["segments"])}

    def find(self, name: SegmentName, size: int, etag: str | None) -> SegmentMetadata | None:
        """Return the metadata of a listed object; None if this cache object has no entry with its size and ETag."""
        row = self._rows.get(name.stem)
        if row is None or etag is None or row[1:3] != [size, etag]:
            return None
        return _metadata(row)

    def entries(self) -> list[CacheEntry]:
        """Return all entries, in the order of the object."""
        if isinstance(self._rows, _RowsInText):
            raise TypeError("made for a few entries")
        named = ((SegmentName.parse(stem + LOG_SUFFIX), row) for stem, row in self._rows.items())
        return [CacheEntry(parsed[0], row[1], row[2], _metadata(row)) for parsed, row in named if parsed]


class _RowsInText:
    """The entries in the text of a cache object as `encode_cache_object` writes it.

    A quote in a string of JSON has a backslash before it. So an array that begins with a string is an entry.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    def get(self, stem: str) -> list[Any] | None:
        """Return the entry with this stem; None if it is missing or damaged."""
        begin = self._body.find(b'["%b",' % stem.encode())
        if begin < 0:
            return None
        end = self._body.find(b',["', begin)
        text = self._body[begin : end if end >= 0 else 1 - len(_END)]
        try:
            return list(rows(parse_json(text, "an entry", CACHE_OBJECT_BYTES)))
        except (CorruptData, ValueError):
            return None


def cache_objects_for(firsts: Sequence[int], bases: Collection[int]) -> list[int]:
    """Return the first bases of the cache objects that segments belong to, ascending.

    Args:
        firsts: first bases of a partition's cache objects, ascending.
        bases: base offsets of the segments.
    """
    wanted = {bisect_right(firsts, base) - 1 for base in bases}
    return [firsts[index] for index in sorted(wanted) if index >= 0]


def _head(keys: PartitionKeys) -> bytes:
    """Return what the text of a cache object begins with, up to the stem of its first entry."""
    return b'{"of":%b,"segments":[["' % json.dumps(keys.directory).encode()


def _stem(row: object) -> str:
    """Return the stem of an entry, and check its first three fields; `_metadata` checks the others on demand."""
    stem, size, etag = rows(row)[:3]
    whole_number(size)
    text(etag)
    return text(stem)


def _fields(metadata: SegmentMetadata | None) -> tuple[object, ...]:
    if metadata is None:
        return ()
    return (
        metadata.end,
        metadata.epochs,
        metadata.records,
        metadata.time_max,
        metadata.time_min,
        metadata.crc32c,
        metadata.txnindex,
        metadata.corruptions,
        metadata.timeindex,
        *_without_trailing_none(metadata.shipped, metadata.control, metadata.replaces),
    )


def _without_trailing_none(*fields: int | str | None) -> list[int | str | None]:
    """Return fields that later releases added, as an earlier release wrote the entry if it lacks them."""
    kept = list(fields)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _metadata(row: list[Any]) -> SegmentMetadata | None:
    """Return the metadata in an entry; None if it has no metadata, or has that of a later version."""
    try:
        _, _, _, end, epochs, records, time_max, time_min, crc, txnindex, corruptions, timeindex, *later = row
        shipped, control, replaces = (*later, None, None, None)[: max(len(later), 3)]
        if len(epochs) > MAX_EPOCHS:  # no agent writes so many; each costs a reader time
            return None
        return SegmentMetadata(
            whole_number(end),
            tuple([epoch_pair(each) for each in epochs]),
            optional_number(records),
            optional_number(time_max, MIN_INT64),
            optional_number(time_min, MIN_INT64),
            whole_number(crc, 0, MAX_UINT32),
            None if txnindex is None else (whole_number(txnindex[0], 0, MAX_UINT32), _STATES[txnindex[1]]),
            whole_number(corruptions),
            False,
            optional_number(timeindex, 0, MAX_UINT32),
            optional_number(shipped),
            optional_number(control),
            replaces=None if replaces is None else segment_stem(replaces),
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None
