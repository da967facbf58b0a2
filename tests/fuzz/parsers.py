"""Small objects of a bucket, files of a broker and of an operator, names: each read by its parser alone.

An input is a line with the parser (`PARSERS`), and the bytes. What is read must be numbers of 64 bits, finite times and
texts that UTF-8 can hold, and must be read again as the same once it is written.
"""

import dataclasses
import json
import math
import random
import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from awscrt.checksums import crc32c

from tests.fuzz import retention
from tests.fuzz.mutate import NUMERALS, TEXTS, json_text, mutate_bytes
from tests.fuzz.target import Mismatch, Target
from tests.stored_objects import FIRST_LINE, OBJECTS
from ts_common.archive.commit import Commit, decode_commit, decode_log_start
from ts_common.archive.erased_list import ErasedList, decode_erased_list, encode_erased_list
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.metadata_cache import CacheObject, encode_cache_object, parse_cache_object_name
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.repair_requests import RepairRequest
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.archive.tail_chain import Aborted, TailEntry
from ts_common.archive.tail_pack import PackHead, decode_block, decode_head, encode_pack
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.json_file import read_endpoints
from ts_common.errors import TieredStorageError
from ts_common.log_format.checkpoints import (
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from ts_common.log_format.index_files import (
    TimeIndex,
    read_offset_index,
    read_time_index,
    read_transaction_index,
    txnindex_is_complete,
)
from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.redaction import redacted
from ts_uploader.log_dirs.producer_snapshot import first_unstable_offset

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
_STEM = "0" * 20
_LEAST = -(1 << 63)
_UNSIGNED = 1 << 64  # a CRC or a size that is computed
_ROW = [_STEM, 10, '"e"', 5, [[0, 0]], 5, 1, 2, 7, [7, "complete"], 0, None]
_METADATA = {
    "ts-end": "5",
    "ts-crc32c": "0000000a",
    "ts-epochs": "0:0,1:3",
    "ts-last-epoch": "1:3",
    "ts-records": "5",
    "ts-time-max": "2",
    "ts-time-min": "1",
    "ts-txnindex": "0000000a:complete",
    "ts-timeindex": "0000000a",
    "ts-shipped": "7",
    "ts-control": "1",
    "ts-version": "1",
}
_ENTRY = TailEntry("t-0", 5, 100, 110, "", 0, 61, 7, ((4, 100), (5, 105)), 109, (Aborted(9, 90, 108),), 10, 2)
_PACK = encode_pack(PackHead("1", 7, "n", 1), [_ENTRY, _ENTRY._replace(start=105, aborted=None)], [])
_HEAD = decode_head(_PACK, "k")
_LIST = ErasedList(4, 1, ErasedOffsets.of([(0, 1, -1), (5, 300, 2), (300, 301, 7), (1 << 40, (1 << 40) + 3, 2)]))
_CRC = 4
_JSON: Mapping[str, Any] = {
    **{name: json.loads(text) for name, (text, _) in OBJECTS.items()},
    "cache object": {"of": "t-0", "segments": [_ROW]},
    "pack": {"log": "1", "n": 7, "nonce": "n", "time": 1, "before": None, "blocks": [["t-0", 100, 61, 300, 7]]},
    **retention.JSON,
    "endpoints": {
        "endpoints": {"restricted": {"bucket": "bbb", "prefix": "p", "s3": {"server.side.encryption": "aws:kms"}}},
        "default": {"bucket": "archive"},
        "topics": {"payments": "restricted", "audit": {"endpoint": "restricted", "s3": {"tags": {"team": "audit"}}}},
    },
}
_PLAIN: Mapping[str, bytes] = {
    "metadata": "\n".join(f"{name}={value}" for name, value in _METADATA.items()).encode(),
    "names": b"00000000000000000005.e1.0000000a.log\n5-7.json\nt-0\nhttp://u:p@h/",
    "printable": "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e".encode(),
    "indexes": bytes(range(48)) * 3,
    "erased list": encode_erased_list(KEYS, _LIST)[:-_CRC],
    "index block": zlib.decompress(_PACK[_HEAD.start :]),
    "snapshot": b"\0\1" + crc32c(b"\0\0\0\0").to_bytes(4, "big") + b"\0\0\0\0",
    "offset-checkpoint": b"0\n2\nt 0 5\nt 1 7\n",
    "epoch-checkpoint": b"0\n2\n0 0\n1 5\n",
    "partition-metadata": b"version: 0\ntopic_id: 5fWnyHqTQDqQDqQDqQDqQA\n",
    "properties": b"ts.segment.uploader.kafka.topics.include=a.*\nts.segment.uploader.upload.thread.count=3\n",
}
_WITH_FIRST_LINE = {"commit", "log-start", "log-start of retention", *retention.WITH_FIRST_LINE}


class Parsers(Target):
    """Each by its name."""

    def open(self) -> None:
        """A directory for what is read from files."""
        self._directory = Path(mkdtemp(prefix="fuzz-parsers-"))
        self._retention = retention.Retention(self._directory / "store", _sane)

    def draw(self, chance: random.Random) -> bytes:
        """Something that is nearly what the parser reads."""
        name = chance.choice((*_JSON, *_PLAIN))
        if name in _PLAIN:
            data = _PLAIN[name]
            if chance.random() < 0.3:
                lines = data.split(b"\n")
                at = chance.randrange(len(lines))
                head, equals, _ = lines[at].partition(b"=")
                lines[at] = (head + equals if equals else b"") + chance.choice((*NUMERALS, *TEXTS)).encode()
                data = b"\n".join(lines)
            else:
                data = mutate_bytes(chance, data)
        else:
            data = json_text(chance, _JSON[name])
            if name in _WITH_FIRST_LINE:
                data = (FIRST_LINE if chance.random() < 0.9 else mutate_bytes(chance, FIRST_LINE)) + data
        return name.encode() + b"\n" + data

    def run(self, data: bytes) -> None:
        """Read it."""
        line, _, rest = data.partition(b"\n")
        name = line.decode("latin-1")
        try:
            if name in retention.JSON:
                self._retention.run(name, rest)
            elif name in _FILES:
                path = self._directory / name
                path.write_bytes(rest)
                _FILES[name](path)
            else:
                PARSERS.get(name, _commit)(rest)  # a mutated name is of none
        except TieredStorageError as error:
            str(error).encode()


def _commit(data: bytes) -> None:
    found = decode_commit(data, "k")
    _sane(found)
    if isinstance(found, Commit):
        _same(decode_commit(found.encode(), "k"), found)


def _log_start(data: bytes) -> None:
    found = decode_log_start(data, "k")
    _sane(found)
    _same(decode_log_start(found.encode(), "k"), found)


def _object(decode: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        found = decode(data)
        _sane(found)
        _same(decode(found.encode()), found)
        if isinstance(found, RepairRequest):
            _sane(found.segment_in(KEYS))

    return run


def _cache_object(data: bytes) -> None:
    """With the right checksum in front."""
    cache_object = CacheObject(b"%08x\n%b\n" % (crc32c(data), data), KEYS, "k")
    found = cache_object.entries()
    _sane(found)
    cache_object.find(SegmentName(0), 10, '"e"')
    again = CacheObject(encode_cache_object(KEYS, found), KEYS, "k").entries()
    _same([(each.name, each.size, each.etag) for each in again], [(each.name, each.size, each.etag) for each in found])


def _pack(data: bytes) -> None:
    """With the right checksum in front."""
    head = decode_head(b"TSPK\x01" + len(data).to_bytes(4, "little") + crc32c(data).to_bytes(4, "little") + data, "k")
    _sane(head)
    _sane(list(head.blocks_of("t-0")))


def _index_block(data: bytes) -> None:
    """Compressed, with the right checksum."""
    body = zlib.compress(data)
    block = _HEAD.blocks[0]._replace(length=len(body), size=len(data), crc32c=crc32c(body))
    _sane(decode_block(body, _HEAD, block, "packs/x", "k"))


def _erased_list(data: bytes) -> None:
    """With the right checksum at its end."""
    found = decode_erased_list(data + crc32c(data).to_bytes(_CRC, "little"), KEYS, _LIST.number)
    _sane([found.number, found.time, list(found.offsets)])
    _same(decode_erased_list(encode_erased_list(KEYS, found), KEYS, _LIST.number), found)


def _metadata(data: bytes) -> None:
    pairs = (line.partition("=") for line in data.decode("latin-1").split("\n"))
    found = decode_metadata({name: value for name, _, value in pairs}, "k")
    _sane(found)
    if found is not None:
        # A store may lose an empty value.
        _same(decode_metadata(found.encode(), "k"), dataclasses.replace(found, epochs=found.epochs or None))


def _names(data: bytes) -> None:
    for name in data.decode("utf-8", "replace").split("\n"):
        found = SegmentName.parse(name)
        _sane(found)
        if found is not None:
            _same(found[0].stem + found[1], name)
        _sane(parse_gap_name(name))
        _sane(parse_cache_object_name(name))
        partition = TopicPartition.parse(name)
        if partition is not None:
            _same(str(partition), name)
        redacted(name)


def _indexes(data: bytes) -> None:
    for read in (read_offset_index, read_time_index):
        try:
            _sane(read(data))
        except TieredStorageError:
            continue
    index = TimeIndex(0, data)
    try:
        _sane(index.claims)
        _sane(index.first_offset_that_may_reach(7))
    except TieredStorageError:
        pass
    entries = read_transaction_index(data)
    txnindex_is_complete(entries, {(1, 2)})


def _snapshot(data: bytes) -> None:
    """As it is, and with the right checksum."""
    body = data[6:]
    for each in (data, b"\0\1" + crc32c(body).to_bytes(4, "big") + body):
        try:
            _sane(first_unstable_offset(each))
        except TieredStorageError:
            continue


def _printable(data: bytes) -> None:
    """What a terminal or a page is shown."""
    text = data.decode("utf-8", "surrogateescape")
    if not printable(text).isprintable():
        raise Mismatch("a character that commands a terminal")
    message = str(TieredStorageError(text))
    if not all(line.isprintable() for line in message.split("\n")):
        raise Mismatch("a character that commands a terminal, in an error")


PARSERS: Mapping[str, Callable[[bytes], None]] = {
    **{name: _object(decode) for name, (_, decode) in OBJECTS.items()},
    "commit": _commit,
    "log-start": _log_start,
    "log-start of retention": _log_start,
    "cache object": _cache_object,
    "pack": _pack,
    "erased list": _erased_list,
    "index block": _index_block,
    "metadata": _metadata,
    "names": _names,
    "indexes": _indexes,
    "snapshot": _snapshot,
    "offset-checkpoint": lambda data: _sane(parse_offset_checkpoint(data)),
    "epoch-checkpoint": lambda data: _sane(parse_leader_epoch_checkpoint(data)),
    "printable": _printable,
    "partition-metadata": lambda data: _sane(parse_partition_metadata(data)),
}
_FILES: Mapping[str, Callable[[Path], object]] = {
    "endpoints": lambda path: read_endpoints(path, {}),
    "properties": load_config,
}


def _sane(value: object) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, Enum):
        return
    if isinstance(value, int):
        if not _LEAST <= value < _UNSIGNED:
            raise Mismatch(f"the number {value}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Mismatch(f"the number {value}")
    elif isinstance(value, str):
        value.encode()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _sane(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for pair in value.items():
            _sane(pair)
    elif isinstance(value, tuple | list | frozenset | set):
        for each in value:
            _sane(each)


def _same(again: object, found: object) -> None:
    if again != found:
        raise Mismatch(f"written and read again it is {again!r}, and was {found!r}")
