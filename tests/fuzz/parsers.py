"""Small objects of a bucket, files of a broker and of an operator, names: each read by its parser alone.

An input is a line with the parser (`PARSERS`), and the bytes. What is read must be numbers of 64 bits, finite times and
texts that UTF-8 can hold, and must be read again as the same once it is written.
"""

import dataclasses
import math
import random
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from awscrt.checksums import crc32c

from tests.fuzz import retention
from tests.fuzz.mutate import NUMERALS, TEXTS, json_text, mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.archive.commit import Commit, decode_commit, decode_log_start
from ts_common.archive.ends import Ends
from ts_common.archive.gap_records import Gap, parse_gap_name
from ts_common.archive.group_offsets import StoredGroup
from ts_common.archive.holds import Hold, Removal
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.layout import Layout
from ts_common.archive.metadata_cache import CacheObject, encode_cache_object, parse_cache_object_name
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.repair_requests import RepairAnswer, RepairRequest
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.json_file import read_endpoints
from ts_common.errors import TieredStorageError
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
from ts_uploader.log_dirs.checkpoints import (
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from ts_uploader.log_dirs.producer_snapshot import first_unstable_offset

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
_OFFSET = b"0" * 19 + b"5\n"
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
_HOLD = {
    "version": 1,
    "name": "h",
    "topics": ["t.*", "u"],
    "prefix": "v",
    "reason": "r",
    "until": 5,
    "setBy": "a",
    "time": 1,
    "twoPeople": True,
    "purpose": "hold",
}
_ID = "1700000000000-1a2b3c4d"
_JSON: Mapping[str, Any] = {
    "commit": {
        "next": 6,
        "epoch": 1,
        "epochs": [[0, 0], [1, 3]],
        "lso": None,
        "topicId": "5fWnyHqTQDqQDqQDqQDqQA",
        "broker": 1,
        "time": 1,
        "nonce": "x",
        "tail": [3, 5],
        "java": 5,
        "version": 2,
        "lineage": [1, 5, 5],
    },
    "log-start": {"version": 2, "lineage": [1, 5, 5]},
    "gap": {"from": 1, "to": 2, "reason": "retention", "time": 1, "broker": 1},
    "incarnations": {"incarnations": [{"topicId": "a", "firstSeen": 1, "directory": "t"}]},
    "cache object": {"of": "t-0", "segments": [_ROW]},
    "layout": {"version": 1, "cluster": "c", "entropyBits": 0, "time": 5},
    "ends": {"version": 1, "broker": 1, "time": 1, "partitions": {"t-0": [5, 5]}},
    "hold": _HOLD,
    "removed hold": {"version": 1, "hold": _HOLD, "removedBy": "b", "reason": "r", "time": 5},
    "request": {
        "version": 1,
        "topic": "t",
        "partition": 0,
        "directory": "t~a-0",
        "kind": "damaged",
        "from": 1,
        "to": 5,
        "object": f"c/t~a-0/{_STEM}.log",
        "etag": "e",
        "size": 5,
        "time": 1,
        "by": "b",
    },
    "answer": {"version": 1, "status": "repaired", "reason": "r", "objects": ["k"], "broker": 1, "time": 1},
    **retention.JSON,
    "groups": {"version": 1, "group": "g", "time": 1, "partitions": {"t-0": [5, 3, 5, "m"]}},
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
    "snapshot": b"\0\1" + crc32c(b"\0\0\0\0").to_bytes(4, "big") + b"\0\0\0\0",
    "offset-checkpoint": b"0\n2\nt 0 5\nt 1 7\n",
    "epoch-checkpoint": b"0\n2\n0 0\n1 5\n",
    "partition-metadata": b"version: 0\ntopic_id: 5fWnyHqTQDqQDqQDqQDqQA\n",
    "properties": b"ts.segment.uploader.kafka.topics.include=a.*\nts.segment.uploader.upload.thread.count=3\n",
}


class Parsers(Target):
    """Each by its name."""

    def open(self) -> None:
        """A directory for what is read from files."""
        self._directory = Path(mkdtemp(prefix="fuzz-parsers-"))
        self._retention = retention.Retention(self._directory / "store", _sane, _same)

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
            if name in {"commit", "log-start"}:
                data = (_OFFSET if chance.random() < 0.9 else mutate_bytes(chance, _OFFSET)) + data
        return name.encode() + b"\n" + data

    def run(self, data: bytes) -> None:
        """Read it."""
        (name, *_), rest = split_input(data)
        try:
            if name in retention.JSON:
                self._retention.run(name, rest)
            elif name in _FILES:
                path = self._directory / name
                path.write_bytes(rest)
                _FILES[name](path)
            else:
                PARSERS.get(name, _commit)(rest)
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


def _gap(data: bytes) -> None:
    found = Gap.decode(data, "k")
    _sane(found)
    _same(Gap.decode(found.encode(), "k"), found)


def _incarnations(data: bytes) -> None:
    found = Incarnations.decode(data, "k", topic="t")
    _sane(found)
    _same(Incarnations.decode(found.encode(), "k", topic="t"), found)


def _cache_object(data: bytes) -> None:
    """With the right checksum in front."""
    cache_object = CacheObject(b"%08x\n%b\n" % (crc32c(data), data), KEYS, "k")
    found = cache_object.entries()
    _sane(found)
    cache_object.find(SegmentName(0), 10, '"e"')
    again = CacheObject(encode_cache_object(KEYS, found), KEYS, "k").entries()
    _same([(each.name, each.size, each.etag) for each in again], [(each.name, each.size, each.etag) for each in found])


def _layout(data: bytes) -> None:
    found = Layout.decode(data, "k", cluster="c")
    _sane(found)
    _same(Layout.decode(found.encode(), "k", cluster="c"), found)


def _hold(data: bytes) -> None:
    found = Hold.decode(data, "k", name="h")
    _sane(found)
    _same(Hold.decode(found.encode(), "k", name="h"), found)


def _removal(data: bytes) -> None:
    found = Removal.decode(data, "k", name="h", time=5)
    _sane(found)
    _same(Removal.decode(found.encode(), "k", name="h", time=5), found)


def _request(data: bytes) -> None:
    found = RepairRequest.decode(data, "k", id=_ID)
    _sane(found)
    _same(RepairRequest.decode(found.encode(), "k", id=_ID), found)
    _sane(found.segment_in(KEYS))


def _answer(data: bytes) -> None:
    found = RepairAnswer.decode(data, "k")
    _sane(found)
    _same(RepairAnswer.decode(found.encode(), "k"), found)


def _ends(data: bytes) -> None:
    found = Ends.decode(data, "k", broker=1)
    _sane(found)
    _same(Ends.decode(found.encode(), "k", broker=1), found)


def _groups(data: bytes) -> None:
    found = StoredGroup.decode(data, "k", group="g")
    _sane(found)
    _same(StoredGroup.decode(found.encode(), "k", group="g"), found)


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
    "commit": _commit,
    "log-start": _log_start,
    "gap": _gap,
    "incarnations": _incarnations,
    "cache object": _cache_object,
    "layout": _layout,
    "ends": _ends,
    "groups": _groups,
    "hold": _hold,
    "removed hold": _removal,
    "request": _request,
    "answer": _answer,
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
