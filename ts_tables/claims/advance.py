"""What a table claims next of one partition, from its claims and what the archive shows. Pure.

====================  ===========================================  =====================================================
claims                the archive                                  next
====================  ===========================================  =====================================================
none                  any                                          from the start of the log, or where the table begins
up to `end`           its log is the same up to `end`                up to its stable end
up to `end`           its log parts at D < `end`: `taken_back`     fail; delete the rows from D on and claim again; or
                                                                   keep the rows, and claim from D on too
up to `end`           the log starts above `end`: *lost*           fail; or note the offsets, and continue
up to `end`           a hole                                       wait below it; or pass it, and note it
with a passed hole    the hole is filled                           claim it, and what was withheld for it: *late*
====================  ===========================================  =====================================================

With `read_committed` a hole can have markers. So transactions that are open where it begins are not shown below it
(reading rule 4), and a table that waits, waits below the first of them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from ts_common.archive.read_log import ReadLog, kept_end
from ts_reader.query.query import OnHole
from ts_tables.claims.state import PartitionClaims, PassedHole, without


class OnTakenBack(StrEnum):
    """What a table does with rows that an election removed from the log."""

    FAIL = "fail"
    DELETE = "delete"
    KEEP = "keep"


class OnLost(StrEnum):
    """What a table does if retention removed offsets before the table claimed them, or their commit is missing."""

    FAIL = "fail"
    GO_ON = "pass"


class OnRecreated(StrEnum):
    """What a table does if a topic was deleted and created again."""

    FAIL = "fail"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a table does in the cases where it has a choice.

    Attributes:
        on_hole: at offsets that the archive lacks.
        on_taken_back: with rows that an election removed from the log.
        on_lost: with offsets that retention removed, and with a partition whose commit is missing or damaged.
        on_recreated: with a topic that was deleted and created again.
    """

    on_hole: OnHole = OnHole.WAIT
    on_taken_back: OnTakenBack = OnTakenBack.FAIL
    on_lost: OnLost = OnLost.FAIL
    on_recreated: OnRecreated = OnRecreated.FAIL


@dataclass(frozen=True, slots=True)
class Seen:
    """What the archive shows of a partition, by one commit.

    Attributes:
        next_offset: the end of what is shipped.
        stable: the end of what may be claimed, at most `next_offset`.
        log: by the commit.
        holes: in `[start, next_offset)`, ascending, adjoining ones joined, with what `read_committed` withholds.
        floor: what is between it and `start` can be shown again; None if that is unknown.
    """

    start: int
    next_offset: int
    stable: int
    log: ReadLog
    holes: tuple[PassedHole, ...] = ()
    floor: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A case where a table fails.

    Attributes:
        start: the first offset that it concerns.
        end: the offset after the last.
        reason: the rest of a sentence that begins with the offsets, with the way out.
    """

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """What a table claims next of a partition.

    Attributes:
        state: after the step.
        claims: ranges `[from, to)` to read and add, ascending and disjoint.
        late: holes that the table passed, and claims now with what was withheld for them.
        taken_back: offsets `[from, to)` whose rows are deleted, or kept, before `claims`; None without such offsets.
        waits: the hole that the table waits at.
        problem: why it fails; then the rest has no meaning.
    """

    state: PartitionClaims
    claims: tuple[tuple[int, int], ...] = ()
    late: tuple[PassedHole, ...] = ()
    taken_back: tuple[int, int] | None = None
    waits: PassedHole | None = None
    problem: Problem | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the step changes nothing."""
        return not (self.claims or self.late or self.taken_back or self.problem)


def needs_view(known: PartitionClaims | None, next_offset: int, stable: int, log: ReadLog) -> bool:
    """Return whether a step may change something; a table without news reads nothing but the commit.

    Args:
        known: the claims; None without any.
        next_offset: as in `Seen`, like the next two.
        stable: the end of what may be claimed.
        log: by the commit.
    """
    if known is None or known.holes or stable > known.end:
        return True
    return parting(known, next_offset, log) < known.end


def begin(seen: Seen, start: int | None) -> PartitionClaims:
    """Return the state of a partition without claims.

    Args:
        seen: what the archive shows.
        start: where the table begins; None for the start of the log.
    """
    first = seen.start if start is None else start
    return PartitionClaims(first, first, seen.log.below(first))


def advance(known: PartitionClaims, seen: Seen, policy: Policy) -> ClaimStep:
    """Return the next step of a partition.

    Args:
        seen: what the archive shows.
    """
    parted = parting(known, seen.next_offset, seen.log)
    taken_back = None
    state = known
    if parted < known.end:
        if (reason := _cannot_part(known, parted, policy)) is not None:
            return ClaimStep(known, problem=Problem(parted, known.end, reason))
        # Rows that were kept above `parted` are deleted, or counted again.
        taken_back = (parted, max([known.end, *(kept.end for kept in known.kept if kept.start >= parted)]))
        state = known.below(parted)
    state = _above_start(state, seen.start)
    position = state.end
    lost: tuple[tuple[int, int], ...] = ()
    if seen.start > position:
        if policy.on_lost is OnLost.FAIL:
            return ClaimStep(known, problem=Problem(position, seen.start, _why_lost(position, seen)))
        lost = ((position, seen.start),)
    position = max(position, seen.start)
    end, waits = _end(position, seen, policy)
    ahead = tuple(_ahead(hole, position) for hole in seen.holes if position < hole.end <= end)
    late = tuple(hole for hole in state.holes if _is_filled(hole, seen, end))
    state = replace(state, holes=tuple(_seen_again(hole, seen) for hole in state.holes if hole not in late))
    claims = without((position, end), ((hole.start, hole.end) for hole in ahead))
    state = replace(
        state,
        end=end,
        log=_log_below(end, state, seen) if end > state.end or taken_back else state.log,
        holes=(*state.holes, *ahead),
        lost=(*state.lost, *lost),
    )
    return ClaimStep(state, claims, late, taken_back, waits)


def _why_lost(position: int, seen: Seen) -> str:
    """Return why a table fails whose next offset is below the start of the log, with the way out."""
    back = "a hold on the topic (tsctl hold add), or tsctl gc undo, shows them again until the grace ends"
    if seen.floor is not None and seen.floor <= position:
        return f"are hidden by retention, and the table has not claimed them; {back}"
    why = f"are lost: the log starts at {seen.start}, and the table has not claimed them"
    if seen.floor is not None and seen.floor < seen.start:
        return f"{why}; from {seen.floor} on they are only hidden: {back}; then on_lost: pass notes the others"
    return f"{why}; on_lost: pass notes them and continues"


def _cannot_part(known: PartitionClaims, parted: int, policy: Policy) -> str | None:
    """Return why a table fails after an election removed the claims from an offset on; None if it does not."""
    if policy.on_taken_back is OnTakenBack.FAIL:
        return (
            "were removed from the log by an election after the table claimed them; "
            "on_taken_back: delete removes their rows and claims the new records, on_taken_back: keep keeps both"
        )
    if any(kept.start < parted < kept.end for kept in known.kept):
        return (
            "were removed from the log by an election, and some of them before, when their rows were kept; "
            "create the table again"
        )
    return None


def parting(known: PartitionClaims, next_offset: int, log: ReadLog) -> int:
    """Return the end of the claims that the archive's log still has, as `kept_end`.

    Args:
        next_offset: the end of what is shipped.
        log: by the commit.
    """
    return max(known.start, kept_end(known.end, known.log, log, next_offset))


def _log_below(end: int, state: PartitionClaims, seen: Seen) -> ReadLog:
    """Return the log of claims. A Java uploader's commit has no epochs; those of the claims still find an election."""
    if state.log is None or seen.log.epochs.pairs:
        return seen.log.below(end)
    return replace(seen.log, epochs=state.log.epochs).below(end)


def _end(position: int, seen: Seen, policy: Policy) -> tuple[int, PassedHole | None]:
    """Return the end of the next claims, and the hole that they wait at.

    A hole that is not passed bounds the claims, and so does each transaction that is open at it, wherever the hole is:
    its records are hidden. A hole is passed as a whole, because each part hides the same transactions.
    """
    end, waits = max(position, seen.stable), None
    while True:
        blocking = [
            hole
            for hole in seen.holes
            if hole.end > position and hole.first < end and not (policy.on_hole is OnHole.PASS and hole.end <= end)
        ]
        if not blocking:
            return end, waits
        waits = min(blocking, key=lambda hole: hole.first)
        if max(position, waits.first) == end:
            return end, waits
        end = max(position, waits.first)


def _above_start(state: PartitionClaims, start: int) -> PartitionClaims:
    """Return a state without holes below the start of the log: nothing fills them any more."""
    gone = tuple((hole.start, min(hole.end, start)) for hole in state.holes if hole.start < min(hole.end, start))
    if not gone:
        return state
    left = tuple(
        PassedHole(start, hole.end) if hole.start < start else hole for hole in state.holes if hole.end > start
    )
    return replace(state, holes=left, lost=tuple(sorted((*state.lost, *gone))))


def _is_filled(hole: PassedHole, seen: Seen, end: int) -> bool:
    """Return whether the archive has all offsets of a hole now, and shows what a late claim of it adds.

    A hole at `end` or above, which no claim has passed, can hide a transaction that is open at both. A late claim would
    not add its records, and the state would no longer have its first offset.

    Args:
        hole: passed.
        seen: what the archive shows.
        end: of the claims after the step.
    """
    if hole.end > seen.stable or hole.start < seen.start:
        return False
    if any(each.end > end and each.first < hole.end for each in seen.holes):
        return False
    return all(each.end <= hole.start or each.start >= hole.end for each in seen.holes)


def _ahead(hole: PassedHole, position: int) -> PassedHole:
    """Return the part of a hole from a position on; the passed hole before it has what is withheld for both."""
    return hole if hole.start >= position else PassedHole(position, hole.end)


def _seen_again(hole: PassedHole, seen: Seen) -> PassedHole:
    """Return a passed hole with what is withheld for it now.

    If an earlier hole is filled without the marker of a transaction, the transaction is open at this one, from there.
    This one can be filled in part, or have grown. A transaction that begins inside is part of a late claim anyway.
    """
    first = dict(hole.withheld)
    for each in seen.holes:
        if each.start < hole.end and each.end > hole.start:
            for producer, offset in each.withheld:
                if offset < hole.start:
                    first[producer] = min(offset, first.get(producer, offset))
    return replace(hole, withheld=tuple(sorted(first.items())))
