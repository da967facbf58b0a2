"""A topic id that changed under a living topic (KAFKA-14190): its archive is not split, and an operator decides."""

import os
import time

import pytest

from tests.tsctl.running import Run, runner
from tests.uploader.batches import batch
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.incarnations import Incarnations, read_incarnations
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import TopicIdChanged
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import PositionRead
from ts_uploader.messages.tasks import ReadPosition

OTHER = "BBBBBBBBBBBBBBBBBBBBBA"
NEXT = 6


def crc_of(data: bytes) -> int:
    return int.from_bytes(data[17:21], "big")


class Life:
    """Make an archive up to offset 6 in epoch 5, and the broker's log that continues from there."""

    def __init__(self, store: ObjectStore, local: LocalDirectory) -> None:
        self.store = store
        self.local = local
        self.commits = CommitLog(CLUSTER, 1, lambda _: store)
        self.commit = Commit(3, NEXT, 5, EpochHistory(((5, 0),)), NEXT, ID, 1, 0, "ours", (5, crc_of(batch(3, 3, 5))))
        for base in (0, 3):
            store.put(KEYS.segment(SegmentName(base)), batch(base, 3, 5))
        store.put(KEYS.log_start, LogStart(0).encode())
        store.put(CLUSTER.incarnations("t"), Incarnations("t").opened(ID, 1, CLUSTER, 1).encode())
        self.put(self.commit)
        self.write(0, 3, 6, 9)

    def put(self, commit: Commit) -> None:
        self.store.put(KEYS.commit, commit.encode())

    def write(self, *bases: int, epoch: int = 5) -> None:
        """The broker's log: closed segments of three records, and an empty active one."""
        for path in self.local.path.glob("0*"):
            path.unlink()
        for base in bases[:-1]:
            self.local.write(base, batch(base, 3, epoch))
        self.local.segments(bases[-1])
        self.local.epochs((epoch, bases[0]))

    def change_id(self, seconds_later: float) -> None:
        """The broker writes another id, so long after its lowest segment."""
        self.local.topic_id(OTHER)
        when = time.time()
        os.utime(self.local.path / "partition.metadata", (when, when))
        lowest = min(self.local.path.glob("*.log"))
        os.utime(lowest, (when - seconds_later, when - seconds_later))

    def ask(self, topic_id: str = OTHER, epoch: int = 5) -> PositionRead:
        leadership = Leadership(epoch, topic_id, 0)
        return self.commits.read(ReadPosition(TP, 0, leadership, self.local.listing(), 0, None, 0))

    @property
    def directories(self) -> list[tuple[str, str]]:
        known, _ = read_incarnations(self.store, CLUSTER, "t")
        return [(entry.topic_id, entry.directory) for entry in known.entries]


@pytest.fixture
def life(store: ObjectStore, local: LocalDirectory) -> Life:
    return Life(store, local)


@pytest.fixture
def tsctl(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


NEW = [(ID, "t"), (OTHER, f"t~{OTHER}")]


def test_a_log_that_continues_under_another_id_opens_no_new_incarnation(life: Life) -> None:
    """The last committed batch is in it, and its segments are older than the id; nothing is written."""
    life.change_id(60)
    for _ in range(2):
        with pytest.raises(TopicIdChanged, match=f"tsctl adopt-topic-id t {OTHER}"):
            life.ask()
    assert life.directories == [(ID, "t")]
    assert read_commit(life.store, KEYS)[0] == life.commit


def test_a_log_that_compaction_changed_continues_if_it_is_older_than_its_id(life: Life) -> None:
    """Nothing can be compared then, but the age of its lowest segment; some minutes are granted."""
    life.put(Commit(3, NEXT, 5, EpochHistory(((5, 0),)), NEXT, ID, 1, 0, "ours"))
    life.change_id(3600)
    with pytest.raises(TopicIdChanged, match="segment 0 was written before the topic id"):
        life.ask()
    life.change_id(60)
    life.ask(epoch=5)
    assert life.directories == NEW


def test_a_log_that_begins_behind_the_archive_continues_if_its_epochs_do(life: Life) -> None:
    """All committed records were removed from the broker: only the archive has them."""
    life.write(9, 12)
    life.change_id(0)
    with pytest.raises(TopicIdChanged, match="it begins at 9, and 6 is the next offset"):
        life.ask()
    life.write(9, 12, epoch=2)
    life.change_id(0)
    life.ask(epoch=2)
    assert life.directories == NEW


def test_a_topic_that_was_created_again_gets_a_new_incarnation_at_once(life: Life) -> None:
    """From offset 0, in epoch 0, also where it is longer than its predecessor by now."""
    life.write(0, 3, 6, 9, epoch=0)
    life.change_id(0)
    life.ask(epoch=0)
    assert life.directories == NEW


def test_a_topic_created_again_with_identical_bytes_gets_a_new_incarnation(life: Life) -> None:
    """A mirror may write the same batches with the same times; its files are younger than its id."""
    life.change_id(-1)
    life.ask()
    assert life.directories == NEW


def test_an_operator_lets_the_new_id_continue_the_incarnation(life: Life, tsctl: Run) -> None:
    """The commit continues in its directory under the new id; brokers that still have the old one are accepted."""
    life.change_id(60)
    ended = tsctl("adopt-topic-id", "t", OTHER, "--url", life.store.location, "--cluster", "c", "--entropy-bits", "5")
    assert ended.code == 0, ended.err
    assert life.directories == [(ID, "t"), (OTHER, "t")]
    life.local.epochs((5, 0), (6, 9))
    asked = life.ask(epoch=6)
    assert (asked.position.keys, asked.position.next_offset) == (KEYS, NEXT)
    commit, _ = read_commit(life.store, KEYS)
    assert isinstance(commit, Commit)
    assert (commit.topic_id, commit.epoch, commit.next_offset) == (OTHER, 6, NEXT)
    life.local.topic_id(ID)
    life.local.epochs((5, 0), (6, 9), (7, 9))
    assert life.ask(ID, epoch=7).position.next_offset == NEXT
    again = tsctl("adopt-topic-id", "t", OTHER, "--url", life.store.location, "--cluster", "c", "--entropy-bits", "5")
    assert again.code == 0
    assert len(life.directories) == 2


def test_an_operator_declares_the_new_id_to_be_another_topic(life: Life, tsctl: Run) -> None:
    """The way out where the agent was too careful."""
    life.change_id(60)
    named = ("--url", life.store.location, "--cluster", "c", "--entropy-bits", "5")
    assert tsctl("adopt-topic-id", "t", OTHER, "--separate", *named).code == 0
    assert life.directories == NEW
    assert life.ask().position.keys == CLUSTER.partition(TP, f"t~{OTHER}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("t", "short"), "a topic id has 22 characters"),
        (("a/b", OTHER), "not a valid topic name"),
        (("unknown", OTHER), "has no such topic; it contains t"),
    ],
)
def test_what_cannot_be_adopted_is_refused(life: Life, tsctl: Run, arguments: tuple[str, str], said: str) -> None:
    """Nothing is written."""
    before = {info.key: info.etag for info in life.store.list()}
    named = ("--url", life.store.location, "--cluster", "c", "--entropy-bits", "5")
    ended = tsctl("adopt-topic-id", *arguments, *named)
    assert ended.code == 2
    assert said in ended.err
    assert {info.key: info.etag for info in life.store.list()} == before


def test_readers_identify_an_incarnation_by_its_first_id(life: Life) -> None:
    """A stream that began before the id was replaced continues: for it the topic is the same."""
    known, _ = read_incarnations(life.store, CLUSTER, "t")
    adopted = known.adopted(OTHER, 2)
    assert (adopted.newest_directory, adopted.newest_id) == ("t", ID)
    third = adopted.opened("CCCCCCCCCCCCCCCCCCCCCA", 3, CLUSTER)
    assert third.newest_id == "CCCCCCCCCCCCCCCCCCCCCA"
    assert third.are_of_one_life(ID, OTHER)
    assert not third.are_of_one_life(ID, "CCCCCCCCCCCCCCCCCCCCCA")
