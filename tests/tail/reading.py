"""Readers of a partition request by request: what they return, and what must be so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.tail.bucket import Archive, Segment
from tests.tail.clauses import TailClause
from tests.tail.kafka import Batch, stable_end, transactions_of
from tests.tail.steps import Again, Steps, do, read_log
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.plan import Hole, unite
from ts_common.archive.read_log import ReadLog, kept_end
from ts_common.archive.tail_chain import Chain, TailEntry, join

if TYPE_CHECKING:
    from tests.tail.world import World

Entries = Sequence[tuple[str, TailEntry]]


class Broken(Exception):
    """A history broke a rule."""


@dataclass(frozen=True)
class Shown:
    """What a reader returns.

    Attributes:
        stable: where `read_committed` ends.
        hidden: the batches that `read_committed` hides.
        has_tail: whether an entry is in it.
    """

    commit: Commit
    start: int
    end: int
    epochs: EpochHistory
    batches: tuple[Batch, ...]
    stable: int
    hidden: frozenset[Batch]
    has_tail: bool


def view(world: "World", archive: Archive) -> Steps[Shown | None]:
    """Return one view; None without a commit."""
    while True:
        try:
            return (yield from _view(world, archive))
        except Again:
            yield from do(lambda: None)


def _view(world: "World", archive: Archive) -> Steps[Shown | None]:
    clauses = world.clauses
    entries: list[tuple[str, TailEntry]] = []
    if TailClause.COMMIT_FIRST not in clauses:
        yield from _read_logs(world, archive, world.bucket.logs, entries)
    commit = yield from do(lambda: archive.commit)
    if commit is None or commit.live is None:
        return None
    if TailClause.COMMIT_FIRST in clauses:
        named = {commit.live.log, *(log for log, _ in commit.live.former)}
        logs = named if TailClause.NAMED in clauses else world.bucket.logs
        yield from _read_logs(world, archive, logs, entries)
    chain = _joined(commit, entries, clauses)
    tail: list[Batch] = []
    for link in chain.links:
        pack = yield from do(partial(world.bucket.get, link.log, link.entry.object))
        if pack is None:
            raise Again
        tail += [batch for batch in pack.bodies[link.entry.position] if link.start <= batch.first < link.end]
    segments = yield from do(lambda: list(archive.segments.values()))
    start = yield from do(lambda: archive.log_start)
    if start is None or (not start.fits(commit.lineage) and TailClause.SETTLED in clauses):
        raise Again
    return _shown(commit, chain, tail, segments, start, clauses)


def _read_logs(
    world: "World", archive: Archive, logs: Iterable[str], entries: list[tuple[str, TailEntry]]
) -> Steps[None]:
    for log in sorted(logs):
        _, index = yield from read_log(world.bucket, log)
        entries += archive.own((log, entry) for entry in index)


def _joined(commit: Commit, entries: Entries, clauses: frozenset[TailClause]) -> Chain:
    """Return the chain, perhaps without a clause."""
    live = commit.live
    assert live is not None
    if TailClause.NAMED not in clauses:
        live = replace(live, former=tuple({(log, entry.epoch) for log, entry in entries}))
    if TailClause.KNOWN not in clauses:
        pairs = commit.epochs.continued(live.ahead, commit.next_offset).pairs
        if pairs and pairs[0][1] > commit.next_offset and pairs[0][0]:
            live = replace(live, ahead=EpochHistory(((0, commit.next_offset), *pairs)))
    if TailClause.ENDED not in clauses:  # then no epoch of the list is above those of former leaderships
        own, more = (live.log, commit.epoch), commit.epoch + 1
        live = replace(live, former=tuple((log, epoch + more) for log, epoch in live.former if (log, epoch) != own))
        entries = [
            (log, entry if (log, entry.epoch) == own else entry._replace(epoch=entry.epoch + more))
            for log, entry in entries
        ]
    commit = replace(commit, live=live)
    if TailClause.LIVE not in clauses:
        entries = [(log, entry._replace(epochs=())) for log, entry in entries]
    chain = join(commit, entries)
    while TailClause.CHAIN not in clauses:
        above = sorted((each for each in entries if each[1].start > chain.end), key=lambda each: each[1].start)
        if not above:
            break
        entries = [*entries, (above[0][0], above[0][1]._replace(start=chain.end))]
        longer = join(commit, entries)
        if longer.end == chain.end:
            break
        chain = longer
    if TailClause.WHOLE not in clauses and chain.links:
        chain = replace(chain, stable=chain.links[-1].entry.stable)
    return chain


def _shown(
    commit: Commit,
    chain: Chain,
    tail: Sequence[Batch],
    segments: Sequence[Segment],
    log_start: LogStart,
    clauses: frozenset[TailClause],
) -> Shown:
    start, following = log_start.shown_from(commit.lineage), commit.next_offset
    batches = _run_of(segments, chain.epochs, start, following)
    end = chain.end
    batches += [batch for batch in tail if batch.first >= start]
    if TailClause.FROM_NEXT not in clauses:
        while above := [each for each in segments if each.copy.base <= end < _live_end(each, chain.epochs)]:
            more = _live_end(above[0], chain.epochs)
            batches += [batch for batch in above[0].batches if end <= batch.first < more]
            end = more
    stable = chain.end if chain.stable is None else min(chain.stable, chain.end)
    hidden = _hidden(batches, chain, commit, clauses)
    shown_end = max(start, end)
    return Shown(commit, start, shown_end, chain.epochs, tuple(batches), stable, hidden, bool(chain.links))


def _live_end(segment: Segment, epochs: EpochHistory) -> int:
    copy = segment.copy
    return epochs.live_end(copy.metadata.epochs or (), copy.base, copy.end)


def _run_of(segments: Sequence[Segment], epochs: EpochHistory, start: int, end: int) -> list[Batch]:
    """Return the batches below the next offset, by the plan that readers make."""
    held = {each.copy.segment.name: each.batches for each in segments}
    found: list[Batch] = []
    for step in unite([each.copy for each in segments], epochs, start, end):
        if isinstance(step, Hole):
            raise Broken(f"a hole below the next offset: {step}")
        united = {batch for copy in step.copies for batch in held[copy.segment.name]}
        found += sorted(batch for batch in united if step.start <= batch.first < step.end)
    return found


def _hidden(batches: Sequence[Batch], chain: Chain, commit: Commit, clauses: frozenset[TailClause]) -> frozenset[Batch]:
    """Return the batches of aborted transactions: by the markers of segments, and as the entries name them."""
    searched = [(0, commit.next_offset)]
    named = []
    for link in chain.links:
        if link.entry.aborted is None and TailClause.BEGINNING in clauses:
            searched.append((link.start, link.end))
        named += [each for each in link.entry.aborted or () if link.start <= each.last < link.end]
    hidden = set[Batch]()
    for each in transactions_of(batches):
        marker = each.marker
        if marker is not None and marker.marker == "abort" and any(a <= marker.first < b for a, b in searched):
            hidden |= set(each.batches)
    for producer, first, last in named if TailClause.ABORTED in clauses else ():
        hidden |= {batch for batch in batches if batch.producer == producer and first <= batch.first < last}
    return frozenset(hidden)


def check(archive: Archive, shown: Shown) -> None:
    """Check that a view is a part of the log of its commit's leader, below its high watermark.

    Raises:
        Broken: it is not.
    """
    kafka, commit = archive.kafka, shown.commit
    log, high = kafka.logs[commit.epoch], kafka.acknowledged[commit.epoch]
    if shown.end > max(high, shown.start):
        raise Broken(f"a reader sees up to {shown.end}, the high watermark is {high}; {commit}")
    expected = [batch for batch in log if shown.start <= batch.first and batch.end <= shown.end]
    seen = list(shown.batches)
    if [batch for batch in seen if batch.number not in kafka.compacted] != [
        batch for batch in expected if batch.number not in kafka.compacted
    ]:
        raise Broken(f"a reader sees {seen}, the log of epoch {commit.epoch} has {expected}; {commit}")
    if not set(seen) <= set(expected):
        raise Broken(f"a reader sees records that the log never had: {set(seen) - set(expected)}; {commit}")
    if shown.stable > (most := stable_end(log, max(shown.end, shown.start))):
        raise Broken(f"read_committed ends at {shown.stable}, above the last stable offset {most}; {commit}")
    aborted = {
        batch
        for each in transactions_of(batch for batch in log if batch.end <= shown.end)
        if each.marker is not None and each.marker.marker == "abort"
        for batch in each.batches
    }
    for batch in seen:
        if batch.end <= shown.stable and (batch in aborted) != (batch in shown.hidden):
            raise Broken(f"aborted {batch in aborted}, hidden {batch in shown.hidden}: {batch}; {commit}")


def reader(world: "World", archive: Archive) -> Steps[None]:
    """Read for ever; the end of a view falls only by an election that lost records."""
    last: Shown | None = None
    while True:
        shown = yield from view(world, archive)
        if shown is None:
            continue
        check(archive, shown)
        world.counts["views"] += 1
        world.counts["views with a tail"] += shown.has_tail
        if last is not None and shown.end < last.end and not _has_lost(archive, last, shown):
            raise Broken(f"the end went back from {last.end} ({last.commit}) to {shown.end} ({shown.commit})")
        last = shown


def _has_lost(archive: Archive, last: Shown, now: Shown) -> bool:
    """Return whether an election lost what was read, or seems to have."""
    log = set(archive.kafka.logs[now.commit.epoch])
    is_unclean = any(last.commit.epoch < epoch <= now.commit.epoch for epoch in archive.kafka.losses)
    return is_unclean or any(batch not in log for batch in last.batches) or _looks_lost(last.batches, now.epochs)


def _looks_lost(batches: Iterable[Batch], epochs: EpochHistory) -> bool:
    """Return whether a leader's epochs lack those of some batches: compaction looks like a loss (protocol rule 5)."""
    return any(epochs.at(batch.first) != batch.epoch for batch in batches)


@dataclass
class Stream:
    """A stream: what it has returned, up to a position.

    Attributes:
        begun: its first offset.
    """

    world: "World"
    archive: Archive
    position: int | None = None
    begun: int = 0

    def __post_init__(self) -> None:
        self.read: list[Batch] = []
        self.log: ReadLog | None = None

    def run(self) -> Steps[None]:
        """Read for ever."""
        while True:
            shown = yield from view(self.world, self.archive)
            if shown is not None:
                self._take(shown)

    def _take(self, shown: Shown) -> None:
        if self.position is None:
            self.position = self.begun = shown.start
        now = ReadLog(shown.epochs, shown.commit.lineage)
        kept = kept_end(self.position, self.log, now, shown.end)
        if kept < self.position:
            gone = [batch for batch in self.read if batch.end > kept]
            log = set(self.archive.kafka.logs[shown.commit.epoch])
            if gone and set(gone) <= log and not _looks_lost(gone, shown.epochs):
                raise Broken(f"a stream goes back from {self.position} to {kept}, nothing was lost; {shown.commit}")
            self.read = [batch for batch in self.read if batch.end <= kept]
            self.position = kept
        if shown.end <= self.position:
            return
        self.read += [batch for batch in shown.batches if batch.first >= self.position]
        self.position = shown.end
        self.log = now.below(self.position)
        if TailClause.POSITION not in self.world.clauses:
            self.log = replace(self.log, epochs=EpochHistory(self.log.epochs.pairs[-1:]))
