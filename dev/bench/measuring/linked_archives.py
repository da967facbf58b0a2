"""Archives in a directory whose partitions are hard links to the files of one, and their requests as S3 has them."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from ts_common.archive.metadata_cache import CacheObject, encode_cache_object
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.sealed_objects import SealedRange, SealJson, decode_sealed, encode_sealed, parse_sealed_name
from ts_common.model import TopicPartition
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore

_PAGE: Final = 1000  # keys of a LIST


class Files:
    """Puts objects into the directory of a `FileStore` without syncing each of them, which would take an hour.

    Args:
        root: of the store.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Put one object, with the files of `ts_common.store.directory.driver`."""
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        if metadata:
            beside = path.parent / ".meta" / f"{path.name}.{path.stat().st_ino}.json"
            beside.parent.mkdir(exist_ok=True)
            beside.write_text(json.dumps(metadata))


class CountingStore(WrappedStore):
    """Counts requests as S3 has them.

    Args:
        inner: a store in a directory.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def counted(self) -> dict[str, int]:
        """Return the counts since the last call."""
        with self._lock:
            found, self._counts = dict(self._counts), Counter()
        return found

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """Count a PUT."""
        self._add("PUT")
        return super().put(key, *arguments, **named)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Count a GET."""
        self._add("GET")
        return super().open(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """Count a HEAD."""
        self._add("HEAD")
        return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Count a LIST for each page, also for an empty one."""
        self._add("LIST")
        for number, info in enumerate(super().list(prefix, start_after=start_after)):
            if number and number % _PAGE == 0:
                self._add("LIST")
            yield info

    def list_directories(self, prefix: str = "") -> Iterator[str]:
        """Count a LIST for each page."""
        self._add("LIST")
        for number, found in enumerate(super().list_directories(prefix)):
            if number and number % _PAGE == 0:
                self._add("LIST")
            yield found

    def _add(self, kind: str, count: int = 1) -> None:
        with self._lock:
            self._counts[kind] += count


def link_partitions(root: Path, cluster: str, topic: str, partitions: int) -> None:
    """Make the partitions of a topic from its partition 0.

    Their files are links, so they have the same ETags. Cache objects have the name of their partition, and are files of
    their own.
    """
    keys = ClusterKeys(cluster)
    first = keys.partition(TopicPartition(topic, 0))
    source = root / first.prefix
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    cached = {str(path.relative_to(source)) for path in (root / first.cache_objects).iterdir() if path.is_file()}
    directories = {path.parent for path in files}
    linked = [str(path) for path in files if str(path) not in cached]
    for number in range(1, partitions):
        other = keys.partition(TopicPartition(topic, number))
        for directory in directories:
            (root / other.prefix / directory).mkdir(parents=True, exist_ok=True)
        for name in linked:
            os.link(f"{source}/{name}", f"{root}/{other.prefix}{name}")
        _copy_cache_objects(root, first, other)


def _copy_cache_objects(root: Path, first: PartitionKeys, other: PartitionKeys) -> None:
    sealed: dict[str, str] = {}
    for path in (root / first.cache_objects).glob("[!.]*"):
        target = root / other.cache_objects / path.name
        if parse_sealed_name(path.name) is not None:
            found = decode_sealed(path.read_bytes(), first, path.name)
            rows = [found.row(number) for number in range(len(found))]
            sealed[path.name], data = encode_sealed(other, found.lineage, found.epochs, rows)
            target.with_name(sealed[path.name]).write_bytes(data)
        elif path.is_file() and root / first.seal_json != path:
            entries = CacheObject(path.read_bytes(), first, str(path)).entries()
            target.write_bytes(encode_cache_object(other, entries))
    if (path := root / first.seal_json).exists():
        seal = SealJson.decode(path.read_bytes(), first.seal_json)
        ranges = tuple(SealedRange(each.start, each.end, sealed[each.name]) for each in seal.sealed)
        (root / other.seal_json).write_bytes(SealJson(seal.nonce, seal.lineage, ranges, {}).encode())
