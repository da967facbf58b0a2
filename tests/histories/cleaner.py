"""The log cleaner: the batches that it leaves of closed segments, and the segments that it merges.

As in Kafka it keeps: records by key (here: by chance), markers until no record of their transaction is left, and an
empty batch for a producer's last one. Aborted records are removed at once. It cleans below the last stable offset.
"""

from itertools import pairwise
from random import Random

from tests.histories.records import Batch, Held, Kind, transactions
from tests.histories.replica import Replica

WAYS = ("some", "tails of batches", "last batches", "everything")


def compact(replica: Replica, rng: Random, *, first: int | None = None, way: str | None = None) -> None:
    """Begin to clean one to three adjacent closed segments of a replica into one.

    Args:
        replica: to clean.
        rng: draws the records that remain.
        first: number of the first segment, which is cleaned alone if `way` is given; None: drawn.
        way: one of `WAYS`; None: drawn.
    """
    replica.finish()
    limit = min(replica.high_watermark, transactions(replica.history).last_stable_offset(replica.end))
    bases = replica.bases
    closed = [base for base, following in pairwise(bases) if following <= limit]
    if not closed:
        return
    if first is None:
        first = rng.randrange(len(closed))
    group = closed[first : first + (rng.choice((1, 1, 2, 3)) if way is None else 1)]
    if not group:
        return
    before = [held for base in group for held in replica.segments[base]]
    way = rng.choice(WAYS) if way is None else way
    drops_markers = rng.random() < 0.3
    aborted, left = _fates(replica)
    after: list[Held] = []
    for position, held in enumerate(before):
        batch = held.batch
        if batch.kind is not Kind.DATA:
            whole = (batch.producer, batch.first) in left or not drops_markers
            kept = held.kept if whole else ()
        elif id(batch) in aborted:
            kept = ()
        else:
            kept = _kept(held, way, rng, last=len(before) - position <= 2)
        keeps_empty = batch.kind is Kind.DATA and batch.producer >= 0 and rng.random() < 0.3
        if kept or (keeps_empty and replica.codec.magic >= 2):
            after.append(Held(batch, kept))
        for offset in set(held.kept) - set(kept):
            replica.cleaned.setdefault(offset, []).append(batch)
    replica.replace(group, after, late=drops_markers)


def _kept(held: Held, way: str, rng: Random, *, last: bool) -> tuple[int, ...]:
    match way:
        case "some":
            return tuple(offset for offset in held.kept if rng.random() < 0.7)
        case "tails of batches":
            return held.kept[:1] if len(held.batch.numbers) > 1 else held.kept if rng.random() < 0.6 else ()
        case "last batches":
            return () if last else held.kept
        case _:
            return ()


def _fates(replica: Replica) -> tuple[set[int], set[tuple[int, int]]]:
    """Return ids of aborted batches, and (producer, first offset) of the transactions with records in the log."""
    here = {id(held.batch): held for segment in replica.segments.values() for held in segment}
    aborted: set[int] = set()
    left: set[tuple[int, int]] = set()
    for producer, first, marker in transactions(replica.history).ended:
        mine = _batches_of(replica, producer, first, marker.base)
        if marker.kind is Kind.ABORT:
            aborted |= {id(batch) for batch in mine}
        if any(id(batch) in here and here[id(batch)].kept for batch in mine):
            left.add((producer, first))
    return aborted, left


def _batches_of(replica: Replica, producer: int, first: int, end: int) -> list[Batch]:
    found = {id(batch): batch for batch in replica.history[first:end] if batch.producer == producer}
    return list(found.values())
