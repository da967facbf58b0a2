"""Archives for tests of `tsctl gc`: partitions of made segments, and a retention without a policy file."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.made_archive import MadeArchive, batches
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, Lineage, LogStart, decode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.plan import Hole
from ts_common.archive.view import open_view
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.archive_run import NO_FUSE, LocationResult, begin, work_in
from tsctl.gc.due import Rule
from tsctl.gc.incarnations import read_topic_incarnations
from tsctl.gc.policy import Fuse
from tsctl.gc.report import Report
from tsctl.gc.retention import LeftOut, NeededFrom, TopicIncarnation, Why
from tsctl.gc.run import discarded_plans, run_once

GRACE = 3_600_000


@dataclass
class FixedRetention:
    """One rule for all topics."""

    the_rule: Rule | None
    needs: Mapping[str, NeededFrom] = field(default_factory=dict)  # by directory
    held: set[str] = field(default_factory=set)
    deletes_former: bool = False

    def rule(self, topic: str) -> Rule | None:
        return self.the_rule

    def needed(self, keys: PartitionKeys) -> NeededFrom | None:
        return self.needs.get(keys.directory)

    def is_over(self, incarnation: TopicIncarnation) -> bool:
        return incarnation.over_since is not None and self.deletes_former

    def check_holds(self, topic: str) -> None:
        if topic in self.held:
            raise LeftOut("held", Why.HELD)


def keep_last(segments: int, size: int) -> FixedRetention:
    """Return a retention by size: so many segments of this size stay."""
    return FixedRetention(Rule(size=segments * size))


def ship(archive: MadeArchive, topic: str, start: int, end: int, *, partition: int = 0, log_start: int = 0) -> int:
    """Put segments of ten offsets and commit them; return the bytes of one."""
    size = 0
    for base in range(start, end, 10):
        log = batches((base, base + 10))
        size = len(log)
        archive.put_segment(topic, base, log, partition=partition, index=b"i", timeindex=b"t")
    archive.commit(topic, end, partition=partition, highest_base=end - 10, log_start=log_start)
    return size


def go_back(archive: MadeArchive, begin: int, *, partition: int = 0) -> None:
    """Let the next leader's agent move the commit of topic t back to `begin`, and then write `log.start`."""
    keys, lineage = archive.partition("t", partition), Lineage(2, begin, 100)
    found = decode_log_start(archive.store.get(keys.log_start)[0], keys.log_start)
    epochs = EpochHistory(((0, 0), (2, begin)))
    commit = Commit(begin - 10, begin, 2, epochs, None, None, 2, 0, "back", lineage=lineage)
    archive.store.put(keys.commit, commit.encode())
    archive.store.put(keys.log_start, LogStart(found.shown_from(lineage), lineage).encode())


class Killed(BaseException):
    """A process ends."""


def run_killed_after_its_move(archive: MadeArchive, retention: FixedRetention, *, partition: int = 0) -> None:
    """Kill a run after it has moved `log.start` of a partition, before it has written the copy."""

    class Killing(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            found = self._inner.put(key, *arguments, **named)
            if key == archive.partition("t", partition).log_start:
                raise Killed
            return found

    with contextlib.suppress(Killed):
        run_in(Killing(archive.store, threads=1), archive, retention)


def later(archive: MadeArchive, milliseconds: int) -> None:
    """Make each object older: the store's clock cannot be moved."""
    place = Path(archive.location.removeprefix("file://"))
    for info in list(archive.store.list()) if milliseconds else ():
        seen = (place / info.key).stat()
        os.utime(place / info.key, (seen.st_atime, seen.st_mtime - milliseconds / 1000))


def names(archive: MadeArchive, topic: str = "t", partition: int = 0) -> list[str]:
    """Return the names of the objects of a partition."""
    prefix = archive.partition(topic, partition).prefix
    return [info.key.removeprefix(prefix) for info in archive.store.list(prefix)]


def bases(archive: MadeArchive, topic: str = "t", partition: int = 0) -> list[int]:
    """Return the base offsets of the stored `.log` objects."""
    return [int(name[:20]) for name in names(archive, topic, partition) if name.endswith(".log")]


def start_of(archive: MadeArchive, topic: str = "t", partition: int = 0) -> int:
    """Return the first offset of the view, which has no hole."""
    view = open_view(archive.store, read_catalog(archive.store, archive.partition(topic, partition)))
    assert not [step for step in view.plan(view.start, view.end) if isinstance(step, Hole)]
    return view.start


def run(archive: MadeArchive, retention: FixedRetention, *, after: int = 0, fuse: Fuse = NO_FUSE) -> LocationResult:
    """Run at the present time, or so many milliseconds later by the store's clock."""
    later(archive, after)
    return run_in(archive.store, archive, retention, fuse=fuse)


def run_in(
    store: ObjectStore,
    archive: MadeArchive,
    retention: FixedRetention,
    *,
    fuse: Fuse = NO_FUSE,
    grace: int = GRACE,
    now: int | None = None,
) -> LocationResult:
    """Run on a store that wraps the archive's, at a time in ms since the epoch; None for the present."""
    keys, result = archive.keys, LocationResult(store.location, Report())
    with result.report.writing(store, keys):
        began_at = begin(store, keys, result.report)
        plans = discarded_plans(store, keys, result.report.began, lambda _: None)
        now = began_at if now is None else now
        work = work_in(store, keys, retention, now, grace, result.report, is_first=bool(plans))
        run_once(
            work, read_topic_incarnations(store, keys, lambda _: True, result.report.skip), fuse, found=result.found
        )
        if plans:
            store.delete_matching(plans)
    return result
