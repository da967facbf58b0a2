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
of the rows, 0 by default. Of text, `runs` has all of them in their order: for consecutive ones how far the first is
behind the end of those before, and their number.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ts_common.json_objects import (
    MAX_INT32,
    MAX_INT64,
    decoding,
    optional_number,
    pair,
    parse_fields,
    rows,
    text,
    whole_number,
)
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import Runs
from ts_tables.planning.work import Covered

OWN: Final = "_ts/"  # of the table's own objects; files of rows are elsewhere
MOST_BYTES: Final = 128 << 20  # of an entry, and of the list of files
_REMEMBERED: Final = 100  # entries after which a removed file is no longer deleted again
_MOST_CRC: Final = (1 << 32) - 1
_LONGEST: Final = 4096
_STAGED: Final = re.compile(r"_ts/[0-9a-z]+/staging/[^/]+/[^/]+")
_GENERATION: Final = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file of a table.

    Attributes:
        path: relative to the table's location.
        size: bytes.
        crc32c: of the bytes.
        rows: their number.
        key: partition key of the rows.
        covers: offsets that contain those of the rows.
        since: when it was first held, in seconds since 1970; 0 of other files.
        staged: the path of its bytes before it is shown; empty of other files.
        first: the least offset of its rows.
        runs: the offsets of its records in their order, where they are not in the file; else empty.
    """

    path: str
    size: int
    crc32c: int
    rows: int
    key: tuple[Any, ...]
    covers: tuple[Covered, ...]
    since: int = 0
    staged: str = ""
    first: int = 0
    runs: Runs = ()

    @property
    def source(self) -> tuple[TopicPartition, str | None]:
        """The partition and the topic id of its first row."""
        return self.covers[0].partition, self.covers[0].topic_id

    def fields(self) -> dict[str, Any]:
        """Return JSON values."""
        found: dict[str, Any] = {
            "path": self.path,
            "size": self.size,
            "crc32c": self.crc32c,
            "rows": self.rows,
            "key": list(self.key),
            "covers": [
                [each.partition.topic, each.topic_id, each.partition.partition, each.start, each.end]
                for each in self.covers
            ],
        }
        if self.since:
            found["since"] = self.since
        if self.staged:
            found["staged"] = self.staged
        if self.first:
            found["first"] = self.first
        if self.runs:
            found["runs"] = _deltas(self.runs)
        return found


@dataclass(frozen=True, slots=True)
class LedgerEntry:
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

    number: int
    plan: str
    state: TableState
    shown: tuple[PlainFile, ...]
    held: tuple[PlainFile, ...]
    removed: tuple[str, ...]
    valid_through: int | None = None
    late: int = 0

    def encode(self) -> bytes:
        """Return the JSON text."""
        fields = {
            "version": 1,
            "number": self.number,
            "plan": self.plan,
            "valid_through": self.valid_through,
            "late": self.late,
            "state": self.state.fields(),
            "shown": [each.fields() for each in self.shown],
            "held": [each.fields() for each in self.held],
            "removed": list(self.removed),
        }
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Contents:
    """A table after its last complete entry.

    Attributes:
        generation: names its ledger and staging: a table that is created again has another one.
        number: of the entry; 0 without any.
        layout: format, compression, partition key and sort order, as JSON values.
        state: of the table.
        files: shown.
        held: claimed, and not shown yet.
        valid_through: of the last entry with rows.
        removed: files that former entries removed, each with the number of the entry. A copy that the store completes
            late can bring one back, so they are deleted again.
        is_dropped: whether the table was dropped; then nothing else counts.
    """

    generation: str
    number: int
    layout: Mapping[str, Any]
    state: TableState
    files: tuple[PlainFile, ...] = ()
    held: tuple[PlainFile, ...] = ()
    valid_through: int | None = None
    removed: tuple[tuple[str, int], ...] = ()
    is_dropped: bool = False

    def after(self, entry: LedgerEntry) -> "Contents":
        """Return the table after the next entry."""
        removed = {*entry.removed}
        files = [each for each in self.files if each.path not in removed]
        files += [replace(each, staged="", since=0) for each in entry.shown]
        valid_through = self.valid_through if entry.valid_through is None else entry.valid_through
        gone = [(path, number) for path, number in self.removed if entry.number - number < _REMEMBERED]
        gone += [(each.path, entry.number) for each in self.files if each.path in removed]
        return Contents(
            self.generation,
            entry.number,
            self.layout,
            entry.state,
            tuple(files),
            entry.held,
            valid_through,
            tuple(gone),
        )

    def dropped(self) -> "Contents":
        """Return what is left of a table that was dropped."""
        state = TableState(self.state.cluster, self.state.read_committed)
        return Contents(self.generation, self.number, self.layout, state, is_dropped=True)

    def encode(self) -> bytes:
        """Return the JSON text."""
        fields = {
            "version": 1,
            "generation": self.generation,
            "number": self.number,
            "layout": dict(self.layout),
            "valid_through": self.valid_through,
            "state": self.state.fields(),
            "files": [each.fields() for each in self.files],
            "held": [each.fields() for each in self.held],
            "removed": [list(each) for each in self.removed],
            "dropped": self.is_dropped,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_contents(data: bytes, what: str) -> Contents:
    """Return the contents of a table.

    Args:
        data: as `Contents.encode` returns it.
        what: names its place, for errors.

    Raises:
        NewerFormat: a later release wrote it.
        CorruptData: it is something else.
    """
    expected = "the list of a table's files"
    fields = parse_fields(data, what, expected, MOST_BYTES)
    with decoding(what, expected, data):
        generation = text(fields["generation"], 64)
        if not _GENERATION.fullmatch(generation):
            raise ValueError(f"generation {generation!r}")
        return Contents(
            generation=generation,
            number=whole_number(fields["number"]),
            layout=dict(fields["layout"]),
            state=_state(fields, what),
            files=_files(fields["files"], _shown_path),
            held=_files(fields["held"], _staged_path),
            valid_through=optional_number(fields["valid_through"], -(1 << 63)),
            removed=tuple(
                (_shown_path(path), whole_number(number)) for path, number in map(pair, rows(fields["removed"]))
            ),
            is_dropped=bool(fields["dropped"]),
        )


def decode_entry(data: bytes, what: str) -> LedgerEntry:
    """Return an entry; raise as `decode_contents`.

    Args:
        data: as `LedgerEntry.encode` returns it.
        what: names its place, for errors.
    """
    expected = "an entry of a table's ledger"
    fields = parse_fields(data, what, expected, MOST_BYTES)
    with decoding(what, expected, data):
        return LedgerEntry(
            number=whole_number(fields["number"], 1),
            plan=text(fields["plan"], 64),
            state=_state(fields, what),
            shown=_files(fields["shown"], _shown_path),
            held=_files(fields["held"], _staged_path),
            removed=tuple(_shown_path(each) for each in rows(fields["removed"])),
            valid_through=optional_number(fields["valid_through"], -(1 << 63)),
            late=whole_number(fields["late"]),
        )


def _state(fields: Mapping[str, Any], what: str) -> TableState:
    return TableState.decode(json.dumps(fields["state"]).encode(), what)


def _files(value: object, path_of: Callable[[object], str]) -> tuple[PlainFile, ...]:
    return tuple(_file(each, path_of) for each in rows(value))


def _file(fields: Any, path_of: Callable[[object], str]) -> PlainFile:
    if not rows(fields["covers"]):
        raise ValueError("a file covers no offsets")
    return PlainFile(
        path=path_of(fields["path"]),
        size=whole_number(fields["size"]),
        crc32c=whole_number(fields["crc32c"], 0, _MOST_CRC),
        rows=whole_number(fields["rows"]),
        key=tuple(_key_value(each) for each in rows(fields["key"])),
        covers=tuple(_covered(*rows(each)) for each in rows(fields["covers"])),
        since=whole_number(fields.get("since", 0)),
        staged=_staged_path(fields["staged"]) if "staged" in fields else "",
        first=whole_number(fields.get("first", 0)),
        runs=_runs(rows(fields.get("runs", []))),
    )


def _deltas(runs: Runs) -> list[int]:
    found, position = [], 0
    for first, count in runs:
        found += [first - position, count]
        position = first + count
    return found


def _runs(numbers: Sequence[object]) -> Runs:
    found, position = [], 0
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
    return value if value is None or isinstance(value, str) else whole_number(value, -(1 << 63))


def _covered(topic: object, topic_id: object, partition: object, start: object, end: object) -> Covered:
    low = whole_number(start)
    return Covered(
        TopicPartition(text(topic), whole_number(partition, 0, MAX_INT32)),
        None if topic_id is None else text(topic_id),
        low,
        whole_number(end, low),
    )


def file_of(described: Mapping[str, Any]) -> PlainFile:
    """Return a file that a task described, perhaps after JSON."""
    return _file(described, _staged_path)


def total(files: Sequence[PlainFile]) -> int:
    """Return the bytes of files."""
    return sum(each.size for each in files)
