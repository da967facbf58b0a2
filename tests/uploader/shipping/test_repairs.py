"""`tsctl repair` with a real broker, its agent and S3: what is damaged in the bucket is whole again for readers."""

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.faults.leaders import move_leader, zookeeper_of
from tests.tsctl.running import Run, runner
from tests.uploader.beside import Archive
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.metadata_cache import CacheObject
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import unanswered
from ts_common.store.contract import ObjectInfo

PATIENCE = 60.0
SMALL = {"segment.bytes": "20000", "segment.index.bytes": "1000", "file.delete.delay.ms": "100"}


class Repaired:
    """An archive of twelve segments with cache objects, its agents, and `tsctl` as its operator runs it."""

    def __init__(self, archive: Archive, run: Run, agents: list[AgentProcess]) -> None:
        self.archive = archive
        self.keys = archive.partition_keys()
        self.agents = agents
        self._run = run
        self._journal = archive.oracle(end=archive.next_offset())

    def tsctl(self, *arguments: str) -> "tuple[int, dict[str, list[dict[str, Any]]]]":
        ended = self._run(*arguments, "--url", self.archive.location, "--cluster", "prod", "--json", "--depth", "full")
        return ended.code, json.loads(ended.out)

    def repair(self, requests: int = 1) -> list[dict[str, Any]]:
        """Run it, and have the agents look as soon as there are so many requests instead of within a minute."""
        with ThreadPoolExecutor(1) as pool:
            looked = pool.submit(self._look_soon, requests)
            _, found = self.tsctl("repair", "--wait", "60s")
            looked.result()
        return found["repairs"]

    def _look_soon(self, requests: int) -> None:
        hostile = 1
        wait_for(
            lambda: len(list(unanswered(self.archive.store, self.archive.keys))) == hostile + requests,
            "the requests",
            PATIENCE,
        )
        wait_for(lambda: self._are_answered(but=hostile), "the answers", PATIENCE, every=1.0)

    def _are_answered(self, but: int) -> bool:
        """Have the agents look, and return whether all requests had an answer before."""
        if len(list(unanswered(self.archive.store, self.archive.keys))) == but:
            return True
        for agent in self.agents:
            os.kill(agent.pid, signal.SIGHUP)
        return False

    def logs(self) -> dict[int, ObjectInfo]:
        """The plain `.log` objects by base."""
        segments = read_catalog(self.archive.store, self.keys).segments
        keys = {each.name.base: self.keys.segment(each.name) for each in segments if each.name.epoch is None}
        return {base: self.archive.store.head(key) for base, key in keys.items()}

    def change(self, info: ObjectInfo, change: Callable[[bytes], bytes]) -> None:
        """Overwrite an object in place, with its metadata."""
        store = self.archive.store
        store.put(info.key, change(store.get(info.key)[0]), metadata=info.metadata)

    def assert_whole(self) -> None:
        """Readers return the journal, `verify` finds nothing, and no entry of the metadata cache is out of date."""
        assert self.archive.read() == self._journal
        code, found = self.tsctl("verify")
        bad = [each for each in found["findings"] if each["severity"] != "information"]
        assert (code, [(each["code"], each["detail"]) for each in bad]) == (0, [])
        store = self.archive.store
        catalog = read_catalog(store, self.keys)
        for first in catalog.cache_objects:
            key = self.keys.cache_object(first)
            cached = CacheObject(store.get(key)[0], self.keys, key)
            known = {entry.name for entry in cached.entries()}
            listed = {each.name: each for each in catalog.segments if each.name in known}
            assert known == set(listed)
            assert all(cached.find(name, each.size, each.etag) for name, each in listed.items())


@pytest.fixture
def repaired(
    cluster: LocalCluster,
    archive_of: ArchiveOf,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Repaired:
    topic = request.node.name.partition("[")[0].replace("test_", "")[:40]
    archive = archive_of(topic)
    for name, value in archive.s3.environment().items():
        monkeypatch.setenv(name, value)
    cluster.create_topic(topic, assignment=[[1, 2]], config=SMALL)
    cluster.produce(topic, records(1100), partition=0)
    agents = [archive.agent(1), archive.agent(2)]
    archive.wait_until_shipped()
    # Hostile bytes, which no agent answers.
    archive.store.put(archive.keys.repairs + "1700000000000-ffffffff.json", b'{"version":1,"topic":"\xff')
    wait_for(lambda: read_catalog(archive.store, archive.partition_keys()).cache_objects, "a cache object", PATIENCE)
    return Repaired(archive, runner(capfd), agents)


def flipped(data: bytes) -> bytes:
    return data[:200] + bytes([data[200] ^ 1]) + data[201:]


def test_u43_what_was_deleted_damaged_or_cut_short_is_whole_again(cluster: LocalCluster, repaired: Repaired) -> None:
    """Then a repair is damaged itself. Then the leadership moves to a broker whose segments have other bounds, and the
    idle agent there writes the lost `log.start` too.
    """
    archive, store = repaired.archive, repaired.archive.store
    logs = list(repaired.logs().values())
    assert len(logs) >= 10
    deleted, damaged, short, emptied = logs[2], logs[4], logs[6], logs[8]
    before = store.get(deleted.key)[0]
    store.delete([deleted.key])
    repaired.change(damaged, flipped)
    repaired.change(short, lambda data: data[: len(data) // 2])
    repaired.change(emptied, lambda _: b"")
    found = repaired.repair(4)
    assert [(each["kind"], each["status"]) for each in found] == [
        ("missing", "repaired"),
        *[("damaged", "repaired")] * 3,
    ]
    assert store.get(deleted.key)[0] == before
    repaired.assert_whole()

    (variant,) = found[1]["objects"]
    repaired.change(store.head(variant[variant.index(repaired.keys.prefix) :]), flipped)
    (again,) = repaired.repair()
    assert again["objects"] == [variant.replace(".log", ".r1.log")]
    repaired.assert_whole()

    with zookeeper_of(cluster).client() as client:
        move_leader(client, archive.topic, 2, 1)
    wait_for(lambda: (commit := archive.commit()) is not None and commit.broker == 2, "broker 2's commit", PATIENCE)
    start = store.get(repaired.keys.log_start)[0]
    store.delete([logs[3].key, repaired.keys.log_start])
    repaired.change(logs[1], flipped)
    found = repaired.repair(2)
    assert {str(each["detail"])[:8] for each in found} == {"broker 2"}
    assert store.get(repaired.keys.log_start)[0] == start
    repaired.assert_whole()


def test_u44_below_the_log_starts_nothing_is_put_back(cluster: LocalCluster, repaired: Repaired) -> None:
    """Below the leader's, nothing can be done; below the archive's, the offsets were released."""
    archive, store = repaired.archive, repaired.archive.store
    logs = repaired.logs()
    bases = sorted(logs)
    cluster.delete_records(archive.topic, {0: bases[4]})
    directory = cluster.brokers[1].partition_directory(archive.topic, 0)
    wait_for(lambda: not list(directory.glob(f"{bases[3]:020d}.log*")), "the segments to be unlinked", PATIENCE)
    store.delete([logs[bases[3]].key])
    (found,) = repaired.repair()
    assert (found["status"], found["from"], found["to"]) == ("impossible", bases[3], bases[4])
    assert f"below the leader's log start ({bases[4]}), so no broker has them" in str(found["detail"])
    commit = archive.commit()
    assert isinstance(commit, Commit)
    store.put(repaired.keys.log_start, LogStart(bases[6], written_by="gc").encode())
    store.delete([logs[bases[5]].key])
    code, document = repaired.tsctl("repair", "--wait", "0s")
    assert (code, document["repairs"]) == (0, [])
    assert SegmentName(bases[5]) not in {each.name for each in read_catalog(store, repaired.keys).segments}
