"""Walking a run in the store, where no commit of ours says where it ends (protocol rules 8 and 12).

Two cases: a Java uploader wrote the commit, which names a segment and no end; or segments stand without a commit, since
the agent that shipped them was killed before its first one. Either way the end is never guessed: it is the end of the
last segment that joins on without a hole, by what each segment says or holds.
"""

from dataclasses import dataclass

from ts_common.catalog import PartitionCatalog, describe
from ts_common.commit import Commit, ForeignCommit
from ts_common.epochs import EpochLine
from ts_common.plan import Hole, unite
from ts_common.store.contract import ObjectStore
from ts_common.view import living_line


@dataclass(frozen=True, slots=True)
class Run:
    """The segments of a store that follow each other without a hole.

    Attributes:
        next_offset: the end of the last.
        highest_base: greatest base offset among them; None where there is none.
        epochs: of their batches.
    """

    next_offset: int
    highest_base: int | None
    epochs: EpochLine


def walk_run(store: ObjectStore, catalog: PartitionCatalog, start: int, known: Commit | None = None) -> Run:
    """The run from `start` on.

    With a foreign commit it goes no further than the segment that this names: what stands above was not committed,
    and a segment is only whole when its uploader says so. Without a commit a `.log` object is the sign that its segment
    is whole. What our own last commit said stays true up to its next offset, whoever wrote over it.

    A hole ends the run, unless a gap record says that it exists nowhere.

    Raises:
        CorruptData: a segment without a batch.
        StoreUnavailable, AccessDenied, ObjectNotFound: the store's.
    """
    segments = catalog.segments
    if isinstance(catalog.commit, ForeignCommit):
        highest = catalog.commit.highest_base
        segments = tuple(segment for segment in segments if segment.name.base <= highest)
    copies = describe(store, catalog.keys, segments)
    line = living_line(copies)
    position, highest_base = start, None
    if known is not None:
        line = known.epochs.below(known.next_offset).continued(line, known.next_offset)
        position, highest_base = known.next_offset, known.highest_base
    end = max((copy.end for copy in copies), default=position)
    for step in unite(copies, line, position, end, catalog.gaps):
        if isinstance(step, Hole):
            if not step.recorded:
                break
            bases = []
        else:
            bases = [copy.base for copy in step.copies]
        position = step.end
        highest_base = max((base for base in (highest_base, *bases) if base is not None), default=None)
    return Run(position, highest_base, line.below(position))
