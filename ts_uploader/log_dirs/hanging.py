"""Finds the `.deleted` files that belong to the live log although the agent never listed them live (protocol rule 10).

Retention, the log cleaner and truncations all rename to `.deleted`. Files that retention removed before the agent
began, or in a former leader epoch, are shipped while they exist. Files that a truncation cut off are dead and must not
be shipped. A file proves that it is live if it *hangs* on the live log: its last batch ends exactly where a live
segment begins, and has the first epoch of that segment. An epoch has one leader, and a file is one replica's
log. So a batch is live if the live log has a batch of the same epoch at a higher offset, and so are all batches below
it in its file.

If a higher epoch begins exactly between two files, only the order of renames decides. A rename sets a file's change
time, and retention removes the lowest segment first. So no file that retention removed has a lower neighbour with a
later rename. In a log that was truncated, filled again and then expired, the new files have later change times, and
bases below the old file or inside it. (Files that the log cleaner merged also have bases inside the merged file, but
earlier times.) Files of an old magic have no epoch and need this order too.

Files renamed later are unlinked later, so the evidence outlives the files that it contradicts, except when a rename
replaces it.
"""

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import structlog

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, Trailing, parse_header
from ts_common.log_format.index_files import OFFSET_ENTRY_SIZE, read_offset_index
from ts_uploader.log_dirs.directory_scan import whole_listing
from ts_uploader.log_dirs.leader_epoch import check_leader_epoch
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.log_dirs.scan_cache import file_state
from ts_uploader.log_dirs.segment_file import OpenLog, open_index, open_log, read_last
from ts_uploader.messages.observations import FileState, Listing
from ts_uploader.messages.results import Hanging, LookedBelow
from ts_uploader.messages.tasks import LookBelow

_log = structlog.get_logger()

_LAST_ENTRIES = 64  # of an index: about a hundred KiB of log
# A link, an unreadable file, or a lost sector.
_OF_THE_FILE = {errno.ELOOP, errno.EACCES, errno.EPERM, errno.EIO}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive batches of one epoch.

    Attributes:
        epoch: of all of them; -1 for batches of an old magic.
        first: base offset of the first batch that was read.
        end: the offset after the last.
        batches: how many of them were read.
    """

    epoch: int
    first: int
    end: int
    batches: int = 1


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """What is read of a `.log.deleted` file.

    Attributes:
        base: the base offset in its name.
        state: of the file; its change time is that of its rename.
        stretches: its batches' epochs, in order. Of a file above the next offset only the first and the last batch are
            read; between them epochs do not fall, or the file is not shipped. Empty if the file contains no batch, or
            is damaged.
    """

    base: int
    state: FileState
    stretches: tuple[Stretch, ...]


def hanging(
    files: Collection[DeletedFile], living: Mapping[int, int | None], epochs: EpochHistory, next_offset: int
) -> tuple[Hanging, ...]:
    """Return the files that hang on the live log, or on another file that hangs, by base. Pure.

    Args:
        files: all `.deleted` files below the lowest live segment.
        living: the first epoch of each live segment, by base offset: the lowest live one, and those listed live in this
            leadership; None if it is unknown.
        next_offset: the run's end. Below it a file must agree with `epochs`.
    """
    begins = dict(living)
    found = []
    for file in sorted(files, key=lambda file: file.base, reverse=True):
        if not file.stretches:
            continue
        end, last = file.stretches[-1].end, file.stretches[-1].epoch
        above = begins.get(end)
        if above is None or end <= file.base or above < last or not _agrees(file, epochs, next_offset):
            continue
        if (above > last or last == NO_EPOCH) and any(
            other.base < end and other.state.changed_ns > file.state.changed_ns for other in files
        ):
            continue
        begins.setdefault(file.base, file.stretches[0].epoch)
        found.append(Hanging(file.base, end, file.state))
    return tuple(reversed(found))


def look_below(task: LookBelow) -> LookedBelow:
    """Read the `.deleted` files below the lowest live segment.

    Raises:
        SegmentChanged: the directory differs from the listing, or the broker's leadership has ended.
        OSError: the directory, or the lowest live segment, cannot be read.
    """
    listing = whole_listing(task.listing)
    check_leader_epoch(listing, task.leadership)
    if not listing.bases:
        raise SegmentChanged(f"{listing.directory} holds no segment")
    found = find_hanging(listing, task.epochs, task.next_offset, wanted=task.wanted, seen=task.seen)
    below = frozenset(base for base in listing.deleted if base < listing.bases[0])
    return LookedBelow(task.partition, task.generation, task.leadership, found, below, task.wanted)


def find_hanging(
    listing: Listing, epochs: EpochHistory, next_offset: int, *, wanted: int, seen: Collection[int] = ()
) -> tuple[Hanging, ...]:
    """Return the files of a directory that hang, as `hanging`.

    Args:
        listing: of the directory; whole.
        epochs: as in `hanging`.
        next_offset: as in `hanging`.
        wanted: the lowest requested offset. Files that end at or below it are left out.
        seen: base offsets of segments that were listed live in this leadership.

    Raises:
        SegmentChanged: the lowest live segment no longer exists.
        OSError: it cannot be read.
    """
    files = _look_through(listing, next_offset, wanted)
    living: dict[int, int | None] = {file.base: file.stretches[0].epoch for file in files if file.stretches}
    living = {base: epoch for base, epoch in living.items() if base in seen}
    living[listing.bases[0]] = begins_with(listing, listing.bases[0])
    return tuple(file for file in hanging(files, living, epochs, next_offset) if file.end > wanted)


def hanging_epochs(
    listing: Listing, local: EpochHistory, epochs: EpochHistory, next_offset: int, vouched: int
) -> EpochHistory:
    """Return the epochs above the next offset of the `.deleted` files that hang, if they begin below the run's last.

    Otherwise they contradict nothing, and their batches are not read. No CRC covers epoch and base offset, so the
    result is empty without two batches below the run's last epoch, or if batches do not rise. A log may hold a dead
    tail below its log start: a returning follower truncates only above the first pair of the leader's list. So the
    lowest live segment must begin in the first epoch of the broker's list, and no later leader may have kept the run.

    Args:
        listing: of its directory; whole.
        local: the broker's list; not empty.
        epochs: as in `hanging`.
        next_offset: as in `hanging`.
        vouched: leader epoch of the agent that last compared the run with its broker's log; -1 if unknown.

    Raises:
        SegmentChanged, OSError: as `find_hanging`.
    """
    lowest, run = listing.bases[0], epochs.below(next_offset).pairs
    if not run or not listing.deleted[:1] < listing.bases[:1]:
        return EpochHistory()
    files = {file.base: file for file in _look_through(listing, next_offset, next_offset)}
    begins, (first, start) = begins_with(listing, lowest), local.pairs[0]
    if lowest < start and begins != first:
        return EpochHistory()
    found = hanging(files.values(), {lowest: begins}, epochs, next_offset)
    above = [each.base for each in found if each.end > next_offset]
    last, _ = run[-1]
    if not above or files[above[0]].stretches[0].epoch >= last:
        return EpochHistory()
    read = [file for file in _look_through(listing, lowest, next_offset) if file.base in above]
    if any(following.first < before.end for file in read for before, following in pairwise(file.stretches)):
        return EpochHistory()
    stretches = [stretch for file in read for stretch in file.stretches if stretch.end > next_offset]
    line = _risen(stretches, last, next_offset)
    following = min((epoch for epoch, _ in (*line, *local) if epoch > last), default=vouched + 1)
    return line if following > vouched else EpochHistory()


def _risen(stretches: Sequence[Stretch], last: int, next_offset: int) -> EpochHistory:
    """Return batches above the next offset as a list; empty if they do not rise, or at most one is below `last`."""
    pairs: list[tuple[int, int]] = []
    for stretch in stretches:
        first = max(stretch.first, next_offset)
        if pairs and stretch.epoch == pairs[-1][0]:
            continue
        if pairs and (stretch.epoch < pairs[-1][0] or first <= pairs[-1][1]):
            return EpochHistory()
        if stretch.epoch != NO_EPOCH:
            pairs.append((stretch.epoch, first))
    below = sum(stretch.batches for stretch in stretches if NO_EPOCH < stretch.epoch < last)
    return EpochHistory(tuple(pairs)) if below > 1 else EpochHistory()


def _look_through(listing: Listing, whole_below: int, wanted: int) -> list[DeletedFile]:
    """Read the `.deleted` files below the lowest live segment that still exist; arguments as those of `_stretches`."""
    below = (base for base in listing.deleted if base < listing.bases[0])
    looks = (_look_at(listing.directory, base, whole_below, wanted) for base in below)
    return [file for file in looks if file is not None]


def lowest_held(listing: Listing, epochs: EpochHistory, next_offset: int, begin: int) -> int:
    """Return the lowest offset at or above `begin` that a log holds, live or in `.deleted` files that hang.

    Args:
        listing: of its directory; whole.
        epochs: as in `hanging`.
        next_offset: as in `hanging`.
        begin: the lowest requested offset.

    Raises:
        SegmentChanged, OSError: as `find_hanging`.
    """
    lowest = listing.bases[0]
    if lowest > begin and listing.deleted[:1] < listing.bases[:1]:
        found = find_hanging(listing, epochs, next_offset, wanted=begin)
        lowest = min((lowest, *(file.base for file in found)))
    return max(lowest, begin)


def _agrees(file: DeletedFile, epochs: EpochHistory, next_offset: int) -> bool:
    """Return whether epochs never fall in a file, and below the next offset equal the run's where the run has one."""
    before = NO_EPOCH
    for stretch in file.stretches:
        if stretch.epoch < before:
            return False
        before = stretch.epoch
        if stretch.first < next_offset:
            for offset in (stretch.first, min(stretch.end, next_offset) - 1):
                said = epochs.at(offset)
                if said is not None and said != stretch.epoch:
                    return False
    return True


def _look_at(directory: Path, base: int, next_offset: int, wanted: int) -> DeletedFile | None:
    """Read a `.deleted` file; None if it does not exist. An unreadable one hangs on nothing, but stays evidence."""
    path = directory / f"{base:020d}.log.deleted"
    try:
        with open_log(directory, base, deleted=True) as log:
            state = file_state(log)
            try:
                return DeletedFile(base, state, _stretches(log, directory, base, next_offset, wanted))
            except (CorruptData, ValueError, OSError) as damage:
                _raise_what_passes(damage)
                _log.warning("deleted_file_skipped", path=str(log.path), reason=str(damage))
                return DeletedFile(base, state, ())
    except SegmentChanged:
        return None
    except OSError as refused:
        _raise_what_passes(refused)
        _log.warning("deleted_file_skipped", path=str(path), reason=str(refused))
        with suppress(FileNotFoundError):
            status = path.stat(follow_symlinks=False)
            return DeletedFile(base, FileState(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns), ())
        return None


def _raise_what_passes(error: Exception) -> None:
    """Raise an error that is not of the file itself, such as a lack of descriptors: then the task is retried."""
    if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
        raise error


def _stretches(log: OpenLog, directory: Path, base: int, next_offset: int, wanted: int) -> tuple[Stretch, ...]:
    """Return a file's epochs; raises CorruptData or ValueError if anything but a batch is found."""
    first = next(_headers(log, 0), None)
    if first is None:
        return ()
    ends = _joined((first, _last(log, directory, base) or first))
    if wanted < ends[-1].end and base < next_offset:
        return _joined(_headers(log, 0))  # batches that must agree with the run; few files contain the next offset
    return ends


def _last(log: OpenLog, directory: Path, base: int) -> BatchHeader | None:
    """Return the last batch, found by the index; a wrong index costs a scan."""
    for position in _last_positions(directory, base):
        with suppress(CorruptData, ValueError):
            *_, last = _headers(log, position)
            return last
    last_found = None
    for header in _headers(log, 0):
        last_found = header
    return last_found


def _last_positions(directory: Path, base: int) -> tuple[int, ...]:
    """Return the position of the last batch in the index; empty without an index."""
    try:
        index = open_index(directory, base, ".index", deleted=True)
    except SegmentChanged:
        return ()
    try:
        return tuple(place for _, place in read_offset_index(read_last(index, OFFSET_ENTRY_SIZE, _LAST_ENTRIES))[-1:])
    finally:
        os.close(index)


def begins_with(listing: Listing, base: int) -> int | None:
    """Return the first epoch of a segment, live or `.deleted`; without a batch, the one of the checkpoint.

    Raises:
        SegmentChanged: the segment no longer exists.
        OSError: the process cannot open files now. A link or a damaged file has no epoch and raises nothing.
    """
    first = _first_epoch(listing, base)
    if first is not None:
        return first
    local = local_epochs(listing.directory)
    return local.at(base) if local is not None else None


def goes_on_with(listing: Listing, base: int) -> int | None:
    """Return the epoch of the first batch of a log from a segment on, live or `.deleted`; None without one.

    Raises:
        SegmentChanged: a segment no longer exists.
        OSError: as `begins_with`.
    """
    following = (other for other in listing.bases if other > base)
    epochs = (_first_epoch(listing, each) for each in (base, *following))
    return next((epoch for epoch in epochs if epoch is not None), None)


def _first_epoch(listing: Listing, base: int) -> int | None:
    """Return the epoch of the first batch of a segment; None if it has none, or is unreadable."""
    try:
        with open_log(listing.directory, base, deleted=base not in listing.bases) as log:
            first = next(_headers(log, 0), None)
            return None if first is None else first.leader_epoch
    except (CorruptData, ValueError, OSError) as damage:
        _raise_what_passes(damage)
        return None


def _headers(log: OpenLog, position: int) -> Iterator[BatchHeader]:
    """Yield the headers of a log's batches from a position on; CorruptData if anything else lies between them."""
    while position < log.size:
        head = log.read_at(position, min(HEADER_SIZE, log.size - position))
        header = parse_header(head, 0, log.size - position, position)
        if header is Trailing.TORN:
            raise CorruptData(f"{log.path}: no whole batch at position {position}")
        if not isinstance(header, BatchHeader):
            return
        yield header
        position += header.size_in_bytes


def _joined(headers: Iterable[BatchHeader]) -> tuple[Stretch, ...]:
    """Join headers to stretches of one epoch each."""
    stretches: list[Stretch] = []
    for header in headers:
        first, end = header.base_offset, header.last_offset + 1
        if stretches and stretches[-1].epoch == header.leader_epoch:
            stretches[-1] = Stretch(header.leader_epoch, stretches[-1].first, end, stretches[-1].batches + 1)
        else:
            stretches.append(Stretch(header.leader_epoch, first, end))
    return tuple(stretches)
