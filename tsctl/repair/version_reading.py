"""Lists and reads the earlier versions of one partition's objects, and compares them with their metadata."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from typing import Final

from awscrt.checksums import crc32c

from ts_common.archive.metadata_check import metadata_differences, named_indexes
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.segment_inspection import all_epochs
from ts_common.archive.segment_metadata import SegmentMetadata, decode_metadata
from ts_common.archive.small_objects import INDEX_BYTES, read_index
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound, OperatorError
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectStore, ObjectStream, ObjectVersion
from tsctl.repair.archive_beginning import find_beginning

_CHUNK: Final = 1 << 20


class VersionsDenied(Exception):
    """This identity may not list or read versions; the message names the permission."""


@dataclass(frozen=True, slots=True)
class Good:
    """A version whose bytes were compared with its metadata.

    Attributes:
        file: its bytes; empty in a dry run.
        fields: its metadata, as stored.
        metadata: the same, decoded.
        epochs: (leader epoch, first offset) pairs, also if they are too many for metadata; empty in a dry run then.
        indexes: the bytes of each index by suffix, if the version was rewritten; None if its own versions count.
    """

    file: FileIO
    size: int
    fields: Mapping[str, str]
    metadata: SegmentMetadata
    epochs: tuple[tuple[int, int], ...]
    indexes: Mapping[str, bytes] | None = None


class VersionReader:
    """Reads the versions that belong to the present archive of a partition.

    Every method raises `VersionsDenied` if this identity may not list or read versions, and the store's errors.

    Args:
        dry_run: whether the bytes of versions are not read.

    Attributes:
        left_out: the time before which versions were not used, seconds since the epoch; None if all could be.
    """

    def __init__(self, store: ObjectStore, keys: PartitionKeys, *, dry_run: bool) -> None:
        self.left_out: float | None = None
        self._store = store
        self._keys = keys
        self._dry_run = dry_run
        self._began: tuple[float | None] | None = None  # once it was read

    def of(self, key: str) -> list[ObjectVersion]:
        """Return the versions of one object that have bytes, the newest first."""
        return self._usable(each for each in self._list(key) if each.info.key == key and not each.is_delete_marker)

    def deleted(self) -> dict[str, list[ObjectVersion]]:
        """Return the versions of each key of the partition without an object, the newest first."""
        deleted: dict[str, list[ObjectVersion]] = {}
        living: set[str] = set()
        for version in self._list(self._keys.prefix):
            key = version.info.key
            if version.is_latest and not version.is_delete_marker:
                living.add(key)
                deleted.pop(key, None)
            elif key not in living and not version.is_delete_marker:
                deleted.setdefault(key, []).append(version)
        return {key: usable for key, versions in deleted.items() if (usable := self._usable(versions))}

    @contextmanager
    def good(self, version: ObjectVersion) -> Iterator[Good | None]:
        """Yield a version whose bytes and indexes are those of its metadata; None for any other version."""
        with ExitStack() as opened:
            try:
                # Without a buffer, all errors of a full disk are raised by `write`.
                file = opened.enter_context(tempfile.TemporaryFile(buffering=0))
            except OSError as error:
                raise _no_room(version, error) from error
            try:
                good = self._read(version, file)
            except (ObjectNotFound, ObjectFrozen, CorruptData, NewerFormat):
                good = None
            yield good

    def small(self, key: str) -> Iterator[bytes]:
        """Yield the bytes of each version of an index, the newest first, without those that cannot be read."""
        for version in self.of(key):
            if version.info.size <= INDEX_BYTES:
                with suppress(ObjectNotFound, ObjectFrozen):
                    with self._open(version) as stream:
                        data = stream.read(INDEX_BYTES)
                    yield data

    def _usable(self, versions: Iterator[ObjectVersion] | list[ObjectVersion]) -> list[ObjectVersion]:
        """Return the versions that were written since the present archive began."""
        if self._began is None:
            self._began = (find_beginning(self._list, self._keys),)
        (began,) = self._began
        found = list(versions)
        usable = [each for each in found if began is None or each.info.modified > began]
        if len(usable) < len(found):
            self.left_out = began
        return usable

    def _list(self, prefix: str) -> Iterator[ObjectVersion]:
        try:
            yield from self._store.versions(prefix) or ()
        except AccessDenied as error:
            raise VersionsDenied(str(error)) from error

    @contextmanager
    def _open(self, version: ObjectVersion) -> Iterator[ObjectStream]:
        with ExitStack() as opened:
            try:
                stream = opened.enter_context(self._store.open_version(version))
            except AccessDenied as error:
                raise VersionsDenied(str(error)) from error
            yield stream

    def _read(self, version: ObjectVersion, file: FileIO) -> Good | None:
        """Copy a version to a file and scan it; in a dry run, read its metadata only."""
        key = version.info.key
        parsed = SegmentName.parse(key.removeprefix(self._keys.prefix))
        with self._open(version) as stream:
            fields = dict(stream.info.metadata)
            metadata = decode_metadata(fields, key)
            if metadata is None or parsed is None:
                return None
            if self._dry_run:
                return Good(file, version.info.size, fields, metadata, metadata.epochs or ())
            size = 0
            while piece := stream.read(_CHUNK):
                size += len(piece)
                _write(file, piece, version)
        indexes = self._indexes(parsed[0], metadata)
        times = indexes.get(".timeindex")
        file.seek(0)
        scan = scan_segment(file, size, None if times is None else TimeIndex(parsed[0].base, times))
        if size != version.info.size or scan.crc32c != metadata.crc32c:
            return None
        if metadata_differences(scan, metadata, indexes):
            return None
        if scan.base_offset is not None and scan.base_offset < parsed[0].base:
            return None
        return Good(file, size, fields, metadata, all_epochs(metadata, scan))

    def _indexes(self, name: SegmentName, metadata: SegmentMetadata) -> dict[str, bytes]:
        """Return the indexes that a segment's metadata names, by suffix, from a version or the object.

        Readers ignore an index without the CRC-32C in the metadata, so one that no version has is left out.
        """
        found = {}
        for suffix, crc in named_indexes(metadata).items():
            data = next((each for each in self._candidates(name, suffix) if crc32c(each) == crc), None)
            if data is not None:
                found[suffix] = data
        return found

    def _candidates(self, name: SegmentName, suffix: str) -> Iterator[bytes]:
        yield from self.small(self._keys.segment(name, suffix))
        # The object can be older than the present archive.
        data = read_index(self._store, self._keys, name, suffix)
        if data is not None:
            yield data


def _write(file: FileIO, piece: bytes, version: ObjectVersion) -> None:
    rest = memoryview(piece)
    while rest:
        try:
            rest = rest[file.write(rest) :]
        except OSError as error:
            raise _no_room(version, error) from error


def _no_room(version: ObjectVersion, error: OSError) -> OperatorError:
    return OperatorError(
        f"{version.info.key}: no temporary file for the {version.info.size} bytes of an earlier version: {error}; set "
        "TMPDIR to a directory with that much free space, or add --no-versions"
    )
