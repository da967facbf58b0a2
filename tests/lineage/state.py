"""What the model's states are made of: named tuples, since a search hashes millions of them."""

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from tests.lineage.kafka import Epochs, Log


class Lineage(NamedTuple):
    """The commit's `lineage`: of the last time that a leader went back.

    Attributes:
        epoch: the leader epoch that went back.
        offset: D, where it went back to.
        highest: no `log.start` of an earlier lineage lies above it.
    """

    epoch: int
    offset: int
    highest: int

    def __str__(self) -> str:
        return f"[{self.epoch},{self.offset},{self.highest}]"


class Commit(NamedTuple):
    """`offset.wm`; `nonce` makes each of them its own."""

    next: int
    epoch: int
    epochs: Epochs
    lineage: Lineage | None
    nonce: int

    def __str__(self) -> str:
        return f"next {self.next} epochs {listed(self.epochs)}{of_lineage(self.lineage)}"


class JavaCommit(NamedTuple):
    """`offset.wm` without a second line: the base of the highest segment."""

    base: int

    def __str__(self) -> str:
        return f"Java's, base {self.base}"


class LogStart(NamedTuple):
    """`log.start`."""

    offset: int
    lineage: Lineage | None

    def __str__(self) -> str:
        return f"{self.offset}{of_lineage(self.lineage)}"


class Segment(NamedTuple):
    """A `.log` object: its records stand for its CRC, and for its ETag.

    Attributes:
        base: of its name.
        variant: the leader epoch in a variant's name; None of a plain name.
        records: the leader epoch of each record.
    """

    base: int
    variant: int | None
    records: tuple[int, ...]

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.base + len(self.records)

    @property
    def epoch(self) -> int:
        """The highest that its name or a batch bears."""
        return max(*self.records, self.variant or 0)

    def __str__(self) -> str:
        variant = "" if self.variant is None else f".e{self.variant}"
        return f"{self.base}{variant}.log (epochs {' '.join(map(str, self.records))})"


class Store(NamedTuple):
    """The objects of the partition, and two numbers that exist only in the model.

    Attributes:
        gaps: offsets of gap records.
        nonces: the number of commits written.
        reclaimed: the greatest `log.start` that the retention policy could write in the live line.
    """

    commit: Commit | JavaCommit | None = None
    log_start: LogStart | None = None
    segments: frozenset[Segment] = frozenset()
    gaps: frozenset[int] = frozenset()
    nonces: int = 0
    reclaimed: int = 0


class Do(StrEnum):
    """What an agent does next."""

    BEGIN = "GET offset.wm, as leader"
    AGAIN = "GET offset.wm, though no longer leader"
    FIND_START = "no commit: PUT or GET log.start"
    TAKE_OVER = "list, and walk what Java shipped before there was a log.start"
    REBUILD = "list, and walk"
    READ_LOG_START = "GET log.start"
    GO_BACK = "PUT offset.wm, going back"
    WRITE_LOG_START = "PUT log.start"
    SHIP = "PUT a segment"
    COMMIT = "PUT offset.wm"
    STEPPED_BACK = "nothing more"


class Agent(NamedTuple):
    """The agent of one leader epoch.

    Attributes:
        do: its next operation.
        seen: the moment of Kafka's history when it last looked at the disk.
        commit: the last that it read or wrote; before a PUT the one to be written.
        log_start: the last that it read or wrote.
        replaces: the commit whose ETag the PUT of `commit` is conditional on; None: `If-None-Match: *`.
    """

    do: Do = Do.BEGIN
    seen: int = 0
    commit: Commit | None = None
    log_start: LogStart | None = None
    replaces: Commit | JavaCommit | None = None


class Collect(StrEnum):
    """What the collector (remote retention) does next."""

    READ_LOG_START = "GET log.start"
    READ_COMMIT = "GET offset.wm"
    MOVE = "PUT log.start"
    PLAN = "list, write a plan"
    WAIT = "grace; GET log.start"
    DELETE = "DELETE"


class Collector(NamedTuple):
    """The collector.

    Attributes:
        log_start: as read, in phase WAIT and later as written: the plan's number and lineage.
        commit: as read.
        target: where it moves `log.start` to.
        plan: what it deletes.
        runs: how many plans it may still make.
        passes: how many times it may still work on this plan.
    """

    do: Collect
    runs: int
    log_start: LogStart | None = None
    commit: Commit | None = None
    target: int = 0
    plan: frozenset[Segment] = frozenset()
    passes: int = 0


class Read(StrEnum):
    """What a reader does next."""

    COMMIT = "GET offset.wm"
    LOG_START = "GET log.start"
    LIST = "list, read"


class Reader(NamedTuple):
    """A query; None in its place: it has ended.

    Attributes:
        again: how often it may read the commit again.
        commit: as read.
        begins: where its view begins.
    """

    do: Read
    again: int
    commit: Commit | JavaCommit | None = None
    begins: int = 0


class Faults(NamedTuple):
    """How many more of each may happen: agents killed, commits lost, commits overwritten by Java."""

    kills: int = 0
    losses: int = 0
    java: int = 0


class State(NamedTuple):
    """All of it; `moment` is an index into Kafka's history, `agents` are those of epochs 1, 2, 3."""

    moment: int
    store: Store
    agents: tuple[Agent, ...]
    collector: Collector
    reader: Reader | None
    faults: Faults


def listed(epochs: Epochs) -> str:
    """Epochs in a line: `1@0 2@3`."""
    return " ".join(f"{epoch}@{start}" for epoch, start in epochs) or "none"


def of_lineage(lineage: Lineage | None) -> str:
    """For the end of a line."""
    return "" if lineage is None else f" lineage {lineage}"


def lineage_epoch(lineage: Lineage | None) -> int:
    """0 before a leader went back for the first time."""
    return 0 if lineage is None else lineage.epoch


def epoch_at(epochs: Epochs, offset: int) -> int | None:
    """The epoch that a list gives an offset; None below its first pair."""
    found = None
    for epoch, start in epochs:
        if start <= offset:
            found = epoch
    return found


def continued(epochs: Epochs, log: Log, start: int, end: int) -> Epochs:
    """Return a list below `start`, continued by the log's epochs of `[start, end)`."""
    pairs = [pair for pair in epochs if pair[1] < start]
    for offset in range(max(start, log.start), end):
        epoch = log.epoch_of(offset)
        if not pairs or pairs[-1][0] != epoch:
            pairs.append((epoch, offset))
    return tuple(pairs)


@cache
def lives(segments: frozenset[Segment], epochs: Epochs, offset: int) -> bool:
    """Whether a copy of the record at `offset` bears the epoch that the list gives it."""
    epoch = epoch_at(epochs, offset)
    return any(
        segment.base <= offset < segment.end and segment.records[offset - segment.base] == epoch for segment in segments
    )


def first_hole(store: Store, epochs: Epochs, start: int, end: int) -> int | None:
    """The first offset of a view that has neither a living copy nor a gap record."""
    for offset in range(start, end):
        if offset not in store.gaps and not lives(store.segments, epochs, offset):
            return offset
    return None
