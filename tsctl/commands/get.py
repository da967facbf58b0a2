"""`tsctl get`: the segments of a range as files that Kafka's own tools read.

Each partition becomes a directory `<topic>-<partition>`. It contains the objects that readers use for the range, byte
for byte, so that their stored checksums apply: `<base offset>.log` and its indexes. No segment is cut, even if it
begins before the range, ends after it, or has a dead tail. `range.json` lists the offsets that readers return from each
file. If another segment has the base name of a variant, the variant is in a directory of its own, `e<epoch>.<crc32c>`,
under its Kafka name. The entries of a live tail are in the directory `tail`, each as a `.log` without indexes.

A directory gets its name when all its files are complete and checked. Before that it has a temporary name, and it is
removed if the command fails. Existing files are never overwritten.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from awscrt.checksums import crc32c

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.fetch import CHUNK_BYTES, fetch
from ts_common.archive.object_keys import LOG_SUFFIX, OFFSET_DIGITS, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.segment_metadata import erased_number, known_crc32c
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.errors import ConfigurationError, CorruptData, OperatorError
from ts_common.json_objects import MAX_INT64
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.log_format.scan import scan_segment
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE, ArchiveName
from ts_reader.options.given import Given
from ts_reader.options.scan_options import BOTH_EDGES, bound_of
from ts_reader.query.bounds import Bounds, Loss
from ts_reader.query.frozen import check_thawed
from ts_reader.query.plan_partition import plan_partition
from ts_reader.query.query import Edge, Query, Subscription
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    PartitionsOption,
    open_archive,
    parse_partitions,
)
from tsctl.durable_files import sync_directory
from tsctl.exit_codes import ExitCode
from tsctl.output import Advance, Output, size, umask
from tsctl.scan_options import (
    WORDING,
    FromOption,
    IncarnationOption,
    MaxBatchBytesOption,
    NoTailOption,
    ToOption,
    batch_limit,
    parse_bounds,
)

RANGE_NAME: Final = "range.json"
_TAIL: Final = Path("tail")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the command fetches of one partition.

    Attributes:
        ranges: what readers read of it.
        losses: requested offsets that no file contains.
        erased: the erased offsets of each directory that it has segments of.
        lists: the number of the list that these are of; 0 without one.
    """

    store: ObjectStore
    view: PartitionView
    bounds: Bounds
    ranges: tuple[ReadRange, ...]
    losses: tuple[Loss, ...]
    erased: Mapping[PartitionKeys, ErasedOffsets]
    lists: Mapping[PartitionKeys, int]

    @property
    def copies(self) -> list[SegmentCopy]:
        """The segments, by base offset."""
        copies = {copy.key: copy for part in self.ranges for copy in part.copies}
        return sorted(copies.values(), key=lambda copy: (copy.base, copy.key))

    def erased_in(self, copy: SegmentCopy) -> ErasedOffsets:
        """Return the erased offsets of its directory that a segment can have, in its dead tail too."""
        return self.erased[copy.keys].between(copy.base, MAX_INT64 if copy.may_overrun else copy.end)


@with_groups
def get(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    directory: Annotated[
        Path, typer.Argument(help="Where to write a directory for each partition; created if missing.")
    ],
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    keep_damaged: Annotated[
        bool, typer.Option("--keep-damaged", help="Also write objects with a wrong checksum, with a warning.")
    ] = False,
    incarnation: IncarnationOption = NEWEST,
    no_tail: NoTailOption = False,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,  # noqa: ARG001  (its callback keeps it)
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Write the segments of a topic or a range of it as files that kafka-dump-log reads."""
    problems: list[str] = []
    output, asked = Output(as_json), parse_bounds(start, end, problems, offsets=True)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    name, numbers = given.name(), parse_partitions(partition)
    query = range_query(name, topic, asked)
    written: list[dict[str, object]] = []
    is_whole = True
    with open_archive(name, output.warn) as archive, _files_of_ours(directory):
        wanted = []
        for entry in archive.topics([topic], numbers, incarnation, seals=True):
            tails = None if no_tail else TailLogs(entry.store, name.keys)
            for catalog in entry.topic.partitions:
                view = open_view(entry.store, catalog, tails=tails)
                if view.warning and not view.state.is_loss:  # the losses of its plan name it
                    output.warn(view.warning)
                plan = plan_partition(entry.store, view, query)
                check_thawed(entry.store, plan.read.ranges, incarnation)
                losses = tuple(sorted(plan.losses, key=lambda loss: loss.start))
                places = [catalog, *(place.catalog for place in catalog.former)]
                erased = {each.keys: each.read_erased(entry.store) for each in places}
                lists = {each.keys: each.erased_number for each in places}
                ranges = tuple(plan.read.ranges)
                wanted.append(Fetched(entry.store, view, plan.bounds, ranges, losses, erased, lists))
        _refuse(directory, wanted)
        total = sum(copy.segment.size for one in wanted for copy in one.copies)
        with output.progress("segments", total, in_bytes=True) as advance:
            for one in wanted:
                writer = _Writer(one, output, advance, keep_damaged=keep_damaged)
                written.append(writer.write(directory))
                is_whole = is_whole and writer.is_whole
    if as_json:
        output.document({"cluster": name.keys.cluster, "partitions": written})
    for one in wanted:
        count = sum(copy.segment.size for copy in one.copies)
        output.text(f"{directory / str(one.view.partition)}: {counted(len(one.copies), 'segment')}, {size(count)}")
    if not is_whole:
        raise typer.Exit(ExitCode.FOUND)


def range_query(name: ArchiveName, topic: str, asked: Mapping[str, Any]) -> Query:
    """Return the query of a range of a topic."""
    given = Given(asked, SOURCE, WORDING)
    return Query(
        name.endpoints[0].location,
        name.keys.cluster,
        name.keys.entropy_bits,
        Subscription((topic,)),
        start=bound_of(given, "starting", [topic], BOTH_EDGES) or Edge.EARLIEST,
        end=bound_of(given, "ending", [topic], BOTH_EDGES) or Edge.LATEST,
        start_without_match=Edge.LATEST,
        fail_on_data_loss=False,
        limit=batch_limit(),
        wording=WORDING,
    )


class _Writer:
    """Writes one partition.

    Attributes:
        is_whole: whether no offset was missing and every checksum was right.
    """

    def __init__(self, fetched: Fetched, output: Output, advance: Advance, *, keep_damaged: bool) -> None:
        self._fetched = fetched
        self._output = output
        self._advance = advance
        self._keep_damaged = keep_damaged
        self.is_whole = True

    def write(self, parent: Path) -> dict[str, object]:
        """Write the partition's directory in `parent`, and return the content of `range.json`.

        Raises:
            CorruptData: an object differs from its metadata.
            ObjectNotFound: retention removed an object.
            StoreUnavailable, AccessDenied: a request failed.
            OSError: a file could not be written.
        """
        fetched, partition = self._fetched, self._fetched.view.partition
        for loss in fetched.losses:
            self._found(loss.text)
        parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=parent))
        try:
            files = [self._segment(copy, partial) for copy in fetched.copies]
            description = self._description(files)
            (partial / RANGE_NAME).write_text(json.dumps(description, indent=1) + "\n")
            partial.chmod(0o777 & ~umask())
            for path in (partial, *(path for path in partial.iterdir() if path.is_dir())):
                sync_directory(path)
            partial.rename(parent / str(partition))
            sync_directory(parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return {**description, "directory": str(parent / str(partition))}

    def _segment(self, copy: SegmentCopy, partial: Path) -> dict[str, object]:
        """Write one segment's files. The `.log` is first: if it is damaged, its indexes are of no use."""
        path_in_range = self._file_of(copy)
        place = partial / path_in_range.parent
        place.mkdir(exist_ok=True)
        log = partial / path_in_range
        with log.open("wb") as file:
            with copy.reader(self._fetched.store) as reader:
                while chunk := reader.read(CHUNK_BYTES):
                    file.write(chunk)
                    self._advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())
        self._check(copy, log)
        indexes = []
        for suffix in sorted(copy.segment.suffixes):
            key, path = copy.keys.segment(copy.segment.name, suffix), log.with_suffix(suffix)
            crc = 0
            with path.open("wb") as file:
                for chunk in fetch(self._fetched.store, key):
                    crc = crc32c(chunk, crc)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            expected = {
                ".timeindex": copy.metadata.timeindex,
                ".txnindex": copy.metadata.txnindex[0] if copy.metadata.txnindex else None,
            }.get(suffix)
            if expected is not None and crc != expected:
                self._damage(f"{key}: CRC-32C {crc:08x}; expected {expected:08x} from the metadata of its .log")
            indexes.append(path.name)
        return {
            "file": str(path_in_range),
            "key": copy.key,
            "base": copy.base,
            "end": copy.end,
            "live_end": self._fetched.view.live_range(copy)[1],
            "bytes": copy.segment.size,
            "indexes": indexes,
        }

    def _file_of(self, copy: SegmentCopy) -> Path:
        """Return the path of a segment's `.log`; Kafka's tools parse the base offset in its name."""
        name, keys = copy.segment.name, copy.keys
        file = Path(f"{name.base:020d}{LOG_SUFFIX}")
        if copy.packed is not None:
            return _TAIL / file
        former = () if keys == self._fetched.view.keys else (keys.cluster.cluster, keys.directory)
        parts = (*former, *([] if name.epoch is None else [name.stem[OFFSET_DIGITS + 1 :]]))
        return Path("~".join(parts)) / file

    def _check(self, copy: SegmentCopy, log: Path) -> None:
        """Check a `.log` against its metadata; without a checksum there, by the CRCs of its batches."""
        written = log.stat().st_size
        with log.open("rb", buffering=0) as file:
            scan = scan_segment(file, written)
        expected = known_crc32c(copy.metadata)
        if written != copy.segment.size:
            self._damage(f"{copy.key}: {counted(written, 'byte')}; expected {copy.segment.size} from the listing")
        elif expected is not None and scan.crc32c != expected:
            self._damage(f"{copy.key}: CRC-32C {scan.crc32c:08x}; expected {expected:08x} from its metadata")
        elif expected is None and scan.corruption:
            self._damage(f"{copy.key}: at position {scan.corruption[0][0]}: {scan.corruption[0][1]}")
        elif scan.corruption:
            self._found(f"{copy.key} was already damaged on the broker's disk: {scan.corruption[0][1]}")
        if erased := self._fetched.erased_in(copy):
            _check_none_erased(copy, log, erased)

    def _damage(self, problem: str) -> None:
        if not self._keep_damaged:
            raise CorruptData(
                f"{self._fetched.view.partition}: {problem}; its directory is not written. "
                "--keep-damaged writes it with a warning"
            )
        self._found(problem)

    def _found(self, problem: str) -> None:
        self.is_whole = False
        self._output.warn(f"{self._fetched.view.partition}: {problem}")

    def _description(self, files: Sequence[dict[str, object]]) -> dict[str, object]:
        fetched = self._fetched
        view, bounds = fetched.view, fetched.bounds
        return {
            "topic": view.partition.topic,
            "partition": view.partition.partition,
            "location": fetched.store.location,
            "prefix": view.keys.prefix,
            "from": bounds.start,
            "to": bounds.end,
            "epochs": [list(pair) for pair in view.epochs],
            "files": list(files),
            "ranges": [
                {"from": part.start, "to": part.end, "files": [str(self._file_of(copy)) for copy in part.copies]}
                for part in fetched.ranges
            ],
            "missing": [{"from": loss.start, "to": loss.end, "reason": loss.reason} for loss in fetched.losses],
        }


def _refuse(directory: Path, wanted: Sequence[Fetched]) -> None:
    """Check that nothing would be overwritten and that the disk has room, before anything is fetched.

    Raises:
        OperatorError: a directory exists, a segment contains erased offsets, or the disk is too small.
    """
    if directory.exists() and not directory.is_dir():
        raise OperatorError(f"{directory}: expected a directory, found a file")
    standing = [str(directory / str(one.view.partition)) for one in wanted]
    if standing := [path for path in standing if Path(path).exists()]:
        raise OperatorError(f"{', '.join(standing)}: already exists and is not overwritten; choose another directory")
    for one in wanted:
        _refuse_erased(one)
    above = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    needed, free = sum(copy.segment.size for one in wanted for copy in one.copies), shutil.disk_usage(above).free
    if needed > free:
        raise OperatorError(
            f"{directory}: the range needs {size(needed)}, and {size(free)} are free; narrow --from and --to"
        )


def _refuse_erased(fetched: Fetched) -> None:
    """Check that no segment can have erased records: files are copies of whole objects.

    Raises:
        OperatorError: a segment can.
    """
    for copy in fetched.copies:
        if (erased := fetched.erased_in(copy)) and not _obeys(fetched, copy):
            raise _has_erased(
                copy, f"contains {counted(erased.count, 'erased offset')}, the first is {erased.starts[0]}"
            )


def _obeys(fetched: Fetched, copy: SegmentCopy) -> bool:
    """Return whether the metadata of a segment names the list of its directory, or a greater one."""
    if copy.packed is not None:
        return False
    return erased_number(fetched.store.head(copy.key).metadata) >= fetched.lists[copy.keys]


def _check_none_erased(copy: SegmentCopy, log: Path, erased: ErasedOffsets) -> None:
    """Check that a segment has no erased record. Its metadata names the list: others than an eraser can write that too.

    Raises:
        OperatorError: it has some, or is too damaged to show that it has none.
    """
    from tsctl.erase.rewriting import count_hidden  # noqa: PLC0415  (pyarrow, only for a topic with erased records)

    try:
        with log.open("rb", buffering=0) as file:
            count = count_hidden(file, erased, batch_limit())
    except CorruptData as error:
        raise _has_erased(copy, f"can contain erased records, because it is damaged ({error})") from error
    if count:
        raise _has_erased(
            copy, f"contains {counted(count, 'erased record')}, and its metadata names a list without them"
        )


def _has_erased(copy: SegmentCopy, what: str) -> OperatorError:
    topic, number = copy.keys.partition.topic, copy.keys.partition.partition
    return OperatorError(
        f"{copy.keys.partition}: {copy.key} {what}; its file would have their records. Read the others with "
        f"`tsctl cat {topic} --partition {number}`, narrow --from and --to, or wait for `tsctl erase run`"
    )


@contextmanager
def _files_of_ours(directory: Path) -> Iterator[None]:
    """Turn an error of the local disk into an `OperatorError`.

    Raises:
        OperatorError: a file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise OperatorError(f"{error.filename or directory}: {error.strerror or error}") from error
