"""The files of one host: placing, checking, and what each step refuses."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.common.log_format.build import marker
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.restore.test_fetching import fetched, plan_of
from tests.tsctl.running import Run, runner
from ts_common.errors import CorruptData, OperatorError, QueryError
from ts_common.log_format.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from ts_common.model import TopicPartition
from ts_common.store.wrappers.bandwidth import Allowance
from ts_reader.options.archive_name import name_archive
from tsctl.archive_options import open_archive
from tsctl.restore.documents import Created, Done, GroupsPlan, RestorePlan, Seed, TopicPlan
from tsctl.restore.host_run import HostRun
from tsctl.restore.hosts import Host, place, replica_of
from tsctl.restore.restore_directory import RestoreDirectory
from tsctl.verify.kafka_cluster import ClusterAway

TOPIC_ID = "5fWnyHqTQDqQDqQDqQDqQA"
T0 = TopicPartition("t", 0)
_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
"""


class Broker:
    """A stopped broker's log dirs, with the empty topic `t`, and its files fetched."""

    def __init__(self, archive: MadeArchive, restore: Path, directory: Path, number: int) -> None:
        self.restore = restore
        self.log_dirs = [directory / f"data-{each}" for each in range(2)]
        for each in self.log_dirs:
            each.mkdir(parents=True)
            (each / "meta.properties").write_text("version=1\n")
            (each / ".kafka_cleanshutdown").touch()
            (each / "recovery-point-offset-checkpoint").write_bytes(encode_offset_checkpoint({("other", 1): 5}))
            (each / "log-start-offset-checkpoint").touch()  # as a broker without a log leaves it
        self.partition = self.log_dirs[1] / "t-0"
        self.partition.mkdir()
        (self.partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
        for name in (
            "00000000000000000000.snapshot",
            "00000000000000000000.log",
            "00000000000000000000.index",
            "leader-epoch-checkpoint",
        ):
            (self.partition / name).write_bytes(b"")
        self.properties = directory / "server.properties"
        self.properties.write_text(f"node.id={number}\nlog.dirs={','.join(map(str, self.log_dirs))}\n")
        self.state, self.files = fetched(archive, plan_of(archive), self.partition)

    @property
    def run(self) -> HostRun:
        return HostRun(RestoreDirectory(self.restore), Host.of(self.properties))

    @property
    def starts(self) -> bool:
        """Whether the broker would start: no log dir has the ids of no broker."""
        return not any(b"locked-by" in (each / "meta.properties").read_bytes() for each in self.log_dirs)

    def record(self, done: Done = Done.FETCHED) -> None:
        """Leave the record that the files are fetched."""
        self.run._record(done, {T0: self.state})

    @property
    def found(self) -> dict[str, bytes]:
        """All files of the partition."""
        return {path.name: path.read_bytes() for path in self.partition.iterdir() if path.is_file()}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


@pytest.fixture
def brokers(tmp_path: Path) -> list[Broker]:
    """Return two brokers with the same files, before any is placed."""
    archive, restore = MadeArchive(tmp_path / "archive"), tmp_path / "restore"
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 200, highest_base=100, log_start=5)
    topics = {"t": TopicPlan("t", {0: replace(plan_of(archive), replicas=(1, 2))}, {})}
    restore.mkdir()
    RestorePlan("p", 1, "prod", (), None, topics, GroupsPlan("none", None, {}), ()).save(restore / "plan.json")
    Created("p", "kafka", {"t": TOPIC_ID}).save(restore / "created.json")
    return [Broker(archive, restore, tmp_path / f"broker-{number}", number) for number in (1, 2)]


@contextmanager
def running(broker: Broker) -> Iterator[Callable[[], None]]:
    """Run a broker: a process that holds its lock. Yields what stops it."""
    lock = broker.log_dirs[1] / ".lock"
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(lock)], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        def stop() -> None:
            process.kill()
            process.wait()

        try:
            yield stop
        finally:
            stop()


def test_placed_files_replace_the_empty_log_and_its_checkpoints(brokers: list[Broker]) -> None:
    """The broker is locked until each host is checked; other partitions' checkpoints stay."""
    for broker in brokers:
        broker.record()
    for broker in brokers:
        broker.run.place()
        assert not broker.starts
    for broker in brokers:
        broker.run.check()
        assert broker.starts
        files = broker.found
        assert files.pop("partition.metadata").endswith(f"{TOPIC_ID}\n".encode())
        assert files == broker.files
        assert not (broker.partition / "restore").exists()
        found = {
            name: parse_offset_checkpoint((broker.log_dirs[1] / f"{name}-offset-checkpoint").read_bytes())
            for name in ("recovery-point", "replication", "log-start")
        }
        assert found == {
            "recovery-point": {("other", 1): 5, ("t", 0): 200},
            "replication": {("t", 0): 200},
            "log-start": {("t", 0): 5},
        }


@pytest.mark.parametrize("version", [0, 1])
def test_a_placed_broker_cannot_start_with_the_metadata_directory_or_zookeeper(
    brokers: list[Broker], tmp_path: Path, version: int
) -> None:
    """A file that is missing would be written again, by a broker of ZooKeeper or by `kafka-storage.sh format`."""
    for broker in brokers:
        broker.record()
    broker, metadata = brokers[0], tmp_path / "metadata"
    metadata.mkdir()
    identity = f"version={version}\ncluster.id=new\n"
    broker.properties.write_text(f"{broker.properties.read_text()}metadata.log.dir={metadata}\n")
    files = [each / "meta.properties" for each in (metadata, *broker.log_dirs)]
    for each in files:
        each.write_text(identity)
    for _ in range(2):  # a repeated placing keeps the true file
        broker.run.place()
        found = [each.read_text() for each in files if each.exists()]
        assert len(found) == 3
        assert all("cluster.id=locked-by-tsctl-restore" in each for each in found)
    brokers[1].run.place()
    broker.run.check()
    assert [each.read_text() for each in files] == [identity] * 3


def test_p01_a_killed_placing_continues(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """After each rename; the broker is locked meanwhile, and nothing else is removed."""
    for broker in brokers:
        broker.record()
    broker, renamed = brokers[0], 0
    former, rename = broker.found, Path.replace
    for kill_at in count(1):

        def replaced(path: Path, target: Path, kill_at: int = kill_at) -> Path:
            nonlocal renamed
            renamed += 1
            if renamed == kill_at:
                raise KeyboardInterrupt
            return rename(path, target)

        renamed = 0
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(Path, "replace", replaced)
            broker.run.place()
            break
        assert not broker.starts or broker.found == former
    assert kill_at > 5
    assert {name: data for name, data in broker.found.items() if name != "partition.metadata"} == broker.files


def test_no_host_continues_while_another_is_behind(brokers: list[Broker]) -> None:
    """A leader without files makes its followers delete theirs."""
    brokers[0].record()
    with pytest.raises(QueryError, match="not fetched: broker 2"):
        brokers[0].run.place()
    brokers[1].record()
    brokers[0].run.place()
    with pytest.raises(QueryError, match="not placed: broker 2"):
        brokers[0].run.check()
    assert not brokers[0].starts


def test_replicas_with_different_files_are_refused(brokers: list[Broker]) -> None:
    """One host has other bytes, perhaps of another state of the archive."""
    one, two = brokers
    one.record()
    first, *others = two.state.files
    two.state = replace(two.state, files=(replace(first, crc32c=first.crc32c ^ 1), *others))
    two.record()
    with pytest.raises(QueryError, match="t-0: the hosts have different files"):
        one.run.place()


def test_a_file_that_is_missing_or_cut_keeps_the_broker_locked(brokers: list[Broker]) -> None:
    """Kafka starts with half of the segments, without a message."""
    for broker in brokers:
        broker.record()
    for broker in brokers:
        broker.run.place()
    (brokers[0].partition / f"{100:020d}.log").write_bytes(b"short")
    with pytest.raises(CorruptData, match=f"{100:020d}.log"):
        brokers[0].run.check()
    assert not brokers[0].starts


def test_a_running_or_killed_broker_is_refused(brokers: list[Broker]) -> None:
    """Kafka locks `.lock`, and removes the mark of a clean stop at its start."""
    for broker in brokers:
        broker.record()
    with running(brokers[0]), pytest.raises(QueryError, match="broker 1 runs"):
        brokers[0].run.place()
    (brokers[0].log_dirs[0] / ".kafka_cleanshutdown").unlink()
    with pytest.raises(QueryError, match="did not stop cleanly"):
        brokers[0].run.place()


def test_place_waits_until_the_broker_is_stopped(brokers: list[Broker]) -> None:
    """Other topics lose a broker for the shortest time; the check is before its stop."""
    for broker in brokers:
        broker.record()
    seen: list[object] = []
    with running(brokers[0]) as stop:

        def note(line: str) -> None:
            seen.append(line)
            stop()

        brokers[0].run.wait_until_stopped(seen.append, note)
    brokers[0].run.wait_until_stopped(seen.append, seen.append)
    assert seen == [None, "every replica is in sync: stop broker 1 cleanly now; its files are placed at once", 1]


def test_a_broker_with_records_of_a_producer_is_not_stopped(brokers: list[Broker]) -> None:
    """The placing would refuse them, so the stop would be in vain; the same counts for files that are incomplete."""
    for broker in brokers:
        broker.record()
    log = brokers[0].partition / f"{0:020d}.log"
    with running(brokers[0]):
        log.write_bytes(batches((0, 5)))
        with pytest.raises(QueryError, match="records of t-0 are there"):
            brokers[0].run.wait_until_stopped(lambda _: None, pytest.fail)
        log.write_bytes(b"")
        shutil.rmtree(brokers[0].partition / "restore")
        with pytest.raises(QueryError, match="its files are not complete"):
            brokers[0].run.wait_until_stopped(lambda _: None, pytest.fail)


def test_a_broker_is_not_stopped_once_another_one_is(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two placings wait in two terminals: the second broker's stop would remove the last replica of other topics."""
    monkeypatch.setattr("tsctl.restore.host_run._WATCH_SECONDS", 0)
    for broker in brokers:
        broker.record()
    checked: list[int | None] = []
    answers: list[Exception] = [ClusterAway("no answer"), QueryError("other-0: a replica is out of sync")]

    def check(stopped: int | None) -> None:
        checked.append(stopped)
        if stopped is not None:
            raise answers.pop(0)

    with running(brokers[0]), pytest.raises(QueryError, match="other-0: a replica is out of sync"):
        brokers[0].run.wait_until_stopped(check, lambda _: None)
    assert checked == [None, 1, 1]


def test_a_broker_that_stops_while_the_cluster_is_checked_is_placed(
    brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can meet a cluster that has not elected its other leaders yet."""
    monkeypatch.setattr("tsctl.restore.host_run._WATCH_SECONDS", 0)
    for broker in brokers:
        broker.record()
    with running(brokers[0]) as stop:

        def check(stopped: int | None) -> None:
            if stopped is not None:
                stop()
                raise QueryError("other-0: there is no leader")

        brokers[0].run.wait_until_stopped(check, lambda _: None)


def test_records_that_a_producer_wrote_meanwhile_are_not_replaced(brokers: list[Broker]) -> None:
    """The topic is not empty any more."""
    for broker in brokers:
        broker.record()
    (brokers[0].partition / f"{0:020d}.log").write_bytes(batches((0, 5)))
    # The broker still starts if the placing was killed after its first file.
    (brokers[0].log_dirs[0] / "meta.properties.restore").write_text("version=1\n")
    with pytest.raises(QueryError, match="the restore would replace them"):
        brokers[0].run.place()


def test_files_of_another_topic_id_are_refused(brokers: list[Broker]) -> None:
    """A broker would rename the directory as stray."""
    (brokers[0].partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with pytest.raises(QueryError, match="topic id AAAAAAAAAAAAAAAAAAAAAQ"):
        _ = brokers[0].run


def test_a_host_that_was_checked_is_not_placed_again(brokers: list[Broker]) -> None:
    """Its broker may have new records."""
    for broker in brokers:
        broker.record()
    for broker in brokers:
        broker.run.place()
    brokers[0].run.check()
    with pytest.raises(QueryError, match="was checked before; start its broker"):
        brokers[0].run.place()
    brokers[0].run.check()


def test_a_file_that_is_nowhere_is_corrupt(brokers: list[Broker]) -> None:
    """It was removed from the staged files by hand."""
    (brokers[0].partition / "restore" / f"{100:020d}.log").unlink()
    with pytest.raises(CorruptData, match="missing, or not of the restore"):
        place(brokers[0].partition, brokers[0].state)


def test_p01_a_full_disk_is_named_first(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched already needs no more room."""
    broker = brokers[0]
    broker.run._check_space()  # all is fetched
    (broker.partition / "restore" / "state.json").unlink()
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=4096))
    with pytest.raises(OperatorError, match="0 bytes free"):
        broker.run._check_space()


def test_a_serving_brokers_disk_is_not_filled_to_its_last_byte(
    brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk its other topics fail too."""
    broker = brokers[0]
    found = SimpleNamespace(f_bavail=4, f_frsize=4096, f_blocks=100, f_bfree=4)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    broker.run._check_space()
    plan = RestoreDirectory(broker.restore).plan
    served = {name: replace(part, replicas=(1,), homes=(1, 2)) for name, part in plan.topics["t"].partitions.items()}
    restarts = replace(plan, topics={"t": replace(plan.topics["t"], partitions=served)})
    restarts.save(RestoreDirectory.plan_file(broker.restore))
    with pytest.raises(OperatorError, match=r"16\.4 kB free, and 20\.5 kB are needed"):
        broker.run._check_space()


def test_p01_a_full_disk_is_named_while_a_step_writes(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a write has no file's name."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for broker in brokers:
        broker.record()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OperatorError, match=r"meta\.properties\S+: No space left on device; mend it"):
        brokers[0].run.place()


def test_a_plan_that_cannot_be_written_is_refused(brokers: list[Broker], tmp_path: Path, run: Run) -> None:
    """The directory is below a file."""
    del brokers  # whose archive it plans
    archive = ("--url", (tmp_path / "archive").as_uri(), "--cluster", "prod")
    (tmp_path / "file").touch()
    ended = run("restore", "plan", tmp_path / "file" / "x", "--brokers", "1", "--replication-factor", "1", *archive)
    assert ended.code == 2
    assert "Not a directory; mend it, and repeat the command" in ended.err


def test_an_interrupted_fetch_is_completed_by_the_next_one(brokers: list[Broker], tmp_path: Path) -> None:
    """Ctrl-C ends it within a chunk."""
    broker = brokers[0]
    shutil.rmtree(broker.partition / "restore")
    seen: list[int] = []

    def advance(count: int) -> None:
        seen.append(count)
        raise KeyboardInterrupt

    name = name_archive(None, (tmp_path / "archive").as_uri(), "prod", 0)
    with open_archive(name, lambda _: None) as archive:
        with pytest.raises(KeyboardInterrupt):
            broker.run.fetch(archive, Allowance(), advance)
        record = broker.run.fetch(archive, Allowance(), lambda _: None)
    assert (len(seen), record.done) == (1, Done.FETCHED)
    assert record.partitions == {T0: replica_of(broker.state)}


def test_the_archive_of_another_cluster_is_refused(brokers: list[Broker], tmp_path: Path, run: Run) -> None:
    """The file of the new cluster's agents is next to the old one."""
    archive = ("--url", (tmp_path / "archive").as_uri(), "--cluster", "new", "--entropy-bits", "0")
    refused = run("restore", "fetch", brokers[0].restore, "--server-properties", brokers[0].properties, *archive)
    assert refused.code == 2
    assert "the archive is of cluster new, and the plan of prod" in refused.err


def test_a_directory_that_the_brokers_user_cannot_write_is_refused_before_the_fetch(
    brokers: list[Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is written after hours; a placing is refused before it moves a file."""
    for broker in brokers:
        broker.record()

    def refused(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", refused)
    with (
        open_archive(name_archive(None, (tmp_path / "archive").as_uri(), "prod", 0), print) as archive,
        pytest.raises(OperatorError, match=r"restore: user [0-9]+ cannot write the record of this host"),
    ):
        brokers[0].run.fetch(archive, Allowance(), lambda _: pytest.fail("bytes were fetched"))
    with pytest.raises(OperatorError, match="cannot write the record of this host"):
        brokers[0].run.place()
    assert brokers[0].starts


def test_another_user_than_the_brokers_is_refused(brokers: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker could not write to files of root."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OperatorError, match="run the command as the broker's user"):
        _ = brokers[0].run


@pytest.mark.parametrize("is_beside", [True, False])
def test_only_a_seed_may_have_markers_in_its_empty_log(brokers: list[Broker], is_beside: bool) -> None:
    """A transaction added the partition, and ended without a record; a record is refused."""
    for broker in brokers:
        broker.record()
    broker, plan = brokers[0], RestoreDirectory(brokers[0].restore).plan
    replace(plan, seed=Seed(1, "h:9092") if is_beside else None).save(broker.restore / "plan.json")
    log = broker.partition / f"{0:020d}.log"
    log.write_bytes(marker(0, 7, 0) + batches((1, 2)))
    with pytest.raises(QueryError, match="records of t-0 are there"):
        broker.run.place()
    log.write_bytes(marker(0, 7, 0))
    if is_beside:
        broker.run.place()
        assert {name: each for name, each in broker.found.items() if name != "partition.metadata"} == broker.files
    else:
        with pytest.raises(QueryError, match="records of t-0 are there"):
            broker.run.place()
