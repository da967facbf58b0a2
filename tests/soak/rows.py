"""Reads a partition's view as offsets and ids, at any moment, without reading a segment twice."""

from dataclasses import dataclass, field

from tests.soak.load import id_of
from ts_common.archive.catalog import read_catalog
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.fetch import fetch
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import projection_of, to_arrow
from ts_reader.decode.segment_decoder import SegmentDecoder

_COLUMNS = ("offset", "value")


@dataclass(frozen=True)
class View:
    """One view.

    Attributes:
        start: first offset.
        end: the next offset.
        rows: (offset, id) in the order of readers.
        holes: offsets without a copy.
        around: the commit's epochs, and the metadata of copies that should cover the holes.
        warning: of the view.
    """

    start: int
    end: int
    rows: tuple[tuple[int, int], ...]
    holes: tuple[Hole, ...]
    around: tuple[str, ...]
    warning: str | None


@dataclass
class Reader:
    """Reads views; a `.log` never changes, so each is decoded once.

    Attributes:
        changed: keys of `.log` objects that did change.
    """

    store: ObjectStore
    keys: ClusterKeys
    changed: list[str] = field(default_factory=list)
    _decoded: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    _etags: dict[str, str] = field(default_factory=dict)

    def view(self, partition: TopicPartition) -> View:
        """Return a partition's view of this moment.

        Raises:
            TieredStorageError: as the rooms that read.
        """
        incarnations, _ = read_incarnations(self.store, self.keys, partition.topic)
        keys = self.keys.partition(partition, incarnations.newest_directory)
        view = open_view(self.store, read_catalog(self.store, keys))
        for info in self.store.list(keys.prefix):
            if info.key.endswith(".log") and self._etags.setdefault(info.key, info.etag) != info.etag:
                self.changed.append(info.key)
        rows: list[tuple[int, int]] = []
        holes = []
        for step in view.plan(view.start, view.end):
            if isinstance(step, Hole):
                holes.append(step)
                continue
            # If one copy is compacted further than the other, readers return the union.
            held = (row for copy in step.copies for row in self._rows(copy) if step.start <= row[0] < step.end)
            rows += held if len(step.copies) == 1 else sorted(set(held))
        near = (copy for copy in view.copies if any(copy.base < hole.end and hole.start < copy.end for hole in holes))
        around = tuple(f"{copy.key} {copy.metadata}" for copy in near)
        return View(
            view.start, view.end, tuple(rows), tuple(holes), (str(view.epochs), *around) if holes else (), view.warning
        )

    def _rows(self, copy: SegmentCopy) -> tuple[tuple[int, int], ...]:
        if copy.key not in self._decoded:
            rows: list[tuple[int, int]] = []
            decoder = SegmentDecoder(projection_of(_COLUMNS), size=copy.segment.size)
            for columns in decoder.decode(fetch(self.store, copy.key)):
                batch = to_arrow(columns, "", 0, _COLUMNS)
                offsets, values = (batch.column(name).to_pylist() for name in _COLUMNS)
                rows += [(offset, id_of(value)) for offset, value in zip(offsets, values, strict=True)]
            self._decoded[copy.key] = tuple(rows)
        return self._decoded[copy.key]
