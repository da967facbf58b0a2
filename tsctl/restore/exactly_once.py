"""Groups whose offsets and transactional output are not of the same time: the notes of a plan about them.

An exactly-once application commits the offsets of its input in the transaction of its output. A restore reads
offsets and records from different objects, so one can be older than the other:

- behind: the output has later transactions. The application reads their input again, and their output is doubled.
- ahead: output of the transaction that committed the offsets is not restored. It is lost, as its input is not read
  again.

The archived records of `__consumer_offsets` have the ids of producers, and show which groups commit so. A snapshot of
metadata has only offsets and its time: a group without an archived record may commit so or not.

Times are those of leaders: of markers, and of the coordinator's records.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended, Outcome
from ts_common.archive.tail_logs import TailLogs
from ts_common.archive.view import open_view
from ts_common.log_format.framing import NO_PRODUCER
from ts_common.model import TopicPartition
from ts_common.wording import counted
from ts_reader.query.timestamps import time_text
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import HeldTopic
from tsctl.restore.groups import Commit, Commits
from tsctl.restore.markers import Marker, has_markers, markers_of
from tsctl.restore.planning import Planned, batches_of, listed

_TIMEOUT_MS: Final = 60_000  # `transaction.timeout.ms`: Kafka aborts a transaction that takes longer
_ROLLED_MS: Final = 7 * 86_400_000  # `segment.ms`: so much later a quiet partition of `__consumer_offsets` is shipped


def with_producers(commits: Commits, topic: HeldTopic) -> Commits:
    """Return archived offsets with the producers that committed them.

    Args:
        topic: `__consumer_offsets`.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    wanted: dict[int, list[int]] = {}
    for commit in commits.values():
        if commit.place is not None:
            wanted.setdefault(commit.place[0], []).append(commit.place[1])
    found: dict[tuple[int, int], tuple[int, int]] = {}
    tails: TailLogs | None = None
    for catalog in topic.topic.partitions:
        number = catalog.keys.partition.partition
        if not (offsets := sorted(wanted.get(number, ()))):
            continue
        tails = tails or TailLogs(topic.store, catalog.keys.cluster)
        view = open_view(topic.store, catalog, tails=tails)
        part = Planned(topic.store, view, view.end)
        for step in view.plan(offsets[0], offsets[-1] + 1):
            if bisect_left(offsets, step.start) == bisect_left(offsets, step.end) or not isinstance(step, ReadRange):
                continue
            for header, _ in batches_of(part, step):
                held = offsets[bisect_left(offsets, header.base_offset) : bisect_left(offsets, header.last_offset + 1)]
                producer = (header.producer_id if header.is_transactional else NO_PRODUCER, header.producer_epoch)
                found |= {(number, offset): producer for offset in held}
    return {
        name: commit if commit.place is None else replace(commit, producer=found.get(commit.place))
        for name, commit in commits.items()
    }


def group_notes(
    commits: Commits, parts: Sequence[Planned], ended: Mapping[TopicPartition, Sequence[Ended]]
) -> tuple[str, ...]:
    """Return a note for each group that is behind or ahead, and one for the groups that may be.

    Args:
        commits: of `newest_commits`, of the groups of the plan. Those of partitions that are not restored count too.
        parts: the partitions of the plan.
        ended: the ends of the transactions that are open at the end of each partition.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
    """
    wanted = dict(_compared(commits))
    outputs = [part for part in parts if any(map(has_markers, part.ranges)) or part.still_open]
    if not wanted or not outputs:
        return ()
    times = [commit.time for commit in wanted.values()]
    since = max(min(times), max(times) - _ROLLED_MS)

    shows_producers = any(commit.producer is not None for commit in wanted.values())

    def seen(part: Planned) -> dict[str, _Seen]:
        found = {about: _Seen(commit, has_own=commit.producer is None) for about, commit in wanted.items()}
        by_producer: dict[int | None, list[_Seen]] = {}
        for each in found.values():
            by_producer.setdefault(each.commit.producer and each.commit.producer[0], []).append(each)
        # Only segments show whose transactions a partition has. Without producers their metadata is enough.
        newest = -1 if shows_producers else _newest_time(part)
        for marker in markers_of(part, since, with_last=shows_producers):
            newest = max(newest, marker.time)
            for each in (*by_producer.get(marker.producer_id, ()), *by_producer.get(None, ())):
                each.add(marker)
        for each in found.values():
            each.newest = newest
        return found

    all_seen = dict(zip((part.keys.partition for part in outputs), in_threads(seen, outputs), strict=True))
    notes = []
    for about, commit in wanted.items():
        behind = [text for name, found in all_seen.items() for text in found[about].behind(name)]
        ahead = [text for name, found in all_seen.items() for text in found[about].ahead(name, ended[name])]
        if behind or ahead:
            notes.append(
                f"{about}, as of {time_text(commit.time)}"
                + (f"; behind {listed(behind)}: their input is processed again, and the output doubled" * bool(behind))
                + (f"; ahead of {listed(ahead)}: output that is missing there is not made again" * bool(ahead))
            )
    return tuple(notes)


def _compared(commits: Commits) -> Iterator[tuple[str, Commit]]:
    """Yield the newest commit of each group and producer, and one for all groups that may commit in transactions."""
    groups: dict[str, dict[int | None, Commit]] = {}
    for (group, _), commit in commits.items():
        by_producer, producer = groups.setdefault(group, {}), commit.producer and commit.producer[0]
        if producer not in by_producer or by_producer[producer].time < commit.time:
            by_producer[producer] = commit
    unknown = [by_producer[None] for by_producer in groups.values() if by_producer.keys() == {None}]
    for group, by_producer in groups.items():
        for producer, commit in by_producer.items():
            if producer not in {None, NO_PRODUCER}:
                yield f"group {group} has its offsets in transactions of producer {producer}", commit
    if unknown:
        yield (
            f"if one of {counted(len(unknown), 'group')} commits its offsets in transactions",
            min(unknown, key=lambda commit: commit.time),
        )


@dataclass(slots=True)
class _Seen:
    """What the markers of a partition show about one commit.

    Attributes:
        has_own: whether the partition has markers of the commit's producer; true if that is unknown.
        has_same: whether one is of the commit's transaction.
        later: number of transactions that were committed later.
        until: ms since the epoch, of the last of them.
        newest: ms since the epoch, of the newest marker of the partition, whichever producer's; -1 if unknown.
    """

    commit: Commit
    has_own: bool = False
    has_same: bool = False
    later: int = 0
    until: int = -1
    newest: int = -1

    def add(self, marker: Marker) -> None:
        """Add the next marker of the commit's producer in the partition."""
        if marker.outcome is not Outcome.COMMIT:
            return
        self.has_own = True
        commit = self.commit
        if commit.place is None or commit.producer is None:
            is_since, is_same = marker.time > commit.time, False
        else:
            # The coordinator appends the offsets before the transaction's markers. With transaction.version 2 each
            # transaction has its own epoch; without it a producer's next markers are of later ones.
            epoch = commit.producer[1]
            begun = max(epoch, marker.producer_epoch - 1) if marker.begun is None else marker.begun
            is_since = begun > epoch or (begun == epoch and marker.time >= commit.time)
            is_first = not self.has_same and not self.later
            is_same = begun == epoch and is_first and marker.time <= commit.time + _TIMEOUT_MS
        if is_since and is_same:
            self.has_same = True
        elif is_since:
            self.later, self.until = self.later + 1, max(self.until, marker.time)

    def behind(self, name: TopicPartition) -> Iterator[str]:
        """Yield the partition, if its output is later than the commit."""
        if self.later:
            yield f"{name} ({counted(self.later, 'later transaction')}, until {time_text(self.until)})"

    def ahead(self, name: TopicPartition, ended: Iterable[Ended]) -> Iterator[str]:
        """Yield the partition, if its output is older than the commit."""
        if self.later or self.has_same:
            return
        for each in ended:
            if each.outcome is Outcome.ABORT and self.commit.producer == (each.producer_id, each.producer_epoch):
                yield f"{name} (the transaction from offset {each.first_offset} on is aborted)"
                return
        if self.has_own and 0 <= self.newest < self.commit.time:
            yield f"{name} (its restored transactions end at {time_text(self.newest)})"


def _newest_time(part: Planned) -> int:
    """Return the newest time of the segments that may have markers, in ms since the epoch; -1 if one is unknown."""
    times = [copy.metadata.time_max for step in part.ranges if has_markers(step) for copy in step.copies]
    return -1 if None in times else max((time for time in times if time is not None), default=-1)
