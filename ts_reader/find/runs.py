"""Runs of an index: their names and their stored form, plain Parquet.

A run of a topic's incarnation has the objects of `objects.parquet`, and of their keys one file for each beginning of
their hash: `<xx>.parquet` has the places (`HashedKey.place`) that begin with the byte `xx`, ascending.

====================  ==================================================================================
`objects.parquet`     `directory`, `stem`, `size`, `etag`: the `.log`; `base`, `end`: its coverage; `parts`: of its
                      offsets that the files name, 0 if they lack it; `murmur2`, `crc32`, `fnv1a`: `Certificate`
`<xx>.parquet`        `h`: place; `s`: number of the row of `objects.parquet`; `p`: part, -1 for all
====================  ==================================================================================

`objects.parquet` is put last, where none exists, so a listing with it shows a whole run. Its metadata has the ETag of
each file: another file of that name is not used.
"""

import io
import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ts_common.archive.commit import MAX_ERASED
from ts_common.archive.small_objects import checked, get_small
from ts_common.errors import CorruptData
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, whole_number
from ts_common.store.contract import ByteRange, IfAbsent, ObjectStore
from ts_reader.decode.hashed_key import PLACE_BITS
from ts_reader.decode.kernel_source import Int64s
from ts_reader.find.rules import PARTS, WHOLE, Certificate, Entry, Identity
from ts_reader.reading.parallel import in_threads

OBJECTS_NAME: Final = "objects.parquet"
_SUFFIX: Final = ".parquet"
_FILE_BITS: Final = PLACE_BITS - 8
FILES: Final = tuple(f"{number:02x}" for number in range(1 << 8))
_GROUP_ROWS: Final = 1 << 16
_PAIRS_OF_VALUE: Final = 24  # a value of a dictionary has four bytes, and deltas need a sixth of a byte more a pair
_AT_ONCE_GROUPS: Final = 8
_BYTES_OF_FOOTER: Final = 1 << 9  # of a file, for each byte of its footer: at least 2.5 of a row, and 250 of a group
# Any identity that may write there can store more.
_MOST_OBJECTS_BYTES: Final = 256 << 20
_MOST_ABOUT_BYTES: Final = 1 << 20  # 256 files of 60 bytes each, and names of runs
_MOST_COMMITS_BYTES: Final = _MOST_ABOUT_BYTES // 4  # as text, which JSON and Base64 lengthen
_MOST_OBJECTS: Final = 4_000_000
_LEAST_ROW_BYTES: Final = 4  # of `objects.parquet`, compressed: each object has a name and an ETag of its own
_MOST_GROUP_ROWS: Final = 1 << 20
_MOST_GROUP_BYTES: Final = 64 << 20
_WHOLE_BYTES: Final = 2 << 20  # a smaller file is read in one request: a second one would need as long
_ARROW_END_BYTES: Final = 64 << 10  # that Arrow reads of a file's end first
_ABOUT: Final = b"ts-find"
NO_COMMITS: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = re.compile(r"([0-9]{4}(?:[0-9]{2}){0,2})-[0-9a-f]{8}")
_NO_LISTS: Final[Mapping[str, int]] = {}
_NUMBERS: Final = ("size", "base", "end", "parts", "murmur2", "crc32", "fnv1a")
_PAIR: Final = ("h", "s", "p")
_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.string(), False) for name in ("directory", "stem", "etag")]
    + [pa.field(name, pa.int64(), False) for name in _NUMBERS]
)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Places of keys in objects: arrays of the same length.

    Attributes:
        place: int64, as `HashedKey.place`.
        row: int64, the number of the object in its run.
        part: int64, as of `Entry.window`.
    """

    place: Int64s
    row: Int64s
    part: Int64s

    def __len__(self) -> int:
        return len(self.place)

    def where(self, chosen: Any) -> "Pairs":
        """Return those that a mask or an order of numpy chooses."""
        return Pairs(self.place[chosen], self.row[chosen], self.part[chosen])


def joined(pairs: Iterable[Pairs]) -> Pairs:
    """Return all pairs, ascending by place."""
    found = list(pairs)
    empty = np.empty(0, np.int64)
    columns = (np.concatenate([empty, *(getattr(each, name) for each in found)]) for name in ("place", "row", "part"))
    whole = Pairs(*columns)
    return whole.where(np.lexsort((whole.row, whole.place)))


@dataclass(frozen=True, slots=True)
class Run:
    """A run of an index.

    Attributes:
        prefix: of its keys, with the name and a slash.
        entries: what it has of each object.
        files: its files by the two digits, each with its size and its ETag.
        replaces: names of the runs that were merged into it.
        erased: by directory, the number of the list of erased offsets that all its entries obey.
        commits: of some partitions of its objects, by directory: the content of a commit that was read before the run
            was finished.
        modified: when it was finished, seconds since the epoch by the store's clock.
    """

    name: str
    prefix: str
    entries: Mapping[Identity, Entry]
    files: Mapping[str, tuple[int, str]]
    replaces: tuple[str, ...] = ()
    erased: Mapping[str, int] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict, compare=False)
    modified: float = field(default=0.0, compare=False)

    def is_later_than(self, modified: int | None) -> bool:
        """Return whether it was finished after an object was put, in ms since the epoch; not if that is unknown."""
        return modified is not None and modified < self.modified * 1000


def new_name(period: str) -> str:
    """Return a new name of a run of a day, month or year, as in 20261130."""
    return f"{period}-{secrets.token_hex(4)}"


def period_of(name: str) -> str | None:
    """Return the year, month or day of a run, as in 20261130, by its name; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


def file_of(place: int) -> str:
    """Return the two digits of the file that has a place."""
    return FILES[place >> _FILE_BITS]


def key_of_file(run: Run, digits: str) -> str:
    """Return the key of a file of a run."""
    return f"{run.prefix}{digits}{_SUFFIX}"


def read_run(store: ObjectStore, prefix: str, name: str) -> Run:
    """Return a run of an index.

    Args:
        prefix: of the keys of the index.

    Raises:
        ObjectNotFound: it has no `objects.parquet`: it is not finished, or was removed.
        CorruptData, NewerFormat: it cannot be read.
        ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    key = f"{prefix}{name}/{OBJECTS_NAME}"
    data, info = get_small(store, key, _MOST_OBJECTS_BYTES)
    with _parsing(key):
        stored = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        if stored.metadata.num_rows > min(_MOST_OBJECTS, len(data) // _LEAST_ROW_BYTES):
            raise ValueError(f"{stored.metadata.num_rows} objects")
        about = parse_fields(stored.schema_arrow.metadata[_ABOUT], key, "the metadata of a run", _MOST_ABOUT_BYTES)
        columns = stored.read().select(_SCHEMA.names).cast(_SCHEMA).to_pydict()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        identities = [(row["directory"], row["stem"], row["size"], row["etag"]) for row in rows]
        entries = {each: _entry(number, row) for number, (each, row) in enumerate(zip(identities, rows, strict=True))}
        files = {str(each): (int(size), str(etag)) for each, (size, etag) in about["files"].items()}
        if len(entries) < len(rows):
            raise ValueError("an object is there twice")
        replaces = tuple(map(str, about["replaces"]))
        erased = {str(each): whole_number(number, 1, MAX_ERASED) for each, number in about.get("erased", {}).items()}
        commits = {str(directory): str(text) for directory, text in about.get("commits", {}).items()}
        return Run(name, f"{prefix}{name}/", entries, files, replaces, erased, commits, info.modified)


def _entry(number: int, row: Mapping[str, int]) -> Entry:
    base, end, parts = row["base"], row["end"], row["parts"]
    certificate = Certificate(row["murmur2"], row["crc32"], row["fnv1a"])
    if not (0 <= base < end and parts in (0, PARTS) and min(row[name] for name in _NUMBERS[-3:]) >= 0):
        raise ValueError(f"an entry {dict(row)}")
    return Entry(number, base, end, parts, certificate)


def put_file(store: ObjectStore, prefix: str, digits: str, pairs: Pairs) -> tuple[int, str]:
    """Put a file of a run where none exists; return its size and its ETag.

    Args:
        pairs: those with these digits, ascending by place.

    Raises:
        PreconditionFailed, OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    columns = dict(zip(_PAIR, (pairs.place, pairs.row.astype(np.int32), pairs.part.astype(np.int16)), strict=True))
    distinct = {"s": int(pairs.row.max(initial=0)) + 1, "p": PARTS + 1}
    dictionaries = [name for name, count in distinct.items() if count * _PAIRS_OF_VALUE < min(len(pairs), _GROUP_ROWS)]
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(columns),
        buffer,
        row_group_size=_GROUP_ROWS,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _PAIR if name not in dictionaries},
        use_dictionary=dictionaries,
        write_statistics=["h"],
        store_schema=False,
        compression="none",
        write_page_checksum=True,
    )
    data = buffer.getvalue()
    return len(data), store.put(f"{prefix}{digits}{_SUFFIX}", data, condition=IfAbsent()).etag


def put_files(store: ObjectStore, prefix: str, pairs: Pairs) -> dict[str, tuple[int, str]]:
    """Put the files of a run where none exist; return what `Run.files` has; raise as `put_file`."""
    bounds = np.searchsorted(pairs.place, np.arange((1 << 8) + 1, dtype=np.int64) << _FILE_BITS)
    chosen = [(digits, slice(bounds[at], bounds[at + 1])) for at, digits in enumerate(FILES)]
    wanted = [(digits, pairs.where(rows)) for digits, rows in chosen if rows.start < rows.stop]
    found = in_threads(lambda each: put_file(store, prefix, *each), wanted)
    return {digits: file for (digits, _), file in zip(wanted, found, strict=True)}


def put_objects(
    store: ObjectStore,
    prefix: str,
    entries: Collection[tuple[Identity, Entry]],
    files: Mapping[str, tuple[int, str]],
    replaces: Sequence[str] = (),
    erased: Mapping[str, int] = _NO_LISTS,
    commits: Mapping[str, str] = NO_COMMITS,
) -> None:
    """Finish a run whose files are put: put its `objects.parquet` where none exists.

    Args:
        entries: in the order of their rows.
        replaces: as of `Run`.
        erased: the same.
        commits: as of `Run`; those of other partitions, and those for which there is no room, are left out.

    Raises:
        CorruptData: it would be larger than readers accept.
        PreconditionFailed, OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    kept, room = dict[str, str](), _MOST_COMMITS_BYTES
    for directory in sorted(commits.keys() & {identity[0] for identity, _ in entries}):
        if (room := room - len(commits[directory])) > 0:
            kept[directory] = commits[directory]
    rows = [
        {
            **dict(zip(("directory", "stem", "size", "etag"), identity, strict=True)),
            "base": entry.base,
            "end": entry.end,
            "parts": entry.parts,
            **{name: getattr(entry.certificate, name) for name in _NUMBERS[-3:]},
        }
        for identity, entry in entries
    ]
    about: dict[str, object] = {"version": VERSION, "files": files, "replaces": [*replaces], "commits": kept}
    about |= {"erased": {**erased}} if erased else {}
    schema = _SCHEMA.with_metadata({_ABOUT: json.dumps(about).encode()})
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), buffer, write_page_checksum=True)
    key = f"{prefix}{OBJECTS_NAME}"
    store.put(key, checked(buffer.getvalue(), key, _MOST_OBJECTS_BYTES), condition=IfAbsent())


def read_pairs(store: ObjectStore, run: Run, digits: str, places: Collection[int] | None = None) -> Pairs:
    """Return the pairs of a run's file.

    Args:
        digits: of the file; a run without the file has no key there.
        places: the wanted ones; None for all.

    Raises:
        ObjectNotFound: the file was removed.
        CorruptData: it cannot be read, or is another file.
        ObjectFrozen, StoreUnavailable, AccessDenied, BucketMissing: from the store.
    """
    if digits not in run.files:
        return joined(())
    key, (size, etag) = key_of_file(run, digits), run.files[digits]
    source = _Stored(store, key, size, etag)
    wanted = None if places is None else np.array(sorted(places), np.int64)
    found = []
    with _parsing(key):
        stored = pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True)
        if stored.schema_arrow.names != [*_PAIR] or not all(map(pa.types.is_integer, stored.schema_arrow.types)):
            raise ValueError(f"it has the columns {stored.schema_arrow.names}")
        for numbers in _consecutive(_groups(stored.metadata, wanted)):
            table = stored.read_row_groups(numbers)
            if any(table[name].null_count for name in _PAIR):
                raise ValueError("a null")
            pairs = Pairs(*(table[name].to_numpy().astype(np.int64) for name in _PAIR))
            found.append(pairs if wanted is None else pairs.where(np.isin(pairs.place, wanted)))
        pairs = joined(found)
        if len(pairs) and not (
            pairs.row.min() >= 0
            and pairs.row.max() < len(run.entries)
            and pairs.part.min() >= WHOLE
            and pairs.part.max() < PARTS
        ):
            raise ValueError("it names an object or a part that the run does not have")
        return pairs


def _groups(metadata: pq.FileMetaData, wanted: Int64s | None) -> Iterator[int]:
    """Yield the numbers of the groups of rows that can have wanted places; of all groups for None."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows > _MOST_GROUP_ROWS or group.total_byte_size > _MOST_GROUP_BYTES:
            raise ValueError(f"a group of {group.num_rows} rows")
        statistics = group.column(0).statistics
        if wanted is not None and statistics is not None and statistics.has_min_max:
            first = int(np.searchsorted(wanted, statistics.min))
            if first == len(wanted) or wanted[first] > statistics.max:
                continue
        yield number


def _consecutive(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield numbers that follow each other as one list, up to a few: Arrow reads them by one request."""
    found: list[int] = []
    for number in numbers:
        if found and (number != found[-1] + 1 or len(found) == _AT_ONCE_GROUPS):
            yield found
            found = []
        found.append(number)
    if found:
        yield found


class _Stored(io.RawIOBase):
    """A file of a run as a file of Python, read by ranges; a small file, and the end of a large one, at once.

    Raises:
        CorruptData: from a read: it has another ETag, or fewer bytes.
    """

    def __init__(self, store: ObjectStore, key: str, size: int, etag: str) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._etag = etag
        self._at = 0
        # The footer has about 300 bytes for each group.
        self._end_at = 0 if size <= _WHOLE_BYTES else size - _ARROW_END_BYTES - size // _BYTES_OF_FOOTER
        self._end: bytes | None = None  # from there on, once it is read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """Return the number of bytes."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        begin, self._at = self._at, end
        if begin < self._end_at:
            return self._get(begin, end)
        if self._end is None:
            self._end = self._get(self._end_at, self._size)
        return self._end[begin - self._end_at : end - self._end_at]

    def _get(self, begin: int, end: int) -> bytes:
        data, info = self._store.get(self._key, ByteRange(begin, end))
        if info.etag != self._etag or len(data) != end - begin:
            raise CorruptData(f"{self._key}: ETag {info.etag}; its run has {self._etag}")
        return data


@contextmanager
def _parsing(key: str) -> Iterator[None]:
    """Raise `CorruptData` for each error of Arrow and of a value."""
    try:
        with decoding(key, "a file of an index of keys"):
            yield
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(f"{key}: not a file of an index of keys: {error}") from error
