"""How much of what was read the archive's log still has, by every short history of three replicas."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from ts_common.archive.commit import Lineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.read_log import ReadLog, kept_end

Log = tuple[int, ...]  # the epoch of each record; two records are the same if epoch and offset are

MOST_EPOCHS = 4


@dataclass(frozen=True)
class Cluster:
    """The logs of three replicas, and the commit, which follows the leader's log at each step."""

    logs: tuple[Log, ...] = ((), (), ())
    leader: int = 0
    epoch: int = 0
    committed: Log = ()
    lineage: Lineage | None = None

    def led(self, leader: int, epoch: int, log: Log) -> "Cluster":
        """Return the cluster with this log of the leader; a commit with other records moves back."""
        kept, lineage = shared(self.committed, log), self.lineage
        if kept < len(self.committed):
            lineage = Lineage(epoch, kept, len(self.committed))
        logs = tuple(log if replica == leader else other for replica, other in enumerate(self.logs))
        return Cluster(logs, leader, epoch, log, lineage)

    def next(self) -> Iterator["Cluster"]:
        """Yield each cluster that one step can lead to."""
        log = self.logs[self.leader]
        yield self.led(self.leader, self.epoch, (*log, self.epoch))
        for replica in range(len(self.logs)):
            if replica != self.leader and self.logs[replica] != log:
                logs = tuple(log if each == replica else other for each, other in enumerate(self.logs))
                yield replace(self, logs=logs)
            if replica != self.leader and self.epoch < MOST_EPOCHS:  # clean or not
                elected = self.led(replica, self.epoch + 1, self.logs[replica])
                yield elected.led(replica, self.epoch + 1, (*self.logs[replica], self.epoch + 1))


def shared(one: Log, other: Log) -> int:
    """Return the number of records that two logs share."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def epochs(log: Log) -> EpochHistory:
    """Return the list of a log."""
    return EpochHistory(tuple((new, at) for at, (old, new) in enumerate(pairwise((-1, *log))) if new != old))


def after(cluster: Cluster, steps: int) -> set[Cluster]:
    """Return every cluster up to some steps later."""
    reached = frontier = {cluster}
    for _ in range(steps):
        frontier = {later for each in frontier for later in each.next()} - reached
        reached = reached | frontier
    return reached


def readings(steps: int) -> Iterator[tuple[Cluster, Cluster]]:
    """Yield what a reader read up to some steps, and what the archive shows as many steps later."""
    for read in after(Cluster(), steps):
        for now in after(read, steps):
            yield read, now


@pytest.mark.parametrize("steps", [3, pytest.param(4, marks=pytest.mark.full)])
def test_the_logs_part_where_their_records_do(steps: int) -> None:
    """By the lists of epochs, after any elections; the epoch of the last record alone is not enough."""
    compared = one_epoch_differs = 0
    for read, now in readings(steps):
        log, current = read.committed, ReadLog(epochs(now.committed), now.lineage)
        if log:
            end, right, compared = len(log), shared(log, now.committed), compared + 1
            assert kept_end(end, ReadLog(epochs(log), read.lineage), current, len(now.committed)) == right, (read, now)
            last_alone = ReadLog(EpochHistory(((log[-1], end - 1),)))
            one_epoch_differs += kept_end(end, last_alone, current, len(now.committed)) != right
    assert compared > 1_000
    assert one_epoch_differs > 0


@pytest.mark.parametrize("steps", [3, pytest.param(4, marks=pytest.mark.full)])
def test_records_without_epochs_part_by_the_lineage_that_went_back_once(steps: int) -> None:
    """The commit names the offset; a lineage from before the reading shows nothing."""
    compared = 0
    for read, now in readings(steps):
        if now.epoch - read.epoch <= 1:
            end, compared = len(read.committed), compared + 1
            found = kept_end(end, ReadLog(lineage=read.lineage), ReadLog(lineage=now.lineage), len(now.committed))
            assert found == shared(read.committed, now.committed), (read, now)
    assert compared > 1_000


def test_a_shorter_log_of_the_same_records_is_no_loss() -> None:
    """A commit that was lost and rebuilt, that of an earlier leader, and one without epochs."""
    line = EpochHistory(((0, 0), (1, 60)))
    for now in (line, EpochHistory(((0, 0),)), EpochHistory()):
        assert kept_end(100, ReadLog(line), ReadLog(now), 50) == 100
    assert kept_end(100, None, ReadLog(line, Lineage(1, 60, 90)), 70) == 100


def test_where_retention_removed_the_epochs_the_lineage_shows_the_parting() -> None:
    """Else rows of a removed log stay in silence: the list begins above them."""
    read, back = ReadLog(EpochHistory(((0, 0),))), Lineage(1, 1, 2)
    assert kept_end(2, read, ReadLog(EpochHistory(((1, 2),)), back), 4) == 1
    assert kept_end(2, replace(read, lineage=back), ReadLog(EpochHistory(((1, 2),)), back), 4) == 2


def test_a_lineage_that_was_not_read_removes_nothing() -> None:
    """Earlier releases kept none with a position. The commit can have moved back long before."""
    read, now = ReadLog(EpochHistory(((3, 0), (6, 20)))), ReadLog(EpochHistory(((7, 60),)), Lineage(6, 20, 31))
    assert kept_end(60, replace(read, is_lineage_known=False), now, 100) == 60
    assert kept_end(60, read, now, 100) == 20


def test_two_elections_part_where_the_first_did() -> None:
    """Read to 29 over epochs 0, 1 and 3; now epoch 6 follows epoch 0 at 23, and the logs part at 9."""
    read = ReadLog(EpochHistory(((0, 0), (1, 9), (3, 23))))
    assert kept_end(29, read, ReadLog(EpochHistory(((0, 0), (6, 23)))), 40) == 9
