"""What the ledger of a table stores, as JSON.

`_ts/files.json` is the table after its last complete entry::

    {"version":1,"generation":"5f0c...","number":7,
     "layout":{"format":"parquet","compression":"zstd","partition_by":["day(timestamp)"],"sort_by":[]},
     "valid_through":1764057600000,"state":{...},
     "files":[{"path":"timestamp_day=2026-11-25/00000007-00000-1c9f....parquet","size":123,"crc32c":7,"rows":9,
               "key":[20417],"covers":[["orders","pQ1r...",0,100,109]]}],
     "held":[{...,"path":"_ts/5f0c.../staging/6-91d0.../00000-44ab...","since":1764057600}]}

An entry, `_ts/<generation>/ledger/00000008.json`, is the next commit: the plan, the state after it, the files that are
shown (each with the path of its bytes in staging), those that are held, and the paths of files that are removed.
`covers` has offsets that contain those of the file's rows: topic, topic id, partition, from, to. `first` is the least
of the rows, 0 by default. For text, `runs` has all of them in their order: for consecutive ones how far the first is
behind the end of those before, and their number.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from ts_common.archive.stored_object import (
    Crc32c,
    FieldKind,
    PartitionNumber,
    Presence,
    StoredObject,
    between,
    kind_of,
    limited,
)
from ts_common.json_objects import MAX_INT64, MIN_INT64, rows, text, whole_number
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Runs
from ts_tables.planning.work import Covered

OWN: Final = "_ts/"  # of the table's own objects; files of rows are elsewhere
MOST_BYTES: Final = 128 << 20  # of an entry, and of the list of files
_REMEMBERED: Final = 100  # entries after which a removed file is no longer deleted again
_LONGEST: Final = 4096
_STAGED: Final = re.compile(r"_ts/[0-9a-z]+/staging/[^/]+/[^/]+")


def _deltas(runs: Runs) -> list[int]:
    found, position = [], 0
    for first, count in runs:
        found += [first - position, count]
        position = first + count
    return found


def _runs(value: object) -> Runs:
    numbers, found, position = rows(value), [], 0
    for gap, count in zip(numbers[::2], numbers[1::2], strict=True):
        first = whole_number(position + whole_number(gap, -MAX_INT64))
        position = first + whole_number(count, 1, MAX_INT64 - first)
        found.append((first, position - first))
    return tuple(found)


def _path(value: object) -> str:
    path = text(value, _LONGEST)
    if not path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError(f"{path!r} is no path of a file")
    return path


def _shown_path(value: object) -> str:
    path = _path(value)
    if path.startswith(OWN):
        raise ValueError(f"{path!r} is no path of a file of rows")
    return path


def _staged_path(value: object) -> str:
    path = _path(value)
    if not _STAGED.fullmatch(path):
        raise ValueError(f"{path!r} is not in staging")
    return path


def _key_value(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else whole_number(value, MIN_INT64)


def _covered(value: object) -> Covered:
    topic, topic_id, partition, start, end = _COVERED.decode(value)
    return Covered(TopicPartition(topic, partition), topic_id, start, whole_number(end, start))


def _encoded_covered(each: Covered) -> list[object]:
    return [each.partition.topic, each.topic_id, each.partition.partition, each.start, each.end]


_COVERED: Final = kind_of(tuple[str, str | None, PartitionNumber, int, int])
_Shown = Annotated[str, FieldKind(_shown_path)]
_ValidThrough = Annotated[int, between(MIN_INT64)]


@dataclass(frozen=True, slots=True)
class PlainFile(StoredObject):
    """A file of a table.

    Attributes:
        path: relative to the table's location.
        size: bytes.
        crc32c: of the bytes.
        key: partition key of the rows.
        covers: offsets that contain those of the rows.
        since: when it was first held, in seconds since 1970; 0 of other files.
        staged: the path of its bytes before it is shown; empty of other files.
        first: the least offset of its rows.
        runs: the offsets of its records in their order, where they are not in the file; else empty.
    """

    path: Annotated[str, FieldKind(_path)]
    size: int
    crc32c: Crc32c
    rows: int
    key: tuple[Annotated[Any, FieldKind(_key_value)], ...]
    covers: tuple[Annotated[Covered, FieldKind(_covered, _encoded_covered)], ...]
    since: Annotated[int, Presence.IF_SET] = 0
    staged: Annotated[str, FieldKind(_staged_path), Presence.IF_SET] = ""
    first: Annotated[int, Presence.IF_SET] = 0
    runs: Annotated[Runs, FieldKind(_runs, _deltas), Presence.IF_SET] = ()

    def check(self) -> None:
        """Check that it has offsets."""
        if not self.covers:
            raise ValueError("a file covers no offsets")

    @property
    def source(self) -> tuple[TopicPartition, str | None]:
        """The partition and the topic id of its first row."""
        return self.covers[0].partition, self.covers[0].topic_id


def _check_places(shown: Iterable[PlainFile], held: Iterable[PlainFile]) -> None:
    for each in shown:
        _shown_path(each.path)
    for each in held:
        _staged_path(each.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(StoredObject, expected="an entry of a table's ledger", most=MOST_BYTES, end=""):
    """One commit.

    Attributes:
        number: of it; the first is 1.
        plan: id of the plan.
        state: of the table after it.
        shown: files that get their names.
        held: all files that are held after it.
        removed: paths of files that it removes.
        valid_through: as of `ts_tables.targets.Added`.
        late: the same.
    """

    number: Annotated[int, between(1)]
    plan: Annotated[str, limited(64)]
    valid_through: Annotated[_ValidThrough | None, "valid_through"] = None
    late: int = 0
    state: TableState
    shown: tuple[PlainFile, ...]
    held: tuple[PlainFile, ...]
    removed: tuple[_Shown, ...]

    def check(self) -> None:
        """Check the paths of the files."""
        _check_places(self.shown, self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents(StoredObject, expected="the list of a table's files", most=MOST_BYTES, end=""):
    """A table after its last complete entry.

    Attributes:
        generation: names its ledger and staging: a table that is created again has another one.
        number: of the entry; 0 without any.
        layout: format, compression, partition key and sort order, as JSON values.
        files: shown.
        held: claimed, and not shown yet.
        valid_through: of the last entry with rows.
        removed: files that former entries removed, each with the number of the entry. A copy that the store completes
            late can bring one back, so they are deleted again.
        is_dropped: whether the table was dropped; then nothing else counts.
    """

    generation: Annotated[str, limited(8, "[0-9a-f]{8}")]
    number: int
    layout: Annotated[Mapping[str, Any], FieldKind(dict, dict)]
    valid_through: Annotated[_ValidThrough | None, "valid_through"] = None
    state: TableState
    files: tuple[PlainFile, ...] = ()
    held: tuple[PlainFile, ...] = ()
    removed: tuple[tuple[_Shown, int], ...] = ()
    is_dropped: Annotated[bool, "dropped"] = False

    def check(self) -> None:
        """Check the paths of the files."""
        _check_places(self.files, self.held)

    def after(self, entry: LedgerEntry) -> "Contents":
        """Return the table after the next entry."""
        removed = {*entry.removed}
        files = [each for each in self.files if each.path not in removed]
        files += [replace(each, staged="", since=0) for each in entry.shown]
        valid_through = self.valid_through if entry.valid_through is None else entry.valid_through
        gone = [(path, number) for path, number in self.removed if entry.number - number < _REMEMBERED]
        gone += [(each.path, entry.number) for each in self.files if each.path in removed]
        return replace(
            self,
            number=entry.number,
            valid_through=valid_through,
            state=entry.state,
            files=tuple(files),
            held=entry.held,
            removed=tuple(gone),
        )

    def dropped(self) -> "Contents":
        """Return what is left of a table that was dropped."""
        state = TableState(self.state.cluster, self.state.read_committed)
        return Contents(
            generation=self.generation, number=self.number, layout=self.layout, state=state, is_dropped=True
        )


def file_of(described: Mapping[str, Any]) -> PlainFile:
    """Return a file that a task described, perhaps after JSON."""
    found = PlainFile.from_fields(described)
    _staged_path(found.path)
    return found


def total(files: Sequence[PlainFile]) -> int:
    """Return the bytes of files."""
    return sum(each.size for each in files)
