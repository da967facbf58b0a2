"""The histories of `test_histories.py` in a bucket with versions: no deletion of one loses a record of other people.

Objects are lost and found again, and erasers delete earlier versions at any time. At the end no version has a record
that the list hides.
"""

import io
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.tsctl.erase.killing import logs, not_held, values
from tests.tsctl.erase.test_histories import World
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import (
    ByteRange,
    DeleteOutcome,
    ObjectInfo,
    ObjectStore,
    ObjectStream,
    ObjectVersion,
)
from ts_common.store.protection import Lock, Protection
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.erased_copies import Did, Outcome
from tsctl.erase.versions import remaining_versions, remove_versions

STEPS = 12
FOUND = 28, 181  # a ring of names; a copy of a dead tail that replaces another segment of the same name
VERSIONED = Protection(versioned=True, locks=False, default_retention=None)


@dataclass(frozen=True)
class Kept:
    """An earlier version, with its bytes."""

    version: ObjectVersion
    data: bytes


class Keeping(WrappedStore):
    """A directory that keeps what is overwritten and deleted, in memory.

    Attributes:
        kept: earlier versions by key, the newest first.
        deleting: is called with the bytes of each version before its deletion.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.kept: dict[str, list[Kept]] = {}
        self.deleting: Callable[[bytes], None] = lambda _: None
        self._ids = count()

    def _keep(self, key: str) -> None:
        with suppress(ObjectNotFound):
            data, info = self._inner.get(key)
            info = replace(info, metadata=dict(self._inner.head(key).metadata))
            version = ObjectVersion(info, f"v{next(self._ids)}", is_latest=False, is_delete_marker=False)
            self.kept.setdefault(key, []).insert(0, Kept(version, data))

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        before = len(self.kept.get(key, ()))
        self._keep(key)
        try:
            return self._inner.put(key, *arguments, **named)
        except BaseException:
            del self.kept.get(key, [])[: len(self.kept.get(key, ())) - before]
            raise

    def delete(self, keys: Iterable[str]) -> None:
        found = list(keys)
        for key in found:
            self._keep(key)
        self._inner.delete(found)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        for key, etag in etags.items():
            with suppress(ObjectNotFound):
                if self._inner.head(key).etag == etag:
                    self._keep(key)
        return self._inner.delete_matching(etags)

    def protection(self) -> Protection:
        return VERSIONED

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        current = {info.key: info for info in self._inner.list(prefix)}
        for key in sorted({*current, *(key for key in self.kept if key.startswith(prefix))}):
            info = current.get(key) or ObjectInfo(key, 0, "-", self.current_time())
            yield ObjectVersion(info, "newest", is_latest=True, is_delete_marker=key not in current)
            yield from (each.version for each in self.kept.get(key, ()))

    @contextmanager
    def _opened(self, version: ObjectVersion, byte_range: ByteRange | None) -> Iterator[Any]:
        (found,) = (each for each in self.kept[version.info.key] if each.version.id == version.id)
        start, end = (0, None) if byte_range is None else (byte_range.start, byte_range.end)
        stream = io.BytesIO(found.data[start:end])
        stream.info = found.version.info  # type: ignore[attr-defined]
        yield stream

    def open_version(
        self, version: ObjectVersion, byte_range: ByteRange | None = None
    ) -> AbstractContextManager[ObjectStream]:
        return self._opened(version, byte_range)

    def version_lock(self, version: ObjectVersion) -> Lock | None:
        return None

    def delete_version(self, version: ObjectVersion) -> None:
        (found,) = (each for each in self.kept[version.info.key] if each.version.id == version.id)
        self.deleting(found.data)
        self.kept[version.info.key].remove(found)


class VersionedWorld(World):
    """An archive in a bucket with versions; each deletion of one is checked."""

    @property
    def bucket(self) -> Keeping:
        """The store."""
        store = self.archive.store
        assert isinstance(store, Keeping)
        return store

    def hidden(self) -> set[bytes]:
        """Return the values of all records that the list hides, in whatever epoch."""
        return {b"record %d of epoch %d" % (at, epoch) for at in range(999) for epoch in self.hidden_epochs(at)}

    def stored(self) -> set[bytes]:
        """Return the values of records in current objects that can be read."""
        found = set[bytes]()
        for log in logs(self.archive).values():
            with suppress(CorruptData):
                found |= values(log)
        return found

    def purge(self) -> list[Outcome]:
        """An eraser deletes versions: each other record of them is in a current object."""

        def deleting(data: bytes) -> None:
            with suppress(CorruptData):  # no repair uses a damaged one
                assert values(data) - self.hidden() <= self.stored()

        self.bucket.deleting = deleting
        keys = self.archive.partition("t")
        return [*remove_versions(self.bucket, keys, protection=VERSIONED, grace=-1, held=not_held)]

    def lose(self) -> None:
        """Objects are lost while an eraser runs, and are put back."""
        store, keys = self.bucket, self.archive.partition("t")
        names = self.chance.sample(sorted(logs(self.archive)), min(2, len(logs(self.archive))))
        lost = {keys.prefix + name: store._inner.get(keys.prefix + name) for name in names}
        metadata = {key: dict(store.head(key).metadata) for key in lost}
        store._inner.delete(lost)
        self.purge()
        for key, (data, _) in lost.items():
            store._inner.put(key, data, metadata=metadata[key])

    def end(self) -> None:
        """As before; and no version has a record of the list."""
        super().end()
        outcomes = self.purge()
        assert [each for each in outcomes if each.did is not Did.REMOVED] == []
        keys = self.archive.partition("t")
        assert [*remaining_versions(self.bucket, keys, protection=VERSIONED, grace=-1, held=not_held)] == []
        self.check("the versions are gone")
        hidden = self.hidden()
        for key, versions in self.bucket.kept.items():
            for each in versions if key.endswith(LOG_SUFFIX) else ():
                assert not hidden.intersection(values(each.data)), key

    def steps(self) -> list[Callable[[], object]]:
        """Add deletions of versions, and losses; more removals than kills."""
        return [*self.changes(), *[self.remove] * 3, self.kill, *[self.purge] * 2, *[self.lose] * 2]


def world_of(path: Path, seed: int) -> VersionedWorld:
    """Return the world of a history before its first step."""
    archive = MadeArchive(path)
    archive.store = Keeping(archive.store)
    return VersionedWorld(archive, random.Random(seed))


@pytest.mark.parametrize("seed", [0, 1, 2, *FOUND])
def test_no_deletion_of_a_version_loses_a_record(tmp_path: Path, seed: int) -> None:
    """With overlapping copies, elections, repairs, second shipping, kills and lost objects."""
    world_of(tmp_path / "bucket", seed).play(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3, 200))
def test_no_deletion_of_a_version_loses_a_record_in_many_histories(tmp_path: Path, seed: int) -> None:
    """More of the same."""
    world_of(tmp_path / "bucket", seed).play(seed)
