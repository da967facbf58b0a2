"""The chain of a live tail: which entries of packs continue a partition from the next offset on (reading rule 11).

An entry is a fact: the log of the leader of its epoch has exactly these batches in `[start, end)`, and all of them are
below that leader's high watermark. No later event makes that false. The commit decides which facts count: it names the
leaderships, and the epochs of the leader's log from the next offset on.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

from ts_common.archive.commit import Commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.json_objects import MAX_INT64


class Aborted(NamedTuple):
    """An aborted transaction whose marker is in an entry.

    Attributes:
        first: its first offset; it can be below the entry.
        last: the offset of its marker.
    """

    producer_id: int
    first: int
    last: int


class TailEntry(NamedTuple):  # an agent makes thousands a second, and a dataclass needs three times as long
    """Whole batches of one partition, in one object of a log of packs.

    Attributes:
        directory: of the partition's incarnation.
        epoch: leader epoch of the leadership that shipped it.
        start: first offset.
        end: the offset after the last; offsets between that no batch has were compacted.
        object: name of the object below the log, such as `packs/ffffffffffff`.
        position: of the first batch in it.
        length: of the batches, in bytes.
        crc32c: of the batches.
        epochs: (epoch, first offset) wherever the epoch of the batches changes.
        stable: the last stable offset of a log that ends at `end`.
        aborted: the aborted transactions whose marker is in it; None if the log does not show where one of them began,
            or there are many.
        records: number of records, with control records; None if only decompression yields it.
        time_max: greatest timestamp of a record, ms since the epoch; None if no record has one.
    """

    directory: str
    epoch: int
    start: int
    end: int
    object: str
    position: int
    length: int
    crc32c: int
    epochs: tuple[tuple[int, int], ...]
    stable: int
    aborted: tuple[Aborted, ...] | None
    records: int | None
    time_max: int | None


class Link(NamedTuple):
    """The offsets `[start, end)` of the view that one entry of a log has."""

    log: str
    entry: TailEntry
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chain:
    """What continues a partition.

    Attributes:
        links: in order, without a hole.
        end: the offset after the last; the commit's next offset without a link.
        epochs: the epochs of the view, up to and with the tail.
        stable: the last stable offset of the view; None if that is the commit's, which lacks it.
        is_late: whether an entry is of a later leadership, which has a commit of its own by now.
        time: when the leader's agent requested the high watermarks of its newest pack, ms since the epoch; None
            without a pack.
        damage: why entries of former leaderships do not count: their logs are damaged; None without damage.
    """

    links: tuple[Link, ...]
    end: int
    epochs: EpochHistory
    stable: int | None
    is_late: bool = False
    time: int | None = None
    damage: str | None = None


def join(commit: Commit, entries: Iterable[tuple[str, TailEntry]]) -> Chain:
    """Return the chain from the commit's next offset on; its end is no data loss.

    Args:
        commit: read before the entries.
        entries: of the partition's directory, each with the name of its log. Those of logs or leaderships that the
            commit does not name do not count.
    """
    end, stable, live = commit.next_offset, commit.last_stable_offset, commit.live
    if live is None:
        return Chain((), end, commit.epochs, stable)
    entries = list(entries)
    is_late = any(entry.epoch > commit.epoch for _, entry in entries)
    epochs = commit.epochs.continued(live.ahead, end)
    own = live.log, commit.epoch
    named = {own, *live.former}
    # A leader that fetched a compacted log has no epoch below this. There its own entries alone are of its log.
    first_known = epochs.pairs[0][1] if epochs.pairs else MAX_INT64
    alive = sorted(
        (
            Link(
                log,
                entry,
                entry.start if (log, entry.epoch) == own else max(entry.start, first_known),
                min(epochs.live_end(entry.epochs, entry.start, entry.end), _ended(epochs, entry.epoch)),
            )
            for log, entry in entries
            if (log, entry.epoch) in named and entry.end > end
        ),
        key=attrgetter("start"),
    )
    links: list[Link] = []
    best, ahead = None, 0
    while True:
        while ahead < len(alive) and alive[ahead].start <= end:
            best = max(best or alive[ahead], alive[ahead], key=lambda link: (link.end, link.entry.epoch))
            ahead += 1
        if best is None or best.end <= end:
            return Chain(tuple(links), end, epochs, stable, is_late)
        if best.end == best.entry.end:
            stable = best.entry.stable
        elif stable is None:  # its dead tail may have decided what is open here, and so may the run
            stable = end
        links.append(best._replace(start=end))
        end = best.end


def _ended(epochs: EpochHistory, epoch: int) -> int:
    """Return where the first later epoch of a list begins: no leadership has a record of a later one."""
    following = bisect_right(epochs.pairs, epoch, key=itemgetter(0))
    return epochs.pairs[following][1] if following < len(epochs.pairs) else MAX_INT64
