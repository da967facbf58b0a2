"""A partition's directory whose segments tests ship, and a store that fails between two writes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import Readable, SegmentScan, scan_segment
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.directory.driver import FileStore
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import Ship, Shipped
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.uploader import Uploader

TP = TopicPartition("t", 0)
KEYS = ClusterKeys("c").partition(TP)


class Log:
    """A partition's directory, and the uploader of its segments."""

    def __init__(self, directory: Path, store: ObjectStore) -> None:
        self.path = directory / "t-0"
        self.path.mkdir()
        self.store = store
        self.epoch = 1

    def put(self, base: int, data: bytes) -> None:
        for suffix in (".index", ".timeindex"):
            (self.path / f"{base:020d}{suffix}").touch()
        (self.path / f"{base:020d}.log").write_bytes(data)

    def epochs(self, *pairs: tuple[int, int]) -> None:
        lines = ["0", str(len(pairs)), *(f"{epoch} {start}" for epoch, start in pairs)]
        (self.path / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
        self.epoch = pairs[-1][0] if pairs else 1

    def retire(self, *bases: int) -> None:
        """Rename segments to `.deleted`, as retention does."""
        for base in bases:
            for path in list(self.path.glob(f"{base:020d}.*")):
                path.rename(path.with_name(path.name + ".deleted"))

    def task(self, base: int) -> Ship:
        listing = list_partition(TP, self.path.parent)
        assert listing is not None
        next_base = next(other for other in listing.bases if other > base)
        return Ship(TP, 0, Leadership(self.epoch, None, 0), KEYS, listing, base, next_base, seen=True)

    def ship(self, base: int) -> Shipped:
        return Uploader(lambda _: self.store, lambda _: TopicRetention()).ship(self.task(base))

    def names(self) -> list[str]:
        return [info.key.rpartition("/")[2] for info in self.store.list() if info.key.endswith(".log")]


def uploader(log: Log) -> Uploader:
    return Uploader(lambda _: log.store, lambda _: TopicRetention())


def after_reading(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Call `happens` once a segment has been read, before any check."""

    def scan(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        found = scan_segment(reader, size, timeindex)
        happens()
        return found

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", scan)


def flipped(data: bytes) -> bytes:
    """Return the data with another last byte, so that the CRC fails."""
    return data[:-1] + bytes([data[-1] ^ 1])


class Interrupted(FileStore):
    """A store that runs a callback just before an object is put.

    Attributes:
        before: by suffix of the key.
        order: the suffixes that were put, in order.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before: dict[str, Callable[[], object]] = {}
        self.order: list[str] = []

    def put(self, key: str, *arguments: object, **named: object) -> ObjectInfo:
        suffix = Path(key).suffix
        self.before.pop(suffix, lambda: None)()
        self.order.append(suffix)
        return super().put(key, *arguments, **named)  # type: ignore[arg-type]


def refuse() -> None:
    raise AccessDenied("PutObject")
