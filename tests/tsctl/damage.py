"""Known damage to a generated archive, with the findings that `verify` must report.

A damage returns what is expected at depth full: pairs of (codes, where). For each pair, at least one finding must have
one of the codes and that key, or exactly those offsets. For damage that changes no answer, the list is empty.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from tests.tsctl.made_up import TOPIC, Copy, MadeUp
from ts_common.archive.commit import encode_log_start
from ts_common.archive.object_keys import SegmentName
from ts_common.log_format.index_files import position_for_offset, read_offset_index
from tsctl.verify.findings import Finding

WRONG: Final = frozenset({"segment-damaged", "metadata-wrong"})


@dataclass(frozen=True)
class Expected:
    """A finding that must be reported."""

    codes: frozenset[str]
    key: str | None = None
    offsets: tuple[int, int] | None = None

    def is_met_by(self, finding: Finding) -> bool:
        named = finding.key == self.key if self.key else (finding.start, finding.end) == self.offsets
        return finding.kind.code in self.codes and named


def of_key(key: str, *codes: str) -> Expected:
    return Expected(frozenset(codes), key)


def holes(offsets: list[tuple[int, int]]) -> list[Expected]:
    return [Expected(frozenset({"hole"}), None, each) for each in offsets]


def remove_log(made: MadeUp, random: Random) -> list[Expected]:
    """Remove the `.log` alone, so that its indexes remain."""
    copy = random.choice(made.copies)
    made.archive.store.delete([made.key(copy)])
    left = [each for each in made.copies if each is not copy]
    return [of_key(made.key(copy, ".index"), "orphan-index"), *holes(made.holes(left))]


def remove_segment(made: MadeUp, random: Random) -> list[Expected]:
    """Remove all objects of a segment; offsets of another copy are not missing."""
    copy = random.choice(made.copies)
    made.archive.store.delete([made.key(copy, suffix) for suffix in (".log", *copy.files)])
    return holes(made.holes([each for each in made.copies if each is not copy]))


def remove_index(made: MadeUp, random: Random) -> list[Expected]:
    copy = random.choice(made.copies)
    suffix = random.choice(sorted(copy.files))
    made.archive.store.delete([key := made.key(copy, suffix)])
    # An empty .txnindex has no more information than a missing one, and retention may remove objects below log start.
    if copy.end <= made.log_start or (suffix == ".txnindex" and not copy.files[suffix]):
        return []
    return [of_key(key, "index-missing")]


def cut_log(made: MadeUp, random: Random) -> list[Expected]:
    """Remove the end of a `.log`, but keep its metadata."""
    copy = random.choice(made.copies)
    return _rewrite(made, copy, copy.log[: random.randrange(len(copy.log))])


def flip_log(made: MadeUp, random: Random) -> list[Expected]:
    copy = random.choice(made.copies)
    return _rewrite(made, copy, _flipped(random, copy.log))


def lengthen_log(made: MadeUp, random: Random) -> list[Expected]:
    """Append zero bytes, or the beginning of the `.log` again."""
    copy = random.choice(made.copies)
    return _rewrite(made, copy, copy.log + random.choice((bytes(100), copy.log[:80])))


def swap_bodies(made: MadeUp, random: Random) -> list[Expected]:
    """Swap the bytes of two objects, but not their metadata."""
    if len(made.copies) < 2:
        return []
    one, other = random.sample(made.copies, 2)
    if one.log == other.log:
        return []
    return [*_rewrite(made, one, other.log), *_rewrite(made, other, one.log)]


def rename(made: MadeUp, random: Random) -> list[Expected]:
    """Rename a segment's objects to another base offset, with their metadata."""
    copy = random.choice(made.copies)
    moved = replace(copy, name=SegmentName(copy.name.base + random.choice((1, 3, 1000))))
    if any(each.name == moved.name for each in made.copies):
        return []
    made.archive.store.delete([made.key(copy, suffix) for suffix in (".log", *copy.files)])
    made.put(moved)
    return [of_key(made.key(moved), *WRONG)]


def flip_index(made: MadeUp, random: Random) -> list[Expected]:
    """Change an `.index`; if every lookup still succeeds, no finding is needed."""
    copy = random.choice([each for each in made.copies if each.files[".index"]] or made.copies)
    data = copy.files[".index"]
    if not data:
        return []
    changed = _flipped(random, data)
    key = made.key(copy, ".index")
    made.archive.store.put(key, changed)
    return [] if leads_right(copy, changed) else [of_key(key, "index-wrong")]


def flip_bound_index(made: MadeUp, random: Random) -> list[Expected]:
    """Change a `.timeindex` or `.txnindex` whose CRC is in the metadata."""
    copy = random.choice(made.copies)
    bound = [suffix for suffix in (".timeindex", ".txnindex") if copy.files.get(suffix)]
    if copy.metadata.timeindex is None:
        bound.remove(".timeindex")
    if not bound:
        return []
    key = made.key(copy, suffix := random.choice(bound))
    made.archive.store.put(key, _flipped(random, copy.files[suffix]))
    return [of_key(key, "index-wrong")]


def drop_metadata(made: MadeUp, random: Random) -> list[Expected]:
    copy = random.choice(made.copies)
    made.archive.store.put(made.key(copy), copy.log)
    return [of_key(made.key(copy), "metadata-missing")]


def change_metadata(made: MadeUp, random: Random) -> list[Expected]:
    """Change one field of the metadata, so that it contradicts the batches."""
    copy = random.choice(made.copies)
    good = copy.metadata
    reached = max(each.end for each in copy.batches)
    changed = random.choice(
        [
            replace(good, end=random.randint(copy.name.base, reached - 1)),
            replace(good, records=(good.records or 0) + random.choice((-1, 1))),
            replace(good, control=(good.control or 0) + 1),
            replace(good, time_max=(good.time_max or 0) + random.choice((-1, 1))),
            replace(good, time_min=(good.time_min or 0) + random.choice((-1, 1))),
            replace(good, crc32c=good.crc32c ^ 1 << random.randrange(32)),
            replace(good, corruptions=1),
            replace(good, epochs=((copy.batches[0].epoch + 40, copy.name.base),)),
            replace(good, epochs=((copy.batches[0].epoch + 40, copy.name.base), (copy.batches[0].epoch, reached))),
            replace(good, epochs=(*(good.epochs or ()), ((good.epochs or ())[-1][0] + 1, copy.batches[-1].start))),
        ]
    )
    made.archive.store.put(made.key(copy), copy.log, metadata=changed.encode())
    return [of_key(made.key(copy), *WRONG)]


def hide_aborts(made: MadeUp, random: Random) -> list[Expected]:
    """Remove the aborted transactions from the metadata, so that readers would return them."""
    aborted = [copy for copy in made.copies if any(each.kind == "abort" for each in copy.batches)]
    if not aborted:
        return []
    copy = random.choice(aborted)
    made.archive.store.put(made.key(copy), copy.log, metadata=replace(copy.metadata, txnindex=None).encode())
    return [of_key(made.key(copy), "metadata-wrong")]


def garble_metadata(made: MadeUp, random: Random) -> list[Expected]:
    """Make a field of the metadata malformed."""
    copy = random.choice(made.copies)
    fields = copy.metadata.encode()
    name = random.choice(sorted(fields))
    fields[name] = random.choice(("", "what", "-", fields[name] + "x"))
    made.archive.store.put(made.key(copy), copy.log, metadata=fields)
    if name == "ts-epochs" and not fields[name]:
        return []  # as with too many epochs
    return [of_key(made.key(copy), "metadata-wrong")]


def raise_commit(made: MadeUp, random: Random) -> list[Expected]:
    """Raise the commit above what was shipped."""
    end = made.next_offset + random.randint(1, 100)
    made.commit(next_offset=end)
    covered = max(copy.live_end for copy in made.copies)
    return holes([(max(made.next_offset, covered), end)]) if covered < end else []


def lower_commit(made: MadeUp, random: Random) -> list[Expected]:
    """Restore an old commit, so that readers do not see what is above it."""
    end = random.randint(made.log_start, made.next_offset)
    made.commit(next_offset=end)
    above = [copy for copy in made.copies if copy.name.base >= end]
    return [of_key(made.key(copy), "orphan-segment") for copy in above]


def lose_commit(made: MadeUp, random: Random) -> list[Expected]:
    key = made.archive.partition(TOPIC).commit
    if random.random() < 0.5:
        made.archive.store.delete([key])
        return [of_key(key, "no-commit")]
    data, _ = made.archive.store.get(key)
    made.archive.store.put(key, data[: random.randrange(21, len(data) - 2)] if random.random() < 0.5 else b"what")
    return [of_key(key, "commit-damaged")]


def lose_log_start(made: MadeUp, random: Random) -> list[Expected]:
    key = made.archive.partition(TOPIC).log_start
    how = random.randrange(3)
    if how == 0:
        made.archive.store.delete([key])
        return [of_key(key, "log-start-wrong")]
    made.archive.store.put(key, b"what" if how == 1 else encode_log_start(made.next_offset + 1))
    return [of_key(key, "commit-damaged" if how == 1 else "log-start-wrong")]


def lower_log_start(made: MadeUp, random: Random) -> list[Expected]:
    """Lower log start below what retention removed, or below the first offset that ever existed."""
    low = made.copies[0].name.base
    if low == 0:
        return []
    start = random.randrange(low)
    made.archive.store.put(made.archive.partition(TOPIC).log_start, encode_log_start(start))
    return holes(made.holes(made.copies, start=start))


def remove_gap(made: MadeUp, random: Random) -> list[Expected]:
    """Remove the gap record of a hole."""
    if not made.gaps:
        return []
    gap = made.gaps.pop(random.randrange(len(made.gaps)))
    made.archive.store.delete([made.archive.partition(TOPIC).gap(*gap)])
    return holes(made.holes(made.copies))


def garble_cache_object(made: MadeUp, random: Random) -> list[Expected]:
    """Replace a cache object by a wrong one."""
    made.put_cache_object()
    key = made.archive.partition(TOPIC).cache_object(made.copies[0].name.base)
    data, _ = made.archive.store.get(key)
    made.archive.store.put(key, _flipped(random, data))
    return [of_key(key, "cache-object-wrong")]


DAMAGES: Final[tuple[Callable[[MadeUp, Random], list[Expected]], ...]] = (
    remove_log,
    remove_segment,
    remove_index,
    cut_log,
    flip_log,
    lengthen_log,
    swap_bodies,
    rename,
    flip_index,
    flip_bound_index,
    drop_metadata,
    change_metadata,
    hide_aborts,
    garble_metadata,
    raise_commit,
    lower_commit,
    lose_commit,
    lose_log_start,
    lower_log_start,
    remove_gap,
    garble_cache_object,
)


def leads_right(copy: Copy, index: bytes) -> bool:
    """Return whether a reader that uses an `.index` finds the batch of every offset, at a batch's beginning."""
    places, at = [], 0
    for each in copy.batches:
        places.append((each, at))
        at += len(each.encode())
    entries = read_offset_index(index)
    if len(entries) * 8 != len(index):
        return False
    for each, place in places:
        for offset in range(each.start, each.end):
            found = position_for_offset(entries, copy.name.base, offset)
            if found > place or found not in {position for _, position in places}:
                return False
    positions = [position for _, position in places]
    return all(entry[1] in positions for entry in entries) and all(a[0] < b[0] for a, b in pairwise(entries))


def _rewrite(made: MadeUp, copy: Copy, log: bytes) -> list[Expected]:
    made.archive.store.put(made.key(copy), log, metadata=copy.metadata.encode())
    return [of_key(made.key(copy), *WRONG)]


def _flipped(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
