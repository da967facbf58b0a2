"""The agent of one broker: begins leaderships, ships entries and segments, merges packs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.tail.bucket import Archive, Pack
from tests.tail.clauses import TailClause
from tests.tail.kafka import Batch, Replica, pairs_of, stable_end, transactions_of
from tests.tail.steps import UNKNOWN, Again, Steps, do, put, read_log
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import pack_name, pack_number
from ts_common.archive.tail_chain import Aborted, TailEntry, join
from ts_uploader.committing.next_commit import with_live

if TYPE_CHECKING:
    from tests.tail.world import World

FEW = 2  # objects that are merged at least


@dataclass
class Led:
    """A partition that the agent ships.

    Attributes:
        end: where the next entry begins.
    """

    archive: Archive
    epoch: int
    commit: Commit
    etag: int
    end: int


@dataclass(frozen=True)
class Local:
    """What an agent reads of its broker's log at one instant, for a commit at an offset."""

    epoch: int
    history: EpochHistory
    end: int
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, replica: Replica, epoch: int) -> "Local":
        """Return what a broker's files have."""
        return cls(epoch, replica.history, replica.end, tuple(replica.log))


def own_commit(
    log: str, epochs: EpochHistory, end: int, local: Local, before: Commit | None, lineage: Lineage | None
) -> Commit:
    """Return a commit of a leadership; it names the former ones that `before` names, and that one's, if they count."""
    stable = stable_end(local.batches, end)
    commit = Commit(end, end, local.epoch, epochs, stable, None, int(log), 0, "", lineage=lineage)
    return with_live(commit, before, log, local.history)


class Agent:
    """One process; its state is lost with it.

    Attributes:
        log: name of its log of packs.
        number: of its log's newest pack.
        index: the entries that this pack leads to.
        led: by number of the partition.
        commits: by partition, each commit that it has read or written, with the time.
    """

    def __init__(self, world: "World", broker: int) -> None:
        self.world, self.broker, self.log = world, broker, str(broker)
        self.number, self.index = 0, tuple[TailEntry, ...]()
        self.led: dict[int, Led] = {}
        self.commits: dict[int, list[tuple[int, Commit | None]]] = {}
        self._looked = 0

    def has(self, clause: TailClause) -> bool:
        """Return whether a clause is on."""
        return clause in self.world.clauses

    def run(self) -> Steps[None]:
        """Live for ever."""
        while True:
            try:
                yield from self._live()
            except Again:
                yield from do(lambda: None)

    def _live(self) -> Steps[None]:
        self.led.clear()
        self._looked = self.world.time
        self.number, self.index = yield from read_log(self.world.bucket, self.log)
        while True:
            for archive in self.world.bucket.archives:
                if archive.number not in self.led:
                    yield from self._take_over(archive)
                else:
                    self._note(archive, self.led[archive.number].commit)
            what = self.world.chance.choice(("tail", "tail", "tail", "run", "tidy", "adopt"))
            chosen = [each for each in self.led.values() if len(self.led) == 1 or self.world.chance.random() < 0.7]
            if what == "tidy":
                yield from self.tidy()
            elif what == "run":
                for each in chosen:
                    yield from self._run(each)
            else:
                yield from self._ship(chosen, is_adopting=what == "adopt")
            yield from do(lambda: None)

    def _fresh(self) -> None:
        """Raise `Again` if the last look at the log is half a grace ago."""
        if self.world.time - self._looked > self.world.grace // 2 and self.has(TailClause.FRESH):
            raise Again
        self._looked = self.world.time

    def _note(self, archive: Archive, commit: Commit | None) -> None:
        self.commits.setdefault(archive.number, []).append((self.world.time, commit))

    def _take_over(self, archive: Archive) -> Steps[None]:
        """Begin a leadership: compare the commit with the log, and write an own one (protocol rule 5)."""
        kafka, replica = archive.kafka, archive.kafka.replicas[self.broker]
        epoch = yield from do(lambda: replica.role[0] if replica.role and kafka.leads(self.broker) else None)
        before, etag = yield from do(lambda: (archive.commit, archive.etag))
        self._note(archive, before)
        if epoch is None or (before is not None and before.epoch > epoch):
            return
        answer = yield from do(lambda: kafka.answer(self.broker))
        start, start_etag = yield from do(lambda: (archive.log_start, archive.start_etag))
        local = yield from do(lambda: Local.of(replica, epoch))
        if answer is None or answer[0] != epoch or replica.last_epoch is None or local.history.pairs[-1][0] != epoch:
            return
        if start is None:
            yield from put(lambda: archive.put_start(LogStart(0), start_etag))
            return
        commit = self._first(local, start, before)
        if commit is None:
            return
        if self.has(TailClause.OWN) or before is None:
            found = yield from put(lambda: archive.put_commit(commit, etag), "commit")
            if not isinstance(found, int):
                return
            etag = found
        if commit.lineage != start.lineage and commit.lineage is not None:
            lowered = start.in_lineage(commit.lineage, min(start.offset, commit.next_offset))
            if (yield from put(lambda: archive.put_start(lowered, start_etag))) is not True:
                return
        entries = [(self.log, entry) for entry in self.index]
        assert commit.live is not None
        for other in sorted({log for log, _ in commit.live.former} - {self.log}):
            entries += [(other, entry) for entry in (yield from read_log(self.world.bucket, other))[1]]
        end = join(commit, archive.own(entries)).end
        if not self.has(TailClause.CONTINUES):
            end = max(end, kafka.begins[epoch])
        self.led[archive.number] = Led(archive, epoch, commit, etag, end)
        self._note(archive, commit)
        self.world.counts["takeovers"] += 1

    def _first(self, local: Local, start: LogStart, before: Commit | None) -> Commit | None:
        """Return the own commit of a leadership; None if a later leader's agent works here."""
        if before is None:
            return self._own(EpochHistory(), start.offset, local, None, start.lineage)
        if start.lineage is not None and start.lineage.epoch > local.epoch:
            return None
        end, epochs, lineage = before.next_offset, before.epochs, before.lineage
        back = min(end, epochs.shared_end(end, local.history, local.end))
        if back < end or not start.fits(lineage):
            highest = max(
                end, start.offset, *(each.highest for each in (lineage, start.lineage) if each is not None), 0
            )
            lineage = Lineage(local.epoch, back, highest)
            epochs = epochs.continued(local.history, back).below(back + 1)
            self.world.counts["back"] += 1
        return self._own(epochs, back, local, before, lineage)

    def _own(
        self, epochs: EpochHistory, end: int, local: Local, before: Commit | None, lineage: Lineage | None
    ) -> Commit:
        """Return a commit of this agent, perhaps without a clause."""
        old = None if before is None else before.live
        if before is not None and old is not None and not self.has(TailClause.CARRY):
            before = replace(before, live=replace(old, former=()))
        commit = own_commit(self.log, epochs, end, local, before, lineage)
        assert commit.live is not None
        if commit.live.ahead.at(end) is None and before is not None and not self.has(TailClause.LISTED):
            found = own_commit(self.log, epochs, end, replace(local, history=_listed_from(local, end)), before, lineage)
            assert found.live is not None
            commit = replace(commit, live=replace(commit.live, former=found.live.former))
        return self._without_ahead(commit)

    def _without_ahead(self, commit: Commit) -> Commit:
        if self.has(TailClause.AHEAD) or commit.live is None:
            return commit
        return replace(commit, live=replace(commit.live, ahead=EpochHistory()))

    def _ship(self, chosen: Sequence[Led], *, is_adopting: bool) -> Steps[None]:
        """Put one pack with entries of several partitions; an adopting one covers what former leaders shipped."""
        name, rows, bodies = pack_name(self.number + 1), list[TailEntry](), dict[int, tuple[Batch, ...]]()
        ended: list[tuple[Led, int]] = []
        for led in chosen:
            found = yield from self._entry(led, is_adopting=is_adopting)
            if found is None:
                continue
            entry, batches = found
            position = len(bodies)
            rows.append(entry._replace(object=name, position=position))
            bodies[position] = batches
            ended.append((led, entry.end))
        if not rows:
            return
        yield from self._put_pack(name, (*self.index, *rows), bodies)
        for led, end in ended:
            led.end = max(led.end, end)
            self.world.counts["entries"] += 1
            if is_adopting:
                yield from self._forget_former(led)

    def _forget_former(self, led: Led) -> Steps[None]:
        """Write a commit that names no former leadership: own entries reach to where this one begins."""
        replica = led.archive.kafka.replicas[self.broker]
        local = yield from do(lambda: Local.of(replica, led.epoch))
        if replica.last_epoch != led.epoch or self.led.get(led.archive.number) is not led:
            self.led.pop(led.archive.number, None)
            return
        before = led.commit
        yield from self._commit(led, self._own(before.epochs, before.next_offset, local, None, before.lineage))

    def _commit(self, led: Led, commit: Commit) -> Steps[None]:
        """Write a commit, or give the leadership up."""
        found = yield from put(lambda: led.archive.put_commit(commit, led.etag))
        if isinstance(found, int):
            led.commit, led.etag, led.end = commit, found, max(led.end, commit.next_offset)
        else:
            self.led.pop(led.archive.number, None)

    def _entry(self, led: Led, *, is_adopting: bool) -> Steps[tuple[TailEntry, tuple[Batch, ...]] | None]:
        """Return what can be shipped of a partition; give it up at any doubt that it is still led."""
        kafka, replica = led.archive.kafka, led.archive.kafka.replicas[self.broker]
        answer = yield from do(lambda: kafka.answer(self.broker))
        if answer is None or answer[0] != led.epoch:
            self.led.pop(led.archive.number, None)
            return None
        start = led.commit.next_offset if is_adopting else max(led.end, led.commit.next_offset)
        batches, log = yield from do(lambda: (self._read(led, replica, start, answer[1]), tuple(replica.log)), "read")
        last = yield from do(lambda: replica.last_epoch)
        if last != led.epoch and self.has(TailClause.FILE):
            self.led.pop(led.archive.number, None)
            return None
        if is_adopting:
            assert led.commit.live is not None
            if not led.commit.live.former or not batches or batches[-1].end < led.end:
                return None
            if not self.has(TailClause.REACH):
                batches = tuple(batch for batch in batches if batch.end <= led.end)
            elif batches[-1].end < kafka.begins[led.epoch]:
                return None  # the late pack of a former leader can still be shown up to there
        if not batches:
            return None
        end = batches[-1].end
        stable = stable_end(log, end)
        if not self.has(TailClause.STABLE):
            second = yield from do(lambda: stable_end(replica.log, replica.high))
            stable = min(second, end)
        records = sum(batch.end - batch.first for batch in batches)
        aborted = aborted_in(log, batches, replica.seen)
        entry = TailEntry(
            led.archive.keys.directory,
            led.epoch,
            start,
            end,
            "",
            0,
            1,
            0,
            pairs_of(batches),
            stable,
            aborted,
            records,
            None,
        )
        return entry, batches

    def _read(self, led: Led, replica: Replica, start: int, high: int) -> tuple[Batch, ...]:
        """Return whole batches below the high watermark; only in the newest file there can be gaps between them."""
        read: list[Batch] = []
        end = start
        for batch in replica.held(start):
            is_later = batch.epoch > led.epoch and self.has(TailClause.EPOCHS)
            is_above = batch.end > high and self.has(TailClause.BOUND)
            if is_later or is_above or (batch.first != end and end < replica.bases[-1]):
                break
            read.append(batch)
            end = batch.end
        return tuple(read)

    def _run(self, led: Led) -> Steps[None]:
        """Ship the closed segment that contains the next offset, and commit it."""
        archive, kafka, replica = led.archive, led.archive.kafka, led.archive.kafka.replicas[self.broker]
        answer = yield from do(lambda: kafka.answer(self.broker))
        if answer is None or answer[0] != led.epoch:
            self.led.pop(archive.number, None)
            return
        found = yield from do(lambda: closed_segment(replica, led.commit.next_offset, answer[1]))
        local = yield from do(lambda: Local.of(replica, led.epoch))
        if replica.last_epoch != led.epoch:
            self.led.pop(archive.number, None)
            return
        if found is None:
            return
        base, end, held = found
        stored = archive.segment(base, end, led.epoch, held, local.history)
        if (yield from put(lambda: archive.put_segment(stored))) == UNKNOWN:
            self.led.pop(archive.number, None)
            return
        before = led.commit
        epochs = before.epochs.continued(local.history, before.next_offset).below(end)
        yield from self._commit(led, self._own(epochs, end, local, before, before.lineage))

    def _put_pack(self, name: str, index: tuple[TailEntry, ...], bodies: dict[int, tuple[Batch, ...]]) -> Steps[None]:
        """Put the next pack, and look at the log again after any doubt."""
        is_free = self.has(TailClause.FREE)
        pack = Pack(index, bodies)
        if not self.has(TailClause.ORDER):
            self.world.begin(put(lambda: self.world.bucket.put(self.log, name, pack)), -1)
            self.number, self.index = self.number + 1, index
            return
        result = yield from put(lambda: self.world.bucket.put(self.log, name, pack, if_absent=is_free), "pack")
        if result is True or (result == UNKNOWN and not self.has(TailClause.REREAD)):
            self._fresh()
            self.number, self.index = self.number + 1, index
            return
        raise Again

    def tidy(self) -> Steps[None]:
        """Merge some objects into one; the next pack leads to it, and a grace later the others are deleted."""
        chance, bucket = self.world.chance, self.world.bucket
        names = sorted({entry.object for entry in self.index})
        if len(names) <= FEW or chance.random() < 0.5:
            return
        parts = set(chance.sample(names, chance.randint(FEW, len(names))))
        copied, bodies = list[TailEntry](), dict[int, tuple[Batch, ...]]()
        merged_name = f"merged/{self.number}-{chance.getrandbits(32):08x}"
        for entry in self.index:
            if entry.object in parts and not self._drops(entry):
                pack = bucket.get(self.log, entry.object)
                if pack is None:
                    raise Again
                bodies[len(bodies)] = pack.bodies[entry.position]
                copied.append(entry._replace(object=merged_name, position=len(bodies) - 1))
        if not self.has(TailClause.KEPT):
            yield from do(lambda: bucket.delete(self.log, parts))
        if copied:
            merged = Pack((), bodies)
            if (yield from put(lambda: bucket.put(self.log, merged_name, merged))) is not True:
                raise Again
        index = (*(entry for entry in self.index if entry.object not in parts), *copied)
        yield from self._put_pack(pack_name(self.number + 1), index, {})
        self.world.counts["merges"] += 1
        self.world.begin(self._delete(parts, self.number), -1)

    def _drops(self, entry: TailEntry) -> bool:
        """Return whether a merge drops an entry, by a commit that was read a grace ago."""
        number = int(entry.directory.rpartition("-")[2])
        if number not in self.led and not self.has(TailClause.NOT_LED):
            return True
        before = self.world.time - (self.world.grace if self.has(TailClause.GRACE) else 0)
        old = [commit for time, commit in self.commits.get(number, ()) if time <= before]
        commit = old[-1] if old else None
        if commit is None:
            return False
        if commit.next_offset >= entry.end and commit.epoch >= entry.epoch:
            return True
        named = () if commit.live is None else commit.live.former
        return commit.epoch > entry.epoch and (self.log, entry.epoch) not in named

    def _delete(self, parts: Iterable[str], root: int) -> Steps[None]:
        """Delete what the newest pack does not lead to since `root`, a grace later."""
        world, bucket = self.world, self.world.bucket
        led_to = {entry.object for entry in self.index}
        former = {name for name in bucket.logs[self.log] if (number := pack_number(name)) and number < root}
        replaced = {*parts, *former} - led_to
        until = world.time + (world.grace if self.has(TailClause.DELETED_LATER) else 0)
        while world.time < until:
            yield from do(lambda: None)
        world.counts["deletes"] += yield from do(lambda: bucket.delete(self.log, replaced))


def _listed_from(local: Local, start: int) -> EpochHistory:
    """Return a list of epochs that begins at an offset, whatever the broker's shows there."""
    return EpochHistory(((-1, start), *local.history.pairs))


def aborted_in(log: Iterable[Batch], batches: Sequence[Batch], seen: Iterable[int]) -> tuple[Aborted, ...] | None:
    """Return the aborted transactions that end in some batches; None if the broker never had the records of one."""
    read, known = set(batches), set(seen)
    found = []
    for each in transactions_of(log):
        if each.marker is None or each.marker.marker != "abort" or each.marker not in read:
            continue
        first = next((batch.first for batch in each.batches if batch.number in known), None)
        if first is None:
            return None
        found.append(Aborted(each.marker.producer, first, each.marker.first))
    return tuple(found)


def closed_segment(replica: Replica, offset: int, high: int) -> tuple[int, int, list[Batch]] | None:
    """Return the closed segment that contains an offset, if it ends at or below the high watermark."""
    for base, end in zip(replica.bases, replica.bases[1:], strict=False):
        if base <= offset < end <= high:
            return base, end, [batch for batch in replica.held(base) if batch.end <= end]
    return None
