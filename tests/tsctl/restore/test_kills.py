"""Steps of a restore that are killed at any of their changes, and repeated."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.common.log_format.build import marker
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.restore.killing import KILLED, Killer
from tests.tsctl.restore.test_fetching import data, plan_of
from tsctl.restore.documents import Created, Done, GroupsPlan, HostRecord, RestorePlan, TopicPlan

TOPIC_ID = "5fWnyHqTQDqQDqQDqQDqQA"


class Hosts:
    """Two stopped brokers' disks with the empty partitions `t-0` and `t-1`, and the directory of the restore.

    Args:
        version: of `meta.properties`: 0 for ZooKeeper, 1 for KRaft.
    """

    def __init__(self, directory: Path, version: int) -> None:
        self.archive = MadeArchive(directory / "archive")
        self.root = directory / "hosts"
        self._kept = directory / "kept"
        self.killer = Killer(self.root)
        self._put_archive()
        self.meta = b"version=%d\ncluster.id=new\n" % version
        for broker in (1, 2):
            for number in (0, 1):
                place = self.log_dir(broker, number) / f"t-{number}"
                place.mkdir(parents=True)
                (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
                for name in (f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.snapshot", "leader-epoch-checkpoint"):
                    (place / name).touch()
                (place.parent / "meta.properties").write_bytes(self.meta)
                (place.parent / ".kafka_cleanshutdown").touch()
            dirs = ",".join(str(self.log_dir(broker, number)) for number in (0, 1))
            self._properties(broker).write_text(f"node.id={broker}\nlog.dirs={dirs}\n")
        parts = {number: replace(plan_of(self.archive, partition=number), replicas=(1, 2)) for number in (0, 1)}
        topics = {"t": TopicPlan("t", parts, {})}
        self.restore = self.root / "restore"
        self.restore.mkdir()
        plan = RestorePlan("p", 1, "prod", (), None, topics, GroupsPlan("none", None, {}), ())
        plan.save(self.restore / "plan.json")
        Created("p", "kafka", {"t": TOPIC_ID}).save(self.restore / "created.json")

    def _put_archive(self) -> None:
        """A hole in an open transaction, an aborted one, and one that is open at the end."""
        archive = self.archive
        archive.put_segment("t", 0, batches(*steps(0, 50)) + data(50, 7))
        archive.put_segment("t", 80, data(80, 8) + marker(81, 8, 0, producer_epoch=3) + batches((82, 100)))
        archive.put_segment("t", 100, batches((100, 149)) + data(149, 9))
        archive.commit("t", 150, highest_base=100, last_stable_offset=50)
        archive.put_segment("t", 0, batches(*steps(0, 30)), partition=1)
        archive.commit("t", 30, partition=1)

    def log_dir(self, broker: int, number: int) -> Path:
        return self.root / f"broker-{broker}" / f"data-{number}"

    def _properties(self, broker: int) -> Path:
        return self.root / f"broker-{broker}.properties"

    def run(self, step: str, broker: int = 1, at: int = 0) -> int:
        """Run a step on a host, killed before a change; return its code."""
        archive = ("--url", self.archive.location, "--cluster", "prod") if step == "fetch" else ()
        options = ("--server-properties", self._properties(broker), *archive)
        return self.killer.run(at, "restore", step, self.restore, *options).code

    def keep(self) -> None:
        """Keep the files for `put_back`."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.root, self._kept)

    def put_back(self) -> None:
        """Put all files back."""
        shutil.rmtree(self.root)
        shutil.copytree(self._kept, self.root)

    def files(self) -> dict[str, bytes]:
        """The files of the first host, without half written ones."""
        below = self.root / "broker-1"
        return {
            str(path.relative_to(below)): path.read_bytes()
            for path in below.rglob("*")
            if path.is_file() and path.suffix != ".part" and path.name != ".lock"
        }

    def logs(self) -> dict[str, bytes]:
        """Those that make the broker's logs."""
        return {
            name: data
            for name, data in self.files().items()
            if "/meta.properties" not in name and "/restore/" not in name
        }

    def starts(self) -> bool:
        """Whether the first broker would start: no log dir has the ids of no broker."""
        return not any(b"locked-by" in (self.log_dir(1, each) / "meta.properties").read_bytes() for each in (0, 1))

    def is_placed(self) -> bool:
        """Whether the first host has left the record that its files are placed."""
        record = HostRecord.load(self.restore / "broker-1.json")
        return record is not None and record.done is Done.PLACED


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Hosts:
    return Hosts(tmp_path, request.param)


def moments(hosts: Hosts, step: str) -> Iterator[int]:
    """Yield the number of each change of a step, after it was killed before this change."""
    for at in count(1):
        hosts.put_back()
        code = hosts.run(step, at=at)
        if code != KILLED:
            assert code == 0
            assert at > 10
            return
        yield at


@pytest.mark.full
@pytest.mark.parametrize("hosts", [0, 1], ids=["zookeeper", "kraft"], indirect=True)
def test_p01_a_host_that_is_killed_at_any_change_continues_to_the_same_files(hosts: Hosts) -> None:
    """At each change of each step, and again soon after. Meanwhile no broker with half of its files starts."""
    for step in ("fetch", "place", "check"):
        assert hosts.run(step, broker=2) == 0
        hosts.keep()
        former = hosts.logs()
        assert hosts.run(step) == 0
        files, logs = hosts.files(), hosts.logs()
        for at in moments(hosts, step):
            for again in (False, True):
                if again:
                    hosts.run(step, at=at % 23 + 1)
                assert not hosts.starts() or hosts.logs() == (former if step == "place" else logs), (step, at)
                if step == "place" and not hosts.is_placed():
                    assert hosts.run("check") == 2, at
            for _ in range(2):  # a step that was done is repeated too
                assert hosts.run(step) == 0, (step, at)
                assert hosts.files() == files, (step, at)
    assert hosts.starts()
