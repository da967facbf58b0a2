"""Metadata, disk and replica that disagree, in states that no real broker can be held in."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from dev.local.waiting import wait_for
from tests.uploader.leadership.listening import Listener
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.kraft import leadership as kraft
from ts_uploader.leadership.kraft.broker import AnsweredByAnother, Denied, Latest, NotAvailable
from ts_uploader.leadership.kraft.leadership import KraftLeadership
from ts_uploader.leadership.kraft.polled_partitions import Turns
from ts_uploader.leadership.kraft.replica_state import Replica, read
from ts_uploader.messages.observations import Led, NotLed

BROKER = 1
TP = TopicPartition("t", 0)
FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


class Hasty(KraftLeadership):
    round_seconds = 0.01


class Told:
    """The answers of a broker, in place of a client."""

    bootstrap = "b:1"

    def __init__(self) -> None:
        self.leader = BROKER
        self.ids = {"t": FIRST}
        self.led: dict[TopicPartition, int | None] = {}
        self.before_epochs: Callable[[], None] = lambda: None
        self.refusal: Exception | None = None
        self.rounds = 0

    def leaders(self, topic: str) -> dict[int, int] | None:
        if self.refusal is not None:
            raise self.refusal
        return {0: self.leader}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return self.ids

    def latest(self, partitions: Iterable[TopicPartition]) -> Latest:
        self.before_epochs()
        return Latest(self.led, {}, frozenset(), "")

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str] | None]:
        self.rounds += 1
        return {}

    def broker_settings(self) -> dict[str, str] | None:
        return {}

    def restart(self) -> None:
        """Do nothing."""

    def close(self, seconds: float) -> None:
        """Do nothing."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def listener(told: Told, tmp_path: Path) -> Iterator[Listener]:
    environment = Environment("c", BROKER, (tmp_path,), "", kraft=True)
    listener = Listener(lambda emit: Hasty(environment, emit, 3600.0, told, ""))
    listener.watch(TP)
    listener.thread = threading.Thread(target=listener.source.run)
    yield listener
    listener.close()


@pytest.fixture
def listener_on_two(told: Told, tmp_path: Path) -> Iterator[Listener]:
    """Run a source of a broker with two log dirs."""
    log_dirs = (tmp_path / "a", tmp_path / "b")
    for log_dir in log_dirs:
        log_dir.mkdir()
    environment = Environment("c", BROKER, log_dirs, "", kraft=True)
    listener = Listener(lambda emit: Hasty(environment, emit, 3600.0, told, ""))
    listener.watch(TP)
    listener.thread = threading.Thread(target=listener.source.run)
    yield listener
    listener.close()


def write(log_dir: Path, topic_id: str, *epochs: int) -> Path:
    """A directory of the partition, whose list of epochs is replaced as Kafka does it."""
    directory = log_dir / "t-0"
    directory.mkdir(exist_ok=True)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    lines = "".join(f"{epoch} {start}\n" for start, epoch in enumerate(epochs))
    (directory / "new").write_text(f"0\n{len(epochs)}\n{lines}")
    (directory / "new").rename(directory / "leader-epoch-checkpoint")
    return directory


def some_rounds(told: Told) -> None:
    now = told.rounds
    wait_for(lambda: told.rounds > now + 3, "some rounds")


def test_the_epoch_on_the_disk_is_accepted_when_the_replica_reports_the_same(
    told: Told, listener: Listener, tmp_path: Path
) -> None:
    """A broker publishes that it leads before it writes its epoch; until then the file has the former leader's."""
    write(tmp_path, FIRST, 3, 4)
    listener.thread.start()
    some_rounds(told)  # the replica is still a follower
    assert listener.said == []
    told.led = {TP: 5}  # it leads, but the list was read while it was a follower
    some_rounds(told)
    assert listener.said == []
    write(tmp_path, FIRST, 3, 4, 5)
    listener.wait_leadership(TP, 5, FIRST)
    assert {said.leadership.epoch for said in listener.said if isinstance(said, Led)} == {5}


def test_a_list_that_was_written_before_the_answer_is_read_again_where_no_epoch_is_reported(
    told: Told, listener: Listener, tmp_path: Path
) -> None:
    """It leads below min ISR and returns no epoch; the list that was read was the follower's, and the file changed."""
    write(tmp_path, FIRST, 3, 4)

    def lead() -> None:
        told.before_epochs = lambda: None
        write(tmp_path, FIRST, 3, 4, 5)
        told.led = {TP: None}

    listener.thread.start()
    some_rounds(told)
    assert listener.said == []
    told.before_epochs = lead
    listener.wait_leadership(TP, 5, FIRST)
    assert {said.leadership.epoch for said in listener.said if isinstance(said, Led)} == {5}


@pytest.mark.parametrize("dead", [(3,), (3, 9)], ids=["of a lower epoch", "of a higher epoch"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_u40_of_two_directories_the_one_that_ends_with_the_replicas_epoch_is_confirmed(
    told: Told, listener_on_two: Listener, tmp_path: Path, first: str, dead: tuple[int, ...]
) -> None:
    """A failed disk can still list one; in any order of the log dirs, the replica's epoch distinguishes them."""
    told.led = {TP: 5}
    write(tmp_path / first, FIRST, *dead)
    write(tmp_path / ("b" if first == "a" else "a"), FIRST, 3, 5)
    listener_on_two.thread.start()
    listener_on_two.wait_leadership(TP, 5, FIRST)
    some_rounds(told)
    assert {said.leadership.epoch for said in listener_on_two.said if isinstance(said, Led)} == {5}


def test_u40_with_a_second_directory_a_broker_that_reports_no_epoch_confirms_no_leadership(
    told: Told, listener_on_two: Listener, tmp_path: Path
) -> None:
    """It leads with the epoch that it wrote last, which may be the other directory's."""
    told.led = {TP: None}
    write(tmp_path / "a", FIRST, 3)
    write(tmp_path / "b", FIRST, 3, 5)
    listener_on_two.thread.start()
    some_rounds(told)
    assert listener_on_two.said == []
    (tmp_path / "a" / "t-0" / "leader-epoch-checkpoint").unlink()
    listener_on_two.wait_leadership(TP, 5, FIRST)


def test_u09_an_id_that_the_cluster_does_not_report_is_not_accepted(
    told: Told, listener: Listener, tmp_path: Path
) -> None:
    """A directory of a former incarnation remains, and the epochs of both incarnations are equal."""
    told.ids, told.led = {"t": SECOND}, {TP: 0}
    write(tmp_path, FIRST, 0)
    listener.thread.start()
    some_rounds(told)
    assert listener.said == []
    write(tmp_path, SECOND, 0)
    listener.wait_leadership(TP, 0, SECOND)


def test_u09_a_directory_that_was_replaced_before_the_answer_is_read_again(
    told: Told, listener: Listener, tmp_path: Path
) -> None:
    """The replica that answers is the one of the new directory, so the epoch of the old one is not reported."""
    told.led = {TP: 0}
    write(tmp_path, FIRST, 0)

    def re_create() -> None:
        told.before_epochs = lambda: None
        (tmp_path / "t-0").rename(tmp_path / "t-0.0123456789abcdef-delete")
        write(tmp_path, SECOND, 0)
        told.ids = {"t": SECOND}

    told.before_epochs = re_create
    told.ids = {"t": FIRST}
    listener.thread.start()
    listener.wait_leadership(TP, 0, SECOND)
    assert {said.leadership.topic_id for said in listener.said if isinstance(said, Led)} == {SECOND}


def test_a_checkpoint_is_looked_at_before_all_turns_after_a_hint(
    told: Told, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has ten thousand: the turn of the partition, and of its topic, can be a minute away."""
    monkeypatch.setattr(kraft, "_LOOKS", 0)
    monkeypatch.setattr(kraft, "_IN_TURN", 0)
    told.led = {TP: 5}
    write(tmp_path, FIRST, 3, 5)
    listener.thread.start()
    listener.wait_leadership(TP, 5, FIRST)
    told.led = {TP: 6}
    write(tmp_path, FIRST, 3, 5, 6)
    some_rounds(told)
    assert listener.leadership(TP) == (5, FIRST)
    listener.source.look_at(TP)
    listener.wait_leadership(TP, 6, FIRST)


def test_a_report_is_repeated_only_after_its_directory_changed(told: Told, listener: Listener, tmp_path: Path) -> None:
    """Between two polls an equal report is work for nothing, unless a caller dropped it with the directory."""
    told.led = {TP: 5}
    write(tmp_path, FIRST, 5)
    listener.thread.start()
    listener.wait_leadership(TP, 5, FIRST)
    some_rounds(told)
    assert len(listener.said) == 1
    listener.source.look_at(TP)
    wait_for(lambda: len(listener.said) == 2, "the report again")
    some_rounds(told)
    assert listener.said == [listener.said[0]] * 2


def test_the_files_of_a_leadership_are_not_read_again_before_they_change(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each poll would read twenty thousand; the broker is still requested for the epoch."""
    reads: list[Path] = []
    epochs: list[None] = []

    def counted(directory: Path) -> Replica | None:
        reads.append(directory)
        return read(directory)

    monkeypatch.setattr(kraft, "read", counted)
    told.led, told.before_epochs = {TP: 5}, lambda: epochs.append(None)
    directory = write(tmp_path, FIRST, 5)
    listener = Listener(lambda emit: Hasty(Environment("c", BROKER, (tmp_path,), "", kraft=True), emit, 0.0, told, ""))
    listener.watch(TP)
    listener.thread.start()
    listener.wait_leadership(TP, 5, FIRST)
    requested = len(epochs)
    wait_for(lambda: len(epochs) > requested + 3, "further requests")
    assert reads == [directory]
    told.led = {TP: 6}
    write(tmp_path, FIRST, 5, 6)
    listener.wait_leadership(TP, 6, FIRST)
    listener.close()


@pytest.mark.parametrize(
    "refusal", [AnsweredByAnother("broker 2 answered"), Denied("no permission"), NotAvailable("leader not available")]
)
def test_an_answer_that_does_not_count_changes_nothing(
    told: Told, listener: Listener, tmp_path: Path, refusal: Exception
) -> None:
    """Unknown is not "not leader": the reported leadership stays, and the source stays connected."""
    told.led = {TP: 7}
    write(tmp_path, FIRST, 7)
    listener.thread.start()
    listener.wait_leadership(TP, 7, FIRST)
    told.leader, told.refusal = 2, refusal
    some_rounds(told)
    said = len(listener.said)
    some_rounds(told)
    assert len(listener.said) == said
    assert isinstance(listener.last(TP), Led)
    assert listener.source.connected
    told.refusal = None
    wait_for(lambda: listener.last(TP) == NotLed(TP), "the other leader")


def test_all_have_their_turn_while_there_are_always_others() -> None:
    """Directories appear and disappear in each round, and the last of many are still checked."""
    turns: Turns[str] = Turns()
    many = {f"t{number:04}" for number in range(1_000)}
    taken: set[str] = set()
    for number in range(30):
        turns.change(many | {f"s{number}"})
        taken.update(turns.take(100))
    assert taken >= many


def test_rounds_are_bounded_by_partitions_not_by_topics(told: Told, tmp_path: Path) -> None:
    """Ten topics of 3,000 partitions cost as much as a thousand of 30, and each topic still has its turn."""
    source = KraftLeadership(Environment("c", BROKER, (tmp_path,), "", kraft=True), lambda _: None, 3600.0, told, "")
    sizes = {f"large{number}": 3_000 for number in range(3)} | {f"small{number}": 1 for number in range(1_000)}
    asked: list[str] = []

    def leaders(topic: str) -> dict[int, int]:
        asked.append(topic)
        return {}

    told.leaders = leaders  # type: ignore[method-assign]
    source.watch({TopicPartition(topic, number) for topic, size in sizes.items() for number in range(size)})
    rounds = []
    for _ in range(60):
        source._round()
        rounds.append(sum(sizes[topic] for topic in asked))
        asked.clear()
    later = rounds[10:]  # new topics are urgent at first
    assert max(later) < 3_000 + kraft._IN_TURN
    assert kraft._IN_TURN / 2 < sum(later) / len(later) < 1.5 * kraft._IN_TURN
    assert sorted(later)[len(later) // 2] == 0  # after a large topic
