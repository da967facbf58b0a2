r"""The list of a partition's erased offsets, which each reader obeys (reading rule 12).

::

    erased/<n>.bin        n from 1 to 999999999, without leading zeros
        "TSER" 01         magic, version
        uint16            length of the header
        {"of":"orders-0","n":4,"offsets":181,"time":1}
        uvarint           number of sections. Each section:
            zigzag        leader epoch; sections ascend by it
            uvarint       number of runs. Each run:
                uvarint   gap from the end of the run before, from 0 in front of the first
                uvarint   number of its offsets, less 1
        uint32            CRC-32C of all bytes before

Numbers of fixed width are little-endian. `of` is the partition's directory, `offsets` the number of offsets. Each
offset is in one section only. A list has all offsets of the lists before it, so the one with the greatest n counts. A
list never changes. Retention removes no offset from it, because an agent can ship deleted records again.
"""

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from threading import Lock
from typing import Final

from awscrt.checksums import crc32c

from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.format_version import check_version
from ts_common.json_objects import MAX_INT32, decoding, parse_json, shown, whole_number
from ts_common.log_format.framing import NO_EPOCH
from ts_common.log_format.varints import unsigned_varint, varint
from ts_common.store.contract import ObjectInfo, ObjectStore

ERASED_LIST_BYTES: Final = 16 << 20
MAX_RUNS: Final = 4_194_304
_LISTINGS: Final = 5  # after the first one
_MAGIC: Final = b"TSER\x01"
_PREFIX: Final = len(_MAGIC) + 2
_CRC: Final = 4
_HEADER_BYTES: Final = (1 << 16) - 1
_NAME: Final = re.compile(r"([1-9][0-9]{0,8})\.bin", re.ASCII)
_KEPT_RUNS: Final = 1 << 20  # of all lists that a process keeps


@dataclass(frozen=True, slots=True)
class ErasedList:
    """A list of erased offsets.

    Attributes:
        number: n of its name.
        time: when it was written, milliseconds since the epoch.
    """

    number: int
    time: int
    offsets: ErasedOffsets


@dataclass(frozen=True, slots=True)
class ListedErased:
    """The greatest list of a listing.

    Attributes:
        number: n of its name.
    """

    number: int
    etag: str


def erased_key(keys: PartitionKeys, number: int) -> str:
    """Return the key of a list."""
    return f"{keys.erased}{number}.bin"


def parse_erased_name(name: str) -> int | None:
    """Return n of an object's name below `erased/`; None if it is not the name of a list."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def greatest_listed(keys: PartitionKeys, listed: Iterable[ObjectInfo]) -> ListedErased | None:
    """Return the greatest list among objects of a partition; None without one."""
    found: ListedErased | None = None
    for info in listed:
        if info.key.startswith(keys.erased):
            found = greater(found, info.key.removeprefix(keys.erased), info.etag)
    return found


def greater(found: ListedErased | None, name: str, etag: str) -> ListedErased | None:
    """Return the greater of a list and of an object below `erased/`, which can be no list."""
    number = parse_erased_name(name)
    return found if number is None or (found is not None and found.number > number) else ListedErased(number, etag)


def encode_erased_list(keys: PartitionKeys, found: ErasedList) -> bytes:
    """Return the content of a list.

    Raises:
        CorruptData: it would be larger than readers accept.
    """
    sections: dict[int, list[tuple[int, int]]] = {}
    for start, end, epoch in found.offsets:
        sections.setdefault(epoch, []).append((start, end))
    header = {"of": keys.directory, "n": found.number, "offsets": found.offsets.count, "time": found.time}
    text = json.dumps(header, separators=(",", ":")).encode()
    data = bytearray(_MAGIC + len(text).to_bytes(2, "little") + text + unsigned_varint(len(sections)))
    for epoch, runs in sorted(sections.items()):
        data += varint(epoch) + unsigned_varint(len(runs))
        last = 0
        for start, end in runs:
            data += unsigned_varint(start - last) + unsigned_varint(end - start - 1)
            last = end
    data += crc32c(bytes(data)).to_bytes(_CRC, "little")
    if len(data) > ERASED_LIST_BYTES or len(found.offsets) > MAX_RUNS:
        raise CorruptData(
            f"{erased_key(keys, found.number)}: it would have {len(data)} bytes and {len(found.offsets)} runs; readers "
            f"accept at most {ERASED_LIST_BYTES} and {MAX_RUNS}"
        )
    return bytes(data)


def decode_erased_list(data: bytes, keys: PartitionKeys, number: int) -> ErasedList:
    """Parse a list.

    Args:
        number: n of its name.

    Raises:
        CorruptData: it is damaged, or is of another partition or number.
        NewerFormat: a later release wrote it.
    """
    key = erased_key(keys, number)
    with decoding(key, "a list of erased offsets", data):
        if data[:4] != _MAGIC[:4]:
            raise ValueError(f"it begins with {shown(data[:4])}")
        check_version({"version": data[4]}, key)
        end = len(data) - _CRC
        start = _PREFIX + int.from_bytes(data[len(_MAGIC) : _PREFIX], "little")
        if len(data) > ERASED_LIST_BYTES or end < start or crc32c(data[:end]) != int.from_bytes(data[end:], "little"):
            raise ValueError("its CRC-32C is not the one at its end")
        header = parse_json(data[_PREFIX:start], key, _HEADER_BYTES)
        if not isinstance(header, dict) or (header["of"], header["n"]) != (keys.directory, number):
            raise ValueError("it is of another partition or number")
        offsets = _decode_sections(memoryview(data)[start:end])
        if offsets.count != header["offsets"]:
            raise ValueError(f"it has {offsets.count} offsets, and its header {shown(header['offsets'])}")
        return ErasedList(number, whole_number(header["time"]), offsets)


def _decode_sections(data: memoryview) -> ErasedOffsets:
    numbers = _varints(data)
    starts, ends, epochs = array("q"), array("q"), array("i")
    before = NO_EPOCH - 1
    sections = _next(numbers)
    for _ in range(sections):
        zigzag = _next(numbers)
        epoch = whole_number((zigzag >> 1) ^ -(zigzag & 1), before + 1, MAX_INT32)
        count = whole_number(_next(numbers), 1, MAX_RUNS - len(starts))
        position = 0
        for gap, more in islice(zip(numbers, numbers, strict=False), count):
            starts.append(position + gap)
            position += gap + more + 1
            ends.append(position)
        epochs.extend(repeat(epoch, count))
        before = epoch
    if len(starts) != len(epochs) or next(numbers, None) is not None:
        raise ValueError("it has not the runs that its sections name")
    order = range(len(starts)) if sections < 2 else sorted(range(len(starts)), key=starts.__getitem__)
    return ErasedOffsets.ascending((starts[at], ends[at], epochs[at]) for at in order)


def _next(numbers: Iterator[int]) -> int:
    for number in numbers:
        return number
    raise ValueError("it ends within a section")


def _varints(data: memoryview) -> Iterator[int]:
    """Yield numbers without a sign, each below 2**63; unlike `read_unsigned_varint` without a call for each."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            yield value
            value = shift = 0
        elif (shift := shift + 7) > 56:
            raise ValueError("a number has more than nine bytes")
    if shift:
        raise ValueError("it ends within a number")


def read_erased(
    store: ObjectStore, keys: PartitionKeys, listed: ListedErased | None, least: int | None
) -> ErasedOffsets:
    """Return the erased offsets of a partition, by the greatest list; without a request if it has no list.

    Args:
        listed: the greatest list of a listing.
        least: the least list that exists, by the `log.start` that was read after the listing; None without one.

    Raises:
        CorruptData: the list is damaged, or no listing shows one that exists.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if listed is None and least is None:
        return NOTHING_ERASED
    for attempt in range(1 + _LISTINGS):
        if attempt:
            listed = greatest_listed(keys, store.list(keys.erased))
        if listed is None or listed.number < (least or 0):
            continue
        found = _KEPT.read(store, keys, listed)
        if found is not None:
            return found.offsets
    if listed is not None and listed.number >= (least or 0):
        raise CorruptData(f"{erased_key(keys, listed.number)}: {_LISTINGS} listings show it, and no get returns it")
    wanted = "a list" if least is None else f"list {least} or a later one"
    raise CorruptData(f"{keys.erased}: {_LISTINGS} listings do not show {wanted}, which exists")


class _KeptLists:
    """Lists that this process has read, the last used last: a follower reads a partition again and again.

    A list never changes, and the ETag shows whether an object is the one that was read.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lists: OrderedDict[tuple[str, str, str], ErasedList] = OrderedDict()
        self._runs = 0

    def read(self, store: ObjectStore, keys: PartitionKeys, listed: ListedErased) -> ErasedList | None:
        """Return a list; None if no object with its key has its ETag any more; raise as `read_erased`."""
        key = erased_key(keys, listed.number)
        place = (store.location, key, listed.etag)
        with self._lock:
            if place in self._lists:
                self._lists.move_to_end(place)
                return self._lists[place]
        try:
            data, info = get_small(store, key, ERASED_LIST_BYTES)
        except ObjectNotFound:
            return None
        if info.etag != listed.etag:
            return None
        found = decode_erased_list(data, keys, listed.number)
        with self._lock:
            if place not in self._lists:
                self._lists[place] = found
                self._runs += len(found.offsets)
            while self._runs > _KEPT_RUNS:
                self._runs -= len(self._lists.popitem(last=False)[1].offsets)
        return found


_KEPT: Final = _KeptLists()
