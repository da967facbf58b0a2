"""Kafka as the model needs it: one partition, two brokers, and a script of what happens to them.

A script is text. `|` separates its stages; between two stages everything else may happen. A stage is words:

| word | what happens |
| --- | --- |
| `elect=0` | broker 0 becomes leader in the next leader epoch |
| `segment=2` | the leader appends two records, and rolls behind them |
| `record` | the leader appends a record, which stays in the active segment |
| `fetch` | the other broker truncates where its log differs, fetches the rest, and rolls by its own size |
| `wipe=1` | broker 1 loses its log |
| `retain=0` | broker 0 deletes its lowest closed segment (local retention) |

The high watermark is the leader's log end: protocol rule 1 is not modelled. A record is one batch, named by its epoch.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

Epochs = tuple[tuple[int, int], ...]
"""(leader epoch, start offset) pairs, both rising, as in `leader-epoch-checkpoint` and in the commit."""


class Log(NamedTuple):
    """One broker's log.

    Attributes:
        start: its first offset.
        bases: of its segments; the last is the active one.
        records: the leader epoch of each offset from `start` on.
        epochs: its `leader-epoch-checkpoint`.
    """

    start: int
    bases: tuple[int, ...]
    records: tuple[int, ...]
    epochs: Epochs

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.start + len(self.records)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`."""
        return self.records[offset - self.start]

    def closed(self) -> Iterator[tuple[int, int]]:
        """Base and end of each closed segment."""
        return zip(self.bases, self.bases[1:], strict=False)


class Moment(NamedTuple):
    """What a stage of the script leaves: the leader, its epoch, both logs."""

    leader: int
    epoch: int
    logs: tuple[Log, ...]

    @property
    def log(self) -> Log:
        """The leader's log."""
        return self.logs[self.leader]


@dataclass
class _Replica:
    start: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    records: list[int] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def begin(self, epoch: int) -> None:
        self.epochs = [*(pair for pair in self.epochs if pair[1] < self.end), (epoch, self.end)]

    def wipe(self, start: int = 0) -> None:
        self.start, self.bases, self.records, self.epochs = start, [start], [], []

    def truncate(self, end: int) -> None:
        self.records = self.records[: end - self.start]
        self.bases = [base for base in self.bases if base <= end]
        self.epochs = [pair for pair in self.epochs if pair[1] < end]

    def fetch(self, leader: "_Replica", roll: int) -> None:
        """Follow `leader`, in segments of `roll` records; roll where the leader's active segment is empty."""
        shared = max(leader.start, self.start)
        while (
            shared < min(leader.end, self.end)
            and self.records[shared - self.start] == leader.records[shared - leader.start]
        ):
            shared += 1
        if self.end < leader.start or self.start > leader.end:
            self.wipe(leader.start)
            shared = leader.start
        self.truncate(shared)
        for offset in range(shared, leader.end):
            epoch = leader.records[offset - leader.start]
            if offset - self.bases[-1] >= roll:
                self.bases.append(offset)
            if not self.epochs or self.epochs[-1][0] < epoch:
                self.epochs.append((epoch, offset))
            self.records.append(epoch)
        if leader.bases[-1] == leader.end and self.bases[-1] < leader.end:
            self.bases.append(leader.end)

    def retain(self) -> None:
        """Delete the lowest closed segment; of the epochs that began in it the last is kept, with the new start."""
        start = self.bases[1]
        self.records, self.bases, self.start = self.records[start - self.start :], self.bases[1:], start
        begun = [pair for pair in self.epochs if pair[1] <= start]
        self.epochs = [*((epoch, start) for epoch, _ in begun[-1:]), *(pair for pair in self.epochs if pair[1] > start)]

    def frozen(self) -> Log:
        return Log(self.start, tuple(self.bases), tuple(self.records), tuple(self.epochs))


def history(script: str, rolls: tuple[int, int]) -> tuple[Moment, ...]:
    """What each stage of a script leaves.

    Args:
        script: as above.
        rolls: records per segment of each broker while it follows.

    Raises:
        ValueError: an unknown word.
    """
    replicas = (_Replica(), _Replica())
    leader = epoch = 0
    moments = []
    for stage in script.split("|"):
        for word in stage.split():
            what, _, number = word.partition("=")
            leading = replicas[leader]
            match what:
                case "elect":
                    leader, epoch = int(number), epoch + 1
                    replicas[leader].begin(epoch)
                case "segment":
                    leading.records += [epoch] * int(number)
                    leading.bases.append(leading.end)
                case "record":
                    leading.records.append(epoch)
                case "fetch":
                    replicas[1 - leader].fetch(leading, rolls[1 - leader])
                case "wipe":
                    replicas[int(number)].wipe()
                case "retain":
                    replicas[int(number)].retain()
                case _:
                    raise ValueError(f"script {script!r}: unknown word {word!r}")
        moments.append(Moment(leader, epoch, tuple(replica.frozen() for replica in replicas)))
    return tuple(moments)


@cache
def shared_end(run: Epochs, end: int, log: Log) -> int:
    """Return how far a run that ends at `end` is this log's past (KIP-279): an offset, `end` for all of it.

    `ts_common.archive.epoch_history.EpochHistory.shared_end` without its refusal: this one also answers for epochs
    unknown here.
    """
    while run:
        asked = run[-1][0]
        following = bisect_right(log.epochs, asked, key=lambda pair: pair[0])
        if not following:
            return min(end, log.epochs[0][1] if log.epochs else log.end)
        known = log.epochs[following - 1][0]
        ended = log.epochs[following][1] if following < len(log.epochs) else log.end
        if known == asked:
            return min(end, ended)
        kept = tuple(pair for pair in run if pair[0] <= known)
        if not kept:
            return min(end, ended, run[0][1])
        end, run = run[len(kept)][1], kept
        if known == run[-1][0]:
            return min(end, ended)
    return min(end, log.end)
