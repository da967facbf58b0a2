"""Files in staging: bytes before names. A task writes a file to a local one first, because a put needs the size."""

from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, Final, cast
from uuid import uuid4

from awscrt.checksums import crc32c

from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_common.store.options import Connection
from ts_common.store.retry import OPERATION_POLICY, OWN_OBJECT_POLICY
from ts_common.store.shared_stores import shared_store
from ts_tables.files.layout import WrittenFile
from ts_tables.files.partitioning import Key
from ts_tables.plain.entries import PlainFile
from ts_tables.planning.work import Covered
from ts_tables.targets import HeadMoved

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Place:
    """The location of a table. It can be pickled.

    Attributes:
        location: URL of the store.
    """

    location: str
    connection: Connection


@dataclass(frozen=True)
class StagedFiles:
    """Opens and describes the files of one task. It can be pickled.

    Names have no suffix: a pattern such as `**/*.parquet` does not find them.

    Attributes:
        prefix: of the plan's staging.
        covered: offsets that contain those of the rows.
        written: path and CRC-32C of each file, by the path that it was opened under.
    """

    place: Place
    prefix: str
    number: int
    covered: tuple[Covered, ...]
    written: dict[str, tuple[str, int]] = field(default_factory=dict)

    def open(self, _key: Key, /) -> tuple[str, BinaryIO]:
        """Return the path of a new file, and a stream that puts it into the store when it is closed."""
        path = f"{self.prefix}{self.number:05d}-{uuid4().hex}"
        return path, cast("BinaryIO", _StagedFile(self, path))

    def describe(self, written: WrittenFile, /) -> dict[str, Any]:
        """Return JSON values of a `PlainFile`, whose path is that in staging."""
        path, crc = self.written[written.path]
        return PlainFile(
            path,
            written.size,
            crc,
            written.rows,
            written.key,
            self.covered,
            first=written.first,
            runs=written.runs,
        ).fields()


@dataclass(frozen=True)
class StoredFile:
    """Opens a file of a table for reading: a local copy, because Parquet is read from its end. It can be pickled.

    Attributes:
        crc32c: of its bytes; None to read it as it is.
    """

    place: Place
    path: str
    crc32c: int | None

    def __call__(self) -> BinaryIO:
        """Return a stream of the file; raise what the store raises.

        Raises:
            CorruptData: it has other bytes than those that were written.
            HeadMoved: it no longer exists.
        """
        file: IO[bytes] = OPERATION_POLICY(self._copied)
        return cast("BinaryIO", file)

    def _copied(self) -> IO[bytes]:
        store = shared_store(self.place.location, self.place.connection)
        file = TemporaryFile()  # noqa: SIM115  (the caller closes it)
        try:
            found = 0
            try:
                with store.open(self.path) as stream:
                    while piece := stream.read(_BLOCK):
                        found = crc32c(piece, found)
                        file.write(piece)
            except ObjectNotFound as error:
                raise HeadMoved(
                    f"{self.place.location}/{self.path} no longer exists: another run has committed since this one was "
                    "planned; if not, `tsctl tables verify` names its rows"
                ) from error
            if self.crc32c is not None and found != self.crc32c:
                raise CorruptData(
                    f"{self.place.location}/{self.path} has other bytes than those that were written; `tsctl tables "
                    "verify` names the rows that differ"
                )
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


class _StagedFile:
    """A stream to write one file."""

    def __init__(self, files: StagedFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115  (`close` closes it)
        self._crc32c = 0
        self._attempts = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._crc32c = crc32c(view, self._crc32c)
        return self._file.write(view)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def discard(self) -> None:
        self.closed = True
        self._file.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with self._file as file:
            size = file.tell()
            store = shared_store(self._files.place.location, self._files.place.connection)
            path = OWN_OBJECT_POLICY(self._put, store, file, size)
        self._files.written[self._path] = path, self._crc32c

    def _put(self, store: ObjectStore, file: IO[bytes], size: int) -> str:
        """Put the file, and return its path.

        Each attempt has a name of its own. One without an answer can land after staging was cleaned, and a paused run
        must find no bytes then.
        """
        self._attempts += 1
        path = self._path if self._attempts == 1 else f"{self._path}{self._attempts:x}"
        store.put(path, file, size=size, crc32c=self._crc32c)
        return path
