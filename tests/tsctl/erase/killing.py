"""A store whose process is killed at a request, and what tests of erasures share."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import examples
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.protection import Lock
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader import Archive
from ts_reader.decode.segment_decoder import SegmentDecoder


class Killed(BaseException):
    """The process was killed."""


def only_writes() -> bool:
    """Return whether tests kill after writes alone, as in `make test`: a read leaves the store as it was."""
    return bool(examples(0, quick=1))


class KilledAt(WrappedStore):
    """Raises `Killed` at the request of a number, from 1 on, or after it, and at all later ones.

    It counts all requests, or writes.
    """

    def __init__(self, inner: ObjectStore, at: int = 0, *, after: bool = False, only_writes: bool = False) -> None:
        super().__init__(inner, threads=1)
        self.count, self._at, self._after, self._only_writes = 0, at, after, only_writes
        self._is_dead = False

    def _do(self, request: Callable[[], Any], *, writes: bool = False) -> Any:
        if self._is_dead:
            raise Killed
        if self._only_writes and not writes:
            return request()
        self.count += 1
        is_it = self._is_dead = self.count == self._at
        if is_it and not self._after:
            raise Killed
        answer = request()
        if is_it:
            raise Killed
        return answer

    def open(self, *arguments: Any, **named: Any) -> Any:
        return self._do(lambda: self._inner.open(*arguments, **named))

    def head(self, key: str) -> ObjectInfo:
        found: ObjectInfo = self._do(lambda: self._inner.head(key))
        return found

    def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
        found: ObjectInfo = self._do(lambda: self._inner.put(*arguments, **named), writes=True)
        return found

    def list(self, *arguments: Any, **named: Any) -> Any:
        return self._do(lambda: iter([*self._inner.list(*arguments, **named)]))

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        found: DeleteOutcome = self._do(lambda: self._inner.delete_matching(etags), writes=True)
        return found


def not_held() -> str | None:
    """Return that no hold names the topic."""
    return None


def not_locked(_: object) -> Mapping[str, Lock]:
    """Return that the store keeps nothing."""
    return {}


def shown(archive: MadeArchive) -> list[tuple[int, bytes]]:
    """Return offset and value of each row that readers return."""
    rows = pa.table(Archive(archive.location, CLUSTER).scan("t")).select(["offset", "value"])
    return sorted(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def logs(archive: MadeArchive) -> dict[str, bytes]:
    """Return the bytes of each `.log` of partition 0 of topic `t`, by name."""
    keys = archive.partition("t")
    listed = [info.key for info in archive.store.list(keys.prefix) if info.key.endswith(LOG_SUFFIX)]
    return {key.removeprefix(keys.prefix): archive.store.get(key)[0] for key in listed}


def values(log: bytes) -> set[bytes]:
    """Return the values of a segment's records."""
    found = set[bytes]()
    for columns in SegmentDecoder().decode([log]):
        assert columns.values is not None
        data, bounds = columns.values.data.tobytes(), columns.values.offsets.tolist()
        found |= {data[start:end] for start, end in pairwise(bounds)}
    return found
