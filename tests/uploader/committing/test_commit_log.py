"""The only writer of `offset.wm`, against a real store (a directory)."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.uploader.committing.stored_segments import LEADERSHIP, put_segment, shipped
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.incarnations import Incarnation, Incarnations, read_incarnations
from ts_common.errors import CorruptData, PreconditionFailed, SegmentChanged
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.wrappers.unconditional import UnconditionalStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.committing.next_commit import next_commit
from ts_uploader.messages.observations import Leadership, Listing
from ts_uploader.messages.results import FencedLeaderEpoch
from ts_uploader.messages.tasks import Position, ReadPosition, Shipped, WriteCommit


@pytest.fixture
def commits(store: ObjectStore) -> CommitLog:
    return CommitLog(CLUSTER, 1, lambda _: store)


@pytest.fixture
def listed(local: LocalDirectory) -> Callable[..., Listing]:
    """Makes the files of a partition's directory, and lists it."""

    def made(*bases: int, topic_id: str = ID, epochs: tuple[tuple[int, int], ...] = ((5, 0),)) -> Listing:
        local.segments(*bases)
        local.topic_id(topic_id)
        local.epochs(*epochs)
        return local.listing()

    return made


def ask(listing: Listing, leadership: Leadership = LEADERSHIP, first_base: int = 0) -> ReadPosition:
    return ReadPosition(TP, 0, leadership, listing, first_base, None, 0)


def write(position: Position, *run: Shipped, leadership: Leadership = LEADERSHIP) -> WriteCommit:
    return WriteCommit(TP, 0, leadership, position, run)


def test_an_archive_begins_with_log_start(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """It is written before any other object, and the first one stays."""
    assert commits.read(ask(listed(50, 60), first_base=50)).position.next_offset == 50
    assert commits.read(ask(listed(50, 60), first_base=60)).position.next_offset == 50
    assert store.get(KEYS.log_start)[0] == encode_log_start(50)


def test_a_commit_is_written_and_found_again(commits: CommitLog, listed: Callable[..., Listing]) -> None:
    """The next read of the position continues from the committed offset."""
    position = commits.write(write(commits.read(ask(listed(0, 100))).position, shipped(0, 100, (5, 0)))).position
    assert commits.read(ask(listed(0, 100))).position == position
    assert position.next_offset == 100
    assert position.epochs == EpochHistory(((5, 0),))


def test_u06_a_stale_commit_is_refused(commits: CommitLog, listed: Callable[..., Listing]) -> None:
    """Two agents read the same commit; the second one to write must look again, though the first line is the same."""
    position = commits.write(write(commits.read(ask(listed(0, 100))).position, shipped(0, 100, (5, 0)))).position
    commits.write(write(position, shipped(50, 120, (5, 50))))
    with pytest.raises(PreconditionFailed):
        commits.write(write(position, shipped(50, 110, (5, 50))))


def test_u06_a_higher_epoch_ends_the_leadership(commits: CommitLog, listed: Callable[..., Listing]) -> None:
    """The pair (epoch, next) never goes back: an older leader epoch neither commits nor continues."""
    listing = listed(0, 100)
    position = commits.read(ask(listing)).position
    commits.write(write(position, shipped(0, 100, (5, 0)), leadership=replace(LEADERSHIP, epoch=6)))
    with pytest.raises(FencedLeaderEpoch, match="epoch 6"):
        commits.write(write(position, shipped(0, 90, (5, 0))))
    with pytest.raises(FencedLeaderEpoch, match="epoch 6"):
        commits.read(ask(listing))


class LostAnswer(UnconditionalStore):
    """A store that writes one object without an answer."""

    def put(self, key: str, *arguments: object, **named: object) -> ObjectInfo:
        from ts_common.errors import OutcomeUnknown

        self._inner.put(key, *arguments, **named)  # type: ignore[arg-type]
        raise OutcomeUnknown("no answer")


def test_u14_a_commit_whose_answer_is_lost_is_recognised(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Own nonce in the store means that it was written."""
    position = commits.read(ask(listed(0, 100))).position
    silent = CommitLog(CLUSTER, 1, lambda _: LostAnswer(store, threads=1))
    after = silent.write(write(position, shipped(0, 100, (5, 0)))).position
    assert commits.read(ask(listed(0, 100))).position == after


def test_a_commit_that_appears_during_a_takeover_is_not_walked_over(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """The takeover of a foreign commit never replaces an agent's commit that was written meanwhile, of any epoch."""
    store.put(KEYS.commit, b"00000000000000000000")
    put_segment(store, 0, 100, (1, 0))
    position = commits.read(ask(listed(0, 100, epochs=((1, 0), (5, 100))))).position
    theirs = Commit(0, 150, 4, EpochHistory(((1, 0), (4, 120))), None, ID, 2, 0, "theirs")
    store.put(KEYS.commit, theirs.encode())
    with pytest.raises(PreconditionFailed):
        commits.write(write(position, shipped(100, 120, (5, 100))))
    assert read_commit(store, KEYS)[0] == theirs


def test_u30_a_lost_list_of_incarnations_does_not_mix_two_incarnations(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """The commit has its topic id: records of another id never follow it."""
    store.put(KEYS.commit, Commit(0, 100, 1, EpochHistory(((1, 0),)), None, "B" * 22, 2, 0, "old").encode())
    with pytest.raises(CorruptData, match="is of topic id BBB"):
        commits.read(ask(listed(0, 100)))


def test_u34_segments_without_a_commit_are_walked(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Killed before its first commit, an agent commits the segments that it shipped without a hole, and continues."""
    store.put(KEYS.log_start, encode_log_start(0))
    for base, end in ((0, 100), (100, 200), (300, 400)):
        put_segment(store, base, end, (5, base))
    position = commits.read(ask(listed(0, 200))).position
    assert (position.next_offset, position.highest_base) == (200, 100)
    assert (read_commit(store, KEYS)[0], read_commit(store, KEYS)[1]) == (position.commit, position.etag)
    assert position.epochs == EpochHistory(((5, 0),))


def test_a_foreign_commit_bounds_the_walk(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Segments above the one that it names were not committed, and a hole ends the run."""
    for base, end in ((0, 100), (100, 200), (200, 300)):
        put_segment(store, base, end, (5, base))
    store.put(KEYS.commit, b"00000000000000000100")
    assert commits.read(ask(listed(0, 200))).position.next_offset == 200


def test_a_walk_does_not_follow_a_dead_tail(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """A Java uploader ships what was above the high watermark; the copy of the higher epoch is the living one."""
    store.put(KEYS.commit, b"00000000000000000110")
    put_segment(store, 0, 150, (1, 0))
    put_segment(store, 110, 300, (1, 110), (2, 120))
    position = commits.read(ask(listed(0, 300, epochs=((1, 0), (2, 120), (5, 300))))).position
    assert position.next_offset == 300
    assert position.epochs == EpochHistory(((1, 0), (2, 120)))


def test_u09_a_recreated_topic_gets_a_directory_of_its_own(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Old objects stay as they are; the new incarnation has its own directory, and the old one never returns."""
    other = "BBBBBBBBBBBBBBBBBBBBBA"
    first = commits.read(ask(listed(0, 100))).position
    second = commits.read(ask(listed(topic_id=other, epochs=((0, 0),)), Leadership(0, other, 0))).position
    assert first.keys.prefix == KEYS.prefix
    assert second.keys.prefix == CLUSTER.partition(TP, f"t~{other}").prefix
    assert [entry.topic_id for entry in read_incarnations(store, CLUSTER, "t")[0].entries] == [ID, other]
    with pytest.raises(FencedLeaderEpoch, match="followed by"):
        commits.read(ask(listed(topic_id=ID)))


def test_u09_a_late_question_does_not_open_an_old_incarnation(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """The directory is looked at again: only an id that it bears now may open an incarnation."""
    late = ask(listed(0, 100))
    listed(topic_id="BBBBBBBBBBBBBBBBBBBBBA")
    with pytest.raises(SegmentChanged):
        commits.read(late)
    assert read_incarnations(store, CLUSTER, "t")[0].entries == ()


OTHER = "BBBBBBBBBBBBBBBBBBBBBA"


def made(local: LocalDirectory, seconds_ago: float) -> None:
    """As if the broker had written `partition.metadata` then."""
    when = time.time() - seconds_ago
    os.utime(local.path / "partition.metadata", (when, when))


def test_u09_an_older_id_is_not_opened_behind_a_later_one(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, listed: Callable[..., Listing]
) -> None:
    """A partitioned broker has the old id, and so has its disk, which also shows that it is the older one."""
    later = listed(0, 100, topic_id=OTHER, epochs=((0, 0),))
    made(local, 1800)
    commits.read(ask(later, Leadership(0, OTHER, 0)))
    stale = listed(0, 100, topic_id=ID, epochs=((5, 0),))
    made(local, 3600)
    for _ in range(2):
        with pytest.raises(SegmentChanged, match=f"already has a later one, {OTHER}.*touch .*partition.metadata"):
            commits.read(ask(stale))
    assert [entry.topic_id for entry in read_incarnations(store, CLUSTER, "t")[0].entries] == [OTHER]
    made(local, 0)  # the way out that it names
    commits.read(ask(local.listing()))
    assert [entry.topic_id for entry in read_incarnations(store, CLUSTER, "t")[0].entries] == [OTHER, ID]


@pytest.mark.parametrize("first_seen_later", [True, False])
def test_u09_a_later_id_is_opened_whenever_the_former_was_first_seen(
    store: ObjectStore, local: LocalDirectory, listed: Callable[..., Listing], first_seen_later: bool
) -> None:
    """The former may be opened late, by a broker that was cut off; and clocks may be some minutes apart."""
    commits = CommitLog(CLUSTER, 1, lambda _: store)
    former = listed(0, 100)
    made(local, 7200)
    commits.read(ask(former))
    assert read_incarnations(store, CLUSTER, "t")[0].entries[0].first_seen > (time.time() - 3600) * 1000
    later = listed(topic_id=OTHER, epochs=((0, 0),))
    made(local, 3600 if first_seen_later else 7200 + 240)
    commits.read(ask(later, Leadership(0, OTHER, 0)))
    assert [entry.topic_id for entry in read_incarnations(store, CLUSTER, "t")[0].entries] == [ID, OTHER]


def test_u09_a_list_without_times_accepts_a_new_id(
    commits: CommitLog, store: ObjectStore, local: LocalDirectory, listed: Callable[..., Listing]
) -> None:
    """As the first release wrote it."""
    former = Incarnations("t", (Incarnation(ID, 1, "t"),))
    store.put(CLUSTER.incarnations("t"), former.encode())
    later = listed(0, topic_id=OTHER, epochs=((0, 0),))
    made(local, 10**6)
    commits.read(ask(later, Leadership(0, OTHER, 0)))
    assert read_incarnations(store, CLUSTER, "t")[0].newest_directory == f"t~{OTHER}"


POSITION = Position(KEYS, 0, 100, 0, EpochHistory(((2, 0),)), None, None)


def test_the_commit_continues_the_epochs_of_the_run() -> None:
    """Below the old next offset they stay, from there on they are the segment's."""
    commit = next_commit(POSITION, [shipped(50, 200, (2, 50), (3, 150)), shipped(200, 300, (3, 200))], LEADERSHIP, 1)
    assert commit.epochs == EpochHistory(((2, 0), (3, 150)))
    old_magic = next_commit(POSITION, [shipped(100, 200, (2, 100), (-1, 150), (2, 160))], LEADERSHIP, 1)
    assert old_magic.epochs == EpochHistory(((2, 0),))


def test_batches_that_cannot_continue_the_run_are_not_committed() -> None:
    """Batches of a lower epoch than the run's would be dead to every reader; they are reported, not committed."""
    with pytest.raises(CorruptData, match="readers would drop"):
        next_commit(POSITION, [shipped(100, 200, (1, 100))], LEADERSHIP, 1)


def test_u06_records_of_a_later_leadership_are_not_committed() -> None:
    """Who holds some follows another leader by now, and may have cut its log off below the next offset for that."""
    with pytest.raises(FencedLeaderEpoch, match="records of leader epoch 6, this leadership is of 5"):
        next_commit(POSITION, [shipped(100, 200, (2, 100), (6, 150))], LEADERSHIP, 1)


def test_the_first_line_stays_the_highest_base_of_the_run() -> None:
    """Shipping [90, 250) behind [100, 200) leaves it at 100 (protocol rule 4)."""
    position = replace(POSITION, next_offset=200, highest_base=100)
    commit = next_commit(position, [shipped(90, 250, (2, 90))], LEADERSHIP, 1)
    assert (commit.highest_base, commit.next_offset) == (100, 250)


def test_a_commit_names_the_leaderships_further_on_until_it_has_passed_them() -> None:
    """After an election that lost records, they show which records are dead; segments may not, after a cleaning."""
    position = replace(POSITION, epochs=EpochHistory(((2, 0), (3, 120), (4, 150))))
    commit = next_commit(position, [shipped(100, 130, (2, 100), (3, 125))], LEADERSHIP, 1)
    assert commit.epochs.pairs == ((2, 0), (3, 120), (4, 150))
    later = replace(position, epochs=commit.epochs, next_offset=130)
    assert (
        next_commit(later, [shipped(130, 200, (3, 130), (4, 160))], LEADERSHIP, 1).epochs.pairs == commit.epochs.pairs
    )


def java(store: ObjectStore, highest: int) -> None:
    """Write a Java uploader's commit over any other."""
    store.put(KEYS.commit, b"%020d" % highest)


def test_u29_a_taken_over_run_is_committed_at_once(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Readers need not wait for the next segment, which may close days later, to see what they saw before."""
    position = commits.write(write(commits.read(ask(listed(0, 100))).position, shipped(0, 100, (5, 0)))).position
    put_segment(store, 0, 100, (5, 0))
    ours = position.commit
    assert isinstance(ours, Commit)
    java(store, 0)
    asked = commits.read(replace(ask(listed(0, 100)), known=ours))
    found, etag = read_commit(store, KEYS)
    assert asked.foreign
    assert isinstance(found, Commit)
    assert replace(found, nonce=ours.nonce, time=ours.time, java=None, lineage=None) == ours
    assert asked.position.etag == etag
    assert not commits.read(ask(listed(0, 100))).foreign


def test_u29_a_java_uploader_is_reported_to_each_request_within_a_week(
    store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """The commit has the time when it replaced a Java uploader's; so have later ones, in other leader epochs too."""
    first, second = (CommitLog(CLUSTER, broker, lambda _: store) for broker in (1, 2))
    put_segment(store, 0, 100, (5, 0))
    java(store, 0)
    before = first.read(ask(listed(0, 100)))
    assert isinstance(before.position.commit, Commit)
    assert before.position.commit.java == before.position.commit.time
    first.write(write(before.position, shipped(100, 200, (5, 100))))
    later = ask(listed(0, 100, epochs=((5, 0), (6, 200))), Leadership(6, ID, 0))
    after = second.read(later)
    assert (after.foreign, after.beside_java) == (False, True)
    assert isinstance(after.position.commit, Commit)
    assert (after.position.commit.epoch, after.position.commit.java) == (6, before.position.commit.java)
    long_ago = replace(after.position.commit, java=after.position.commit.time - 7 * 24 * 3600 * 1000)
    store.put(KEYS.commit, long_ago.encode())
    assert not second.read(later).beside_java


def test_u29_a_partition_that_no_java_uploader_wrote_reports_no_java_uploader(
    commits: CommitLog, listed: Callable[..., Listing]
) -> None:
    """So the agent does not expect late writes there."""
    position = commits.write(write(commits.read(ask(listed(0, 100))).position, shipped(0, 100, (5, 0)))).position
    assert isinstance(position.commit, Commit)
    assert position.commit.java is None
    assert not commits.read(ask(listed(0, 100))).beside_java


def test_u29_nothing_is_committed_over_a_java_uploaders_hole_before_it_is_shipped(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """Its readers look beyond the hole; ours would see less until it is filled."""
    for base, end in ((0, 100), (200, 300)):
        put_segment(store, base, end, (5, base))
    java(store, 200)
    assert commits.read(ask(listed(0, 100, 200, 300))).position.next_offset == 100
    assert store.get(KEYS.commit)[0] == b"%020d" % 200


def test_u29_what_was_written_over_is_shipped_once_more(
    commits: CommitLog, store: ObjectStore, listed: Callable[..., Listing]
) -> None:
    """A late upload replaced a committed segment by a shorter one: the run stays, and the hole is to be filled."""
    position = commits.read(ask(listed(0, 100, 200))).position
    for base in (0, 100):
        position = commits.write(write(position, shipped(base, base + 100, (5, base)))).position
    put_segment(store, 0, 60, (5, 0))
    put_segment(store, 100, 200, (5, 100))
    java(store, 0)
    assert isinstance(position.commit, Commit)
    after = commits.read(replace(ask(listed(0, 100, 200)), known=position.commit)).position
    assert after.next_offset == 200
    assert after.gaps == ((60, 100),)
