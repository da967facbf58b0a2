"""Builds the commit that continues a run; pure but for time and nonce. `commit_writer` writes it."""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ts_common.archive.commit import Commit, ForeignCommit, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Position, Shipped

MILLISECONDS = 1000


def next_commit(position: Position, run: Sequence[Shipped], leadership: Leadership, broker: int) -> Commit:
    """Return the commit after `run` has continued the run that `position` ends.

    Below the old next offset the epochs stay, from there on they are those of the segments. Without a run the commit
    repeats the last one.

    Raises:
        CorruptData: a segment cannot continue the committed run.
        FencedLeaderEpoch: a segment contains batches of a later leader epoch.
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
        # A commit that went back names leaderships that begin further on; the segments may no longer show where.
        epochs = continued.with_next(epochs, shipped.end)
        next_offset = shipped.end
        highest = shipped.base if highest is None else max(highest, shipped.base)
    before = position.commit if isinstance(position.commit, Commit) else None
    if highest is None:
        highest = before.highest_base if before is not None else position.log_start
    stable = before.last_stable_offset if before is not None else None
    now = int(time.time() * MILLISECONDS)
    return Commit(
        highest_base=highest,
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


def with_live(
    commit: Commit, before: Commit | ForeignCommit | None, log: str | None, local: EpochHistory | None = None
) -> Commit:
    """Return a commit that names the live tail (tail rule 4), or none without a log.

    A rebuilt commit replaces none, so it names no former leadership. If readers used entries of the same leadership in
    another log, they stay named until its epoch ends: nothing shows where own entries cover them.

    Retention cuts the list. If the replaced commit names the first epoch that is left for that offset, both logs are
    the same below, and its epochs there count. Otherwise a list that begins above the next offset shows nothing of
    entries below, except of leaderships whose records the log has.

    Args:
        commit: complete but for that.
        before: the commit that it replaces.
        log: of this agent, for entries of the topic; None if its tail is off.
        local: the broker's list in this leadership; None for a later commit, which has the list of the one before.
    """
    old = before.live if isinstance(before, Commit) else None
    former: tuple[tuple[str, int], ...] = ()
    if isinstance(before, Commit) and old is not None:
        former = (*old.former, (old.log, before.epoch))
        if local is None and before.epoch == commit.epoch:
            local = old.ahead
        elif local is not None and local.pairs and old.ahead.at(local.pairs[0][1]) == local.pairs[0][0]:
            local = old.ahead.continued(local, local.pairs[0][1])
    if log is None or local is None:
        return replace(commit, live=None)
    ahead = local.from_offset(commit.next_offset)
    line = commit.epochs.continued(ahead, commit.next_offset)
    named = [each for each in dict.fromkeys(former) if each != (log, commit.epoch)]
    if ahead.at(commit.next_offset) is None:
        named = [each for each in named if each[1] in dict(ahead)]
    living = tuple((name, epoch) for name, epoch in named if _ends_above(epoch, line, commit.next_offset))
    return replace(commit, live=Live(log, living, ahead))


def _ends_above(epoch: int, line: EpochHistory, offset: int) -> bool:
    """Return whether an epoch ends above an offset by a list: the next later one begins there."""
    return next((start > offset for later, start in line if later > epoch), True)


def check_own(partition: TopicPartition, epochs: Iterable[tuple[int, int]], epoch: int) -> None:
    """Check that a leadership commits no batch of a later one.

    A broker that leads in an epoch has no batch of a higher one. If it has, it follows another leader by now, and may
    have truncated its log below the next offset: then that leader's agent decides what is committed.

    Raises:
        FencedLeaderEpoch: there are records of a later leader epoch.
    """
    later = [pair for pair in epochs if pair[0] > epoch]
    if later:
        raise FencedLeaderEpoch(
            f"{partition}: there are records of leader epoch {later[0][0]}, this leadership is of {epoch}"
        )


def line_of_log(local: EpochHistory | None, run: Sequence[Shipped]) -> EpochHistory:
    """Return the epochs of a log and of the segments shipped from it.

    Retention cuts the broker's list at the log start. For `.deleted` files below that only their own batches count.
    """
    shipped = EpochHistory.of_batches(tuple(pair for done in run for pair in done.epochs))
    return shipped.continued(local, local.pairs[0][1]) if local is not None and local.pairs else shipped
