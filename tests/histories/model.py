"""Brokers as far as an agent sees them: files, checkpoints, elections. Small and obvious; knows no agent.

Each batch holds one record, so offsets count batches. A broker keeps what its log ever was (`history`, from offset 0,
also what retention took), and writes the files that Kafka would: segments, `leader-epoch-checkpoint`,
`partition.metadata`.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tests.log_format import build

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_SUFFIXES = (".log", ".index", ".timeindex")


@dataclass(frozen=True)
class Entry:
    """One record: a number of its own, and the epoch that it was appended in."""

    number: int
    epoch: int


@dataclass
class Broker:
    """One broker's replica of one partition.

    Attributes:
        path: of the partition's directory.
        roll: records per segment.
        history: every record from offset 0 on, as this log's line has it.
        bases: live segments, ascending; the last is the active one.
        held: offsets by segment base, ascending: compaction leaves some out.
        epochs: as in `leader-epoch-checkpoint`.
        high_watermark: as this broker knows it.
    """

    path: Path
    roll: int
    history: list[Entry] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    held: dict[int, list[int]] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int = 0

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        (self.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}")
        self._begin(0)
        self._write_epochs()

    @property
    def end(self) -> int:
        """Log end offset."""
        return len(self.history)

    @property
    def start(self) -> int:
        """Log start offset."""
        return self.bases[0]

    def append(self, entry: Entry, *, is_left: bool = True) -> None:
        """Append a record, in a new segment where the active one is full; or pass over one that was compacted away."""
        if not is_left:
            self.history.append(entry)
            return
        if not self.epochs or self.epochs[-1][0] < entry.epoch:
            self.lead(entry.epoch)
        if self.end - self.bases[-1] >= self.roll:
            self._begin(self.end)
        with (self.path / f"{self.bases[-1]:020d}.log").open("ab") as file:
            file.write(batch(self.end, entry))
        self.held[self.bases[-1]].append(self.end)
        self.history.append(entry)

    def lead(self, epoch: int) -> None:
        """Write a new epoch to the checkpoint: a leader does before its first record, a follower with it."""
        self.epochs = [pair for pair in self.epochs if pair[1] < self.end]
        self.epochs.append((epoch, self.end))
        self._write_epochs()

    def truncate(self, end: int) -> None:
        """Cut the log off at an offset, as a follower does whose leader has another line from there on."""
        while len(self.bases) > 1 and self.bases[-1] >= end:
            self._rename(self.bases.pop())
        active = self.bases[-1]
        self.held[active] = [offset for offset in self.held[active] if offset < end]
        del self.history[end:]
        self._rewrite(active)
        self.forget_empty_reigns()
        self.high_watermark = min(self.high_watermark, end)

    def forget_empty_reigns(self) -> None:
        """Drop epochs that begin at the log's end, of reigns without a record: a follower does before it fetches.

        Source: Kafka's `UnifiedLog.truncateTo`, which always truncates the epoch cache.
        """
        self.epochs = [pair for pair in self.epochs if pair[1] < self.end]
        self._write_epochs()

    def begin_at(self, history: list[Entry], epochs: list[tuple[int, int]]) -> None:
        """Drop everything and begin where the leader's log begins, as a follower does that is too far behind."""
        for base in self.bases:
            self._rename(base)
        self.bases, self.history = [], list(history)
        self.epochs = list(epochs)
        self._begin(len(history))
        self._write_epochs()

    def expire(self, count: int) -> None:
        """Retention: the lowest closed segments below the high watermark are renamed."""
        while count and len(self.bases) > 1 and self.bases[1] <= self.high_watermark:
            self._rename(self.bases.pop(0))
            count -= 1
        below = [pair for pair in self.epochs if pair[1] <= self.start]
        floor = [(below[-1][0], self.start)] if below else []
        self.epochs = floor + [pair for pair in self.epochs if pair[1] > self.start]
        self._write_epochs()

    def unlink(self) -> None:
        """What bears `.deleted` goes, a minute after its rename."""
        for path in self.path.glob("*.deleted"):
            path.unlink()

    def compact(self, index: int, keep: int, *, merge: bool) -> list[int]:
        """The cleaner rewrites a closed segment without some records, or merges it with the next; what it took."""
        closed = self.bases[:-1]
        if not closed:
            return []
        base = closed[index % len(closed)]
        following = self.bases[self.bases.index(base) + 1]
        offsets = list(self.held[base])
        if merge and following in closed and self.bases[self.bases.index(following) + 1] <= self.high_watermark:
            offsets += self.held.pop(following)
            self._rename(following)
            self.bases.remove(following)
        elif following > self.high_watermark:
            return []
        taken = [offset for position, offset in enumerate(offsets) if position % 4 == keep]
        self.held[base] = [offset for offset in offsets if offset not in taken]
        self._rewrite(base)
        return taken

    def renames_begin(self) -> None:
        """The cleaner is in the middle of replacing segments: neighbours may be none."""
        (self.path / f"{self.start:020d}.log.swap").touch()

    def renames_end(self) -> None:
        """It is done."""
        for path in self.path.glob("*.swap"):
            path.unlink()

    def parts_from(self, leader: "Broker") -> int:
        """The offset from which on this log is not the leader's."""
        for offset, (mine, theirs) in enumerate(zip(self.history, leader.history, strict=False)):
            if mine != theirs:
                return offset
        return min(self.end, leader.end)

    def wipe(self) -> None:
        """The disk was replaced."""
        for path in self.path.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        self.history, self.bases, self.held, self.epochs, self.high_watermark = [], [], {}, [], 0
        self._begin(0)
        self._write_epochs()

    def _begin(self, base: int) -> None:
        self.bases.append(base)
        self.held[base] = []
        for suffix in _SUFFIXES:
            path = self.path / f"{base:020d}{suffix}"
            path.unlink(missing_ok=True)
            path.touch()

    def _rewrite(self, base: int) -> None:
        path = self.path / f"{base:020d}.log"
        clean = path.with_name(path.name + ".cleaned")
        clean.write_bytes(b"".join(batch(offset, self.history[offset]) for offset in self.held[base]))
        clean.replace(path)

    def _rename(self, base: int) -> None:
        self.held.pop(base, None)
        for suffix in _SUFFIXES:
            path = self.path / f"{base:020d}{suffix}"
            path.replace(path.with_name(path.name + ".deleted"))

    def _write_epochs(self) -> None:
        lines = ["0", str(len(self.epochs)), *(f"{epoch} {start}" for epoch, start in self.epochs)]
        checkpoint = self.path / "leader-epoch-checkpoint"
        new = checkpoint.with_name("leader-epoch-checkpoint.tmp")
        new.write_text("\n".join(lines) + "\n")
        new.replace(checkpoint)


def batch(offset: int, entry: Entry) -> bytes:
    """The bytes of one record's batch; its value is the record's number."""
    return build.batch(offset, [build.record(0, value=b"%d" % entry.number)], epoch=entry.epoch)


class Cluster:
    """Replicas of one partition, and who leads.

    Args:
        directory: where their files go.
        rolls: records per segment, broker by broker.

    Attributes:
        lossy: the epoch of the last election that may have lost committed records; None where none did.
        compacted: offsets that the cleaner of any broker took.
    """

    def __init__(self, directory: Path, rolls: tuple[int, ...]) -> None:
        self.brokers = [Broker(directory / f"broker-{n}" / "t-0", roll) for n, roll in enumerate(rolls)]
        self.leader = 0
        self.epoch = 0
        self.in_sync = set(range(len(rolls)))
        self.lossy: int | None = None
        self.compacted: set[int] = set()
        self._numbers = 0
        self.brokers[0].lead(0)

    @property
    def line(self) -> list[Entry]:
        """The living line: what the leader's log ever was."""
        return self.brokers[self.leader].history

    def produce(self, count: int) -> None:
        """The leader appends; a lone in-sync replica commits at once."""
        for _ in range(count):
            self._numbers += 1
            self.brokers[self.leader].append(Entry(self._numbers, self.epoch))
        self._move_high_watermark()

    def replicate(self, follower: int) -> None:
        """A follower truncates to the leader's line, fetches all that it lacks, and is in sync."""
        leader, replica = self.brokers[self.leader], self.brokers[follower]
        if replica is leader:
            return
        parted = replica.parts_from(leader)
        if parted < replica.end:
            replica.truncate(max(parted, replica.start))
        else:
            replica.forget_empty_reigns()
        if replica.end < leader.start or parted < replica.start:
            below = [pair for pair in leader.epochs if pair[1] <= leader.start][-1:]
            replica.begin_at(leader.history[: leader.start], below)
        left = {offset for held in leader.held.values() for offset in held}
        for offset in range(replica.end, leader.end):
            replica.append(leader.history[offset], is_left=offset in left)
        self.in_sync.add(follower)
        self._move_high_watermark()
        replica.high_watermark = leader.high_watermark

    def lag(self, follower: int) -> None:
        """A follower leaves the in-sync replicas, and the others commit without it."""
        if follower != self.leader:
            self.in_sync.discard(follower)
            self._move_high_watermark()

    def elect(self, broker: int, *, unclean: bool) -> None:
        """Another reign begins. A clean one takes an in-sync replica; an unclean one anybody."""
        if broker not in self.in_sync:
            if not unclean:
                return
            self.lossy = self.epoch + 1
            self.in_sync = {broker}
        self.epoch += 1
        self.leader = broker
        self.brokers[broker].lead(self.epoch)
        self._move_high_watermark()

    def wipe(self, broker: int) -> None:
        """A follower's disk is replaced; it is behind from then on."""
        if broker != self.leader:
            self.in_sync.discard(broker)
            self.brokers[broker].wipe()
            self._move_high_watermark()

    def _move_high_watermark(self) -> None:
        leader = self.brokers[self.leader]
        reached = min(self.brokers[broker].parts_from(leader) for broker in self.in_sync)
        leader.high_watermark = min(max(leader.high_watermark, reached), leader.end)
