"""A store that keeps what is overwritten and deleted, as a bucket with versions does."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from tests.made_archive import MadeArchive
from tests.matrix import cases
from ts_common.errors import ObjectNotFound
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

VERSIONED = Protection(versioned=True, locks=False, default_retention=None)
# For tests that `make test` runs with a directory, and `make test-full` also in a bucket with versions.
PLACES = cases(["directory", "server"], quick=["directory"])

_IDS = count()  # of versions


def keeping_archive(path: Path) -> MadeArchive:
    """Return an empty archive in a directory that keeps what is deleted."""
    made = MadeArchive(path)
    made.store = Keeping(made.store)
    return made


def copied(original: MadeArchive, path: Path) -> MadeArchive:
    """Return a copy of such an archive, with what it has kept."""
    made = keeping_archive(path)
    assert isinstance(original.store, Keeping)
    assert isinstance(made.store, Keeping)
    for listed in original.store.list():
        body, info = original.store.get(listed.key)
        made.store.put(listed.key, body, metadata=dict(info.metadata))
    made.store.kept = {key: [*versions] for key, versions in original.store.kept.items()}
    return made


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

    def _keep(self, key: str) -> None:
        with suppress(ObjectNotFound):
            data, info = self._inner.get(key)
            info = replace(info, metadata=dict(self._inner.head(key).metadata))
            version = ObjectVersion(info, f"v{next(_IDS)}", is_latest=False, is_delete_marker=False)
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
        if version.is_latest:
            with self._inner.open(version.info.key, byte_range) as current:
                yield current
            return
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
