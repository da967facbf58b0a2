"""What identifies the log that a reader has read up to a position, and how much of it the archive's log still has.

A stream and a table keep it with their positions. It is the list of leader epochs below the position, and the lineage
of the commit. One epoch is not enough: after two elections the log can part from what was read further below.
"""

from dataclasses import dataclass, replace

from ts_common.archive.commit import Lineage, epoch_of
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory


@dataclass(frozen=True, slots=True)
class ReadLog:
    """One log, as commits describe it.

    Attributes:
        epochs: which epoch wrote which offset; empty if the commit has none (magic 0 and 1, a Java uploader's).
        lineage: of the commit; None if it never went back.
        is_lineage_known: whether `lineage` was read. Positions of earlier releases have none, also of a commit that
            had one. Without it, a lineage that the commit has now does not show when the commit went back.
    """

    epochs: EpochHistory = EpochHistory()  # noqa: RUF009  (frozen)
    lineage: Lineage | None = None
    is_lineage_known: bool = True

    def below(self, end: int) -> "ReadLog":
        """Return the log up to an offset."""
        return replace(self, epochs=self.epochs.below(end))

    def has_epoch_before(self, end: int) -> bool:
        """Return whether the record before an offset has a leader epoch."""
        return self.epochs.at(end - 1) not in {None, NO_EPOCH}


def kept_end(end: int, read: ReadLog | None, now: ReadLog, now_end: int) -> int:
    """Return the end of what was read that the log still has: `end`, or the offset where the two logs part.

    A shorter log alone is no loss: a commit that was lost and rebuilt can end below the position for some time, and so
    can the commit of an earlier leader. With epochs, the logs are compared as Kafka compares a follower's with its
    leader's (KIP-279). Records without an epoch (magic 0 and 1), and those whose epochs retention removed from the
    commit, have only the lineage: a newer one names the offset where the commit went back. If it went back twice
    since, only the second offset is known. A position whose lineage is unknown shows nothing by it.

    Args:
        end: the offset after the last that was read.
        read: the log that was read, up to `end`; None if unknown, then nothing shows that they part.
        now_end: the offset after its last.
    """
    if read is None:
        return end
    kept = end
    if read.epochs.pairs and now.epochs.pairs and read.epochs.pairs[-1][0] <= now.epochs.pairs[-1][0]:
        kept = read.epochs.shared_end(end, now.epochs, max(end, now_end))
    # Retention removes epochs from the start of the commit's list. Without those that were read it shows nothing.
    shows_nothing = not read.has_epoch_before(end) or _is_below(read.epochs, now.epochs)
    if shows_nothing and read.is_lineage_known and now.lineage and epoch_of(now.lineage) > epoch_of(read.lineage):
        kept = min(kept, now.lineage.begin)
    return kept


def _is_below(read: EpochHistory, now: EpochHistory) -> bool:
    return bool(read.pairs and now.pairs) and read.pairs[-1][0] < now.pairs[0][0]
