"""The commit that continues a run. Pure but for time and nonce; `ts_uploader.committing.commit_log` writes it."""

import secrets
import time
from collections.abc import Iterable, Sequence

from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_uploader.events import Leadership
from ts_uploader.log_dirs.leader_epoch import FencedLeaderEpoch
from ts_uploader.tasks import Position, Shipped

MILLISECONDS = 1000


def next_commit(position: Position, run: Sequence[Shipped], leadership: Leadership, broker: int) -> Commit:
    """The commit after `run` has continued the run that `position` ends.

    Below the old next offset the epochs stay what they were, from there on they are those of the segments. Without a
    run it says what the last one said, anew.

    Raises:
        CorruptData: a segment cannot continue what is committed.
        FencedLeaderEpoch: a segment holds batches of a later leader epoch.
    """
    epochs, next_offset, highest = position.epochs, position.next_offset, position.highest_base
    for shipped in run:
        check_own(shipped.partition, shipped.epochs, leadership.epoch)
        continued = epochs.continued(EpochHistory.of_batches(shipped.epochs), next_offset)
        if not continued.agrees_with(shipped.epochs, shipped.base, shipped.end):
            raise CorruptData(
                f"{shipped.partition}: segment {shipped.base} has epochs {shipped.epochs}, which cannot continue "
                f"{epochs.pairs} from offset {next_offset} on; committed, readers would drop its records"
            )
        # A commit that was taken back names leaderships that begin further on; where, the segments may not show any
        # more.
        epochs = continued.with_next(epochs, shipped.end)
        next_offset = shipped.end
        highest = shipped.base if highest is None else max(highest, shipped.base)
    before = position.commit if isinstance(position.commit, Commit) else None
    stable = before.last_stable_offset if before is not None else None
    now = int(time.time() * MILLISECONDS)
    return Commit(
        highest_base=highest if highest is not None else position.log_start,
        next_offset=next_offset,
        epoch=leadership.epoch,
        epochs=epochs,
        last_stable_offset=run[-1].last_stable_offset if run else stable,
        topic_id=leadership.topic_id,
        broker=broker,
        time=now,
        nonce=secrets.token_hex(8),
        tail=run[-1].tail if run else before.tail if before is not None else None,
        java=now if isinstance(position.commit, ForeignCommit) else before.java if before is not None else None,
        lineage=position.lineage,
    )


def check_own(partition: TopicPartition, epochs: Iterable[tuple[int, int]], epoch: int) -> None:
    """Nothing that a leadership commits is of a later one.

    A broker that leads in an epoch holds no batch of a higher one. Where it does, it follows another leader by now, and
    may have cut its log off below the next offset for that: what is committed is for that leader's agent to weigh.

    Raises:
        FencedLeaderEpoch: there are records of a later one.
    """
    later = [pair for pair in epochs if pair[0] > epoch]
    if later:
        raise FencedLeaderEpoch(
            f"{partition}: there are records of leader epoch {later[0][0]}, this leadership is of {epoch}"
        )


def line_of_log(local: EpochHistory | None, run: Sequence[Shipped]) -> EpochHistory:
    """The epochs of a log and of what was shipped from it.

    Retention cuts the broker's list at the log start. Of `.deleted` files below that only their own batches tell.
    """
    shipped = EpochHistory.of_batches(tuple(pair for done in run for pair in done.epochs))
    return shipped.continued(local, local.pairs[0][1]) if local is not None and local.pairs else shipped
