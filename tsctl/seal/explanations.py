"""Why a sealed object is missing: retention deleted it, or an erasure replaced it. Otherwise no leaf explains it.

Explanations are read from what only the collector and the eraser may write: reports of runs of `tsctl gc`, the copy of
`log.start`, and the evidence of runs of `tsctl erase`, also of a chain: X replaced by R, R by E, and both removed. The
metadata of an object explains nothing: agents can write any `ts-replaces` and `ts-erased`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from ts_common.archive.catalog import read_log_start
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.store.contract import ObjectStore
from tsctl.erase.evidence import read_replaced
from tsctl.gc.objects import Outcome
from tsctl.gc.report import SUFFIX, list_reports, read_report
from tsctl.seal.leaves import Leaf, LeafKind

_BEFORE_SECONDS: Final = 2 * 86_400.0  # a run of retention can be longer than the time between two seals


class Explanations:
    """Explanations of what is missing in one store.

    Args:
        since: when the last seal was made, seconds since the epoch; older reports are not read.
    """

    def __init__(self, store: ObjectStore, keys: ClusterKeys, since: float) -> None:
        self._store = store
        self._keys = keys
        self._since = since - _BEFORE_SECONDS

    def of(self, leaf: Leaf) -> Leaf | None:
        """Return a leaf that explains why the object of an earlier leaf is missing; None without an explanation.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        prefix, name = _split(leaf)
        by = self._last_of_chain(leaf.key)
        if by is not None:
            return Leaf(kind=LeafKind.REPLACED, key=leaf.key, version=leaf.version, by=by)
        directory = prefix.rstrip("/").rpartition("/")[2]
        by = self._removed.get((directory, name)) or self._below_floor(directory, leaf)
        return None if by is None else Leaf(kind=LeafKind.RETIRED, key=leaf.key, version=leaf.version, by=by)

    def _last_of_chain(self, key: str) -> str | None:
        """Return the key of the object that has the other records of one that runs replaced; None without evidence."""
        seen = {key}
        while (by := self._replaced.get(key)) is not None and by not in seen:
            key = by
            seen.add(key)
        return key if len(seen) > 1 else None

    @cached_property
    def _replaced(self) -> Mapping[str, str]:
        """The object in place of each that a run of the eraser rewrote or removed, by its key."""
        try:
            return dict(read_replaced(self._store, self._keys))
        except (CorruptData, NewerFormat):
            return {}  # `tsctl erase status` reports it, and this run what it leaves open

    @cached_property
    def _removed(self) -> Mapping[tuple[str, str], str]:
        """The runs that removed objects, by directory and name."""
        found = {}
        for info in list_reports(self._store, self._keys):
            run = info.key.removeprefix(self._keys.gc).removesuffix(SUFFIX)
            try:
                for line in read_report(self._store, self._keys, run) if info.modified >= self._since else ():
                    for name, _size, _etag, outcome in line.get("objects", ()):
                        if outcome == Outcome.REMOVED:
                            found[str(line["partition"]), str(name)] = run
            except (CorruptData, NewerFormat, ValueError, TypeError, KeyError):
                continue  # the floor can explain the same
        return found

    def _below_floor(self, directory: str, leaf: Leaf) -> str | None:
        """Return the floor of the partition's copy of `log.start`, if retention has deleted below the leaf's end."""
        if leaf.end is None:
            return None
        try:
            copy = read_log_start(self._store, self._keys.log_start_copies + directory)
        except (CorruptData, NewerFormat):
            return None
        floor = None if copy is None else copy.content.floor
        return f"floor {floor}" if floor is not None and leaf.end <= floor else None


def _split(leaf: Leaf) -> tuple[str, str]:
    """Return the directory of a leaf's partition, with its slash, and the name below it."""
    parts = leaf.key.split("/")
    below = 2 if leaf.kind is LeafKind.GAP else 1
    return "/".join(parts[:-below]) + "/", "/".join(parts[-below:])
