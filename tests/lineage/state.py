"""What the model's states are made of: named tuples, since a search hashes millions of them."""

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tests.lineage.kafka import Epochs, Log

if TYPE_CHECKING:
    from tests.lineage.eraser import Eraser


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
    """`log.start`.

    Attributes:
        offset: S, where readers begin.
        lineage: of the commit that it belongs to.
        floor: F: retention deleted nothing at or above it; None: unknown.
        since: the `written` of the write that last raised S; 0 where S is F.
        written: `writtenBy`; 0 without one. An ETag is a hash, so this number makes a write its own.
        erased: the least list of erased offsets that exists; 0 without one.
    """

    offset: int
    lineage: Lineage | None
    floor: int | None = None
    since: int = 0
    written: int = 0
    erased: int = 0

    def __str__(self) -> str:
        floor = "" if self.floor is None else f" floor {self.floor}"
        since, erased = f" since {self.since}" * bool(self.since), f" erased {self.erased}" * bool(self.erased)
        return f"{self.offset}{floor}{of_lineage(self.lineage)}{since}{erased}"


class ErasedList(NamedTuple):
    """`erased/<number>.bin`; its content is its ETag.

    Attributes:
        entries: erased offsets, ascending, each with the greatest epoch of its erased batches.
    """

    number: int
    entries: tuple[tuple[int, int], ...]

    def epoch(self, offset: int) -> int:
        """The highest epoch of hidden batches at an offset; -1 without one."""
        return dict(self.entries).get(offset, -1)

    def has(self, wanted: Iterable[tuple[int, int]]) -> bool:
        """Whether all of these are hidden."""
        return all(self.epoch(offset) >= epoch for offset, epoch in wanted)

    def __str__(self) -> str:
        return f"{self.number}.bin ({' '.join(f'{offset}@{epoch}' for offset, epoch in self.entries)})"


class Segment(NamedTuple):
    """A `.log` object: its records stand for its CRC, and for its ETag.

    Attributes:
        base: of its name.
        variant: the leader epoch in a variant's name; None of a plain name.
        records: the leader epoch of each record.
        lineage: that the CRC in a variant's name covers too; None above its `highest`.
    """

    base: int
    variant: int | None
    records: tuple[int, ...]
    lineage: Lineage | None = None

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
        epochs = " ".join(map(str, self.records))
        return f"{self.base}{variant}.log (epochs {epochs}{of_lineage(self.lineage)})"


class Store(NamedTuple):
    """The objects of the partition, and what exists only in the model.

    Attributes:
        copy: of `log.start`, which the collector alone writes.
        is_old: whether the store has had this `log.start` for a grace; `is_copy_old` is the same of the copy.
        hidden: of each offset: 0 if readers see it, 1 if they do not, 2 if they have not for a grace.
        gaps: offsets of gap records.
        nonces: the number of commits written; 0 where the model numbers them again after each step.
        reclaimed: the greatest `log.start` that the retention policy could write in the live line.
        released: the greatest offset that a collector raised a floor to, because what is below was due.
        lists: of erased offsets.
        young: numbers of lists that were put less than a grace ago.
    """

    commit: Commit | JavaCommit | None = None
    log_start: LogStart | None = None
    copy: LogStart | None = None
    is_old: bool = False
    is_copy_old: bool = False
    hidden: tuple[int, ...] = ()
    segments: frozenset[Segment] = frozenset()
    gaps: frozenset[int] = frozenset()
    nonces: int = 0
    reclaimed: int = 0
    released: int = 0
    lists: frozenset[ErasedList] = frozenset()
    young: frozenset[int] = frozenset()

    @property
    def greatest(self) -> ErasedList | None:
        """The list that readers use; None without one."""
        return max(self.lists, default=None)


class Do(StrEnum):
    """What an agent does next."""

    BEGIN = "GET offset.wm, as leader"
    AGAIN = "GET offset.wm, though no longer leader"
    FIND_START = "no commit: PUT or GET log.start"
    TAKE_OVER = "list, and walk what Java shipped before there was a log.start"
    REBUILD = "list, and walk"
    READ_LOG_START = "GET log.start"
    RESTORE = "PUT log.start, which was lost"
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
    """What a collector (retention) does next."""

    LIST = "list"
    READ_LOG_START = "GET log.start"
    READ_COMMIT = "GET offset.wm"
    READ_COPY = "GET the copy, decide"
    PUT_COPY_FIRST = "PUT the copy, before log.start"
    PUT_LOG_START = "PUT log.start"
    PUT_COPY = "PUT the copy"
    LIST_LATE = "list, after the writes"
    DELETE = "DELETE"


class Collector(NamedTuple):
    """A collector, in one of its runs.

    Attributes:
        runs: how many it may still do, this one included.
        listed: the objects by its listing; once it has decided, those that it deletes.
        gaps: offsets of gap records, by its listing.
        knows_copy: whether the copy existed when it listed.
        log_start: as read or written, later on.
        was_old: whether that was a grace old.
        commit: as read.
        copy: as read or written, later on.
        first: what it writes to the copy before `log.start`; None for nothing.
        next: what it writes to `log.start`; None for nothing.
        last: what it writes to the copy at the end; None for nothing.
        below: it deletes what ends there or below; 0 for nothing.
    """

    do: Collect
    runs: int
    listed: frozenset[Segment] = frozenset()
    gaps: frozenset[int] = frozenset()
    knows_copy: bool = False
    log_start: LogStart | None = None
    was_old: bool = False
    commit: Commit | None = None
    copy: LogStart | None = None
    first: LogStart | None = None
    next: LogStart | None = None
    last: LogStart | None = None
    below: int = 0


Records = frozenset[tuple[int, int]]
"""Records, each named by its offset and the epoch of its batch."""


class Read(StrEnum):
    """What a reader does next."""

    COMMIT = "GET offset.wm"
    LIST_ERASED = "list erased/"
    LOG_START = "GET log.start"
    GET_ERASED = "GET the greatest list"
    LIST = "list, read"


class Reader(NamedTuple):
    """A query; None in its place: it has ended.

    Attributes:
        again: how often it may read the commit again.
        commit: as read.
        begins: where its view begins.
        is_old: whether its release is older than lists.
        owed: what it may not show: the requests that had ended when it began.
        list: the greatest as listed, later on as read.
        named: the list that `log.start` names; -1 before that is read.
        tries: how often it may list `erased/` again.
    """

    do: Read
    again: int
    commit: Commit | JavaCommit | None = None
    begins: int = 0
    is_old: bool = False
    owed: Records | None = None
    list: ErasedList | None = None
    named: int = -1
    tries: int = 2


class Faults(NamedTuple):
    """How many more of each may happen.

    Attributes:
        kills: of agents.
        losses: of the commit.
        java: a Java uploader writes over the commit.
        starts: losses of `log.start`.
        holds: a hold begins or ends.
        forged: an agent's identity writes any `log.start`.
        repairs: a segment that was deleted is put again.
        ends: a collector is killed.
        erasers: an eraser is killed.
        lists: a list of erased offsets is lost.
    """

    kills: int = 0
    losses: int = 0
    java: int = 0
    starts: int = 0
    holds: int = 0
    forged: int = 0
    repairs: int = 0
    ends: int = 0
    erasers: int = 0
    lists: int = 0


class State(NamedTuple):
    """All of it; `moment` is an index into Kafka's history, `agents` are those of the epochs from 1 on.

    `erased` has the records of the erasures that have ended, and `listed` their entries.
    """

    moment: int
    store: Store
    agents: tuple[Agent, ...]
    collectors: tuple[Collector, ...]
    held: bool
    reader: Reader | None
    faults: Faults
    erasers: tuple["Eraser", ...] = ()
    erased: Records = frozenset()
    listed: Records = frozenset()


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
    """Whether a copy of the record at `offset` bears the epoch that the list gives it, or none that differs below it.

    Below the first pair an epoch differs only if it is later than that pair's (reading rule 2).
    """
    epoch, first = epoch_at(epochs, offset), epochs[0][0] if epochs else 0
    found = (each.records[offset - each.base] for each in segments if each.base <= offset < each.end)
    return any(each <= first if epoch is None else each == epoch for each in found)


def first_hole(store: Store, epochs: Epochs, start: int, end: int) -> int | None:
    """The first offset of a view that has neither a living copy nor a gap record."""
    for offset in range(start, end):
        if offset not in store.gaps and not lives(store.segments, epochs, offset):
            return offset
    return None
