"""The agent's work on one directory, one store operation a step, by protocol rule 14 and protocol rules 5 to 10.

A live directory is shipped as far as its segments are closed. An agent whose write is rejected begins again. Going back
writes no lineage: nothing moves `log.start` here.
"""

from typing import NamedTuple

from tests.lineage.agent import walked
from tests.lineage.clauses import Property, Violation
from tests.lineage.deletion import REBORN, Do, Rule14, Worker
from tests.lineage.kafka import Epochs, Log, shared_end
from tests.lineage.state import Commit, LogStart, Segment, Store, continued, epoch_at, lives


class Directory(NamedTuple):
    """A directory, and what its agent has read of it.

    Attributes:
        life: 0 of the deleted topic, 1 of the one that was created again.
        epoch: of its agent's commits.
        log: the broker's.
        known: the high watermark that its agent counts; None without one.
        is_deleted: it is a `-delete` directory.
        is_there: it exists, under the name that the agent read.
        led: its agent saw its broker lead in this epoch.
    """

    life: int
    epoch: int
    log: Log
    known: int | None
    is_deleted: bool
    is_there: bool
    led: bool


class Step(NamedTuple):
    """What an agent did, what it does next, what the store holds then, and the segment that was put."""

    label: str
    worker: Worker
    ids: tuple[int, ...]
    archives: tuple[Store, ...]
    segment: Segment | None = None


class Rules(NamedTuple):
    """The rules for one directory in one state of the store."""

    clauses: frozenset[Rule14]
    has_id: bool
    directory: Directory
    worker: Worker
    ids: tuple[int, ...]
    archives: tuple[Store, ...]

    def step(self) -> Step | None:
        """The next step from `OPEN` on; None where the agent waits, or has nothing to do."""
        directory, worker = self.directory, self.worker
        if not directory.is_deleted and not directory.is_there and worker.do not in {Do.PUT_LIST, Do.SHIP, Do.COMMIT}:
            return None
        match worker.do:
            case Do.OPEN:
                return self._open()
            case Do.PUT_LIST:
                if self.ids != worker.ids:
                    return self._to("PUT list: refused", do=Do.OPEN)
                opened = (*self.ids, directory.life)
                return self._to(f"PUT list: {opened}", do=Do.READ)._replace(ids=opened)
            case Do.READ:
                return self._read()
            case Do.LIST:
                return self._list()
            case Do.SHIP:
                return self._ship()
            case Do.COMMIT | Do.PASS:
                return self._commit()
            case Do.REST:
                return self._rest()
            case Do.GAP:
                return self._gap()
            case _:
                return None

    # ---------------------------------------------------------------- the incarnation

    def _open(self) -> Step | None:
        directory, life = self.directory, self.directory.life
        if not self.has_id or life in self.ids:
            followed = self.has_id and self.ids[-1] != life
            if followed and not directory.is_deleted:
                return self._to("GET list: followed by another", do=Do.DONE)
            return self._to(f"GET list: {self.ids}", do=Do.READ)
        if not directory.is_there:
            return self._to("GET list: absent, and the files vanished", do=Do.LOST)
        if self.ids and life == 0 and Rule14.OPENS_FIRST in self.clauses:
            return None  # until the directory is removed
        return self._to(f"GET list: {self.ids}, absent", do=Do.PUT_LIST, ids=self.ids)

    @property
    def _at(self) -> int:
        """The archive that the agent writes to."""
        if not self.has_id:
            return 0
        if self.directory.is_deleted and Rule14.OWN_INCARNATION not in self.clauses:
            return self.ids[-1]
        return self.directory.life

    @property
    def _archive(self) -> Store:
        return self.archives[self._at]

    # ---------------------------------------------------------------- the position

    def _read(self) -> Step | None:
        directory, commit = self.directory, self._archive.commit
        assert commit is None or isinstance(commit, Commit)
        if commit is not None and commit.epoch > directory.epoch and Rule14.LATER_COMMIT in self.clauses:
            return self._fenced(commit)
        if directory.is_deleted and not self.worker.log:
            return self._to("GET offset.wm: and the log was never read", do=Do.LOST)
        return self._to(f"GET offset.wm: {commit or 'absent'}", do=Do.LIST, commit=commit)

    def _fenced(self, commit: Commit) -> Step | None:
        directory = self.directory
        label = f"GET offset.wm: epoch {commit.epoch}, ends"
        last = commit.epochs[-1][0] if commit.epochs else 0
        can_miss = directory.is_deleted and commit.next < directory.log.end and last <= directory.epoch
        if not can_miss or Rule14.TOLD not in self.clauses:
            return self._to(label, do=Do.DONE)
        return None if directory.is_there else self._to(label, do=Do.LOST)

    def _list(self) -> Step | None:
        directory, archive, commit = self.directory, self._archive, self.worker.commit
        if archive.log_start is None:
            is_leaders = directory.led or Rule14.BEGINS not in self.clauses
            written = archive._replace(log_start=LogStart(directory.log.start if is_leaders else 0, None))
            return self._put("PUT log.start", written, do=Do.LIST)
        if commit is None and archive.segments:
            if not directory.is_there:
                return self._to("list: segments, and no commit", do=Do.LOST)
            end, epochs = walked(archive, archive.log_start.offset, None)
            end = shared_end(epochs, end, directory.log)
            return self._draft(f"list and walk: {end}", None, end, epochs)
        begun = commit or Commit(archive.log_start.offset, 0, (), None, 0)
        label = f"list: {len(archive.segments)} segments"
        end = shared_end(begun.epochs, begun.next, directory.log) if begun.epochs else begun.next
        if not directory.is_there:
            if begun.next < directory.log.end and end < begun.next:
                return self._to(f"{label}; an election lost records", do=Do.LOST)
            return self._to(label, do=Do.REST)
        if end < begun.next:
            if begun.epoch == directory.epoch:
                if Rule14.SHORTER not in self.clauses:
                    return None  # as if the broker had lost records within its epoch
            else:
                return self._draft(f"{label}, goes back to {end}", commit, end, begun.epochs)
        if commit is None or commit.epoch < directory.epoch:
            return self._draft(label, commit, begun.next, begun.epochs)
        return self._to(label, do=Do.SHIP, gaps=_fillable(archive, commit.epochs, commit.next))

    def _draft(self, label: str, commit: Commit | None, end: int, epochs: Epochs) -> Step:
        kept = tuple(pair for pair in epochs if pair[1] < end)
        draft = Commit(end, self.directory.epoch, kept, None, 0)
        return self._to(label, do=Do.COMMIT, commit=commit, draft=draft, gaps=_fillable(self._archive, kept, end))

    # ---------------------------------------------------------------- shipping

    def _ship(self) -> Step | None:
        """PUT the lowest segment that moves the commit on, or that has offsets of a recorded gap."""
        directory, worker = self.directory, self.worker
        if directory.is_deleted and not directory.is_there:
            return self._to("the files vanished", do=Do.OPEN)
        assert worker.commit is not None
        if worker.commit.next < directory.log.start <= (directory.known or 0):
            return self._to_gap("its log begins above", worker.commit, directory.log.start)
        segment = self._next_segment()
        if segment is not None:
            return self._put_segment(segment)
        if not directory.is_deleted:
            return None
        if worker.commit.next >= directory.log.end:
            return self._to("all is shipped", do=Do.DONE)
        if directory.led or Rule14.ONLY_LEADER not in self.clauses:
            return self._to("the rest is a gap", do=Do.REST)
        return None  # until the directory is removed

    def _next_segment(self) -> Segment | None:
        directory, worker, log = self.directory, self.worker, self.directory.log
        assert worker.commit is not None
        following = worker.commit.next
        fills = not directory.is_deleted or Rule14.FILLS in self.clauses
        known = min(directory.known or 0, log.end)
        ends = (*log.bases[1:], log.end) if directory.is_deleted else log.bases[1:]
        for base, end in zip(log.bases, ends, strict=False):
            cut = end
            if end > known or (directory.is_deleted and base == log.bases[-1]):
                cut = known if Rule14.CUT in self.clauses else end
                if not directory.is_deleted or base >= cut:
                    return None
            if cut > following or (fills and any(base <= each < cut for each in worker.gaps)):
                return Segment(base, None, log.records[base - log.start : cut - log.start])
        return None

    def _put_segment(self, segment: Segment) -> Step:
        """Protocol rule 6: under the plain name, or that of a variant of these bytes."""
        directory, worker, archive = self.directory, self.worker, self._archive
        assert worker.commit is not None
        others = [other for other in archive.segments if REBORN.records[0] in other.records]
        if directory.is_deleted and others and REBORN.records[0] not in directory.log.records:
            raise Violation(Property.D4, f"{segment} is stored beside {others[0]}, which is of another topic")
        plain = next((other for other in archive.segments if (other.base, other.variant) == (segment.base, None)), None)
        if plain is not None and plain.records[: len(segment.records)] != segment.records:
            segment = segment._replace(variant=directory.epoch)
        stored = archive._replace(segments=archive.segments | {segment})
        gaps = worker.gaps - frozenset(range(segment.base, segment.end))
        if segment.end <= worker.commit.next:
            put = self._put(f"PUT {segment}", stored, gaps=gaps)._replace(segment=segment)
            epochs = _filled(worker.commit, directory.log, segment)
            draft = worker.commit._replace(epochs=epochs, epoch=directory.epoch)
            filling = put.worker._replace(do=Do.COMMIT, draft=draft)
            return put if epochs == worker.commit.epochs else put._replace(worker=filling)
        epochs = continued(worker.commit.epochs, directory.log, worker.commit.next, segment.end)
        draft = Commit(segment.end, directory.epoch, epochs, None, 0)
        return self._put(f"PUT {segment}", stored, do=Do.COMMIT, draft=draft, gaps=gaps)._replace(segment=segment)

    def _commit(self) -> Step:
        worker, archive = self.worker, self._archive
        assert worker.draft is not None
        if archive.commit != worker.commit:
            return self._to("PUT offset.wm: refused", do=Do.OPEN)
        before = archive.commit
        if isinstance(before, Commit) and worker.draft.epoch < before.epoch:
            raise Violation(Property.D6, f"a commit of epoch {worker.draft.epoch} replaces {before}")
        commit = worker.draft._replace(nonce=archive.nonces + 1)
        written = archive._replace(commit=commit, nonces=commit.nonce)
        ends = commit.next == self.directory.log.end
        do = Do.SHIP if worker.do == Do.COMMIT else Do.DONE if ends else Do.OPEN
        return self._put(f"PUT offset.wm: {commit}", written, do=do, commit=commit, draft=None)

    # ---------------------------------------------------------------- the rest

    def _rest(self) -> Step:
        worker, log, archive = self.worker, self.directory.log, self._archive
        if archive.commit != worker.commit:
            return self._to("list: another commit", do=Do.OPEN)
        assert archive.log_start is not None
        commit = worker.commit or Commit(archive.log_start.offset, 0, (), None, 0)
        if commit.next >= log.end or Rule14.REST not in self.clauses:
            return self._to("list: nothing is left", do=Do.DONE)
        return self._to_gap("list: for a gap", commit, log.end)

    def _to_gap(self, label: str, commit: Commit, end: int) -> Step:
        epochs = continued(commit.epochs, self.directory.log, commit.next, end)
        gaps = frozenset(o for o in range(commit.next, end) if not lives(self._archive.segments, epochs, o))
        draft = Commit(end, self.directory.epoch, epochs, None, 0)
        return self._to(label, do=Do.GAP, draft=draft, gaps=gaps)

    def _gap(self) -> Step:
        worker, archive = self.worker, self._archive
        recorded = archive._replace(gaps=archive.gaps | worker.gaps)
        return self._put(f"PUT gap record {sorted(worker.gaps)}", recorded, do=Do.PASS, gaps=frozenset())

    # ----------------------------------------------------------------

    def _to(self, label: str, **fields: object) -> Step:
        return Step(label, self.worker._replace(**fields), self.ids, self.archives)  # type: ignore[arg-type]

    def _put(self, label: str, archive: Store, **fields: object) -> Step:
        archives = list(self.archives)
        archives[self._at] = archive
        return self._to(label, **fields)._replace(archives=tuple(archives))


def _filled(commit: Commit, log: Log, segment: Segment) -> Epochs:
    """Return the epochs of a commit, corrected by a segment that fills a gap."""
    epochs = list(continued(commit.epochs, log, segment.base, segment.end))
    for offset in range(segment.end, commit.next):
        epoch = epoch_at(commit.epochs, offset)
        if epoch is not None and epoch != epochs[-1][0]:
            epochs.append((epoch, offset))
    return tuple(epochs)


def _fillable(archive: Store, epochs: Epochs, end: int) -> frozenset[int]:
    return frozenset(offset for offset in archive.gaps if offset < end and not lives(archive.segments, epochs, offset))
