"""A commit at offset 100, and a log that begins above it."""

from tests.uploader.committing.stored_segments import LEADERSHIP, put_segment
from tests.uploader.local_directory import ID, KEYS, TP, LocalDirectory
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.results import Committed
from ts_uploader.messages.tasks import PassGap, Position, ReadPosition


def ask(commits: CommitLog, local: LocalDirectory, known: Commit | None = None) -> Position:
    return commits.read(ReadPosition(TP, 0, LEADERSHIP, local.listing(), 0, known, 0)).position


def at_100(store: ObjectStore, commits: CommitLog, local: LocalDirectory, *live: int) -> Position:
    """The archive ends at 100, in epoch 1; this broker leads in epoch 5 and holds these segments."""
    put_segment(store, 0, 100, (1, 0))
    commit = Commit(0, 100, 1, EpochHistory(((1, 0),)), 100, ID, 2, 0, "theirs")
    store.put(KEYS.commit, commit.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    local.segments(*live)
    local.epochs((1, 0), (5, live[0]))
    return ask(commits, local)


def pass_gap(commits: CommitLog, local: LocalDirectory, position: Position, end: int) -> Committed:
    return commits.pass_gap(PassGap(TP, 0, LEADERSHIP, position, local.listing(), end))
