"""Live tails in streams: each record once across the change to a closed segment, and positions that wait."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.made_tail import MadeTail, Recorded, entry, live, plain, ship
from tests.reader.archives import ScannedArchive
from tests.reader.test_follow import Waiting, offsets
from tests.transactions import ABORT, COMMIT, data, ended
from ts_common.archive.object_keys import pack_name
from ts_common.errors import DataLoss, ShorterView
from ts_common.model import TopicPartition
from ts_reader import Archive
from ts_reader.following import ends
from ts_reader.following.commit_snapshot import CommitSnapshot
from ts_reader.following.follower import Follower
from ts_reader.following.offset import StreamOffset, decode_offset
from ts_reader.query.query import Query, Subscription

ZERO = TopicPartition("t", 0)
POLL = 0.001


@pytest.fixture(autouse=True)
def _each_look_reads_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of looks at the packs alone set another time."""
    monkeypatch.setattr(ends, "COMMIT_SECONDS", 0.0)


def follower(archive: MadeArchive, **fields: Any) -> tuple[Follower, list[str]]:
    """Return a follower that reads tails, and its warnings."""
    warnings: list[str] = []
    query = Query(archive.location, CLUSTER, 0, Subscription(("t",)), **{"tail": True, **fields})
    return Follower(archive.store, query, warnings.append), warnings


def step(following: Follower, stands: StreamOffset) -> StreamOffset:
    look = following.look()
    return following.end_of_step(stands, following.furthest(stands, look), look, None)


def followed(archive: ScannedArchive, *then: Callable[[], None], **scan: Any) -> list[list[int]]:
    """Return the offsets of each step; before each wait but the last the archive changes."""
    warned: list[Any] = []
    opened = Archive(archive.location, CLUSTER, workers=1, warn=warned.append)
    steps = opened.scan("t", **scan).follow(stop=Waiting(*then), poll_seconds=POLL)
    return [offsets(each) for each in steps]


def close(archive: MadeArchive, start: int, end: int, **commit: Any) -> None:
    """Commit the segment `[start, end)`: the tail begins at its end."""
    archive.put_segment("t", start, batches((start, end)))
    archive.commit("t", end, highest_base=start, last_stable_offset=end, **{"live": live((0, end)), **commit})


def test_a_stream_reads_each_record_once_from_tail_to_segment(archive: ScannedArchive) -> None:
    """Packs, a merge, a segment that ends in the middle of what was read, and packs above it."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))

    def more() -> None:
        tail.put(plain(archive, (110, 130)))
        tail.merge()

    def closed() -> None:
        close(archive, 100, 120)
        tail.put(plain(archive, (130, 140)))

    def all_closed() -> None:
        close(archive, 120, 150)

    found = followed(archive, more, closed, all_closed)
    assert found == [list(range(110)), list(range(110, 130)), list(range(130, 140)), list(range(140, 150))]


def test_a_stream_without_the_tail_ends_at_the_next_offset(archive: ScannedArchive) -> None:
    """It follows the commit alone."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)))
    assert followed(archive, lambda: close(archive, 100, 120), tail=False) == [list(range(100)), list(range(100, 120))]


def test_committed_records_of_a_stream_end_at_the_last_stable_offset_of_the_tail(archive: ScannedArchive) -> None:
    """The open transaction is read when its marker is shipped, while the commit stays."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 100, data(100, 1000) + batches((101, 105)), stable=100))

    def decided() -> None:
        tail.put(entry(archive, "t", 105, ended(105, 1000, kind=COMMIT), stable=106))

    found = followed(archive, decided, isolation_level="read_committed")
    assert found == [list(range(100)), list(range(100, 105))]


@pytest.mark.parametrize("fails", [True, False])
def test_a_position_above_a_shorter_end_waits(archive: ScannedArchive, fails: bool) -> None:
    """A commit that was lost and written again names no tail; the position stays, and nothing is read twice."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))

    def rebuilt() -> None:
        archive.commit("t", 100, live=None)

    def shipped() -> None:
        archive.commit("t", 100, live=live((0, 100), log="2"))
        MadeTail(archive, "2").put(plain(archive, (100, 140)))

    found = followed(archive, rebuilt, shipped, fail_on_data_loss=fails)
    assert found == [list(range(130)), list(range(130, 140))]


@pytest.mark.parametrize("fails", [True, False])
def test_a_step_whose_end_is_not_shown_any_more_is_not_passed(archive: MadeArchive, fails: bool) -> None:
    """Between look and plan; a stream that may lose data must not pass records that the archive shows again."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))
    following, _ = follower(archive, fail_on_data_loss=fails)
    begun = following.beginning()
    end = step(following, begun)
    assert end.positions == {ZERO: 130}
    archive.commit("t", 100, live=None)
    with pytest.raises(ShorterView, match="t-0: offsets 100 to 129 are not shown now, and no election removed them"):
        following.plan(begun, end)
    archive.commit("t", 100, live=live((0, 100)))
    assert following.plan(begun, end).offsets == 130


def test_a_step_waits_whose_end_is_not_shown_any_more(archive: ScannedArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream looks again later, and returns each record once."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))
    look, taken = Follower.look, list[bool]()

    def taken_away(following: Follower) -> CommitSnapshot:
        found = look(following)
        if not taken:
            archive.commit("t", 100, live=None)
            taken.append(True)
        return found

    monkeypatch.setattr(Follower, "look", taken_away)
    assert followed(archive, lambda: archive.commit("t", 100, live=live((0, 100)))) == [list(range(130))]


def test_an_election_that_replaced_what_was_read_of_the_tail_is_a_loss(archive: MadeArchive) -> None:
    """The position keeps its epochs, and the new leader's are in the commit before a segment closes."""
    ship(archive, live=live((0, 100), (2, 120)), epoch=2)
    MadeTail(archive).put(plain(archive, (100, 120), epoch=2, batch_epoch=0), plain(archive, (120, 150), epoch=2))
    stands = decode_offset(step(follower(archive)[0], StreamOffset()).encode())
    assert stands.positions == {ZERO: 150}
    assert stands.logs[ZERO].epochs.pairs == ((0, 0), (2, 120))
    archive.commit("t", 100, live=live((0, 100), (2, 120), (3, 130), log="2"), epoch=3)
    MadeTail(archive, "2").put(plain(archive, (100, 120), epoch=3, batch_epoch=0), plain(archive, (120, 130), epoch=3))
    with pytest.raises(DataLoss, match="t-0: offsets 130 to 149 are lost: an election removed them"):
        step(follower(archive)[0], stands)


def test_a_position_keeps_all_epochs_of_what_was_read(archive: MadeArchive) -> None:
    """Counterexample 11: the logs part at 9, far below where the position's last epoch began."""
    ship(archive, 5, live=live((0, 5), (1, 9), (3, 23)), epoch=3)
    MadeTail(archive).put(
        plain(archive, (5, 9), epoch=3, batch_epoch=0),
        plain(archive, (9, 23), epoch=3, batch_epoch=1),
        plain(archive, (23, 30), epoch=3),
    )
    stands = step(follower(archive)[0], StreamOffset())
    assert stands.positions == {ZERO: 30}
    archive.commit("t", 5, live=live((0, 5), (6, 9), log="2"), epoch=6)
    MadeTail(archive, "2").put(plain(archive, (5, 9), epoch=6, batch_epoch=0), plain(archive, (9, 40), epoch=6))
    following, warnings = follower(archive, fail_on_data_loss=False)
    assert step(following, stands).positions == {ZERO: 9}
    assert warnings == ["t-0: offsets 9 to 29 are lost: an election removed them after they were read"]


def test_a_damaged_index_is_a_warning_and_the_position_waits(archive: MadeArchive) -> None:
    """The view ends at the next offset, as that of a scan."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 110)))
    following, warnings = follower(archive)
    stands = step(following, StreamOffset())
    body = bytearray(archive.store.get(tail.newest)[0])
    body[40] ^= 1
    archive.store.put(tail.newest, bytes(body))
    following, warnings = follower(archive)
    assert step(following, stands).positions == {ZERO: 110}
    assert [each.partition(": ")[2][:33] for each in warnings] == [
        "the stream is at offset 110, abov",
        "the view ends at the next offset:",
    ]


def idle_requests(archive: MadeArchive, *, tail: bool) -> list[str]:
    """Return what a stream without news requests of the partition and of tails."""
    archive.store = recorded = Recorded(archive.store)
    following, _ = follower(archive, tail=tail)
    stands = step(following, following.beginning())
    recorded.requests.clear()
    assert step(following, stands).equals_in_position(stands)
    return [each for each in recorded.requests if "/tail/" in each or archive.partition("t").prefix in each]


def test_an_idle_stream_lists_each_log_and_reads_an_index_once(archive: MadeArchive) -> None:
    """Its commit, and the name of the newest pack."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)))
    commit = f"GET {archive.partition('t').commit}"
    assert idle_requests(archive, tail=True) == [commit, f"LIST {archive.keys.tail('1')}packs/"]


def test_an_idle_stream_without_a_tail_sends_no_request_more(archive: MadeArchive) -> None:
    """Packs exist, but no commit names them."""
    ship(archive, live=None)
    MadeTail(archive).put(plain(archive, (100, 110)))
    assert idle_requests(archive, tail=True) == [f"GET {archive.partition('t').commit}"]


def test_a_look_reads_each_log_after_all_commits(archive: MadeArchive) -> None:
    """Once for both partitions: packs that are older than a commit can lack what it needs."""
    tail = MadeTail(archive)
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 100)), partition=partition)
        archive.commit("t", 100, partition=partition, live=live((0, 100)))
    tail.put(*(entry(archive, "t", 100, batches((100, 105)), partition=partition) for partition in (0, 1)))
    archive.store = recorded = Recorded(archive.store)
    following, _ = follower(archive)
    assert {end.next_offset for end in following.look().ends.values()} == {105}
    of_tail = [at for at, each in enumerate(recorded.requests) if "/tail/" in each]
    assert len(of_tail) == 2
    assert of_tail[0] > max(at for at, each in enumerate(recorded.requests) if each.endswith("offset.wm"))


@pytest.fixture
def _looks_at_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits are read once."""
    monkeypatch.setattr(ends, "COMMIT_SECONDS", 3600.0)


@pytest.mark.usefixtures("_looks_at_packs")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_packs_alone_move_a_stream_for_some_seconds(archive: ScannedArchive, isolation: str) -> None:
    """A transaction that was aborted, one that is decided by a later pack, and one that is open."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 100, data(100, 1000) + batches((101, 104)), stable=100))

    def aborted() -> None:
        body = ended(104, 1000, kind=ABORT) + data(105, 1000, producer=8)
        tail.put(entry(archive, "t", 104, body, stable=105, aborted=[(7, 100, 104)]))

    def decided() -> None:
        tail.put(entry(archive, "t", 106, ended(106, 1000, producer=8, kind=COMMIT) + batches((107, 110)), stable=110))

    found = followed(archive, aborted, decided, isolation_level=isolation)
    assert (
        found
        == {
            "read_uncommitted": [list(range(104)), [105], [107, 108, 109]],
            "read_committed": [list(range(100)), [101, 102, 103], [105, 107, 108, 109]],
        }[isolation]
    )


@pytest.mark.usefixtures("_looks_at_packs")
def test_a_stream_of_packs_sends_requests_for_each_log_and_not_for_each_partition(archive: MadeArchive) -> None:
    """A look requests the next pack by its name until one is missing; the plan needs no request."""
    tail = MadeTail(archive)
    for partition in range(5):
        archive.put_segment("t", 0, batches((0, 100)), partition=partition)
        archive.commit("t", 100, partition=partition, live=live((0, 100)))
    tail.put(*(entry(archive, "t", 100, batches((100, 105)), partition=number) for number in range(5)))
    archive.store = recorded = Recorded(archive.store)
    following, _ = follower(archive)
    stands = step(following, following.beginning())
    tail.put(*(entry(archive, "t", 105, batches((105, 107)), partition=number) for number in range(5)))
    recorded.requests.clear()
    end = step(following, stands)
    plan = following.plan(stands, end)
    assert (plan.partitions, plan.offsets) == (5, 10)
    following_pack = tail.key(pack_name(tail.number + 1))
    assert recorded.requests == [f"GET {tail.newest}", f"GET {following_pack}"]


@pytest.mark.usefixtures("_looks_at_packs")
def test_a_transaction_that_began_before_the_leaders_log_is_searched_in_segments(archive: ScannedArchive) -> None:
    """The entry with its marker does not name its beginning."""
    archive.put_segment("t", 0, data(0, 1000))
    archive.commit("t", 1, live=live((0, 1)), last_stable_offset=0)
    tail = MadeTail(archive)
    tail.put(entry(archive, "t", 1, data(1, 1000), stable=0))

    def aborted() -> None:
        body = ended(2, 1000, kind=ABORT) + batches((3, 5))
        tail.put(entry(archive, "t", 2, body, stable=5, aborted=None))

    assert followed(archive, aborted, isolation_level="read_committed") == [[3, 4]]


@pytest.mark.usefixtures("_looks_at_packs")
def test_a_merge_moves_what_a_stream_of_packs_reads(archive: ScannedArchive) -> None:
    """The newest pack leads to the merged object; the former packs are deleted."""
    ship(archive)
    tail = MadeTail(archive)
    tail.put(plain(archive, (100, 105)))

    def merged() -> None:
        tail.merge()
        tail.put(plain(archive, (105, 112)))

    assert followed(archive, merged) == [list(range(105)), list(range(105, 112))]
