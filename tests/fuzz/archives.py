"""Objects that are larger, or more numerous, than any agent writes: sparse files of a directory store.

An input is one line. `small SIZE` reads an object of SIZE bytes as a commit. `transactions SIZE` searches transactions
in a segment whose first batch has SIZE bytes by its header. `plan COUNT STEP END GAPS` plans COUNT copies, each from
its base to END, with GAPS recorded gaps, and finds their spares. `epochs COUNT OF_SEGMENT` reads a commit with COUNT
leader epochs, and computes the end of a segment with OF_SEGMENT of them.
"""

import json
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

from tests.common.log_format import build
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.plan import ReadRange, unite, with_spares
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.archive.small_objects import COMMIT_BYTES, get_small
from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.reading.transactional_batches import read_transactional

_KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
_MOST_SIZE = 1 << 40  # sparse: no disk space
_MOST_SEGMENT = 256 << 20
_MOST_COPIES = 5_000
# The target makes them itself, and its memory is bounded: a commit may have 8 MiB, so some more than these.
_MOST_EPOCHS, _MOST_EPOCHS_OF_SEGMENT = 300_000, 100_000
_SIZES = (0, 1, 100, 8 << 20, (8 << 20) + 1, 1 << 31, 1 << 33, 1 << 40)


class Archives(Target):
    """A store of a temporary directory."""

    def open(self) -> None:
        """An empty store."""
        self._root = Path(mkdtemp(prefix="fuzz-archives-"))
        self._store = open_store(f"file://{self._root}")

    def draw(self, chance: random.Random) -> bytes:
        """Numbers around what is allowed."""
        match chance.randrange(4):
            case 0:
                return b"small %d" % chance.choice(_SIZES)
            case 1:
                return b"transactions %d" % chance.choice((61, 100, 1 << 20, 32 << 20))
            case 2:
                count, step = chance.choice((1, 10, 63, 64, 65, 1000)), chance.choice((0, 1, 10))
                end = chance.choice((1, count * step + 1, 10**9))
                return b"plan %d %d %d %d" % (count, step, end, chance.choice((0, 10, 1000)))
            case _:
                return b"epochs %d %d" % (chance.choice((1, 1000, 100_000)), chance.choice((0, 1, 16, 1000, 100_000)))

    def run(self, data: bytes) -> None:
        """Make it, and read it."""
        (what, *words), _ = split_input(data)
        numbers = [int(word) for word in words if word.isdecimal() and len(word) < 15]
        try:
            _KINDS.get(what, _small)(self._store, self._root, [*numbers, 0, 0, 0, 0])
        except TieredStorageError as error:
            str(error).encode()


def _small(store: ObjectStore, root: Path, numbers: list[int]) -> None:
    _make(store, root, "object", b"", min(numbers[0], _MOST_SIZE))
    data, info = get_small(store, "object", COMMIT_BYTES)
    if len(data) != info.size or info.size > COMMIT_BYTES:
        raise Mismatch(f"{len(data)} bytes of {info.size} were read")


def _transactions(store: ObjectStore, root: Path, numbers: list[int]) -> None:
    size = max(100, min(numbers[0], _MOST_SEGMENT))
    head = build.batch(0, attributes=build.TRANSACTIONAL | build.CONTROL, producer_id=5)[:61]
    key = _KEYS.segment(SegmentName(0))
    _make(store, root, key, head[:8] + struct.pack(">i", size - 12) + head[12:], size)
    metadata = SegmentMetadata(1, ((0, 0),), None, None, None, 1)
    copy = SegmentCopy(_KEYS, StoredSegment(SegmentName(0), size, frozenset()), metadata)
    list(read_transactional(store, copy, 0, 1 << 40))


def _plan(_store: ObjectStore, _root: Path, numbers: list[int]) -> None:
    count, step, end, gaps = min(numbers[0], _MOST_COPIES), numbers[1], numbers[2], min(numbers[3], _MOST_COPIES)
    copies = [
        SegmentCopy(
            _KEYS,
            StoredSegment(SegmentName(at * step), 100, frozenset()),
            SegmentMetadata(max(end, at * step + 1), ((0, 0),), None, None, None, 1),
        )
        for at in range(count)
    ]
    recorded = [(at * 10 + 2, at * 10 + 3) for at in range(gaps)]
    whole = max(end, count * step, 1)
    plan = unite(copies, EpochHistory(((0, 0),)), 0, whole, recorded)
    if plan[0].start != 0 or plan[-1].end != whole:
        raise Mismatch("a plan of another range")
    list(with_spares([part for part in plan if isinstance(part, ReadRange)], copies, EpochHistory(((0, 0),))))


def _epochs(_store: ObjectStore, _root: Path, numbers: list[int]) -> None:
    pairs = [[1 + at, 1_000_000 + at] for at in range(max(1, min(numbers[0], _MOST_EPOCHS)))]
    fields = {"next": 1 << 40, "epoch": len(pairs), "epochs": pairs, "broker": 1, "time": 1, "nonce": "x"}
    commit = decode_commit(b"0" * 20 + b"\n" + json.dumps(fields).encode(), "k")
    if not isinstance(commit, Commit):
        raise Mismatch("a foreign commit")
    of_segment = [(0, at) for at in range(min(numbers[1], _MOST_EPOCHS_OF_SEGMENT))]
    commit.epochs.live_end(of_segment, 0, 1 << 40)


_KINDS: Mapping[str, Callable[[ObjectStore, Path, list[int]], None]] = {
    "small": _small,
    "transactions": _transactions,
    "plan": _plan,
    "epochs": _epochs,
}


def _make(store: ObjectStore, root: Path, key: str, begins: bytes, size: int) -> None:
    """An object of so many bytes, with zeros behind its beginning."""
    store.put(key, begins)
    with (root / key).open("r+b") as file:
        file.truncate(size)
