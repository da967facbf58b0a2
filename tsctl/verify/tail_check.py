"""Checks the live tails of an archive: the logs of packs, and the entries that continue partitions (reading rule 11).

The run of closed segments is checked apart. Commits are read again here, because packs are read after the commits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from awscrt.checksums import crc32c

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import LOG_NAME, Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.high_watermarks import End
from ts_common.archive.object_keys import TAIL_DIRECTORY, ClusterKeys, PartitionKeys, is_tail_object
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.tail_chain import Chain
from ts_common.archive.tail_logs import TailLogs, read_indexes, tail_ranges
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.scan import scan_segment
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from ts_common.wording import counted
from ts_reader.reading.parallel import in_threads
from tsctl.verify.finding_kinds import (
    FOREIGN_OBJECT,
    NEWER_FORMAT,
    TAIL_BEHIND,
    TAIL_DAMAGED,
    TAIL_LEFT,
    UNREADABLE,
)
from tsctl.verify.findings import Finding
from tsctl.verify.segment_check import Depth

_ATTEMPTS: Final = 3
_LEFT_SECONDS: Final = 7 * 86400.0  # without a new object: no commit that names the log was written lately


@dataclass(frozen=True, slots=True)
class CheckedTail:
    """The tail of a partition.

    Attributes:
        end: of the view with it; None if it is unknown.
        time: as of `Chain`.
        logs: that the commit names.
    """

    end: int | None = None
    time: int | None = None
    findings: tuple[Finding, ...] = ()
    logs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TailCheck:
    """How tails are checked.

    Attributes:
        now: seconds since the epoch.
        old: the same; an object that was written before is of no upload or merge in progress.
        stuck_seconds: how long a tail may need to reach a high watermark.
    """

    store: ObjectStore
    keys: ClusterKeys
    depth: Depth
    now: float
    old: float
    stuck_seconds: float

    def partitions(self, tailed: Sequence[PartitionKeys], recorded: Mapping[str, End]) -> Mapping[str, CheckedTail]:
        """Return the tail of each partition by its prefix.

        Args:
            recorded: high watermarks that agents recorded, by prefix.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """

        def read(keys: PartitionKeys) -> Commit | None:
            try:
                commit, _ = OPERATION_POLICY(lambda: read_commit(self.store, keys))
            except (CorruptData, NewerFormat, ObjectFrozen):
                return None  # the check of the run has reported it, or the next one will
            return commit if isinstance(commit, Commit) and commit.live is not None else None

        commits = in_threads(read, tailed)
        logs = TailLogs(self.store, self.keys)

        def check(item: tuple[PartitionKeys, Commit]) -> tuple[str, CheckedTail]:
            keys, commit = item
            live = commit.live
            named = frozenset[str]() if live is None else frozenset((live.log, *(log for log, _ in live.former)))
            return keys.prefix, replace(self._partition(logs, keys, commit, recorded.get(keys.prefix)), logs=named)

        work = [(keys, each) for keys, each in zip(tailed, commits, strict=True) if isinstance(each, Commit)]
        return dict(in_threads(check, work))

    def _partition(self, logs: TailLogs, keys: PartitionKeys, commit: Commit, recorded: End | None) -> CheckedTail:
        where = keys.directory
        for attempt in range(_ATTEMPTS):
            try:
                chain = OPERATION_POLICY(lambda logs=logs: logs.chain(keys, commit))
                break
            except ObjectNotFound as error:  # a merge deleted a pack meanwhile
                logs = TailLogs(self.store, self.keys)
                if attempt + 1 == _ATTEMPTS:
                    found = Finding(TAIL_DAMAGED, where, str(error), keys.commit, commit.next_offset)
                    return CheckedTail(findings=(found,))
            except (CorruptData, NewerFormat, ObjectFrozen) as error:
                kind = NEWER_FORMAT if isinstance(error, NewerFormat) else TAIL_DAMAGED
                detail = f"the view ends at {commit.next_offset}: {error}"
                found = Finding(kind, where, detail, _key_of(error), commit.next_offset)
                return CheckedTail(commit.next_offset, None, (found,))
        findings = list(self._entries(keys, chain)) if self.depth is not Depth.LISTING else []
        if chain.damage is not None:
            detail = f"the view ends at {chain.end}: {chain.damage}"
            findings.append(Finding(TAIL_DAMAGED, where, detail, _key_of(CorruptData(chain.damage)), chain.end))
        late = (self.now - self.stuck_seconds) * 1000
        if recorded is not None and recorded.time < late and recorded.high_watermark > chain.end:
            detail = (
                f"it ends at {chain.end}; an agent recorded the high watermark {recorded.high_watermark} "
                f"{counted(int(self.now - recorded.time / 1000), 'second')} ago"
            )
            findings.append(Finding(TAIL_BEHIND, where, detail, keys.commit, chain.end, recorded.high_watermark))
        return CheckedTail(chain.end, chain.time, tuple(findings))

    def _entries(self, keys: PartitionKeys, chain: Chain) -> Iterator[Finding]:
        for part, link in zip(tail_ranges(keys, chain), chain.links, strict=True):
            (copy,) = part.copies
            try:
                problem = OPERATION_POLICY(lambda copy=copy: self._problem(copy))
            except AccessDenied as error:
                yield Finding(UNREADABLE, keys.directory, str(error), copy.key, part.start, part.end)
                continue
            except (CorruptData, ObjectFrozen, ObjectNotFound) as error:
                problem = str(error)
            if problem is not None:
                detail = f"entry of log {link.log} from offset {link.entry.start} on: {problem}"
                yield Finding(TAIL_DAMAGED, keys.directory, detail, copy.key, part.start, part.end)

    def _problem(self, copy: SegmentCopy) -> str | None:
        """Return what is wrong with the batches of an entry."""
        size, expected = copy.segment.size, copy.metadata
        if self.depth is Depth.FULL:
            data = copy.read(self.store, 0, size)
            if len(data) < size:
                return f"its object ends after {len(data)} of {counted(size, 'byte')}"
            if crc32c(data) != expected.crc32c:
                return f"CRC-32C {crc32c(data):08x}; the index has {expected.crc32c or 0:08x}"
            with copy.reader(self.store) as reader:
                scan = scan_segment(reader, size)
            found = metadata_of(scan, copy.base, copy.key)
            pairs = ((found.epochs, expected.epochs), (found.time_max, expected.time_max))
            is_equal = all(one == other for one, other in pairs) and expected.records in {None, found.records}
            if scan.corruption or found.end > copy.end or not is_equal:
                return "its batches are not as the index describes them"
            return None
        data = copy.read(self.store, 0, min(size, HEADER_SIZE))
        header = parse_header(data, 0, size) if len(data) == min(size, HEADER_SIZE) else None
        epoch = expected.epochs[0][0] if expected.epochs else None
        if not isinstance(header, BatchHeader) or header.leader_epoch != epoch or header.base_offset >= copy.end:
            return "no batch of it is at its position"
        return None

    def logs(self, named: Set[str] | None) -> Iterator[Finding]:
        """Yield the findings on the objects of all logs: foreign names, and what no index or commit leads to.

        Args:
            named: the logs that commits name; None if a commit could not be read.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        prefix = self.keys.cluster_prefix + TAIL_DIRECTORY
        for directory in OPERATION_POLICY(lambda: list(self.store.list_directories(prefix))):
            log = directory.rstrip("/")
            listed = OPERATION_POLICY(lambda log=log: list(self.store.list(self.keys.tail(log))))
            if re.fullmatch(LOG_NAME, log) is None:
                yield from _foreign(log, listed)
                continue
            yield from self._log(log, listed, is_named=named is None or log in named)

    def _log(self, log: str, listed: Sequence[ObjectInfo], *, is_named: bool) -> Iterator[Finding]:
        """Yield the findings on one log; its objects were listed before its newest pack is read."""
        prefix, where = self.keys.tail(log), f"tail/{log}"
        names = {info.key.removeprefix(prefix): info for info in listed}
        strange = [info for name, info in names.items() if not is_tail_object(name)]
        yield from _foreign(log, strange)
        try:
            used = OPERATION_POLICY(lambda: set(_names_in(self.store, self.keys, log)))
        except ObjectNotFound as error:
            yield Finding(TAIL_DAMAGED, where, str(error), prefix)
            return
        except (CorruptData, NewerFormat, ObjectFrozen) as error:
            kind = NEWER_FORMAT if isinstance(error, NewerFormat) else TAIL_DAMAGED
            yield Finding(kind, where, str(error), _key_of(error))
            return
        if not is_named and all(info.modified < self.now - _LEFT_SECONDS for info in listed):
            used = set()
        left = [
            info
            for name, info in names.items()
            if is_tail_object(name) and name not in used and info.modified < self.old
        ]
        if left:
            size = sum(info.size for info in left)
            detail = f"{counted(len(left), 'object')}, {counted(size, 'byte')}; the first is {left[0].key}"
            yield Finding(TAIL_LEFT, where, detail, left[0].key)


def _names_in(store: ObjectStore, keys: ClusterKeys, log: str) -> Iterator[str]:
    """Yield the names of the objects that the newest pack of a log leads to."""
    for index in read_indexes(store, keys, log):
        yield index.name
        yield from (entry.object for entry in index.entries())


def _foreign(log: str, found: Iterable[ObjectInfo]) -> Iterator[Finding]:
    for info in found:
        yield Finding(FOREIGN_OBJECT, f"tail/{log}", "no agent writes this name", info.key)


def _key_of(error: Exception) -> str:
    """Return the key at the beginning of an error's message."""
    return str(error).partition(":")[0].partition(" ")[0]
