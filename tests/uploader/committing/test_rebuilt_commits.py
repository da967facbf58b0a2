"""Commits that are rebuilt from the stored segments, and the lineage that they begin (protocol rule 5)."""

from dataclasses import replace

import pytest

from tests.common.log_format import build
from tests.uploader.committing.lineages import ask, put_segment, rebuilt, stored, write_log_start
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import ReadPosition, Ship
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.uploader import Uploader

pytestmark = pytest.mark.usefixtures("no_waits")


def test_u30_a_rebuilt_commit_begins_a_lineage_though_it_lost_nothing(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Late writes from before the loss are fenced, up to the end of every stored segment."""
    write_log_start(store, 0)
    for base, end in ((0, 100), (100, 200), (300, 450)):
        put_segment(store, base, end, (1, base))
    local.segments(0, 500)
    local.epochs((1, 0), (5, 500))
    _, commit, start = rebuilt(commits, store, local)
    assert (commit.next_offset, commit.highest_base, commit.lineage) == (200, 100, Lineage(5, 200, 450))
    assert start.offset == 0


@pytest.mark.parametrize("lineage", [Lineage(3, 200, 300), Lineage(1, 50, 60), None])
def test_u30_an_agents_own_commit_from_before_another_leader_moved_it_back_is_not_used(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, lineage: Lineage | None
) -> None:
    """The commit is lost, and this agent leads again: `log.start` shows that the archive went back since.

    Its own log begins above and proves neither copy. If no agent moved the commit back, its last commit stays true.
    """
    write_log_start(store, 0, lineage)
    put_segment(store, 0, 200, (1, 0))
    put_segment(store, 200, 300, (1, 200))
    put_segment(store, 200, 300, (3, 200), name=SegmentName(200, 3, 7))
    put_segment(store, 300, 400, (3, 300))
    local.segments(400, 500)
    local.epochs((3, 400), (5, 500))
    of_its_own = None if lineage is None or lineage.epoch == 3 else lineage
    known = Commit(200, 300, 1, EpochHistory(((1, 0),)), None, ID, 1, 0, "ours", (299, 7), lineage=of_its_own)
    asked = commits.read(ReadPosition(TP, 0, Leadership(5, ID, 0), local.listing(), 0, known, 0))
    went_another_way = lineage is not None and lineage.epoch == 3
    assert asked.position.epochs == EpochHistory(((1, 0), (3, 200 if went_another_way else 300), (5, 500)))


def test_u30_the_last_batch_of_an_agents_own_commit_on_another_line_is_not_taken_over(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Both lines end at 300: the dead batch's CRC in the rebuilt commit would stop the partition permanently."""
    write_log_start(store, 0, Lineage(3, 200, 300))
    put_segment(store, 0, 200, (1, 0))
    put_segment(store, 200, 300, (3, 200))
    local.segments(300, 500)
    local.epochs((3, 300), (5, 500))
    known = Commit(200, 300, 1, EpochHistory(((1, 0),)), 250, ID, 1, 0, "ours", (299, 7))
    commits.read(ReadPosition(TP, 0, Leadership(5, ID, 0), local.listing(), 0, known, 0))
    commit, _ = stored(store)
    assert (commit.next_offset, commit.tail, commit.last_stable_offset == 250) == (300, None, False)


def test_u40_a_damaged_object_far_below_ends_no_walk(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A Java uploader's segment, without metadata, whose bytes are no log: it covers nothing."""
    write_log_start(store, 0)
    for base in (0, 100):
        put_segment(store, base, base + 100, (1, base))
    store.put(KEYS.segment(SegmentName(1)), b"\xff" * 4096)
    local.segments(0, 500)
    local.epochs((1, 0), (5, 500))
    assert rebuilt(commits, store, local)[1].next_offset == 200


def test_u30_a_rebuilt_commit_goes_back_to_where_a_walk_mixed_two_lines(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """A dead segment of epoch 2 fits between two living ones: the local log's own batch contradicts it."""
    write_log_start(store, 0)
    put_segment(store, 0, 100, (1, 0))
    put_segment(store, 100, 200, (2, 100), lacks=1)  # so that it is no evidence by itself
    put_segment(store, 100, 200, (1, 100), name=SegmentName(100, 3, 7))
    put_segment(store, 200, 300, (3, 200))
    for base in (0, 100):
        local.write(base, build.batch(base, [build.record(n) for n in range(100)], epoch=1))
    local.write(200, build.batch(200, [build.record(n) for n in range(100)], epoch=3))
    local.segments(300)
    local.epochs((1, 0), (3, 200), (5, 300))
    _, commit, _ = rebuilt(commits, store, local)
    assert (commit.next_offset, commit.epochs) == (100, EpochHistory(((1, 0), (3, 200), (5, 300))))


def test_u30_a_rebuilt_commit_goes_back_to_a_log_that_begins_below_log_start(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """An earlier lineage may have moved it there: what the leader holds is shown."""
    write_log_start(store, 200)
    put_segment(store, 200, 300, (1, 200))
    local.segments(100, 300)
    local.epochs((1, 100), (5, 300))
    _, commit, start = rebuilt(commits, store, local)
    assert (commit.next_offset, start.offset) == (100, 100)


def test_u36_after_two_lost_commits_in_one_epoch_no_name_is_shipped_twice(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """Retention deletes by name and ETag what the first lineage shipped, and the second one shows those offsets."""
    local.write(0, build.batch(0, [build.record(n) for n in range(100)], epoch=5))
    local.segments(100)
    local.epochs((5, 0))
    write_log_start(store, 50)
    uploader = Uploader(lambda _: store, lambda _: TopicRetention())
    for lost in range(2):
        position, _, start = rebuilt(commits, store, local)
        assert start.offset == position.next_offset == 0
        segment = Ship(TP, 0, Leadership(5, ID, 0), KEYS, local.listing(), 0, 100, seen=True, lineage=position.lineage)
        assert position.lineage is not None
        assert uploader.ship(replace(segment, variants_below=position.lineage.highest)).bytes_sent > 0, lost
        write_log_start(store, 100, position.lineage)
        store.delete([KEYS.commit])


@pytest.mark.parametrize(("shipped", "begins"), [((200,), 200), ((150, 200), 150)])
def test_u34_with_latest_a_rebuilt_commit_ships_nothing_that_no_agent_ever_shipped(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, shipped: tuple[int, ...], begins: int
) -> None:
    """The log below is not the archive's; what was shipped below `log.start` was shown once, so it is shown again."""
    write_log_start(store, 200)
    for base in shipped:
        put_segment(store, base, base + 50, (1, base))
    local.segments(0, 100, 150, 200, 250)
    local.epochs((1, 0), (5, 250))
    _, commit, start = rebuilt(commits, store, local, latest=True)
    assert (commit.next_offset, start.offset) == (250 if begins == 200 else begins, begins)


@pytest.mark.parametrize(
    ("epoch", "restarted", "begins"),
    [
        pytest.param(5, False, False, id="the same leadership"),
        pytest.param(5, True, True, id="another life of the agent"),
        pytest.param(6, False, True, id="another leadership"),
    ],
)
def test_an_upload_that_fails_before_the_first_commit_begins_no_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, epoch: int, restarted: bool, begins: bool
) -> None:
    """Only an agent that saw the archive empty in this leadership can exclude a lost commit."""
    local.segments(0, 100, 200, 300)
    local.epochs((5, 0))
    assert ask(commits, local, 5).position.next_offset == 0
    put_segment(store, 100, 200, (5, 0))
    local.epochs((5, 0), *(() if epoch == 5 else ((epoch, 300),)))
    commits = CommitLog(CLUSTER, 1, lambda _: store) if restarted else commits
    assert ask(commits, local, epoch).position.next_offset == 0
    commit, _ = read_commit(store, KEYS)
    lineage = commit.lineage if isinstance(commit, Commit) else None
    assert lineage == (Lineage(epoch, 0, 200) if begins else None)


@pytest.mark.parametrize("raised", [False, True])
def test_u30_a_commit_that_was_written_and_lost_in_one_leadership_begins_a_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, raised: bool
) -> None:
    """Neither once this agent saw a commit, nor if `log.start` is another object than the one it saw."""
    local.segments(0, 100, 200)
    local.epochs((5, 0))
    ask(commits, local, 5)
    put_segment(store, 0, 100, (5, 0))
    if raised:
        write_log_start(store, 50)
    else:
        assert ask(commits, local, 5).position.next_offset == 100
        store.delete([KEYS.commit])
    ask(commits, local, 5)
    assert stored(store)[0].lineage is not None


def test_the_first_takeover_of_a_foreign_commit_begins_no_lineage(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory
) -> None:
    """No `log.start` existed before, so no write of an earlier archive can be late."""
    put_segment(store, 0, 100, (1, 0))
    store.put(KEYS.commit, b"%020d" % 0)
    local.segments(0, 100)
    local.epochs((1, 0), (5, 100))
    ask(commits, local, 5)
    commit, start = stored(store)
    assert (commit.next_offset, commit.lineage, start) == (100, None, LogStart(0))
    assert encode_log_start(0) == store.get(KEYS.log_start)[0]
