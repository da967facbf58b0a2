"""The result of a task: counted, logged and returned; against a real store (a directory)."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.common.log_format import build
from tests.uploader.checkpoint_files import until_they_count
from tests.uploader.committing.dying_store import Dying
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.messages.observations import Leadership, Led, Listing
from ts_uploader.messages.results import DeletedPending, DeletedShipped, Failed, PositionRead
from ts_uploader.messages.tasks import AnyTask, ReadPosition, Ship, ShipDeleted
from ts_uploader.metrics.counters import Metrics
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.metadata_cache_writer import CacheWriter
from ts_uploader.shipping.repairer import Repairer
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.tracker import Tracker
from ts_uploader.workers.task_runner import TaskRunner, losses_counter

LEADERSHIP = Leadership(5, ID, 0)


class Parts:
    """A runner over a store, and what it counts."""

    def __init__(self, store: ObjectStore, keys: ClusterKeys) -> None:
        self.metrics = Metrics()
        uploader = Uploader(lambda _: store, lambda _: TopicRetention())
        commits = CommitLog(keys, 1, lambda _: store, lost=losses_counter(self.metrics))
        self.runner = TaskRunner(
            uploader,
            commits,
            LogDirectoryWatcher((), lambda _: True, lambda _: None, 30.0),
            self.metrics,
            CacheWriter(lambda _: store),
            Repairer(keys, 1, lambda _: store, uploader),
            DeletedShipper(1, lambda _: store, uploader, commits, lambda *_: True),
        )

    def errors(self) -> float:
        """Failed questions, as counted."""
        (errors,) = self.metrics.errors.collect()
        return sum(sample.value for sample in errors.samples if sample.labels["operation"] == "ReadPosition")


@pytest.fixture
def parts(store: ObjectStore) -> Parts:
    return Parts(store, CLUSTER)


def test_u45_a_deleted_topic_that_is_lost_is_counted(parts: Parts, local: LocalDirectory) -> None:
    """No gap record can name its offsets, so the counter and the log are all that is left of it."""
    local.segments(0, 100)
    listing = local.listing()
    shutil.rmtree(local.path)
    task = ShipDeleted(TP, -1, LEADERSHIP, listing, 100, led=True, latest=False)
    with capture_logs() as logs:
        confirmed = parts.runner.run(task)
        assert isinstance(confirmed, DeletedPending)
        done = parts.runner.run(confirmed.task)
    assert isinstance(done, DeletedShipped)
    assert [line["log_level"] for line in logs if line["event"] == "deleted_topic_lost"] == ["error"]
    counted = parts.metrics.registry.get_sample_value("ts_uploader_gaps_total", {"reason": "unrecorded"})
    assert counted == 1


def question(listing: Listing, attempt: int = 0, partition: TopicPartition = TP) -> ReadPosition:
    return ReadPosition(partition, 0, LEADERSHIP, listing, 0, None, attempt)


def test_a_leadership_that_the_broker_never_begins_is_an_error_from_the_third_question_on(
    parts: Parts, local: LocalDirectory
) -> None:
    """A source that is ahead of the broker's files for a moment is no error; one that stays so is logged with it."""
    local.segments(0, 100)
    local.epochs((9, 0))
    told = []
    for attempt in range(4):
        with capture_logs() as logs:
            failed = parts.runner.run(question(local.listing(), attempt))
        assert isinstance(failed, Failed)
        assert "ends with 9, the leader epoch is 5" in failed.reason
        told += [line["log_level"] for line in logs if failed.reason in (line.get("reason"), line.get("error"))]
    assert told == ["info", "info", "warning", "warning"]
    assert parts.errors() == 2


def test_a_log_changed_back_to_a_format_without_epochs_waits_and_the_reason_is_shown(
    parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """The broker removes its list of epochs then, and no comparison of log and archive is possible."""
    local.segments(0, 100)
    local.no_epochs()
    ours = Commit(0, 100, 4, EpochHistory(((4, 0),)), 0, ID, 2, 0, "ours")
    store.put(KEYS.commit, ours.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    tracker = Tracker(OffsetReset.EARLIEST)
    tracker.observe(Led(TP, LEADERSHIP))
    tracker.observe(local.listing())
    tasks = until_they_count(tracker, local.log_dir, {(TP.topic, TP.partition): 100})
    for _ in range(2):
        (ask,) = tasks
        failed = parts.runner.run(ask)
        assert isinstance(failed, Failed)
        tasks = tracker.conclude(failed)
    (backlog,) = tracker.backlog().values()
    assert "message.format.version is below 0.11" in (backlog.waits_for or "")
    assert read_commit(store, KEYS)[0] == ours


def test_a_name_that_no_store_can_hold_fails_its_own_partition(parts: Parts, local: LocalDirectory) -> None:
    """Kafka has no such topics; a directory with such a name does not end the agent."""
    local.segments(0, 100)
    local.epochs((5, 0))
    failed = parts.runner.run(question(local.listing(), partition=TopicPartition("..", 0)))
    assert isinstance(failed, Failed)
    assert "not a key" in failed.reason
    assert parts.errors() == 1


@pytest.mark.parametrize("bits", [0, 5])
@pytest.mark.parametrize("topic", [".foo", ".meta", ".lock", ".put-x", "..a"])
def test_a_topic_whose_name_begins_with_a_dot_is_shipped_and_listed(
    store: ObjectStore, tmp_path: Path, topic: str, bits: int
) -> None:
    """Kafka allows such names, and those of a directory store's own files are nothing special."""
    keys = ClusterKeys("c", bits)
    partition = TopicPartition(topic, 0)
    log = tmp_path / "log" / str(partition)
    log.mkdir(parents=True)
    (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}")
    (log / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")
    for base, data in ((0, build.batch(0, [build.record(n) for n in range(10)], epoch=5)), (10, b"")):
        (log / f"{base:020d}.log").write_bytes(data)
        for suffix in (".index", ".timeindex"):
            (log / f"{base:020d}{suffix}").touch()
    listing = list_partition(partition, log.parent)
    assert listing is not None
    tracker, runner = Tracker(OffsetReset.EARLIEST), Parts(store, keys).runner
    tasks: list[AnyTask] = [*tracker.observe(Led(partition, LEADERSHIP)), *tracker.observe(listing)]
    tasks += until_they_count(tracker, log.parent, {(topic, 0): 10})
    while tasks:
        result = runner.run(tasks.pop(0))
        assert result is not None
        assert not isinstance(result, Failed), result.reason
        tasks += tracker.conclude(result)
    commit, _ = read_commit(store, keys.partition(partition))
    assert isinstance(commit, Commit)
    assert commit.next_offset == 10
    assert list_topics(store, keys) == {topic: TopicDirectories(frozenset({0}), is_named=True)}


@pytest.mark.parametrize("magic", [1, 2])
def test_u05_an_election_that_lost_old_magic_is_counted_and_logged(
    parts: Parts, store: ObjectStore, local: LocalDirectory, magic: int
) -> None:
    """An unclean election: broker 2 wrote 0..4 of the line and 5..9 of its own; without epochs readers see the dead."""

    def batches(start: int, end: int, who: bytes, epoch: int) -> bytes:
        if magic == 1:
            return b"".join(build.message(1, offset, b"%s-%d" % (who, offset)) for offset in range(start, end))
        return b"".join(build.batch(n, [build.record(0, who)], epoch=epoch) for n in range(start, end))

    line = EpochHistory(((3, 0),) if magic == 2 else ())
    metadata = SegmentMetadata(10, ((3, 0),) if magic == 2 else ((-1, 0),), 10, 1, 1, 0)
    store.put(KEYS.segment(SegmentName(0)), batches(0, 10, b"A", 3), metadata=metadata.encode())
    store.put(KEYS.log_start, encode_log_start(0))
    store.put(KEYS.commit, Commit(0, 10, 3, line, 10, ID, 1, 0, "theirs").encode())
    local.write(0, batches(0, 5, b"A", 3) + batches(5, 10, b"B", 5))
    local.segments(10)
    if magic == 2:
        local.epochs((3, 0), (5, 5))
    else:
        local.no_epochs()
    with capture_logs() as logs:
        asked = parts.runner.run(question(local.listing()))
    assert isinstance(asked, PositionRead)
    assert asked.lost == ((0, 10) if magic == 1 else (5, 10))
    told = [line for line in logs if line["event"] == "old_magic_records_lost"]
    assert len(told) == (1 if magic == 1 else 0)
    assert parts.metrics.registry.get_sample_value("ts_uploader_legacy_rewinds_total") == (1 if magic == 1 else 0)


def test_u36_a_loss_is_counted_and_logged_though_log_start_cannot_be_written(
    store: ObjectStore, local: LocalDirectory
) -> None:
    """The commit went back; the next read finds it so, and reports no loss."""
    store.put(KEYS.log_start, encode_log_start(0))
    store.put(KEYS.commit, Commit(0, 300, 3, EpochHistory(((3, 0),)), 0, ID, 2, 0, "theirs").encode())
    local.segments(0)
    local.epochs((5, 0))
    parts = Parts(Dying(store, KEYS.log_start), CLUSTER)
    with capture_logs() as logs:
        assert isinstance(parts.runner.run(question(local.listing())), Failed)
    assert [line["lost_to"] for line in logs if "committed_records_lost" in line["event"]] == [300]
    assert parts.metrics.registry.get_sample_value("ts_uploader_lost_offsets_total") == 300
    asked = Parts(store, CLUSTER).runner.run(question(local.listing()))
    assert isinstance(asked, PositionRead)
    assert asked.lost is None


HOSTILE = {
    "a commit nested too deep": (KEYS.commit, b"0" * 20 + b"\n" + b"[" * 100_000),
    "a commit with an infinite epoch": (
        KEYS.commit,
        b"0" * 20 + b'\n{"next":100,"epoch":5,"epochs":[[1e999,0]],"broker":1,"time":1,"nonce":"x"}',
    ),
    "incarnations nested too deep": (CLUSTER.incarnations("t"), b"[" * 100_000),
    "incarnations first seen never": (
        CLUSTER.incarnations("t"),
        b'{"incarnations":[{"topicId":"a","firstSeen":1e999,"directory":"t"}]}',
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_u42_a_hostile_object_fails_the_question_of_its_partition(
    name: str, parts: Parts, store: ObjectStore, local: LocalDirectory
) -> None:
    """One of these ended the process, and the next one met it again: the partition waits, with the object's key."""
    local.segments(0, 100)
    local.epochs((5, 0))
    key, data = HOSTILE[name]
    store.put(key, data)
    failed = parts.runner.run(question(local.listing()))
    assert isinstance(failed, Failed)
    assert failed.reason.startswith(f"CorruptData: {key}: ")


def test_u42_an_unexpected_error_fails_its_task_alone(
    parts: Parts, local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, logged with its traceback, and becomes the reason of the partition."""

    def raises(_: ReadPosition) -> PositionRead:
        raise RecursionError("what nobody expects")

    monkeypatch.setattr(parts.runner._commits, "read", raises)
    local.segments(0, 100)
    with capture_logs() as logs:
        failed = parts.runner.run(question(local.listing()))
    assert isinstance(failed, Failed)
    assert failed.reason == "a defect of this agent: RecursionError: what nobody expects"
    assert parts.errors() == 1
    assert [line["partition"] for line in logs if line.get("exc_info")] == ["t-0"]


def test_an_empty_segment_that_was_sent_is_not_counted_as_found(parts: Parts, local: LocalDirectory) -> None:
    """It has no bytes, and it was sent all the same; the second time the store has it."""
    local.segments(0, 100)
    local.epochs((5, 0))
    task = Ship(TP, 0, LEADERSHIP, KEYS, local.listing(), 0, 100, seen=True)
    told = []
    for _ in range(2):
        with capture_logs() as logs:
            parts.runner.run(replace(task, epochs=EpochHistory(((5, 0),)), next_offset=100))
        told += [line["event"] for line in logs if line.get("base") == 0]
    assert told == ["segment_shipped", "segment_found"]
    (segments,) = parts.metrics.segments.collect()
    counted = {each.labels["outcome"]: each.value for each in segments.samples if each.name.endswith("_total")}
    assert counted == {"sent": 1, "found": 1}
