"""The files of a table other than its metadata: data files by plan, and what `_ts/` has.

::

    <table>/data/<plan>/<number>-<random>.parquet    data files of a plan; no name is used twice
    <table>/_ts/plans/<plan>.json                    a plan that may have left files; put before its first one
    <table>/_ts/erased/<plan>.json                   files with erased rows (`ts_tables.iceberg.erased_files`)
    <table>/_ts/state-<plan>.json.zstd                a state that is too large for a summary

`remove_orphan_files` of Spark ignores paths that begin with `_`.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast
from uuid import uuid4

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE, Table

from ts_common.errors import OperatorError
from ts_common.json_objects import decoding, optional_number, parse_fields
from ts_tables.files.layout import WrittenFile
from ts_tables.files.parsed_columns import topic_column
from ts_tables.files.partitioning import Key
from ts_tables.files.raw_columns import OFFSET, PARTITION
from ts_tables.iceberg.data_files import FileDescriber

_PLANS: Final = "_ts/plans"
_ERASED: Final = "_ts/erased"
_PLAN_BYTES: Final = 4096
_PLAN: Final = re.compile(r"[0-9a-f]{16}")  # an id is a part of paths


@dataclass(frozen=True)
class PlanFiles:
    """Opens and describes the data files of one part of a plan. It can be pickled.

    Attributes:
        properties: of the table's file system.
        plan: id of the plan.
        describer: describes them.
    """

    properties: dict[str, str]
    location: str
    plan: str
    number: int
    describer: FileDescriber

    def open(self, _key: Key) -> tuple[str, BinaryIO]:
        """Return the path of a new file, and a stream to write it."""
        path = f"{self.location}/data/{self.plan}/{self.number:05d}-{uuid4().hex}.parquet"
        io = load_file_io(self.properties, self.location)
        return path, cast("BinaryIO", io.new_output(path).create(overwrite=True))

    def describe(self, written: WrittenFile) -> dict[str, Any]:
        """Return JSON values for a data file."""
        return self.describer.describe(written)


@dataclass(frozen=True)
class ExistingFile:
    """Opens a data file for reading. It can be pickled.

    Attributes:
        properties: of the table's file system.
    """

    properties: dict[str, str]
    path: str

    def __call__(self) -> BinaryIO:
        """Return a stream of the file."""
        return cast("BinaryIO", load_file_io(self.properties, self.path).new_input(self.path).open())


def files_between(table: Table, topic: str, partition: int, offsets: tuple[int, int]) -> list[DataFile]:
    """Return the data files of a table's `main` that can have records of a partition, by their statistics.

    Args:
        table: as it was loaded.
        offsets: `[from, to)`.

    Raises:
        OperatorError: a file has delete files, which this program does not apply.
    """
    compare: dict[str, Any] = {"eq": EqualTo, "from": GreaterThanOrEqual, "to": LessThan}
    wanted = And(
        compare["eq"](topic_column(schema_to_pyarrow(table.schema())), topic),
        compare["eq"](PARTITION, partition),
        compare["from"](OFFSET, offsets[0]),
        compare["to"](OFFSET, offsets[1]),
    )
    return files_of(table, wanted)


def files_of(table: Table, row_filter: BooleanExpression = ALWAYS_TRUE) -> list[DataFile]:
    """Return the data files of a table's `main` that can have rows of a filter.

    Raises:
        OperatorError: a file has delete files, which this program does not apply.
    """
    found = list(table.scan(row_filter=row_filter).plan_files())
    if deleted := next((task.file.file_path for task in found if task.delete_files), None):
        raise OperatorError(
            f"{deleted} has delete files of another program; rewrite_data_files of Spark applies them, then run again"
        )
    return [task.file for task in found]


class TableFiles:
    """The files of a table.

    Raises:
        OperatorError: the table has another file system than pyarrow's.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        if not isinstance(io, PyArrowFileIO):
            raise OperatorError(f"{location}: py-io-impl is {type(io).__name__}; PyArrowFileIO is needed to list files")
        self._io = io
        self._location = location.rstrip("/")
        scheme, netloc, self._root = io.parse_location(self._location, io.properties)
        self._file_system: FileSystem = io.fs_by_scheme(scheme, netloc)

    @classmethod
    def of(cls, table: Table) -> "TableFiles":
        """Return the files of a table."""
        return cls(table.io, table.location())

    def begin(self, plan: str, head: int | None) -> None:
        """Note a plan before its first file.

        Args:
            head: the snapshot that it begins from.
        """
        path = f"{self._location}/{_PLANS}/{plan}.json"
        with self._io.new_output(path).create(overwrite=True) as stream:
            stream.write(json.dumps({"version": 1, "head": head}).encode())

    def plans(self) -> Iterator[tuple[str, int | None]]:
        """Yield the id and the head of each noted plan.

        Raises:
            CorruptData: a note cannot be read.
        """
        for info in self._list(_PLANS):
            name = info.base_name
            if _PLAN.fullmatch(name.removesuffix(".json")) and name.endswith(".json"):
                with self._io.new_input(self._path(info)).open() as stream:
                    data = stream.read(_PLAN_BYTES)
                fields = parse_fields(data, self._path(info), "a plan", _PLAN_BYTES)
                with decoding(self._path(info), "a plan", data):
                    yield name.removesuffix(".json"), optional_number(fields["head"])

    def data_of(self, plan: str) -> list[str]:
        """Return the paths of a plan's data files."""
        return [self._path(info) for info in self._list(f"data/{plan}")]

    def metadata_of(self, plan: str) -> list[str]:
        """Return the paths of manifests and manifest lists that a plan's commits wrote."""
        prefix = f"{plan[:8]}-{plan[8:12]}-{plan[12:16]}-"  # of the UUID that the names contain
        return [self._path(info) for info in self._list("metadata") if prefix in info.base_name]

    def note_erased(self, plan: str, content: bytes) -> None:
        """Put the note of a plan about files with erased rows."""
        with self._io.new_output(f"{self._location}/{_ERASED}/{plan}.json").create(overwrite=True) as stream:
            stream.write(content)

    def erased(self, most: int) -> Iterator[tuple[str, str, bytes]]:
        """Yield plan, path and up to `most` bytes and one of each note about files with erased rows."""
        for info in self._list(_ERASED):
            plan = info.base_name.removesuffix(".json")
            if _PLAN.fullmatch(plan):
                with self._io.new_input(self._path(info)).open() as stream:
                    yield plan, self._path(info), stream.read(most + 1)

    def end_erased(self, plan: str) -> None:
        """Remove the note of a plan about files with erased rows."""
        self.remove(f"{self._location}/{_ERASED}/{plan}.json")

    def states(self) -> list[str]:
        """Return the paths of states."""
        return [self._path(info) for info in self._list("_ts") if info.base_name.startswith("state-")]

    def remove(self, path: str) -> None:
        """Remove a file of the table; one that is missing is removed.

        After the last file of a directory pyarrow puts an object for it on S3. A store may refuse that one.
        """
        try:
            self._io.delete(path)
        except FileNotFoundError:
            return
        except OSError:
            if self._io.new_input(path).exists():
                raise

    def remove_data_directory(self, plan: str) -> None:
        """Remove the directory of a plan's data files, which is empty; pyarrow puts an object for it on S3."""
        with suppress(FileNotFoundError):
            self._file_system.delete_dir(f"{self._root}/data/{plan}")

    def remove_all(self) -> None:
        """Remove everything below the table's location.

        Credentials of a catalog may not cover the location itself, which pyarrow requests first. Then each file is
        deleted by its own request.
        """
        try:
            self._file_system.delete_dir(self._root)
        except FileNotFoundError:
            return
        except OSError:
            for info in self._list("", is_deep=True):
                self.remove(self._path(info))

    def end(self, plan: str) -> None:
        """Remove the note of a plan."""
        self.remove(f"{self._location}/{_PLANS}/{plan}.json")

    def _list(self, directory: str, *, is_deep: bool = False) -> list[FileInfo]:
        selector = FileSelector(f"{self._root}/{directory}", allow_not_found=True, recursive=is_deep)
        found: list[Any] = self._file_system.get_file_info(selector)
        return [info for info in found if info.type == FileType.File]

    def _path(self, info: FileInfo) -> str:
        return f"{self._location}{info.path.removeprefix(self._root)}"
